"""The RecoveryPoint of a queue as a log position, at which a queue without stored state begins (queues.md §17).

It is looked up once, when the queue is new or its RecoveryPoint has changed. `queues.ack` stores the position.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.journal.writer import IndexDamaged, IndexReader
from amps.config.model_queues import RecoveryPoint
from amps.journal.files import JournalHeader
from amps.journal.names import index_places
from amps.journal.queues_ack import RecoveryPointKey


def recovery_point_key(point: RecoveryPoint) -> RecoveryPointKey:
    """The meaning of a recovery point, as a key: recovery points with the same meaning have the same key."""
    if point.kind == "bookmark":
        return (point.kind, point.bookmarks)
    return (point.kind,) if point.time_ns is None else (point.kind, point.time_ns)


class RecoveryPoints:
    """Looks up recovery points in a log that is at rest."""

    def __init__(
        self,
        directory: LogDirectory,
        journals: Sequence[JournalHeader],
        limit: int,
        index_paths: Callable[[int], list[Path]],
    ) -> None:
        """`journals`: oldest first; the log ends at `limit`. `index_paths`: of a full journal."""
        self._directory = directory
        self._journals = journals
        self._limit = limit
        self._index_paths = index_paths

    def position_of(self, point: RecoveryPoint) -> int | None:
        """The log position of a recovery point; None: its bookmarks are not in the log. Raises LogDamaged, OSError."""
        if point.kind == "now" or not self._journals:
            return self._limit
        if point.kind == "time":
            assert point.time_ns is not None
            return self._position_at(point.time_ns)
        if point.kind == "bookmark":
            found = [self._position_after(*bookmark) for bookmark in point.bookmarks]
            return min((position for position in found if position is not None), default=None)
        return self._journals[0].start_position

    def _position_at(self, time_ns: int) -> int:
        """Position of the first record of that time or a later one; the end of the log if there is none."""
        for info in self._journals:
            index = self._index(info)
            if index is not None and index.last_timestamp_ns < time_ns:
                continue
            end = min(self._limit, info.start_position + info.size)
            cursor = LogCursor(self._directory, info.number, 0, True)
            cursor.fetch()
            cursor.skip_before(-(-time_ns // 1000), end)
            if cursor.position < end:
                return cursor.position
        return self._limit

    def _position_after(self, publisher_id: int, sequence: int) -> int | None:
        for info in self._journals:
            index = self._index(info)
            if index is not None and not index.may_hold(publisher_id, sequence):
                continue
            cursor = LogCursor(self._directory, info.number, 0, True)
            cursor.fetch()
            end = min(self._limit, info.start_position + info.size)
            if cursor.find(publisher_id, sequence, end) is not None:
                return cursor.position
        return None

    def _index(self, info: JournalHeader) -> IndexReader | None:
        """The index of a full journal; None: there is none, so the journal itself has to be read."""
        for path in self._index_paths(info.number):
            try:
                index = IndexReader(path.read_bytes(), True)
            except (OSError, IndexDamaged):
                continue
            if index.file_number == info.number and index.start_position == info.start_position:
                return index
        return None


def index_paths_of(directory: Path, archive: Path | None, instance_name: str) -> Callable[[int], list[Path]]:
    """The argument `index_paths` of RecoveryPoints."""
    return lambda number: index_places(directory, archive, instance_name, number)
