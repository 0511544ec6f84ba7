"""Parts of the log that are not in memory: a thread reads them, while the services process goes on."""

import asyncio

from amps._core.journal.reader import LogFile, LogUnreadable
from amps.server.shared.read_ahead import ReadAhead


class LogReading:
    """Has parts of the log read. Its threads begin with the first one."""

    def __init__(self) -> None:
        self._read_ahead: ReadAhead | None = None

    async def have_read(self, file: LogFile, offset: int, length: int, needed_until: int) -> None:
        """Have a part of the log read from the disk. Raises LogUnreadable if the part before the file offset
        `needed_until` cannot be read.
        """
        loop = asyncio.get_running_loop()
        if self._read_ahead is None:
            self._read_ahead = ReadAhead(loop.call_soon_threadsafe)
        read: asyncio.Future[LogUnreadable | None] = loop.create_future()
        self._read_ahead.ask(file, offset, length, read.set_result)
        problem = await read
        if problem is not None and problem.offset < needed_until:
            raise problem
