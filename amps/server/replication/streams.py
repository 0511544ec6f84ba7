"""The two sides of a connection, for a link: reading without copies, and writing with a limit.

Received bytes are passed on in the pieces in which they came. asyncio's own StreamReader would collect them in one
buffer and cut pieces out of it again: two copies of all records, in the process that is busiest.

Invariants
- No more than `BUFFER_BYTES` and one piece are held; then the other side has to wait.
- What came before the end of a connection is read before the end.
"""

import asyncio
from collections import deque
from typing import cast

BUFFER_BYTES = 1 << 20


class Stream(asyncio.Protocol):
    """One connection: the Reader and the Writer of a link. It is made by the loop, with `transport`."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._reading_paused = False
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

    def data_received(self, data: bytes) -> None:
        """Keep a piece until it is read."""
        self._pieces.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > BUFFER_BYTES and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        _wake(self._reader)

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

    async def read(self, n: int) -> bytes:
        """The next piece, of about `n` bytes at most; none at the end. Raises OSError if the connection was lost."""
        while not self._pieces:
            if self._problem is not None:
                raise self._problem
            if self._ended:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        piece = self._pieces.popleft()
        if len(piece) > n:
            self._pieces.appendleft(piece[n:])
            piece = piece[:n]
        self._held_bytes -= len(piece)
        if self._reading_paused and self._held_bytes <= BUFFER_BYTES // 2:
            self._reading_paused = False
            self.transport.resume_reading()
        return piece

    def write(self, data: bytes) -> None:
        """Send bytes, or buffer them."""
        self.transport.write(data)

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
