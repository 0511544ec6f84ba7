"""Starts servers through a starter process (`amps.embedded.starter`), one for each program that starts servers.

The program is not forked: the starter is a new interpreter, so threads of the program do no harm. It is in a session of
its own, so Ctrl-C in a terminal reaches the program and not the server.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

_ANSWER_TIMEOUT_S = 60.0

_BOOT = """
import importlib.util, os, sys
package, descriptor, owner = sys.argv[1:]
found = importlib.util.find_spec("amps")
if found is None or package not in (found.submodule_search_locations or ()):
    sys.path.insert(0, os.path.dirname(package))
from amps.embedded.starter import serve
serve(int(descriptor), int(owner))
"""


class Launched:
    """A server's first process. Not thread-safe."""

    def __init__(self, answers: socket.socket) -> None:
        """Raises OSError if the server cannot be started."""
        self._answers = answers
        self._received = b""
        self.returncode: int | None = None
        answer = self._line(_ANSWER_TIMEOUT_S)
        if answer is None or not answer.startswith(b"pid "):
            answers.close()
            raise OSError("no answer of the starter" if answer is None else answer.removeprefix(b"failed ").decode())
        self.pid = int(answer.removeprefix(b"pid "))

    def _line(self, timeout_s: float) -> bytes | None:
        """The next line, None if it does not come in time. Raises OSError if the starter has ended."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            self._answers.settimeout(max(0.0, deadline - time.monotonic()))
            try:
                data = self._answers.recv(4096)
            except (BlockingIOError, TimeoutError):
                return None
            if not data:
                raise ConnectionError("the process that starts servers has ended")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def poll(self) -> int | None:
        """The exit code, None while the process runs."""
        return self.wait(0)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end of the process; return its exit code, None if it runs on."""
        if self.returncode is None:
            try:
                answer = self._line(timeout_s)
            except OSError:  # the starter is gone, and its servers end; their exit codes are unknown
                answer = b"exit 255"
            if answer is not None:
                self.returncode = int(answer.removeprefix(b"exit "))
                self._answers.close()
        return self.returncode


class _Starter:
    """The starter process of this process."""

    def __init__(self, package: str) -> None:
        self.owner_pid = os.getpid()
        self.package = package
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, package, str(theirs.fileno()), str(self.owner_pid)],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def usable(self) -> bool:
        """Whether the process runs and belongs to this one."""
        return self.owner_pid == os.getpid() and self._process.poll() is None

    def start(self, request: bytes, clock: socket.socket | None) -> Launched:
        """Start a server with a request, one line of JSON. `clock`: the server's end of its clock's connection."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                passed = [theirs.fileno(), *([] if clock is None else [clock.fileno()])]
                socket.send_fds(self._control, [b"x"], passed)
            ours.sendall(request)
            return Launched(ours)
        except BaseException:
            ours.close()  # the starter then ends the server
            raise

    def close(self) -> None:
        """End the process, which ends all its servers. In a forked child it has no effect: the starter belongs to the
        parent.
        """
        if self.owner_pid == os.getpid():
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)  # forked children may have the socket, too
            self._control.close()
            self._process.wait()


_lock = threading.Lock()
_starter: _Starter | None = None


def launch(package: str, request: Mapping[str, Any], clock: socket.socket | None) -> Launched:
    """Start a server from the package `amps`. Raises OSError if it cannot be started.

    request: `arguments` of the command, of which the first is the configuration's file in `directory`; its text,
    `configuration`; `temporary`: the starter makes the directory, and removes it when this process ends; `out` and
    `err`, files of the output; `environment`; `clock`, the file of a manual clock.
    """
    global _starter
    with _lock:
        if _starter is None or not _starter.usable or _starter.package != package:
            if _starter is not None:
                _starter.close()
            else:
                atexit.register(_close)
            _starter = _Starter(package)
        return _starter.start(json.dumps(request).encode() + b"\n", clock)


def _close() -> None:
    if _starter is not None:
        _starter.close()
