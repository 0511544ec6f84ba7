"""A process that has imported the server, and forks the servers of tests: most of a server's start is its imports.

`Template` belongs to the process of the tests, and `Forked` is a server, as `subprocess.Popen` would show it. A forked
server has the standard streams, working directory and session that a started one would have, and runs `main` with the
same arguments. `python -m tests.support.template FD` is the template's program. Its protocol, over a socket of packets:

    request   working directory and configuration file, as JSON, with three descriptors: output, errors, and a pipe
    pipe      the server's process id, and after its end its wait status, four bytes each

The template waits for its servers, so none stays a zombie. It ends with the process of the tests, and its servers end
with it. It has one thread, and forks nothing while it carries out a request.
"""

import atexit
import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

_REQUEST_BYTES = 65536
_NUMBER = struct.Struct("<i")
_PR_SET_PDEATHSIG = 1


class Template:
    """A template process, in one environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.support.template", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self._end)

    def fork(self, directory: Path, config: Path, output: int, errors: int) -> "Forked":
        """Fork a server that runs in that directory, and writes to these two descriptors."""
        reading, writing = os.pipe()
        try:
            request = json.dumps([str(directory), str(config)]).encode()
            with self._lock:
                socket.send_fds(self._socket, [request], [output, errors, writing])
        finally:
            os.close(writing)
        return Forked(reading)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


class Forked:
    """A server that a template has forked."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self.returncode: int | None = None
        self.pid = self._read()

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code. Raises subprocess.TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"server {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end right now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._pipe, selectors.EVENT_READ)
                if selector.select(timeout):
                    self.returncode = os.waitstatus_to_exitcode(self._read())
                    os.close(self._pipe)
        return self.returncode

    def _read(self) -> int:
        data = os.read(self._pipe, _NUMBER.size)
        assert data, "the template of servers has ended"
        number: int = _NUMBER.unpack(data)[0]
        return number


def serve(requests: socket.socket) -> Path | None:
    """Fork a server for each request. Return in the server, with its configuration; None: no more requests."""
    template = os.getpid()
    pipes: dict[int, tuple[int, int]] = {}  # of the running servers: process id and pipe, by pidfd
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is requests:
                    data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
                    if not data:
                        return None
                    directory, config = json.loads(data)
                    output, errors, pipe = descriptors
                    pid = os.fork()
                    if pid == 0:
                        selector.close()
                        requests.close()
                        for pidfd, (_, other) in pipes.items():
                            os.close(pidfd)
                            os.close(other)
                        os.close(pipe)
                        _settle(template, directory, output, errors)
                        return Path(config)
                    os.close(output)
                    os.close(errors)
                    _write(pipe, pid)
                    pidfd = os.pidfd_open(pid)
                    pipes[pidfd] = pid, pipe
                    selector.register(pidfd, selectors.EVENT_READ)
                else:
                    pidfd = key.fd
                    selector.unregister(pidfd)
                    pid, pipe = pipes.pop(pidfd)
                    _write(pipe, os.waitpid(pid, 0)[1])
                    os.close(pipe)
                    os.close(pidfd)


def _write(pipe: int, number: int) -> None:
    try:
        os.write(pipe, _NUMBER.pack(number))
    except BrokenPipeError:
        return  # the tests do not wait for this server


def _settle(template: int, directory: str, output: int, errors: int) -> None:
    """Become what a started server is: with a session, streams and a working directory of its own."""
    os.setsid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != template:
        os._exit(1)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    os.chdir(directory)


def main() -> int:
    import amps.server.supervisor  # noqa: F401  (imported by the start of a server, else)
    from amps.server import main as server

    with socket.socket(fileno=int(sys.argv[1])) as requests:
        config = serve(requests)
    if config is None:
        return 0
    sys.argv = [str(server.__file__), str(config)]
    return server.main()


if __name__ == "__main__":
    sys.exit(main())
