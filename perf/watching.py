"""Subscribers by the thousand, in a process of their own: they only receive, and count documents by their marker.

The process connects and subscribes, then tells how many documents have come, and when the last expected one came. It
shares the processors with the server and the publisher; its time is the same for all peers.
"""

import multiprocessing
import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from perf.load import MarkerCounter
from perf.pump import RECEIVE_BYTES, STALL_S, PeerError

ANSWER_LIMIT_S = 120.0

Subscribe = Callable[[int], Iterable[socket.socket]]
"""Makes the connections of one subscriber, by its number. It must be picklable."""


@dataclass(frozen=True)
class Watched:
    """What all subscribers together have received."""

    documents: int
    elapsed_s: float
    """From the order to count until the last document came."""


class Watchers:
    """A number of subscribers. Each step is asked for and then waited for, so that publishing happens in between."""

    def __init__(self, subscribe: Subscribe, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_watch, args=(theirs, subscribe, count), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def subscribe(self, expected: int) -> Watched:
        """Subscribe; wait until so many documents have come, those that exist already."""
        self.expect(expected)
        return self.wait()

    def expect(self, expected: int) -> None:
        """Begin to count to `expected`. The clock runs from here."""
        self._connection.send(expected)

    def wait(self) -> Watched:
        """Wait for the documents that are expected. Raises PeerError if more or fewer come."""
        if not self._connection.poll(ANSWER_LIMIT_S):
            raise PeerError(f"the subscribers have not answered for {ANSWER_LIMIT_S:g} s")
        answer: Watched | str = self._connection.recv()
        if isinstance(answer, str):
            raise PeerError(answer)
        return answer


def _watch(connection: Connection, subscribe: Subscribe, count: int) -> None:
    """The process of the subscribers. It ends when the other side closes the connection."""
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    buffer = bytearray(RECEIVE_BYTES)
    counter = MarkerCounter(buffer)
    early = 0
    try:
        while True:
            expected: int = connection.recv()
            began_s = time.perf_counter()
            if not sockets:
                for number in range(count):
                    for sock in subscribe(number):
                        sock.setblocking(False)
                        sockets[sock.fileno()] = sock
                        poll.register(sock, select.EPOLLIN)
            came, last_s = early, time.perf_counter()
            while came < expected and time.perf_counter() - last_s < STALL_S:
                for descriptor, _ in poll.poll(1.0):
                    size = sockets[descriptor].recv_into(buffer)
                    if size == 0:
                        poll.unregister(descriptor)
                    elif found := counter.count(size):
                        came += found
                        last_s = time.perf_counter()
            if came < expected:
                connection.send(f"{came} documents came to the subscribers instead of {expected}")
                return
            early = came - expected
            connection.send(Watched(expected, last_s - began_s))
    except EOFError:
        return
