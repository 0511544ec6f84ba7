"""The journal as a transport reads it: files, indexes, and where a bookmark lies in them.

Nothing here keeps a place: cursors are made for replays and for the tailers, which own them. Looking a bookmark up
costs an index search and the reading of one block; a client may name thousands of bookmarks in one command, so that
a StartSearch goes on in steps, one per turn of the worker.
"""

import contextlib
import mmap
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from amps._core.bookmark_index import IndexDamaged, IndexReader
from amps._core.log_reader import FILE_HEADER_SIZE, LogCursor, LogDirectory
from amps.journal.names import index_path
from amps.server.runtime import Runtime
from amps.server.transport.bookmarks import StartPoint
from amps.server.transport.failures import CommandFailure


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
    ) -> LogCursor | None:
        """A cursor just after the message with that bookmark; None if it is not in the log.

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
                limit = min(written, start + cursor.file.size)
                if cursor.find(publisher_id, sequence, limit):
                    return self._cursor_in(number, cursor.position, True)
                continue
            if not index.may_hold(publisher_id, sequence):
                continue
            for block in index.candidate_blocks(publisher_id, sequence):
                first, end = index.block_range(block)
                cursor = self._cursor_in(number, start + first, True)
                limit = min(written, start + end if end else start + cursor.file.size)
                if cursor.find(publisher_id, sequence, limit):
                    return cursor
        return None

    def last_bookmark_before(self, position: int) -> tuple[int, int]:
        """Bookmark of the last message before a log position; (0, 0) if there is none."""
        for number in self._numbers_backwards():
            start = self.directory.start_position(number)
            if start >= position:
                continue
            index = self.index(number)
            # A journal may be full without a message, when the first one was too large for it: nothing is indexed.
            offset = position - start if index is None else min(position - start, index.end_offset)
            while index is not None and offset > FILE_HEADER_SIZE:
                first, _ = index.block_range(offset - 1)
                found = self._cursor_in(number, start + first, False).skip_to(min(position, start + offset))
                if found is not None:
                    return found
                offset = first
            if index is None:
                cursor = LogCursor(self.directory, number, 0, False)
                found = cursor.skip_to(min(position, start + cursor.file.size))
                if found is not None:
                    return found
        return 0, 0

    def cursor_at_end(self) -> tuple[LogCursor, tuple[int, int]]:
        """A cursor behind everything written, and the bookmark just before it."""
        written = self._runtime.control.watermarks()[0]
        return self.cursor_at(written, True), self.last_bookmark_before(written)


class StartSearch:
    """Finds where a subscription begins, a few bookmarks at a time: a client may name thousands."""

    LOOKUPS_PER_STEP = 50

    def __init__(self, journal: JournalView, point: StartPoint, not_found: str) -> None:
        """`not_found`: what to do if no bookmark is in the log, as the option `bookmark_not_found` says it."""
        self._journal = journal
        self._point = point
        self._not_found = not_found
        # From the epoch on is everything: nothing could be earlier.
        self._messages = deque(dict.fromkeys(() if point.epoch else point.messages))
        self._found: tuple[LogCursor, tuple[int, int]] | None = None

    def step(self) -> bool:
        """Look some bookmarks up. True: that was all of them. Raises LogDamaged."""
        indexes: dict[int, IndexReader | None] = {}
        for _ in range(min(self.LOOKUPS_PER_STEP, len(self._messages))):
            message = self._messages.popleft()
            cursor = self._journal.find(message.publisher_id, message.sequence, indexes)
            if cursor is not None and (self._found is None or cursor.position < self._found[0].position):
                self._found = cursor, (message.publisher_id, message.sequence)
        return not self._messages

    def result(self) -> tuple[LogCursor, tuple[int, int]]:
        """After the last step: the cursor where the subscription begins, and the bookmark just before it.

        Raises CommandFailure.
        """
        journal = self._journal
        if self._found is not None:
            return self._found
        if self._point.epoch:
            return journal.cursor_at_start(True), (0, 0)
        if not self._point.now:
            if self._not_found == "fail":
                raise CommandFailure("invalid bookmark", "none of the bookmarks is in the log")
            if self._not_found == "epoch":
                return journal.cursor_at_start(True), (0, 0)
        return journal.cursor_at_end()
