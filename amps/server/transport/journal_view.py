"""The journal as a transport reads it: files, indexes, and where a bookmark lies in them.

Nothing here keeps a place: cursors are made for replays and for the tailers, which own them. Looking up a bookmark or
a moment costs an index search and the reading of one block.
"""

import contextlib
import mmap
from collections.abc import Iterator
from pathlib import Path

from amps._core.bookmark_index import IndexDamaged, IndexReader
from amps._core.log_reader import FILE_HEADER_SIZE, LogCursor, LogDirectory
from amps.journal.names import index_path
from amps.server.runtime import Runtime


class JournalView:
    """The journal as a reader sees it: files, indexes, places of bookmarks."""

    def __init__(
        self, directory: LogDirectory, journal_directory: Path, instance_name: str, runtime: Runtime
    ) -> None:
        self.directory = directory
        self._journal_directory = journal_directory
        self._instance_name = instance_name
        self._runtime = runtime
        self._closed_indexes: dict[int, IndexReader] = {}

    def cursor_at(self, position: int, verify: bool) -> LogCursor:
        """A cursor at a log position, with the topics before it learnt."""
        control = self._runtime.control
        last = control.watermarks()[3]
        number = self.directory.number_at(position, control.first_journal_number, last)
        return self._cursor_in(number, position, verify)

    def cursor_at_start(self, verify: bool) -> LogCursor:
        """A cursor at the first message there is."""
        number = self._runtime.control.first_journal_number
        return LogCursor(self.directory, number, 0, verify)

    def _cursor_in(self, number: int, position: int, verify: bool) -> LogCursor:
        cursor = LogCursor(self.directory, number, position, verify)
        index = self.index(number)
        if index is None:
            # Without an index the topics are found by reading the file up to the place.
            LogCursor(self.directory, number, 0, verify).skip_to(position)
        else:
            cursor.file.learn_topics_before(index.last_topic_offset, self.directory.resolver)
        return cursor

    def index(self, number: int) -> IndexReader | None:
        """The index of a journal, of the one in use too; None if there is none to be had."""
        closed = self._closed_indexes.get(number)
        if closed is not None:
            return closed
        unusable = contextlib.suppress(FileNotFoundError, ValueError, IndexDamaged)
        with unusable, self._runtime.index_path(number).open("rb") as file:
            return IndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ), False)
        with unusable, index_path(self._journal_directory, self._instance_name, number).open("rb") as file:
            index = IndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ), True)
            self._closed_indexes[number] = index
            return index
        return None

    def _numbers_backwards(self) -> Iterator[int]:
        control = self._runtime.control
        yield from range(control.watermarks()[3], control.first_journal_number - 1, -1)

    def find(
        self, publisher_id: int, sequence: int, indexes: dict[int, IndexReader | None] | None = None
    ) -> tuple[int, int] | None:
        """Log positions of the message with that bookmark and of what follows it; None if it is not in the log.

        `indexes`: for many bookmarks in a row, the indexes that are open already; what is opened is added.
        """
        if indexes is None:
            indexes = {}
        written = self._runtime.control.watermarks()[0]
        for number in self._numbers_backwards():
            if number not in indexes:
                indexes[number] = self.index(number)
            index = indexes[number]
            start = self.directory.start_position(number)
            if index is None:
                cursor = LogCursor(self.directory, number, 0, True)
                found = cursor.find(publisher_id, sequence, min(written, start + cursor.file.size))
                if found is not None:
                    return found, cursor.position
                continue
            if not index.may_hold(publisher_id, sequence):
                continue
            for block in index.candidate_blocks(publisher_id, sequence):
                first, end = index.block_range(block)
                cursor = self._cursor_in(number, start + first, True)
                limit = min(written, start + end if end else start + cursor.file.size)
                found = cursor.find(publisher_id, sequence, limit)
                if found is not None:
                    return found, cursor.position
        return None

    def position_at(self, time_us: int) -> int:
        """Log position of the first record of that time (UNIX, in microseconds) or a later one; the end if there is
        none.
        """
        written = self._runtime.control.watermarks()[0]
        for number in self._numbers_backwards():
            index = self.index(number)
            start = self.directory.start_position(number)
            block = None if index is None else index.block_before(time_us * 1000)
            if index is not None and block is None:
                continue  # all of it is later
            cursor = self._cursor_in(number, start + (block or 0), True)
            limit = min(written, start + cursor.file.size)
            cursor.skip_before(time_us, limit)
            if (
                cursor.position > start + FILE_HEADER_SIZE
                or number == self._runtime.control.first_journal_number
            ):
                return cursor.position
        return self.cursor_at_start(True).position

    def _blocks_before(self, position: int) -> Iterator[tuple[LogCursor, int]]:
        """Pieces of the log before a position, the last one first: a cursor at the beginning, and the end."""
        for number in self._numbers_backwards():
            start = self.directory.start_position(number)
            if start >= position:
                continue
            index = self.index(number)
            if index is None:
                cursor = LogCursor(self.directory, number, 0, False)
                yield cursor, min(position, start + cursor.file.size)
                continue
            # A journal may be full without a message, when the first one was too large for it: nothing is indexed.
            offset = min(position - start, index.end_offset)
            while offset > FILE_HEADER_SIZE:
                first, _ = index.block_range(offset - 1)
                yield self._cursor_in(number, start + first, False), min(position, start + offset)
                offset = first

    def last_bookmark_before(self, position: int) -> tuple[int, int]:
        """Bookmark of the last message before a log position; (0, 0) if there is none."""
        found = (cursor.skip_to(end) for cursor, end in self._blocks_before(position))
        return next((bookmark for bookmark in found if bookmark is not None), (0, 0))

    def last_position_before(self, position: int) -> int:
        """Log position of the last record before another one; that one itself if there is none."""
        found = (cursor.last_record(end) for cursor, end in self._blocks_before(position))
        return next((last for last in found if last is not None), position)

    @property
    def end(self) -> int:
        """Log position behind everything written."""
        written: int = self._runtime.control.watermarks()[0]
        return written
