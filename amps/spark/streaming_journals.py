"""A stream from a journal directory, beside a running server or without one.

An offset in the checkpoint:

    {"bookmark": "38212|42|", "bookmark_at": 81616, "position": 81920, "cuts": [4096, 40960, 81920]}

`position` is the log position at which the micro-batch ends and the next begins. `bookmark` is the last message before
it, or one of the last, and `bookmark_at` is its position; both are null if none is known. `cuts` are the positions
between which its tasks read. The first one is the position of the first row, so that its removal is detected. An
empty micro-batch has no cuts.

Positions stay the same when journals are archived and compressed. When journals are removed, the log begins at a higher
position. Another log at the same place has other bookmarks: when a query is started again, the bookmark of its offset
must be at the same position.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow
from pyspark.sql.datasource import InputPartition

from amps.journal.bookmark_text import read_message_bookmark
from amps.spark.options import Message
from amps.spark.payload_schema import parse_ddl
from amps.spark.planning import Bounds, Split, log_bounds, make_plan
from amps.spark.reading import DATA_COLUMN, Request, SplitReader, skipped_in_planning
from amps.spark.selection import Selection
from amps.spark.streaming_errors import StreamReadError
from amps.spark.streaming_options import EPOCH, PARTITIONS_MAX, JournalOptions
from amps.spark.streaming_reader import LogStreamReader, Offset

PLACES = ("position", "bookmark")
Place = tuple[int, str | None]
"""The place of a record: log position and bookmark."""
SPLIT_BYTES = 8 << 20
"""Size of splits: reading of a file without an index starts at most about this far before the selected range."""
PART_BYTES_MIN = 4096
"""The minimum size of a part with the option `partitions`."""
TAIL_BYTES = 1 << 20
"""The range before an end that is searched for its last bookmark."""


class SplitsPartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The splits of one task; possibly none."""

    def __init__(self, number: int, splits: tuple[Split, ...], selection: Selection) -> None:
        super().__init__(number)
        self.number = number
        self.splits = splits
        self.selection = selection


class JournalStreamReader(LogStreamReader):
    """Follows a journal directory."""

    def __init__(self, options: JournalOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options.messages_max)
        self._options = options
        self._columns = columns
        # Parts of a journal in use are found by reading it in steps of this size.
        self._read = replace(options.read, split_bytes=min(options.read.split_bytes, SPLIT_BYTES))
        self._target: int | None = None
        self._passed: tuple[int, int] | None = (
            None  # no matching records from the first position up to the second
        )
        self._checked = False

    def first_offset(self) -> Offset:
        """Return the offset of the option `start`. Raises ValueError for a bookmark that is not in the log."""
        start = self._options.start
        self._checked = True
        if start.message is not None:
            position = self._position_of(start.message)
            return _offset(position + 1, (position, start.text))
        if start.text == EPOCH:
            return _offset(0)
        bounds = log_bounds(self._read)
        if start.time_us is not None and bounds is not None:
            later = self._read.selection.with_times(start.time_us + 1).with_positions(0, self._end(bounds))
            found = next(self._places(later), None)
            if found is not None:
                return _offset(found[0])
        return self.end_offset()

    def next_offset(self, start: Offset, messages_max: int | None) -> Offset | None:
        """Return the range after `start`, up to the end of the log or to the limits.

        Raises StreamReadError, LogDamaged, OSError.
        """
        begin = _position(start)
        bounds = log_bounds(self._read)
        if bounds is None:
            if begin:
                raise StreamReadError(
                    f"there are no journals in {self._read.path} any more: the log ended at {begin}"
                )
            return None
        self._check(start, bounds)
        looked_at = self._passed[1] if self._passed is not None and self._passed[0] == begin else begin
        end = self._end(bounds)
        selection = self._read.selection
        first = next(self._places(selection.with_positions(looked_at, end)), None)
        if first is None:
            self._passed = begin, max(looked_at, end)
            return None
        if self._options.bytes_max is not None:
            end = min(end, first[0] + self._options.bytes_max)
        last: Place | None = None
        if messages_max is not None:
            rows = itertools.islice(self._places(selection.with_positions(first[0], end)), messages_max)
            for count, place in enumerate(rows, 1):
                last = place
                if count == messages_max:
                    end = place[0] + 1
        if last is None or last[1] is None:
            last = self._bookmark_before(first[0], end)
        return {**_offset(end, last), "cuts": self._cuts(first[0], end)}

    def passed_offset(self, start: Offset) -> Offset:
        """Return the offset up to which no records match."""
        begin = _position(start)
        if self._passed is None or self._passed[0] != begin or self._passed[1] == begin:
            return start
        end = self._passed[1]
        return {**_offset(end, self._bookmark_before(begin, end)), "cuts": []}

    def end_offset(self) -> Offset:
        """Return the current end of the log."""
        bounds = log_bounds(self._read)
        if bounds is None:
            return _offset(0)
        end = self._end(bounds)
        return _offset(end, self._bookmark_before(bounds.first, end))

    def set_target(self) -> None:
        """Set the current end of the log as the end of the stream."""
        bounds = log_bounds(self._read)
        self._target = 0 if bounds is None else self._end(bounds)

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of the offset. Raises StreamReadError, LogDamaged, OSError."""
        cuts = end.get("cuts")
        if cuts is None:
            cuts = sorted({_position(start), _position(end)})
        partitions: list[InputPartition] = []
        for number, (first, stop) in enumerate(itertools.pairwise(cuts)):
            plan = make_plan(self._read, self._read.selection.with_positions(first, stop))
            skipped_in_planning(plan.skipped, self._read.report)
            partitions.append(SplitsPartition(number, tuple(plan.splits), plan.selection))
        if cuts and cuts[0]:
            # Checked after the planning: the task that reads a journal detects a later removal.
            self._check_begins(cuts[0], log_bounds(self._read))
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """In a task: return the rows of its range. Raises LogDamaged, OSError."""
        assert isinstance(partition, SplitsPartition)
        read = self._read
        fields = None
        if read.schema is not None and DATA_COLUMN in self._columns:
            fields = parse_ddl(read.schema)
        for split in partition.splits:
            request = Request(
                selection=partition.selection,
                columns=self._columns,
                data_fields=fields,
                skips_damage=read.skips_damage,
                report=read.report,
            )
            yield from SplitReader(split, request).batches()

    def _end(self, bounds: Bounds) -> int:
        end = bounds.durable
        if not end:
            # The durable position is not known: the log ends with its last record.
            end = bounds.newest
            for position, _ in self._places(Selection().with_positions(bounds.newest)):
                end = position + 1
        return end if self._target is None else min(end, self._target)

    def _places(self, selection: Selection) -> Iterator[Place]:
        """Yield position and bookmark of the selected records, in the order of the log."""
        if selection.is_empty:
            return
        plan = make_plan(self._read, selection)
        request = Request(
            selection=plan.selection,
            columns=PLACES,
            data_fields=None,
            skips_damage=self._read.skips_damage,
        )
        for split in plan.splits:
            for batch in SplitReader(split, request).batches():
                yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

    def _bookmark_before(self, first: int, end: int) -> Place | None:
        """Return the last message with a bookmark before a position, if it is within TAIL_BYTES."""
        last = None
        for place in self._places(Selection().with_positions(max(first, end - TAIL_BYTES), end)):
            last = last if place[1] is None else place
        return last

    def _cuts(self, first: int, end: int) -> list[int]:
        """Return positions that cut the range into parts of about the same size."""
        size = end - first
        parts = self._options.partitions
        by_size = -(-size // self._options.read.split_bytes)
        parts = by_size if parts is None else min(parts, size // PART_BYTES_MIN)
        parts = max(1, min(parts, PARTITIONS_MAX))
        return [first + size * part // parts for part in range(parts)] + [end]

    def _check(self, start: Offset, bounds: Bounds) -> None:
        """Check that the log is the one of the offset, and that no part was removed. Raises StreamReadError."""
        begin, bookmark, at = _position(start), start.get("bookmark"), start.get("bookmark_at")
        if begin:
            self._check_begins(begin, bounds)
        if self._checked:
            return
        message = read_message_bookmark(bookmark) if isinstance(bookmark, str) else None
        if message is not None and isinstance(at, int) and at >= bounds.first:
            here = Selection().with_positions(at, at + 1)
            if next(self._places(here), None) != (at, bookmark):
                raise StreamReadError(
                    f"the message {bookmark} is not at position {at} of the log in {self._read.path}: it is another log"
                    " than the one of the checkpoint. Start a new query with a checkpoint of its own"
                )
        self._checked = True

    def _check_begins(self, begin: int, bounds: Bounds | None) -> None:
        if bounds is None or begin < bounds.first:
            where = "there are none" if bounds is None else f"they begin at {bounds.first}"
            raise StreamReadError(
                f"the journals of {self._read.path} from log position {begin} on were removed ({where}), or archived"
                " elsewhere (option 'archive'). Nothing is skipped silently: restore them, or start a new query with"
                " a checkpoint of its own where the log begins now"
            )

    def _position_of(self, message: tuple[int, int]) -> int:
        """Return the log position of a message. Raises ValueError if it is not in the log."""
        options = replace(self._read, first_message=Message(*message, True))
        try:
            plan = make_plan(options, Selection())
        except ValueError as error:
            raise ValueError(str(error).replace("'from'", "'start'")) from None
        if plan.selection == Selection():
            raise ValueError(
                f"the option 'start' names a message, and there are no journals in {self._read.path}"
            )
        return plan.selection.first_position


def _offset(position: int, before: Place | None = None) -> Offset:
    at, bookmark = (None, None) if before is None else before
    return {"bookmark": bookmark, "bookmark_at": at, "position": position}


def _position(offset: Offset) -> int:
    position = offset.get("position")
    if not isinstance(position, int):
        raise StreamReadError(
            f"the checkpoint holds an offset that no stream from a journal directory has written: {offset!r}"
        )
    return position
