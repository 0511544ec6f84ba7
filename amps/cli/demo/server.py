"""The demonstration's server: a real `amps serve` in its own processes, which can be killed with SIGKILL.

It ends with the demonstration, even if that is killed (see `child`).
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
    """One server on one data directory; started, killed and started again on the same port.

    `configuration`: its configuration file, which names the same port and directory; None: embedded defaults.
    The server gets SIGTERM when the thread that has started it ends.
    """

    def __init__(
        self, data_directory: Path, port: int | None = None, configuration: Path | None = None
    ) -> None:
        self.data_directory = data_directory
        self.port = port or free_port()
        self.configuration = configuration
        self.output = data_directory.parent / f"{data_directory.name}-{OUTPUT_NAME}"
        self._process: subprocess.Popen[bytes] | None = None
        self._family: list[psutil.Process] = []  # not empty during a kill

    def start(self) -> float:
        """Start the server and wait until it is ready; return the seconds this took."""
        started = time.monotonic()
        if self.configuration is not None:
            arguments = ["serve", str(self.configuration)]
        else:
            arguments = ["serve", "-data-directory", str(self.data_directory), "-port", str(self.port)]
        with self.output.open("ab") as output:
            beginning = output.tell()
            self._process = subprocess.Popen(
                # -P and PYTHONPATH: use this package, not a directory `amps` in the working directory.
                [sys.executable, "-P", "-m", "amps.cli.demo.child", str(os.getpid()), *arguments],
                env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes only to the demonstration, which ends the server
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
        """Send SIGKILL to every process, first to the supervisor so that it restarts none. Return their titles."""
        supervisor = self._process
        if supervisor is None:
            return []
        # Kept until all have ended: a signal may interrupt this method, and the cleanup then calls it again.
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
        """Stop the server with SIGTERM; kill it if it does not end. An interrupted kill is repeated."""
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
    """Return the title of a process, for the display."""
    with contextlib.suppress(psutil.Error, IndexError):
        words = process.cmdline()
        return words[0] if words[0].startswith("amps") else "amps: supervisor"
    return "?"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
