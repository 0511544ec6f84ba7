"""A stream from a live server: choosing the ranges of its log for a micro-batch, and reading them.

An offset in the checkpoint:

    {"bookmark": "38212|42|", "ranges": ["[38212|1|:771|9|]", "(771|9|:38212|42|]"], "reader": "5f2a9c10"}

`bookmark` is the end of the micro-batch and the start of the next: a message, or before the first micro-batch `0` (the
epoch) or a time. `ranges` are the ranges of its tasks; the tasks subscribe to them literally. The first one begins with
the first matching message, so that its removal is detected, even if the query began with the
epoch. Every range has at least one message; an empty micro-batch has no ranges. `reader` distinguishes the connections
of this query from those of others.

The driver finds the end with small requests: `now` returns the end of the log, and a range with `top_n` 1 shows whether
there is a message. If messages must be counted, for a limit or for cuts, it reads them and keeps their count and a
few bookmarks.
"""

import secrets
from collections.abc import Iterator, Sequence

import pyarrow
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from amps.journal.bookmark_text import read_message_bookmark
from amps.spark.payload_schema import parse_ddl
from amps.spark.reading import DATA_COLUMN
from amps.spark.streaming_connection import LogReader
from amps.spark.streaming_errors import StreamReadError
from amps.spark.streaming_options import NOW, ServerOptions
from amps.spark.streaming_ranges import Cutter, LogRange
from amps.spark.streaming_reader import LogStreamReader, Offset
from amps.spark.streaming_rows import MessageRows

STAGES_TOLD_APART = 8


class RangePartition(InputPartition):  # type: ignore[misc, unused-ignore]
    """The range of one task."""

    def __init__(self, number: int, wanted: str, reader: str) -> None:
        super().__init__(number)
        self.number = number
        self.wanted = wanted
        self.reader = reader


class ServerStreamReader(LogStreamReader):
    """Follows the log of a server."""

    def __init__(self, options: ServerOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options.messages_max)
        self._options = options
        self._columns = columns
        self._reader = secrets.token_hex(4)
        self._log: LogReader | None = None
        self._target: str | None = None
        self._passed: tuple[str, str] | None = (
            None  # no matching messages from the first bookmark up to the second
        )

    def first_offset(self) -> Offset:
        """Return the offset of the option `start`; `now` is the current last message."""
        start = self._options.start
        return self._offset(self._driver().now() if start.text == NOW else start.text)

    def next_offset(self, start: Offset, messages_max: int | None) -> Offset | None:
        """Return the range after `start`, up to the end of the log or to `messages_max`. Raises StreamReadError."""
        begin = self._bookmark(start)
        if self._log is None:
            self._reader = str(start.get("reader", self._reader))
        looked_at = self._passed[1] if self._passed is not None and self._passed[0] == begin else begin
        counts = messages_max is not None or self._options.partitions > 1
        log = self._driver()
        found = Cutter()
        for messages in log.read(LogRange(looked_at, self._target or NOW), messages_max if counts else 1):
            for message in messages:
                found.add(str(message.bookmark))
        if found.first is None:
            self._passed = begin, log.reached or looked_at
            if read_message_bookmark(looked_at) is None:
                # The last position of a range that begins with a time may not be durable yet. After `now` it is.
                log.now()
            return None
        if counts:
            return self._offset(log.reached or str(found.last), found.ranges(self._options.partitions))
        end = self._target or log.now()
        return self._offset(end, [LogRange(found.first, end, True)])

    def passed_offset(self, start: Offset) -> Offset:
        """Return the offset up to which no messages match."""
        begin = self._bookmark(start)
        if self._passed is None or self._passed[0] != begin or self._passed[1] == begin:
            return start
        return self._offset(self._passed[1])

    def end_offset(self) -> Offset:
        """Return the last message of the log, without ranges: they are computed when the start is known."""
        return {"bookmark": self._driver().now(), "reader": self._reader}

    def set_target(self) -> None:
        """Set the current last message as the end of the stream."""
        self._target = self._driver().now()

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the partitions of the offset. Raises StreamReadError."""
        begin, stop = self._bookmark(start), self._bookmark(end)
        ranges = end.get("ranges")
        if ranges is None:
            ranges = [] if begin == stop else [str(LogRange(begin, stop))]
        reader = str(end.get("reader", self._reader))
        return [RangePartition(number, wanted, reader) for number, wanted in enumerate(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """In a task: return the messages of its range. Raises StreamReadError."""
        assert isinstance(partition, RangePartition)
        options = self._options
        fields = None
        if options.schema is not None and DATA_COLUMN in self._columns:
            fields = parse_ddl(options.schema)
        log = LogReader(options, self._name_of_task(partition))
        try:
            rows = MessageRows(self._columns, options.message_type, fields)
            yield from rows.batches(log.read(LogRange.parse(partition.wanted)))
        finally:
            log.close()

    def stop(self) -> None:
        """Close the driver's connection at the end of the query."""
        if self._log is not None:
            self._log.close()

    def _driver(self) -> LogReader:
        if self._log is None:
            self._log = LogReader(self._options, f"{self._options.client_name}/{self._reader}/driver")
        return self._log

    def _name_of_task(self, partition: RangePartition) -> str:
        """Return the client name of a task. Attempts that may run at the same time have different names. The total
        number of names is small, because a server keeps all names it has seen.
        """
        task = TaskContext.get()
        place = f"{partition.number}.{0 if task is None else task.attemptNumber()}"
        stage = 0 if task is None else task.stageId() % STAGES_TOLD_APART
        return f"{self._options.client_name}/{partition.reader}/{place}.{stage}"

    def _offset(self, bookmark: str, ranges: Sequence[LogRange] = ()) -> Offset:
        return {"bookmark": bookmark, "ranges": [str(wanted) for wanted in ranges], "reader": self._reader}

    @staticmethod
    def _bookmark(offset: Offset) -> str:
        bookmark = offset.get("bookmark")
        if not isinstance(bookmark, str) or "position" in offset:
            raise StreamReadError(
                f"the checkpoint holds an offset that no stream from a server has written: {offset!r}"
            )
        return bookmark
