"""The base class of measured servers, and the management of their processes.

A server runs in a fresh directory, on a free port, once per repetition. It is started and stopped by process id.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from perf.load import PAYLOAD_BYTES, Load
from perf.measurement import CpuTime
from perf.peers.base import Peer
from perf.pump import Lane, PeerError

START_S = 30.0
SETTLE_S = 0.5
IDLE_SHARE = 0.1


@dataclass
class LivePair:
    """A publishing and a subscribing connection, and one publish command around its payload."""

    publisher: socket.socket
    subscriber: socket.socket
    prefix: bytes
    suffix: bytes


@dataclass
class SingleWriter:
    """A connection and its prebuilt publish commands, which are written one at a time."""

    sock: socket.socket
    load: Load
    confirm: Callable[[], None]
    """Waits until the server has confirmed the last message."""


@dataclass
class Reader:
    """A connection about to read everything that is stored.

    `start` sends the first request. `advance` gets the number of messages received so far and the end of the
    received bytes, and sends the requests that the protocol needs to continue.
    """

    sock: socket.socket
    start: Callable[[], None]
    advance: Callable[[int, memoryview], None]


class ServerPeer(Peer):
    """One server under measurement."""

    window: int
    """Unacknowledged publishes over all connections; the best value found for this server."""
    start_limit_s = START_S
    payload_bytes = PAYLOAD_BYTES
    """Size of the payloads of `publish_lanes`."""
    batch = 1
    """Messages in one item of the loads of `publish_lanes`; the answers of a lane are counted in items."""

    def __init__(self) -> None:
        self.directory = Path()
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Write configuration files below `directory` and return the command line."""

    @abstractmethod
    def prepare(self) -> None:
        """Create streams and the like. Called once the port answers."""

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        """Logged-on publishing connections with their prebuilt loads."""
        raise NotImplementedError

    def single_writer(self, messages: int) -> SingleWriter:
        raise NotImplementedError

    def live_pair(self) -> LivePair:
        raise NotImplementedError

    def reader(self, messages: int) -> Reader:
        raise NotImplementedError

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Self]:
        """The running server, with its data in `directory`."""
        self.place(directory)
        self.launch()
        try:
            self.wait_for_port()
            self.prepare()
            self.settle()
            yield self
        finally:
            self.stop()

    def place(self, directory: Path) -> None:
        """Give the server its directory and a port."""
        self.directory = directory
        self.port = free_port()

    def launch(self) -> None:
        """Start the process; its port does not answer yet."""
        arguments = self.command()
        with (self.directory / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )

    def output(self) -> str:
        return (self.directory / "output.txt").read_text(errors="replace")[-3000:]

    def wait_for_port(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + self.start_limit_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise PeerError(f"{self.name} did not start:\n{self.output()}") from None
                time.sleep(0.02)

    def settle(self) -> None:
        """Wait until the server has finished its work after a start, such as preparing files."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            before = self.cpu().total_s
            time.sleep(SETTLE_S)
            if self.cpu().total_s - before < SETTLE_S * IDLE_SHARE:
                return

    def processes(self) -> list[psutil.Process]:
        assert self.process is not None
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def cpu(self) -> CpuTime:
        """Processor time of all processes, also of those that have ended, such as those that write snapshots."""
        used: dict[str, float] = {}
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                title = " ".join(process.cmdline()[:1]) if ":" in process.cmdline()[0] else process.name()
                spent = times.user + times.system + times.children_user + times.children_system
                used[title] = used.get(title, 0.0) + spent
        return CpuTime(used)

    def stop(self) -> None:
        """End the server with SIGTERM, then its whole session with SIGKILL."""
        process = self.process
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.process = None


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
