"""Two ends of a connection in memory, for tests of links."""

import asyncio
from collections.abc import Callable, Sequence

from amps.server.replication.frames import Frame, Parser
from amps.server.replication.link import Link


def received(parser: Parser, data: bytes) -> list[Frame]:
    """The frames that a parser finds when it is given some bytes. Payloads are copied."""
    found: list[Frame] = []
    while data:
        room = parser.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        parser.filled(count)
        while (frame := parser.next()) is not None:
            found.append(frame._replace(payload=bytes(frame.payload)))
    return found


class Pipe:
    """One direction: what is written can be read."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.bytes_received = 0
        self.closed = False
        self.blocked = False
        """Writers wait, as if the other side did not read."""
        self._changed = asyncio.Event()

    async def read_into(self, room: memoryview, whole: bool) -> int:
        while len(self.data) < (len(room) if whole else 1) and not self.closed:
            self._changed.clear()
            await self._changed.wait()
        count = min(len(room), len(self.data))
        room[:count] = self.data[:count]
        del self.data[:count]
        self._changed.set()
        return count

    def writelines(self, parts: Sequence[bytes | memoryview]) -> None:
        self.write(b"".join(parts))

    def write(self, data: bytes) -> None:
        if self.closed:
            raise ConnectionResetError("closed")
        self.data += data
        self.bytes_received += len(data)
        self._changed.set()

    async def drain(self) -> None:
        while self.blocked and not self.closed:
            self._changed.clear()
            await self._changed.wait()

    def unblock(self) -> None:
        self.blocked = False
        self._changed.set()

    def close(self) -> None:
        self.closed = True
        self._changed.set()


class Ends:
    """Two links that are connected, the dialling one first. Frames of links and failures are kept."""

    def __init__(self) -> None:
        self.there, self.back = Pipe(), Pipe()
        self.received: list[tuple[Link, Frame]] = []
        self.ended: list[Link] = []
        self.failures: list[str] = []
        self.dialling = self._link(self.back, self.there, True)
        self.accepting = self._link(self.there, self.back, False)

    def _link(self, reader: Pipe, writer: Pipe, dialled: bool) -> Link:
        return Link(
            reader,
            writer,
            dialled=dialled,
            address="memory",
            received=lambda link, frame: self.received.append((link, frame)),
            ended=self.ended.append,
            failed=self.failures.append,
        )

    def start(self) -> "Ends":
        for link in (self.dialling, self.accepting):
            link.start()
            for channel in link.channels:
                channel.begin()
        return self

    async def settle(self, condition: Callable[[], bool] = lambda: False) -> None:
        for _ in range(200):
            if condition():
                return
            await asyncio.sleep(0)
