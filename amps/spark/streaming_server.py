"""A stream from a live server: which ranges of its log a micro-batch is, and reading them.

An offset, as it stands in the checkpoint:

    {"bookmark": "38212|42|", "ranges": ["[38212|1|:771|9|]", "(771|9|:38212|42|]"], "reader": "5f2a9c10"}

`bookmark` is where the micro-batch ends and the next begins: a message, or before the first micro-batch `0` (the
epoch) or a time. `ranges` are those of its tasks, which they subscribe to as they stand here. The first one begins with
the first message that is wanted, so that it is known to be gone if it is gone, even where the query began with the
epoch. Every range has at least one message; an empty micro-batch has no ranges. `reader` tells the connections of this
query from those of others.

The driver finds the end with requests that carry little: `now` tells the end of the log, a range with `top_n` 1 whether
there is anything. Where messages must be counted, for a limit or for cuts, it reads them and keeps their count and a
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
            None  # behind the first bookmark nothing is wanted up to the second
        )

    def first_offset(self) -> Offset:
        """Where the option `start` says; `now` is the last message there is now."""
        start = self._options.start
        return self._offset(self._driver().now() if start.text == NOW else start.text)

    def next_offset(self, start: Offset, messages_max: int | None) -> Offset | None:
        """The range behind `start`: to the end of the log, or of so many messages. Raises StreamReadError."""
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
                # What a range that begins with a time says last may not be durable yet. When this is known, it is.
                log.now()
            return None
        if counts:
            return self._offset(log.reached or str(found.last), found.ranges(self._options.partitions))
        end = self._target or log.now()
        return self._offset(end, [LogRange(found.first, end, True)])

    def passed_offset(self, start: Offset) -> Offset:
        """Up to where nothing is wanted."""
        begin = self._bookmark(start)
        if self._passed is None or self._passed[0] != begin or self._passed[1] == begin:
            return start
        return self._offset(self._passed[1])

    def end_offset(self) -> Offset:
        """The last message of the log, and no ranges: they are found out when the beginning is known."""
        return {"bookmark": self._driver().now(), "reader": self._reader}

    def set_target(self) -> None:
        """The last message there is now."""
        self._target = self._driver().now()

    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """As the offset says. Raises StreamReadError."""
        begin, stop = self._bookmark(start), self._bookmark(end)
        ranges = end.get("ranges")
        if ranges is None:
            ranges = [] if begin == stop else [str(LogRange(begin, stop))]
        reader = str(end.get("reader", self._reader))
        return [RangePartition(number, wanted, reader) for number, wanted in enumerate(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """In a task: the messages of its range. Raises StreamReadError."""
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
        """The query is over."""
        if self._log is not None:
            self._log.close()

    def _driver(self) -> LogReader:
        if self._log is None:
            self._log = LogReader(self._options, f"{self._options.client_name}/{self._reader}/driver")
        return self._log

    def _name_of_task(self, partition: RangePartition) -> str:
        """Attempts that may run at a time have names of their own. There are few of them altogether: a server keeps
        the names it has seen.
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
