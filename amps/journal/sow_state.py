"""The state of a SOW topic from files alone, now or as of a moment: without a server, and while one runs.

The newest record of a key wins. Records are in the journals, and values whose journals were removed, or that are in no
journal, in the topic's value file. `StateFold` (amps._core.sow.files) reads both; this module chooses the files, and
checks that they have all of the state that is wanted.

While a server runs, it may carry values over from journals to the value file, and then remove the journals. It notes
that in the value file first. So a state counts only if the same journals and the same note were there before and after
it was read; else it is read again.
"""

import bisect
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
from numpy.typing import NDArray

from amps._core.journal.reader import LogCursor, LogDamaged, LogDirectory, LogMissing
from amps._core.journal.writer import scan_file
from amps._core.sow.files import NO_TIME_LIMIT, PLACE_IN_FILE, StateFold, ValueReader, record_parts
from amps._core.sow.table import VALUE_FILE_HEADER_BYTES
from amps.journal.files import JournalHeader, open_journal
from amps.journal.listing import list_journals
from amps.journal.names import reading_places, watermark_path
from amps.journal.value_file import (
    NEVER,
    LogPlace,
    ValueFileHeader,
    ValueFileUnusable,
    names_path,
    read_begin,
    read_identity,
    read_log_place,
    read_names,
)
from amps.journal.watermark import read_watermark

STEP_BYTES = 16 << 20
ATTEMPTS = 5
CLIENT_NAME = 1  # class of name records


class StateUnknown(ValueError):
    """The files do not have the state that is wanted; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of a state: it has all records up to a message, or up to a time. `text`: as the user gave it."""

    text: str
    message: tuple[int, int] | None = None
    """Publisher id and sequence."""
    time_us: int = NO_TIME_LIMIT
    """UNIX time in microseconds."""


class ValueFileAccess:
    """A value file that this process reads."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, StateUnknown if it is no value file."""
        self.path = path
        with path.open("rb") as file:
            self._descriptor = os.dup(file.fileno())
        try:
            page = self._page()
            self.header: ValueFileHeader = read_identity(page)
        except ValueFileUnusable as problem:
            os.close(self._descriptor)
            raise StateUnknown(f"{path} cannot be used: {problem}") from None
        self.log_place = read_log_place(page)
        self.values = ValueReader(
            self._descriptor, self.header.slab_size, lambda: os.fstat(self._descriptor).st_size
        )

    def __del__(self) -> None:
        if hasattr(self, "values"):
            os.close(self._descriptor)

    def _page(self) -> bytes:
        return os.pread(self._descriptor, VALUE_FILE_HEADER_BYTES, 0)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._descriptor).st_size

    @property
    def begin_txid(self) -> int:
        """See `read_begin`."""
        return read_begin(self._page())

    def names(self) -> list[str] | None:
        """The names of logical topics by their numbers; None: the topic has no `Pattern`. Raises OSError."""
        try:
            return read_names(names_path(self.path).read_bytes())[0]
        except FileNotFoundError:
            return None


@dataclass(slots=True)
class FileState:
    """The state of one topic, or of all logical topics of one. The values are sorted by their places.

    `topics` has for each value the index of its name in `names`. `publishers`: names of clients by publisher id.
    `headers`: of the journals, oldest first.
    """

    message_type: str
    names: list[str]
    keys: NDArray[numpy.uint64]
    txids: NDArray[numpy.uint64]
    places: NDArray[numpy.uint64]
    topics: NDArray[numpy.uint32]
    publishers: dict[int, bytes]
    headers: Sequence[JournalHeader]
    log: LogPlace | None
    value_file: Path | None

    @property
    def in_journals(self) -> int:
        """How many of the values, from the first one on, are in journals; the others are in the value file."""
        return int(numpy.searchsorted(self.places, PLACE_IN_FILE))

    def journal_ranges(self) -> Iterator[tuple[JournalHeader, int, int]]:
        """Yield each journal that has values, and the index of its first value and of the one behind its last."""
        ends = [header.start_position + header.size for header in self.headers]
        at, end = 0, self.in_journals
        while at < end:
            number = bisect.bisect_right(ends, int(self.places[at]))
            behind = int(numpy.searchsorted(self.places[:end], ends[number]))
            yield self.headers[number], at, behind
            at = behind


def read_state(
    topic: str | None,
    log: LogPlace | None,
    value_file: Path | None,
    moment: Moment | None = None,
    message_type: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> FileState:
    """Read the state of a topic. None for the topic: all of the value file. `log` None: the one that the value file
    names. `progress(bytes read, bytes in all)`.

    Raises StateUnknown, LogDamaged, OSError.
    """
    access = None if value_file is None else ValueFileAccess(value_file)
    if access is not None:
        log = log or access.log_place
        if access.log_place is None and access.begin_txid == NEVER:
            log = None  # the topic is not recorded
        if message_type not in (None, access.header.message_type):
            raise StateUnknown(f"{value_file} belongs to a topic of type {access.header.message_type}")
    if log is None and access is not None and access.begin_txid != NEVER:
        raise StateUnknown(
            f"{value_file} does not say where the journals are that have the other values of topic "
            f"{access.header.topic!r}: give their directory"
        )
    if log is not None and not log.directory.is_dir():
        raise StateUnknown(
            f"the journals of the topic were in {log.directory}, which is not there: give their directory"
        )
    problem: Exception | None = None
    for _ in range(ATTEMPTS):
        headers = _headers(log)
        before = _beginning(headers, access)
        try:
            state = _Reading(topic, message_type, log, headers, access, moment, progress).state()
        except (LogMissing, BlockingIOError) as error:
            problem = error
        else:
            if _beginning(_headers(log), access) == before:
                return state
    if problem is not None:
        raise problem
    raise StateUnknown("journals were removed while they were read: read again")


def _headers(log: LogPlace | None) -> list[JournalHeader]:
    if log is None:
        return []
    return [entry.header for entry in list_journals(log.directory, log.archive, log.instance)]


def _beginning(headers: Sequence[JournalHeader], access: ValueFileAccess | None) -> tuple[int, int]:
    return headers[0].number if headers else 0, access.begin_txid if access is not None else 0


def log_directory(log: LogPlace, resolver: Callable[[str, str], object]) -> LogDirectory:
    """The journals of a place."""
    first, *more = reading_places(log.directory, log.archive, log.instance)
    return LogDirectory(*first, resolver, more)


class _Reading:
    """One attempt."""

    def __init__(
        self,
        topic: str | None,
        message_type: str | None,
        log: LogPlace | None,
        headers: list[JournalHeader],
        access: ValueFileAccess | None,
        moment: Moment | None,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self._topic = topic
        self._log = log
        self._headers = headers
        self._access = access
        self._moment = moment
        self._progress = progress
        self._message_type = message_type if access is None else access.header.message_type
        self._begin_txid = 0 if access is None else access.begin_txid
        self._publishers: dict[int, bytes] = {}
        self._names, self._numbers = self._chosen_names()
        self._number_of = {name: number for number, name in enumerate(self._names)}
        self._fold = StateFold() if access is None else StateFold(access.header.definition, access.header.begin_ns)

    def _chosen_names(self) -> tuple[list[str], list[int | None]]:
        """The wanted topics, and their numbers by the numbers of the value file."""
        access, topic = self._access, self._topic
        if access is None:
            assert topic is not None
            return [topic], []
        names = access.names()
        if names is None:
            if topic not in (None, access.header.topic):
                raise StateUnknown(f"{access.path} belongs to topic {access.header.topic!r}, not to {topic!r}")
            return [access.header.topic], [0]
        if topic in (None, access.header.topic):
            return names, list(range(len(names)))
        if topic not in names:
            raise StateUnknown(f"{access.path} has no topic {topic!r}")
        return [topic], [0 if name == topic else None for name in names]

    def _resolve(self, topic: str, message_type: str) -> int | None:
        number = self._number_of.get(topic)
        if number is None or message_type == self._message_type:
            return number
        if self._access is not None:
            return None
        if self._message_type is not None:
            raise StateUnknown(
                f"the journals have topics {topic!r} of the types {self._message_type} and {message_type}: choose one"
            )
        self._message_type = message_type
        return number

    def state(self) -> FileState:
        if self._log is not None and self._headers:
            self._read_log(self._log)
        fold, access = self._fold, self._access
        if self._moment is not None:
            self._check_moment(self._moment)
        if access is None:
            if self._headers and self._headers[0].start_position:
                raise StateUnknown(
                    f"the journals of {self._place} begin with number {self._headers[0].number}: older values of topic "
                    f"{self._topic!r} are in its value file, which must be given (FileName of the topic)"
                )
            if fold.record_count == 0:
                raise StateUnknown(
                    f"the journals of {self._place} have no record of topic {self._topic!r}; if they do not record it, "
                    "give its value file (FileName of the topic)"
                )
        else:
            end = NO_TIME_LIMIT if self._moment is None else max(fold.last_txid + 1, self._begin_txid)
            fold.read_values(access.values, self._numbers, end)
        if fold.foreign_count:
            raise StateUnknown(
                f"the journals of {self._place} have records of topic {self._names[0]!r} whose keys are not those of "
                f"its present definition (the last one at position {fold.foreign_position}): the topic had another "
                "Key or KeyDomain, or was no SOW topic; its state can be read when these journals are removed"
            )
        keys, txids, places, topics = fold.live()
        return FileState(
            self._message_type or "",
            self._names,
            keys,
            txids,
            places,
            topics,
            self._publishers,
            self._headers,
            self._log,
            None if access is None else access.path,
        )

    @property
    def _place(self) -> str:
        return "" if self._log is None else str(self._log.directory)

    def _learn_name(self, class_: int, id_: int, text: bytes) -> None:
        if class_ == CLIENT_NAME:
            self._publishers[id_] = text

    def _read_log(self, log: LogPlace) -> None:
        newest = self._headers[-1]
        watermark = read_watermark(watermark_path(log.directory, log.instance))
        limit = min(watermark, newest.start_position + newest.size)
        if not watermark:
            places = reading_places(log.directory, log.archive, log.instance)
            path = next(
                path
                for path in (Path(f"{prefix}{newest.number:010d}{suffix}") for prefix, suffix in places)
                if path.exists()
            )
            limit = newest.start_position + scan_file(open_journal(path), newest.start_position).end_offset
        cursor = LogCursor(log_directory(log, self._resolve), self._headers[0].number, 0, True)
        cursor.fetch()
        cursor.learns_names = self._learn_name
        begin = self._headers[0].start_position
        moment = self._moment or Moment("")
        publisher, sequence = moment.message or (0, 0)
        while not self._fold.read_log(cursor, limit, STEP_BYTES, moment.time_us, publisher, sequence):
            if self._progress is not None:
                self._progress(cursor.position - begin, limit - begin)

    def _check_moment(self, moment: Moment) -> None:
        """Raise StateUnknown unless the files have the state as of the moment."""
        if self._log is None:
            raise StateUnknown(f"topic {self._names[0]!r} is not in a transaction log: only its present state is known")
        if moment.message is not None and not self._fold.stopped:
            raise StateUnknown(
                f"the message {moment.text} is not in the journals of {self._place}: was its journal removed, or "
                "archived elsewhere?"
            )
        begins = bool(self._begin_txid or (self._headers and self._headers[0].start_position))
        if begins and (not self._fold.last_txid or self._fold.last_txid + 1 < self._begin_txid):
            raise StateUnknown(
                f"{moment.text} is too far back: the state of topic {self._names[0]!r} is known from the first record "
                f"of journal {self._headers[0].number if self._headers else 0} on, at the earliest"
            )


Parts = tuple[int, int, int, int, int, int, bytes, bytes, bytes, int, int]
"""As `record_parts` returns them."""


class ValueRecords:
    """Records of values in a value file, also of those that have moved since the state was read."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, StateUnknown."""
        self._access = ValueFileAccess(path)
        self._recorded = self._access.begin_txid != NEVER
        self._access.values.look()
        self._found: dict[int, tuple[int, int]] = {}
        """Place and transaction id of each key, at the last look."""

    def record(self, key: int, txid: int, place: int) -> bytes | None:
        """The record of a key's value. None: the key was removed meanwhile. Of a topic that is not recorded, the value
        may be newer. Raises StateUnknown if the value is not in the file any more.
        """
        values = self._access.values
        record = values.record(place, txid)
        for attempt in range(ATTEMPTS):
            if record is not None:
                return record
            if attempt:
                self._find_all()
            found = self._found.get(key)
            if found is not None and (txid == found[1] or not self._recorded):
                record = values.record(*found)
            elif attempt:
                break
        if record is None and self._recorded:
            raise StateUnknown(
                f"{self._access.path} changed while it was read, and has a value no more that was in it: read again"
            )
        return record

    def _find_all(self) -> None:
        names = self._access.names()
        fold = StateFold(self._access.header.definition)
        fold.read_values(self._access.values, range(1 if names is None else len(names)), NO_TIME_LIMIT)
        keys, txids, places, _ = fold.live()
        self._found = dict(
            zip(keys.tolist(), zip(places.tolist(), txids.tolist(), strict=True), strict=True)
        )


def each_value(state: FileState) -> Iterator[tuple[int, Parts]]:
    """Yield the index and `record_parts` of each value. Keys that were removed meanwhile are left out.

    Raises LogDamaged, StateUnknown, OSError.
    """
    for header, first, end in state.journal_ranges():
        assert state.log is not None
        file = log_directory(state.log, lambda topic, message_type: None).file(header.number)
        for at in range(first, end):
            parts = record_parts(file, int(state.places[at]) - file.start_position)
            if parts[3] != state.txids[at]:
                raise LogDamaged(file.path, int(state.places[at]) - file.start_position, "it holds another record")
            yield at, parts
    if state.in_journals == len(state.keys):
        return
    assert state.value_file is not None
    records = ValueRecords(state.value_file)
    for at in range(state.in_journals, len(state.keys)):
        record = records.record(int(state.keys[at]), int(state.txids[at]), int(state.places[at]))
        if record is not None:
            yield at, record_parts(record, 0)
