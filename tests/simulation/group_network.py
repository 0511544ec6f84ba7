"""Simulated connections between instances: streams of bytes that the world delivers, cuts, delays and loses.

A connection has two directions. Bytes that were written wait in a direction until the world delivers some of them, cut
anywhere. Bytes of one direction keep their order; directions and connections have none among each other.

Faults: a connection is *lost* (both ends notice, bytes under way are gone), or its ends are *cut off* from each other
by a partition: nothing arrives, and nobody is told. What was written before the partition ends arrives then, unless
an end has given up meanwhile.
"""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence

from tests.simulation.group_loop import SimulatedLoop

HIGH_WATER_BYTES = 1 << 16
"""So much may be under way in a direction before a writer waits."""


class End:
    """One end of a connection: the reader and the writer that a process uses."""

    def __init__(self, instance: str, loop: SimulatedLoop) -> None:
        self.instance = instance
        self.loop = loop
        self.other: End
        self.arrived = bytearray()
        self.bytes_received = 0
        self.ended = False
        """Whether the other end has closed, and all its bytes have arrived."""
        self.lost = False
        self.closed = False
        self.under_way: deque[bytes] = deque()
        """What this end has written, not delivered yet."""
        self._waiting: asyncio.Future[None] | None = None
        self._draining: asyncio.Future[None] | None = None

    # The reader

    async def read_into(self, room: memoryview, whole: bool) -> int:
        while len(self.arrived) < (len(room) if whole else 1):
            if self.lost:
                raise ConnectionResetError("the connection is lost")
            if self.ended or self.closed:
                return 0
            self._waiting = self.loop.create_future()
            await self._waiting
        count = min(len(room), len(self.arrived))
        room[:count] = self.arrived[:count]
        del self.arrived[:count]
        return count

    # The writer

    def writelines(self, parts: Sequence[bytes | memoryview]) -> None:
        if self.closed or self.lost:
            return
        self.under_way += map(bytes, parts)

    async def drain(self) -> None:
        while self.under_way_bytes > HIGH_WATER_BYTES and not self.lost and not self.closed:
            self._draining = self.loop.create_future()
            await self._draining
        if self.lost:
            raise ConnectionResetError("the connection is lost")
        await asyncio.sleep(0)

    def close(self) -> None:
        self.closed = True
        self._wake()

    def is_closing(self) -> bool:
        return self.closed or self.lost

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    # What the world does

    @property
    def under_way_bytes(self) -> int:
        return sum(map(len, self.under_way))

    def deliver(self, most: int) -> int:
        """Let bytes of this end arrive at the other one. Return how many."""
        count = 0
        while self.under_way and count < most:
            chunk = self.under_way.popleft()
            part = chunk[: most - count]
            if len(part) < len(chunk):
                self.under_way.appendleft(chunk[len(part) :])
            if not self.other.closed:
                self.other.arrived += part
                self.other.bytes_received += len(part)
            count += len(part)
        if self.closed and not self.under_way:
            self.other.ended = True
        self._wake()
        self.other._wake()
        return count

    def lose(self) -> None:
        self.lost = True
        self.under_way.clear()
        self.arrived.clear()
        self._wake()

    def _wake(self) -> None:
        for future in (self._waiting, self._draining):
            if future is not None and not future.done():
                future.set_result(None)


class Connection:
    """Two ends."""

    numbers = itertools.count()

    def __init__(self, one: End, other: End) -> None:
        self.ends = one, other
        one.other, other.other = other, one

    @property
    def pair(self) -> frozenset[str]:
        return frozenset(end.instance for end in self.ends)

    @property
    def is_over(self) -> bool:
        return all(end.closed or end.lost for end in self.ends) and not any(
            end.under_way for end in self.ends
        )

    def lose(self) -> None:
        for end in self.ends:
            end.lose()


class Network:
    """All connections of a world, and the partitions between instances."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.connections: list[Connection] = []
        self.partitions: set[frozenset[str]] = set()
        self.listeners: dict[int, tuple[str, SimulatedLoop, Callable[[End, End, str], None]]] = {}
        """By port: the instance that listens, its loop, and what it does with a connection."""
        self.made = 0

    def is_cut(self, pair: frozenset[str]) -> bool:
        return pair in self.partitions

    async def connect(self, instance: str, loop: SimulatedLoop, port: int) -> tuple[End, End, str]:
        """Connect an instance to a port. Across a partition this never ends; the caller has a time limit."""
        await asyncio.sleep(self._chance.choice([0.0, 0.0, 0.01, 0.3]))
        found = self.listeners.get(port)
        if found is not None and self.is_cut(frozenset((instance, found[0]))):
            await loop.create_future()
        found = self.listeners.get(port)
        if found is None:
            raise ConnectionRefusedError("nobody listens there")
        name, there, accept = found
        mine, theirs = End(instance, loop), End(name, there)
        self.connections.append(Connection(mine, theirs))
        self.made += 1
        there.call_soon(accept, theirs, theirs, f"{instance}:{self.made}")
        return mine, mine, f"{name}:{port}"

    def deliver_some(self) -> None:
        """Let some bytes of a random direction arrive."""
        ends = [
            end
            for connection in self.connections
            if not self.is_cut(connection.pair)
            for end in connection.ends
            if end.under_way or (end.closed and not end.other.ended)
        ]
        if ends:
            end = self._chance.choice(ends)
            end.deliver(self._chance.choice([1, 7, 100, 5000, 1 << 20]))

    def deliver_all(self) -> int:
        """Let everything arrive that can. Return how many bytes."""
        count = 0
        for connection in self.connections:
            if not self.is_cut(connection.pair):
                for end in connection.ends:
                    count += end.deliver(1 << 30)
        self.connections = [connection for connection in self.connections if not connection.is_over]
        return count

    def lose_one(self) -> None:
        """Lose a random connection."""
        if self.connections:
            connection = self._chance.choice(self.connections)
            connection.lose()
            self.connections.remove(connection)

    def instance_died(self, name: str) -> None:
        """The kernel closes the connections of a dead process: the other ends notice, unless they are cut off."""
        for port, found in list(self.listeners.items()):
            if found[0] == name:
                del self.listeners[port]
        for connection in list(self.connections):
            for end in connection.ends:
                if end.instance == name:
                    if self.is_cut(connection.pair):
                        end.under_way.clear()
                        end.closed = True
                    else:
                        connection.lose()
                        self.connections.remove(connection)
                    break
