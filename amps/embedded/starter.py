"""The process that forks servers for one program. It has imported the server, so that a start takes little time.

`amps.embedded.launching` runs it, once for each program, and passes sockets for each server: one for answers and, if
the server's clock is manual, one for requests to advance it. On the first it receives the request, one line of JSON. It
answers with `pid <number>` and, when the server has ended, `exit <code>`.

It also cleans up. It ends when the program closes the control socket or dies, also by SIGKILL: then it kills servers
with a temporary directory, stops the others in order, and removes every temporary directory. It makes these
directories itself, so that none is left by a program that dies meanwhile. If the program drops the socket of a server,
this process kills that server: the start was interrupted. If this process itself is killed, the servers get SIGTERM.

It is the subreaper of its servers, so that it can wait for all their processes. This module runs in its own process.
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STOP_S = 30.0
_KILL_S = 10.0
_QUIET_S = 0.5
_POLL_S = 0.01


def serve(control_fd: int, owner_pid: int) -> None:
    """Fork servers until the program closes the control socket or ends."""
    gc.disable()  # while modules are imported, nothing becomes garbage
    from setproctitle import setproctitle

    import amps.server.main
    import amps.server.supervisor

    gc.enable()
    # Before the environment of a server replaces this one, or no process of the server could set its title.
    setproctitle("amps: starter")
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    starter = _Starter(socket.socket(fileno=control_fd), owner_pid)
    try:
        starter.run(amps.server.supervisor)
    finally:
        starter.clean_up()


@dataclass(slots=True)
class _Started:
    """One server: its first process, which leads the group of all its processes."""

    pid: int
    answers: socket.socket
    temporary: bool


class _Starter:
    """The servers of one program, and the directories to remove."""

    def __init__(self, control: socket.socket, owner_pid: int) -> None:
        self._control = control
        self._servers: dict[int, _Started] = {}
        self._temporary: set[str] = set()
        self._groups: set[int] = set()  # process groups of which a process may be left
        self._runtime_bases: set[str | None] = set()
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_out)
        self._owner_fd = _watch(owner_pid)

    def run(self, supervisor: ModuleType) -> None:
        """Serve requests. The first server loads the rest of its modules by itself, in parallel with its core; when it
        has had time for that, they are loaded here, for the next servers.
        """
        loaded = False
        while True:
            watched = [self._control.fileno(), self._wake_in, *([] if self._owner_fd < 0 else [self._owner_fd])]
            by_answers = {started.answers.fileno(): started for started in self._servers.values()}
            idle = bool(self._servers) and not loaded
            ready = select.select([*watched, *by_answers], [], [], _QUIET_S if idle else None)[0]
            if not ready:
                loaded = True
                supervisor.load_transport()
                supervisor.load_services()
                continue
            if self._wake_in in ready:
                os.read(self._wake_in, 4096)
                self._reap()
            if self._owner_fd in ready:
                return
            for descriptor in by_answers.keys() & set(ready):
                started = by_answers[descriptor]
                if started.pid in self._servers and _is_closed(started.answers):
                    _kill_group(started.pid)  # its end is reported to nobody
            if self._control.fileno() in ready and not self._accept():
                return

    def _accept(self) -> bool:
        """Start the server of one request. False: the program has closed the control socket."""
        data, descriptors, _, _ = socket.recv_fds(self._control, 1, 2)
        if not data:
            return False
        answers = socket.socket(fileno=descriptors[0])
        clock = socket.socket(fileno=descriptors[1]) if len(descriptors) > 1 else None
        with contextlib.suppress(OSError, ValueError):  # the program has gone meanwhile
            request = json.loads(_line(answers))
            if _is_closed(answers):
                raise ConnectionError  # the start was interrupted
            try:
                self._make_files(request)
            except OSError as error:
                answers.sendall(f"failed {error}\n".encode())
                return True
            pid = os.fork()
            if pid == 0:
                self._become_server(request, answers, clock)
            self._servers[pid] = _Started(pid, answers, request["temporary"])
            self._groups.add(pid)
            self._runtime_bases.add(request["environment"].get("AMPS_RUNTIME_DIRECTORY"))
            answers.sendall(b"pid %d\n" % pid)
        if clock is not None:
            clock.close()
        return True

    def _make_files(self, request: Mapping[str, Any]) -> None:
        directory = Path(request["directory"])
        if request["temporary"]:
            self._temporary.add(request["directory"])
            directory.mkdir(mode=0o700, exist_ok=True)
        else:
            directory.mkdir(parents=True, exist_ok=True)
        (directory / request["arguments"][0]).write_text(request["configuration"], encoding="utf-8")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            started = self._servers.pop(pid, None)  # None: a process whose supervisor was killed
            if started is not None:
                with started.answers, contextlib.suppress(OSError):
                    started.answers.sendall(b"exit %d\n" % os.waitstatus_to_exitcode(status))
        # The last process of a group is reaped here, so its number cannot have been given to another one yet.
        self._groups = {group for group in self._groups if _group_exists(group)}

    def clean_up(self) -> None:
        """End all servers and remove their temporary directories."""
        killed = {started.pid for started in self._servers.values() if started.temporary}
        for started in self._servers.values():
            if not started.temporary:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(started.pid, signal.SIGTERM)
        self._wait_for_end(_STOP_S, killed)
        self._wait_for_end(_KILL_S, self._groups)
        for directory in self._temporary:
            shutil.rmtree(directory, ignore_errors=True)
        from amps.server.runtime import remove_stale, runtime_base

        for base in self._runtime_bases:
            os.environ.pop("AMPS_RUNTIME_DIRECTORY", None)
            if base is not None:
                os.environ["AMPS_RUNTIME_DIRECTORY"] = base
            remove_stale(runtime_base())

    def _wait_for_end(self, timeout_s: float, killed: Set[int]) -> None:
        """Wait until no process of any server is left. As the subreaper this process is the parent of the last ones.

        The groups in `killed` are killed, more than once: a server that was forked just now has no group yet.
        """
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            for group in killed:
                _kill_group(group)
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                time.sleep(_POLL_S)
            else:
                self._servers.pop(pid, None)

    def _become_server(
        self, request: Mapping[str, Any], answers: socket.socket, clock: socket.socket | None
    ) -> NoReturn:
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
            for connection in (self._control, answers, *(started.answers for started in self._servers.values())):
                connection.close()
            for descriptor in (self._wake_in, self._wake_out, self._owner_fd):
                if descriptor >= 0:
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

            if clock is None:
                code = main(request["arguments"])
            else:
                from amps.server.clock import ManualClock

                code = main(request["arguments"], ManualClock(Path(request["clock"]), clock))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _watch(owner_pid: int) -> int:
    """A descriptor that becomes readable when the program ends; -1: the system has none, the control socket must do.

    Processes that the program has forked may hold the socket open, and so hide its end.
    """
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        descriptor = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        os._exit(0)  # the program has ended already, before it asked for anything
    except OSError:
        return -1
    if os.getppid() != owner_pid:
        os._exit(0)
    return descriptor


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _is_closed(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _line(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as reader:
        return reader.readline()
