"""Servers that keep states: what all of them share."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perf.load import MarkerCounter
from perf.memory import held_bytes
from perf.peers.server import ServerPeer
from perf.peers.state import State, StatePeer, Work
from perf.pump import RECEIVE_BYTES, Lane, PeerError, connect, pump
from perf.state_load import Numbers, keyed_load

CONNECTIONS = 2
PIPELINED = 200
"""Queries of one record that are under way at a time."""


class StateServer(ServerPeer, StatePeer, State):
    """A server, which is its own state."""

    @contextlib.contextmanager
    def opened(self, directory: Path) -> Iterator[State]:
        with self.running(directory) as server:
            yield server

    def memory_bytes(self) -> int:
        return held_bytes(process.pid for process in self.processes())

    def condense(self) -> None:
        """Bring the files into the form in which the server starts fastest, if it does so from time to time."""

    def open(self) -> socket.socket:
        """A connection, logged on."""
        return connect(self.port)

    def lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        """A publishing connection, with a load of these records."""
        raise NotImplementedError

    def delta_lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        """A publishing connection, with a load of these changes."""
        raise NotImplementedError

    def writes(self, templates: Sequence[bytes], numbers: Numbers, version: int) -> Work:
        return self._pumped(self.lane, templates, numbers, version)

    def deltas(self, templates: Sequence[bytes], numbers: Numbers, version: int) -> Work:
        return self._pumped(self.delta_lane, templates, numbers, version)

    def _pumped(
        self,
        make_lane: Callable[[Sequence[bytes], Numbers, int, int], Lane],
        templates: Sequence[bytes],
        numbers: Numbers,
        version: int,
    ) -> Work:
        """Each connection has keys of its own, so that the order of a key's records is known."""
        lanes = [
            make_lane(templates, numbers[part::CONNECTIONS], version, part) for part in range(CONNECTIONS)
        ]

        def work(limit_s: float) -> int:
            done = pump(lanes, limit_s).acknowledged
            for lane in lanes:
                lane.sock.close()
            return done

        return work


def lane_of(
    sock: socket.socket,
    templates: Sequence[bytes],
    numbers: Numbers,
    version: int,
    count_answers: Callable[[memoryview], int],
    window: int,
    groups: Numbers | None = None,
) -> Lane:
    """A publishing connection with its load. `window`: of all connections together."""
    return Lane(sock, keyed_load(templates, numbers, version, groups), count_answers, window // CONNECTIONS)


class Asking:
    """A connection that sends queries and counts the documents that come, by their marker."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray(RECEIVE_BYTES)
        self._counter = MarkerCounter(self._buffer)

    def ask(self, queries: bytes, expected: int) -> int:
        """Send, and receive until `expected` documents have come. Raises PeerError if more or fewer come."""
        self.sock.sendall(queries)
        came = 0
        while came < expected:
            size = self.sock.recv_into(self._buffer)
            if size == 0:
                raise PeerError("the server closed the connection")
            came += self._counter.count(size)
        if came > expected:
            raise PeerError(f"{came} documents came instead of {expected}")
        return came
