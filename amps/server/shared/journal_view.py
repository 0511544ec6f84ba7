"""The journal as a transport reads it: files, indexes, and the places of bookmarks.

This module stores no reading positions: cursors are made for replays and for the tailers, which own them. Looking up a
bookmark or a time costs an index search and the reading of one block; without an index, the reading of a whole journal.
Lookups are done in steps, because they must not block the event loop of a worker: neither by reading from the disk nor
by decompressing journals. A damaged index is reported once, and not opened again before its file is replaced: a start
makes a new one.

Journals are removed while the server runs. A file opened here stays open until `release_unused` finds no reader of it.
A reader that comes too late for a journal (LogRemoved) determines again where the log begins.
"""

import contextlib
import gc
import mmap
import os
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

from amps._core.journal.reader import (
    FILE_HEADER_SIZE,
    FrameCache,
    LogCursor,
    LogDirectory,
    LogFile,
    LogRemoved,
    LogUnreadable,
)
from amps._core.journal.search import WINDOW_BYTES_MAX, read, resident_range
from amps._core.journal.writer import BLOCK_BYTES, IndexDamaged, IndexReader
from amps.config import ServerConfig
from amps.journal.names import index_places, reading_places
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.shared.journal_floor import FloorShare, JournalFloor

COLLECTION_INTERVAL_S = 5.0
PIECE_BYTES = 256 << 10
"""Length of a step: decompressing the two frames that may contain it takes half a millisecond."""
TOPICS_PER_STEP = 64
COMPRESSED_TOPICS_PER_STEP = 2
"""Each topic record may be in a frame of its own."""


class PagesMissing(Exception):
    """A lookup needs pages that are not in memory. The caller may have them read, and then continue the lookup.

    `problem`: set if the attempt to read the pages failed. `needed_until`: file offset up to which all bytes are
    needed; None: the lookup checks `problem` itself, and may continue with the bytes read before it.
    """

    def __init__(self, file: LogFile, offset: int, length: int, needed_until: int | None = None) -> None:
        super().__init__(f"{file.path}: {length} bytes from offset {offset}")
        self.file = file
        self.offset = offset
        self.length = length
        self.needed_until = needed_until
        self.problem: LogUnreadable | None = None


Result = TypeVar("Result")
Found = TypeVar("Found")
Steps = Generator[PagesMissing | None, None, Result]
"""Work in steps of less than a millisecond: before each step it yields the pages to be read from the disk, or None. The
last step returns the result.
"""


def at_once(steps: Steps[Result]) -> Result:
    """Do all the steps, waiting for the disk if necessary."""
    while True:
        try:
            missing = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        if missing is not None:
            try:
                read(missing.file, missing.offset, missing.length)
            except LogUnreadable as problem:
                missing.problem = problem.with_traceback(None)


def _next_piece(cursor: LogCursor, limit: int) -> Steps[int | None]:
    """Have the next part of the log in memory. Returns a position up to which the cursor may then be moved, None if it
    is at the limit. The cursor stops before a record that is not in memory as a whole; the next part contains that.
    Raises LogUnreadable.
    """
    if cursor.position >= limit:
        return None
    file, offset = cursor.file, cursor.position - cursor.file.start_position
    needed_until = min(offset + cursor.needed, file.size)
    end = max(min(limit - file.start_position, offset + PIECE_BYTES), needed_until)
    if file.compressed:
        yield None
        return file.start_position + end
    begin = offset
    while begin < end:
        part = min(end - begin, WINDOW_BYTES_MAX // 2)
        missing = _missing_range(file, begin, part)
        yield missing
        begin += part
        if missing is not None and missing.problem is not None:
            if missing.problem.offset < needed_until:
                raise missing.problem
            end = missing.problem.offset
    readable_until = file.readable_bytes()
    if readable_until < needed_until:
        raise LogUnreadable(
            file.path, readable_until, f"the file ends here, its header says {file.size} bytes"
        )
    end = min(end, readable_until)
    cursor.allow(end)
    return min(limit, file.start_position + end)


def _missing_range(file: LogFile, offset: int, length: int) -> PagesMissing | None:
    resident, wanted = resident_range(file, offset, file.start_position + file.size, length)
    return PagesMissing(file, offset + resident, wanted - resident) if resident < wanted else None


class JournalView:
    """The journal as a reader uses it: files, indexes, places of bookmarks."""

    def __init__(
        self,
        journal_directory: Path,
        archive: Path | None,
        instance_name: str,
        runtime: Runtime,
        resolver: Callable[[str, str], object],
        cache: FrameCache,
        guard: JournalFloor | FloorShare,
        damaged: Callable[[Path, Exception], None] = lambda path, problem: None,
    ) -> None:
        """`damaged` is called for every unusable index, once."""
        first, *more = reading_places(journal_directory, archive, instance_name)
        self.directory = LogDirectory(*first, resolver, more, cache, guard)
        self._journal_directory = journal_directory
        self._archive = archive
        self._instance_name = instance_name
        self._runtime = runtime
        self._closed_indexes: dict[int, IndexReader] = {}
        self._damaged = damaged
        self._damaged_indexes: dict[int, tuple[int, int, int]] = {}
        """By journal: the identity of the file (inode, size, time of the last change in ns)."""
        self._next_collection_s = 0.0
        self._learnt: WeakKeyDictionary[LogFile, int] = WeakKeyDictionary()
        """By file: the offset of a topic record. This record and all before it are in the file's topic table."""

    def release_unused(self) -> None:
        """Close journals without readers."""
        first = self._runtime.control.first_journal_number
        lowest = self.directory.release_unused()
        if lowest is not None and lowest < first and time.monotonic() >= self._next_collection_s:
            # The core waits for it. A connection that has ended may hold it until the next garbage collection.
            self._next_collection_s = time.monotonic() + COLLECTION_INTERVAL_S
            gc.collect()
            self.directory.release_unused()
        for known in (self._closed_indexes, self._damaged_indexes):
            for number in [number for number in known if number < first]:
                del known[number]

    def cursor_at(self, position: int, verify: bool) -> Steps[LogCursor]:
        """A cursor at a log position, with the topics before it known; at the first message if that is later."""
        control = self._runtime.control
        while True:
            last = control.watermarks()[3]
            with contextlib.suppress(LogRemoved):
                number = self.directory.number_at(position, control.first_journal_number, last)
                return (yield from self.cursor_in(number, position, verify))

    def cursor_at_start(self, verify: bool) -> LogCursor:
        """A cursor at the first message of the log."""
        while True:
            with contextlib.suppress(LogRemoved):
                return LogCursor(self.directory, self._runtime.control.first_journal_number, 0, verify)

    def cursor_in(self, number: int, position: int, verify: bool) -> Steps[LogCursor]:
        """A cursor at a log position in a journal, with the topics before it known. Raises LogRemoved."""
        cursor = LogCursor(self.directory, number, position, verify)
        index = self.index(number)
        if index is None:
            # Without an index the topics are found by reading the file up to the place.
            reading = LogCursor(self.directory, number, 0, verify)
            while (piece := (yield from _next_piece(reading, position))) is not None:
                reading.skip_to(piece)
        else:
            yield from self._learn_topics(cursor.file, index.last_topic_offset)
        return cursor

    def _learn_topics(self, file: LogFile, last_offset: int) -> Steps[None]:
        """Read the chain of topic records that ends at a file offset."""
        offset, known = last_offset, self._learnt.get(file, 0)
        while offset > known:
            if not file.compressed:
                begin = max(0, offset - BLOCK_BYTES)
                missing = _missing_range(file, begin, offset + BLOCK_BYTES - begin)
                yield missing
                if missing is not None and missing.problem is not None:
                    raise missing.problem
            else:
                begin = 0
                yield None
            count = COMPRESSED_TOPICS_PER_STEP if file.compressed else TOPICS_PER_STEP
            offset = file.learn_topics_before(offset, self.directory.resolver, count, begin)
        self._learnt[file] = max(last_offset, known)

    def index(self, number: int) -> IndexReader | None:
        """The index of a journal, including the one in use; None if there is no usable one."""
        closed = self._closed_indexes.get(number)
        if closed is not None:
            return closed
        unusable = contextlib.suppress(OSError, ValueError)
        with unusable, self._runtime.index_path(number).open("rb") as file:
            return IndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ), False)
        for path in index_places(self._journal_directory, self._archive, self._instance_name, number):
            with contextlib.suppress(OSError):
                index = self._index_file(number, path)
                if index is not None:
                    self._closed_indexes[number] = index
                    return index
        return None

    def _index_file(self, number: int, path: Path) -> IndexReader | None:
        """The index of a full journal; None if it is damaged. Raises OSError."""
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._damaged_indexes.get(number) == identity:
                return None
            try:
                if not status.st_size:
                    raise IndexDamaged("it is empty")
                index = IndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ), True)
                if index.file_number != number:
                    raise IndexDamaged("it belongs to another journal")
            except IndexDamaged as problem:
                self._damaged_indexes[number] = identity
                self._damaged(path, problem)
                return None
            return index

    def _numbers_backwards(self) -> Iterator[int]:
        control = self._runtime.control
        yield from range(control.watermarks()[3], control.first_journal_number - 1, -1)

    def find(
        self, publisher_id: int, sequence: int, indexes: dict[int, IndexReader | None]
    ) -> Steps[tuple[int, int] | None]:
        """Log positions of the message with that bookmark and of the record behind it; None if it is not in the log.

        `indexes`: open indexes, shared by many lookups in a row; indexes opened here are added. Raises LogDamaged.
        """
        # Journals older than a removed one were removed before it.
        with contextlib.suppress(LogRemoved):
            return (yield from self._find(publisher_id, sequence, indexes))
        return None

    def _find(
        self, publisher_id: int, sequence: int, indexes: dict[int, IndexReader | None]
    ) -> Steps[tuple[int, int] | None]:
        written = self._runtime.control.watermarks()[0]
        for number in self._numbers_backwards():
            if number not in indexes:
                indexes[number] = self.index(number)
            index = indexes[number]
            start = self.directory.start_position(number)
            blocks: list[tuple[int, int]] = [(0, 0)]  # the whole file, if there is no index
            if index is not None:
                if not index.may_hold(publisher_id, sequence):
                    continue
                found_blocks = index.candidate_blocks(publisher_id, sequence)
                blocks = [index.block_range(block) for block in found_blocks]
            for first, end in blocks:
                cursor = LogCursor(self.directory, number, start + first, True)
                limit = min(written, start + (end or cursor.file.size))
                while (piece := (yield from _next_piece(cursor, limit))) is not None:
                    found = cursor.find(publisher_id, sequence, piece)
                    if found is not None:
                        return found, cursor.position
        return None

    def position_at(self, time_us: int) -> Steps[int]:
        """Log position of the first record of that time (UNIX, in microseconds) or a later one; the end if there is
        none.
        """
        with contextlib.suppress(LogRemoved):
            found = yield from self._position_at(time_us)
            if found is not None:
                return found
        return self.cursor_at_start(True).position

    def _position_at(self, time_us: int) -> Steps[int | None]:
        written = self._runtime.control.watermarks()[0]
        for number in self._numbers_backwards():
            index = self.index(number)
            start = self.directory.start_position(number)
            block = None if index is None else index.block_before(time_us * 1000)
            if index is not None and block is None:
                continue  # all of it is later
            cursor = LogCursor(self.directory, number, start + (block or 0), True)
            # Without an index it is only known afterwards whether an earlier journal contains later records.
            earlier = block is not None
            limit = min(written, start + cursor.file.size)
            while (piece := (yield from _next_piece(cursor, limit))) is not None:
                earlier |= cursor.skip_before(time_us, piece)
                if cursor.position < piece and not cursor.waits:
                    break  # at a record of that time or a later one
            if earlier:
                return cursor.position
        return None

    def txid_at(self, position: int) -> Steps[int | None]:
        """Transaction id of the first record at or after a log position; None if there is none."""
        cursor = yield from self.cursor_at(position, False)
        written = self.end
        while (piece := (yield from _next_piece(cursor, written))) is not None:
            txid = cursor.next_txid(piece)
            if txid is not None:
                return txid
        return None

    @property
    def is_whole(self) -> bool:
        """Whether the log goes back to the beginning of the instance: no journal was removed."""
        return bool(self._runtime.control.first_journal_number == 0)

    def first_time_us(self) -> Steps[int | None]:
        """Time of the first record of the log (UNIX, in microseconds); None if there is none."""
        cursor = self.cursor_at_start(False)
        written = self.end
        while (piece := (yield from _next_piece(cursor, written))) is not None:
            time_us = cursor.next_time_us(piece)
            if time_us is not None:
                return time_us
        return None

    def _blocks_before(self, position: int) -> Iterator[tuple[LogCursor, int]]:
        """Parts of the log before a position, the last one first: a cursor at the beginning, and the end."""
        for number in self._numbers_backwards():
            start = self.directory.start_position(number)
            if start >= position:
                continue
            index = self.index(number)
            if index is None:
                cursor = LogCursor(self.directory, number, 0, False)
                yield cursor, min(position, start + cursor.file.size)
                continue
            # A journal may be full without a message, when the first one was too large for it: its index is empty.
            offset = min(position - start, index.end_offset)
            while offset > FILE_HEADER_SIZE:
                first, _ = index.block_range(offset - 1)
                cursor = LogCursor(self.directory, number, start + first, False)
                yield cursor, min(position, start + offset)
                offset = first

    def _last_before(
        self, position: int, look: Callable[[LogCursor, int], Found | None]
    ) -> Steps[Found | None]:
        """The last result of `look` before a position. `look` moves a cursor up to a limit."""
        with contextlib.suppress(LogRemoved):
            for cursor, end in self._blocks_before(position):
                last: Found | None = None
                while (piece := (yield from _next_piece(cursor, end))) is not None:
                    found = look(cursor, piece)
                    last = last if found is None else found
                if last is not None:
                    return last
        return None

    def last_bookmark_before(self, position: int) -> Steps[tuple[int, int]]:
        """Bookmark of the last message before a log position; (0, 0) if there is none."""
        found = yield from self._last_before(position, LogCursor.skip_to)
        return (0, 0) if found is None else found

    def last_position_before(self, position: int) -> Steps[int]:
        """Log position of the last record before another one; that one itself if there is none."""
        found = yield from self._last_before(position, LogCursor.last_record)
        return position if found is None else found

    @property
    def end(self) -> int:
        """Log position behind all written records."""
        written: int = self._runtime.control.watermarks()[0]
        return written


def make_journal_view(
    config: ServerConfig,
    runtime: Runtime,
    index: int,
    resolver: Callable[[str, str], object],
    log: EventLog,
    guard: FloorShare | None = None,
) -> JournalView | None:
    """The view of transport `index`; None on an instance without a transaction log. `guard`: the view's share if the
    process has other views.
    """
    settings = config.transaction_log
    if settings is None:
        return None
    return JournalView(
        settings.journal_directory,
        settings.journal_archive_directory,
        config.name,
        runtime,
        resolver,
        FrameCache(settings.journal_cache_bytes // max(1, runtime.transports)),
        guard if guard is not None else JournalFloor(runtime.control, index),
        lambda path, problem: log.log("1D-0020", path=path, reason=str(problem)),
    )
