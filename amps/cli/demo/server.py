"""The demonstration's server: a real `amps serve` in its own processes, to be killed without warning.

It ends with the demonstration, however that ends (see `child`).
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

READY_MARK = "00-0015"
START_S = 30.0
STOP_S = 20.0
PACKAGE_PARENT = Path(__file__).resolve().parents[3]
OUTPUT_NAME = "server-output.txt"


class ServerFailed(RuntimeError):
    """The server did not start, or did not end."""


class DemoServer:
    """One server on one data directory; started, killed and started again on the same port."""

    def __init__(self, data_directory: Path, port: int | None = None) -> None:
        self.data_directory = data_directory
        self.port = port or free_port()
        self.output = data_directory.parent / f"{data_directory.name}-{OUTPUT_NAME}"
        self._process: subprocess.Popen[bytes] | None = None
        self._family: list[psutil.Process] = []  # while it is being killed

    def start(self) -> float:
        """Start and wait until it is ready; seconds taken."""
        started = time.monotonic()
        arguments = ["serve", "-data-directory", str(self.data_directory), "-port", str(self.port)]
        with self.output.open("ab") as output:
            beginning = output.tell()
            self._process = subprocess.Popen(
                # -P and PYTHONPATH: this package, not a directory `amps` that happens to be where we are.
                [sys.executable, "-P", "-m", "amps.cli.demo.child", str(os.getpid()), *arguments],
                env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the demonstration, which then ends the server itself
            )
        while READY_MARK not in (said := self._said_since(beginning)):
            if self._process.poll() is not None:
                raise ServerFailed(
                    f"the server ended with status {self._process.returncode}:\n{said[-2000:]}"
                )
            if time.monotonic() - started > START_S:
                self.kill()
                raise ServerFailed(f"the server was not ready after {START_S:g} s:\n{said[-2000:]}")
            time.sleep(0.01)
        return time.monotonic() - started

    def _said_since(self, position: int) -> str:
        with self.output.open("rb") as output:
            output.seek(position)
            return output.read().decode(errors="replace")

    def kill(self) -> list[str]:
        """SIGKILL to every process, the supervisor first so that it restarts none. Returns their titles."""
        supervisor = self._process
        if supervisor is None:
            return []
        # Kept until all are gone: a signal may end this in the middle, and whoever cleans up does it again.
        if not self._family:
            with contextlib.suppress(psutil.NoSuchProcess):
                root = psutil.Process(supervisor.pid)
                self._family = [root, *root.children(recursive=True)]
        family = self._family
        titles = [title(process) for process in family]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()
        psutil.wait_procs(family[1:], timeout=STOP_S)
        self._family = []
        self._process = None
        return titles

    def stop(self) -> None:
        """Ask the server to end; if it does not, end it. A kill that was interrupted is done again."""
        if self._process is None:
            return
        if self._family:
            self.kill()
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
            self._process = None
        except subprocess.TimeoutExpired:
            self.kill()


def title(process: psutil.Process) -> str:
    """What the process calls itself, for the display."""
    with contextlib.suppress(psutil.Error, IndexError):
        words = process.cmdline()
        return words[0] if words[0].startswith("amps") else "amps: supervisor"
    return "?"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
