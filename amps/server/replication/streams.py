"""The two sides of a connection, for a link: reading into the memory of the reader, and writing with a limit.

The system stores what is received where the reader wants it. asyncio's own StreamReader would collect it in a buffer
and cut pieces out of it again: two copies of all records, in the process that is busiest.

Invariants
- The connection is read only while a reader waits. Otherwise the other side has to wait, soon.
- What came before the end of a connection is read before the end.
"""

import asyncio
from collections.abc import Sequence
from typing import cast

EARLY_BYTES = 4096
"""Room for what comes before the first reader."""


class Stream(asyncio.BufferedProtocol):
    """One connection: the Reader and the Writer of a link. It is made by the loop, with `transport`."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._early = bytearray(EARLY_BYTES)
        self._held = b""
        """What came while no reader waited."""
        self.bytes_received = 0
        self._room: memoryview | None = None
        """The memory of the reader that waits, without what is filled."""
        self._whole = False
        """Whether it waits until that is full."""
        self._got = 0
        self._writing_paused = False
        self._lost = False
        self._ended = False
        self._problem: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    # --- the loop's side ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's class is no asyncio.Transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop is to store what it receives next."""
        return memoryview(self._early) if self._room is None else self._room

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes are there."""
        self.bytes_received += nbytes
        room = self._room
        if room is None:
            self._held += self._early[:nbytes]
        else:
            self._got += nbytes
            if self._whole and nbytes < len(room):
                self._room = room[nbytes:]
                return
            self._room = None
            _wake(self._reader)
        self.transport.pause_reading()

    def eof_received(self) -> bool:
        """The other side sends no more. The connection closes, as both sides end it together."""
        self._ended = True
        _wake(self._reader)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._ended = self._lost = True
        self._problem = exc
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        """The other side does not take what is written as fast."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """It has taken enough of it."""
        self._writing_paused = False
        _wake(self._writer)

    # --- the link's side ------------------------------------------------------------------------------------

    async def read_into(self, room: memoryview, whole: bool) -> int:
        """Wait for bytes, or until the memory is full (`whole`), and store them. Returns how many; 0 at the end. Raises
        OSError if the connection was lost.
        """
        count = min(len(room), len(self._held))
        if count:
            room[:count] = self._held[:count]
            self._held = self._held[count:]
            if not whole or count == len(room):
                return count
        if not self._ended:
            self._got, self._room, self._whole = count, room[count:], whole
            self.transport.resume_reading()
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                is_done = self._room is None
                self._reader = self._room = None
            if is_done:
                return self._got
        if self._problem is not None:
            raise self._problem
        return 0

    def writelines(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send bytes, or buffer them. The memory of a view must stay as it is until they are sent."""
        if self._lost or self.transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self.transport.writelines(parts)

    async def drain(self) -> None:
        """Wait until little is buffered. Raises OSError if the connection was lost."""
        while self._writing_paused and not self._lost:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._lost:
            raise self._problem or ConnectionResetError("the connection is closed")

    def close(self) -> None:
        """Close the connection when all is sent."""
        self.transport.close()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
