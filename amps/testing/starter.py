"""The process that forks servers for tests. It has imported the server, so that a start takes a fraction of the time.

`amps.testing.launching` runs it, once for each test process, and passes a socket for each server. On that socket it
receives the request, one line of JSON, and answers with `pid <number>` and, when the server has ended, `exit <code>`.
It ends when the test process closes the control socket or dies. Its servers then get SIGTERM.

This module runs in its own process. The only state is the table of its children.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1


def serve(control_fd: int) -> None:
    """Fork servers until the other side closes the control socket."""
    # Imported before the first fork: all servers then share it.
    import amps.server.main
    import amps.server.supervisor  # noqa: F401

    control = socket.socket(fileno=control_fd)
    children: dict[int, socket.socket] = {}
    wake_in, wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_out)
    while True:
        ready = select.select([control_fd, wake_in], [], [])[0]
        if wake_in in ready:
            os.read(wake_in, 4096)
            _report_ended(children)
        if control_fd in ready:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not data:
                return  # the kernel sends the death signal to the servers
            answers = socket.socket(fileno=descriptors[0])
            with contextlib.suppress(OSError, ValueError):  # the test process has gone meanwhile
                request = json.loads(_line(answers))
                pid = os.fork()
                if pid == 0:
                    _become_server(request, [control, answers, *children.values()], [wake_in, wake_out])
                children[pid] = answers
                answers.sendall(b"pid %d\n" % pid)


def _report_ended(children: dict[int, socket.socket]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with children.pop(pid) as answers, contextlib.suppress(OSError):
                answers.sendall(b"exit %d\n" % os.waitstatus_to_exitcode(status))


def _line(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as reader:
        return reader.readline()


def _become_server(request: Mapping[str, Any], sockets: list[socket.socket], descriptors: list[int]) -> NoReturn:
    """Run a server in this forked process, as the command `ampServer` does, and exit."""
    code = 1
    try:
        parent = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if parent == 1:  # the starter has died before the death signal was requested
            os._exit(code)
        os.setsid()
        for connection in sockets:
            connection.close()
        for descriptor in descriptors:
            os.close(descriptor)
        os.chdir(request["directory"])
        for number, path, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, request["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            (2, request["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ):
            opened = os.open(path, flags, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["ampServer", *request["arguments"]]
        from amps.server.main import main

        code = main(request["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
