"""The journal as a transport reads it: files, indexes, and where a bookmark lies in them.

Nothing here keeps a place: cursors are made for replays and for the tailers, which own them. Looking up a bookmark or
a moment costs an index search and the reading of one block; where an index is missing, of a whole journal. All of it is
done in steps, because the event loop of a worker must not stand still for it: neither for the disk nor while compressed
journals are decompressed. An index that turns out to be damaged is reported once and not looked at again before
somebody replaces it: a start makes a new one.

Journals are removed while the server runs. What is opened here stays until `release_unused` finds that nobody reads
it any more; who comes too late for a journal (LogRemoved) looks again at where the log begins now.
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
from amps.server.shared.journal_floor import JournalFloor

COLLECTION_INTERVAL_S = 5.0
PIECE_BYTES = 256 << 10
"""A step goes so far: decompressing two frames, in which that may lie, takes half a millisecond."""
TOPICS_PER_STEP = 64
COMPRESSED_TOPICS_PER_STEP = 2
"""Each may lie in a frame of its own."""


class PagesMissing(Exception):
    """A lookup has to read something that is not in memory: who does not want to wait has it read, and asks again.

    `problem`: set by who has tried to read it and could not. `needed_until`: file offset up to which all is needed;
    None: the lookup looks at the problem itself, and perhaps goes on with what was read before it.
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
"""Something that is done in steps of less than a millisecond: before each it yields what has to be read from the disk
for it, if anything. The last one returns the result.
"""


def at_once(steps: Steps[Result]) -> Result:
    """Do all the steps, and wait for the disk where they do."""
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
    """Have what comes next in memory. Returns a place up to which the cursor may be moved then, None if it has come to
    the limit. It stops before that where a record is not in memory as a whole; that is there the next time. Raises
    LogUnreadable.
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
    """The journal as a reader sees it: files, indexes, places of bookmarks."""

    def __init__(
        self,
        journal_directory: Path,
        archive: Path | None,
        instance_name: str,
        runtime: Runtime,
        resolver: Callable[[str, str], object],
        cache: FrameCache,
        guard: JournalFloor,
        damaged: Callable[[Path, Exception], None] = lambda path, problem: None,
    ) -> None:
        """`damaged` is told of every index that cannot be used, once."""
        first, *more = reading_places(journal_directory, archive, instance_name)
        self.directory = LogDirectory(*first, resolver, more, cache, guard)
        self._journal_directory = journal_directory
        self._archive = archive
        self._instance_name = instance_name
        self._runtime = runtime
        self._closed_indexes: dict[int, IndexReader] = {}
        self._damaged = damaged
        self._damaged_indexes: dict[int, tuple[int, int, int]] = {}
        """By journal: which file it was (inode, size, time of the last change in ns)."""
        self._next_collection_s = 0.0
        self._learnt: WeakKeyDictionary[LogFile, int] = WeakKeyDictionary()
        """By file: the offset of a topic record. That one and all before it are learnt."""

    def release_unused(self) -> None:
        """Let journals go that nobody reads any more."""
        first = self._runtime.control.first_journal_number
        lowest = self.directory.release_unused()
        if lowest is not None and lowest < first and time.monotonic() >= self._next_collection_s:
            # The core waits for it. What ended with its connection holds it until the collector comes by.
            self._next_collection_s = time.monotonic() + COLLECTION_INTERVAL_S
            gc.collect()
            self.directory.release_unused()
        for known in (self._closed_indexes, self._damaged_indexes):
            for number in [number for number in known if number < first]:
                del known[number]

    def cursor_at(self, position: int, verify: bool) -> Steps[LogCursor]:
        """A cursor at a log position, with the topics before it learnt; at the first message if that is later."""
        control = self._runtime.control
        while True:
            last = control.watermarks()[3]
            with contextlib.suppress(LogRemoved):
                number = self.directory.number_at(position, control.first_journal_number, last)
                return (yield from self._cursor_in(number, position, verify))

    def cursor_at_start(self, verify: bool) -> LogCursor:
        """A cursor at the first message there is."""
        while True:
            with contextlib.suppress(LogRemoved):
                return LogCursor(self.directory, self._runtime.control.first_journal_number, 0, verify)

    def _cursor_in(self, number: int, position: int, verify: bool) -> Steps[LogCursor]:
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
        """Learn what the chain of topic records says that ends at that file offset."""
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
        """The index of a journal, of the one in use too; None if there is none to be had."""
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
        """Log positions of the message with that bookmark and of what follows it; None if it is not in the log.

        `indexes`: for many bookmarks in a row, the indexes that are open already; what is opened is added. Raises
        LogDamaged.
        """
        # Older journals than one that was removed were removed before it.
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
            blocks: list[tuple[int, int]] = [(0, 0)]  # all of it, if nothing tells where it may be
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
            # Without an index it is only known afterwards whether an earlier journal holds later records.
            earlier = block is not None
            limit = min(written, start + cursor.file.size)
            while (piece := (yield from _next_piece(cursor, limit))) is not None:
                earlier |= cursor.skip_before(time_us, piece)
                if cursor.position < piece and not cursor.waits:
                    break  # at a record of that time or a later one
            if earlier:
                return cursor.position
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
            # A journal may be full without a message, when the first one was too large for it: nothing is indexed.
            offset = min(position - start, index.end_offset)
            while offset > FILE_HEADER_SIZE:
                first, _ = index.block_range(offset - 1)
                cursor = LogCursor(self.directory, number, start + first, False)
                yield cursor, min(position, start + offset)
                offset = first

    def _last_before(
        self, position: int, look: Callable[[LogCursor, int], Found | None]
    ) -> Steps[Found | None]:
        """What `look` found last before a position. It moves a cursor to a limit."""
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
        """Log position behind everything written."""
        written: int = self._runtime.control.watermarks()[0]
        return written


def make_journal_view(
    config: ServerConfig,
    runtime: Runtime,
    index: int,
    resolver: Callable[[str, str], object],
    log: EventLog,
) -> JournalView | None:
    """The view of transport `index`; None on an instance without a transaction log."""
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
        JournalFloor(runtime.control, index),
        lambda path, problem: log.log("1D-0020", path=path, reason=str(problem)),
    )
