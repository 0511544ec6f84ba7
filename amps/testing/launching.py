"""Starts servers through a starter process (`amps.testing.starter`), one for each test process that starts servers."""

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

_ANSWER_TIMEOUT_S = 60.0

_BOOT = """
import importlib.util, os, sys
package, descriptor = sys.argv[1:]
found = importlib.util.find_spec("amps")
if found is None or package not in (found.submodule_search_locations or ()):
    sys.path.insert(0, os.path.dirname(package))
from amps.testing.starter import serve
serve(int(descriptor))
"""


class Launched:
    """A server's first process. Not thread-safe."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._received = b""
        self.returncode: int | None = None
        self.pid = int(self._answer(b"pid ", _ANSWER_TIMEOUT_S) or 0)

    def _answer(self, kind: bytes, timeout_s: float) -> bytes | None:
        """The rest of the next line, None if it does not come in time. Raises OSError if the starter has ended."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = self._answers.recv(4096)
            if not data:
                raise ConnectionError("the process that starts servers has ended")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.removeprefix(kind)

    def poll(self) -> int | None:
        """The exit code, None while the process runs."""
        return self.wait(0)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end of the process; return its exit code, None if it runs on."""
        if self.returncode is None:
            try:
                code = self._answer(b"exit ", timeout_s)
            except OSError:  # the starter is gone, and its servers end; their exit codes are unknown
                code = b"255"
            if code is not None:
                self.returncode = int(code)
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
                [sys.executable, "-P", "-c", _BOOT, package, str(theirs.fileno())],
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

    def start(self, request: bytes) -> Launched:
        """Start a server with a request, one line of JSON."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"x"], [theirs.fileno()])
        ours.sendall(request)
        return Launched(ours)

    def close(self) -> None:
        """End the process. In a forked child it has no effect: the starter belongs to the parent."""
        if self.owner_pid == os.getpid():
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)  # forked children may have the socket, too
            self._control.close()
            self._process.wait()


_lock = threading.Lock()
_starter: _Starter | None = None


def launch(
    package: str, arguments: list[str], directory: Path, out: Path, err: Path, environment: dict[str, str]
) -> Launched:
    """Start a server from the package `amps` in a directory. Raises OSError if no process can be started."""
    global _starter
    request = {
        "arguments": arguments,
        "directory": str(directory),
        "out": str(out),
        "err": str(err),
        "environment": environment,
    }
    with _lock:
        if _starter is None or not _starter.usable or _starter.package != package:
            if _starter is not None:
                _starter.close()
            else:
                atexit.register(_close)
            _starter = _Starter(package)
        return _starter.start(json.dumps(request).encode() + b"\n")


def _close() -> None:
    if _starter is not None:
        _starter.close()
