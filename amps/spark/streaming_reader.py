"""The common part of streams from servers and from journal directories: pacing of micro-batches, and Spark's interface.

From 4.2 on PySpark passes the start of a micro-batch and a limit to a source, and supports sources that end with the
existing data (`Trigger.AvailableNow`). In earlier versions the source itself stores its last offset. Without one (for
the first micro-batch of a query, and after a restart if the one before was complete), it goes to the end of the log,
without the limit and in one task. With `Trigger.AvailableNow` a query then ends after one micro-batch.
"""

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.0 and 4.1
    ReadAllAvailable = ReadMaxRows = None  # type: ignore[misc, assignment, unused-ignore]

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """An empty substitute for versions of Spark without this class."""


Offset = dict[str, Any]

IDLE_ADVANCE_S = 60.0
"""Interval at which an empty micro-batch moves a query past records that do not match."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
"""The longest pause between two checks without result; the pause grows up to it. Spark polls every ten milliseconds."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """Determines micro-batches on the driver; a pickled copy on the executors reads them (`read`)."""

    def __init__(self, messages_max: int | None) -> None:
        self._messages_max = messages_max
        self._finite = False
        self._last: Offset | None = None
        self._advanced_at = time.monotonic()
        self._look_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    @abstractmethod
    def first_offset(self) -> Offset:
        """Return the start of a new query."""

    @abstractmethod
    def next_offset(self, start: Offset, messages_max: int | None) -> Offset | None:
        """Return the end of the next micro-batch with rows; None if there are no rows."""

    @abstractmethod
    def passed_offset(self, start: Offset) -> Offset:
        """After `next_offset` has found no rows: return the offset it has read up to, to end an empty micro-batch."""

    @abstractmethod
    def end_offset(self) -> Offset:
        """Return the end of the log, as the end of a micro-batch whose start is not known."""

    @abstractmethod
    def set_target(self) -> None:
        """Set the current end of the log as the end of the stream."""

    def initialOffset(self) -> Offset:
        """Return the start of a new query. Raises StreamReadError, and the exceptions of reading a log."""
        self._last = self.first_offset()
        return self._last

    def getDefaultReadLimit(self) -> Any:
        """Return the limit in the options."""
        return ReadAllAvailable() if self._messages_max is None else ReadMaxRows(self._messages_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the query end at the current end of the log."""
        self.set_target()
        self._finite = True

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Return the end of the next micro-batch; `start` if there is none. Raises the same as `initialOffset`."""
        start = self._last if start is None else start
        if start is None:
            return self.end_offset()
        messages_max = self._messages_max if limit is None else getattr(limit, "max_rows", None)
        if not self._finite:
            time.sleep(max(0.0, self._look_at - time.monotonic()))
        found = self.next_offset(start, messages_max)
        if found is not None:
            self._pause_s = FIRST_PAUSE_S
        else:
            self._look_at = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            passed = self.passed_offset(start)
            due = self._finite or time.monotonic() - self._advanced_at >= IDLE_ADVANCE_S
            found = passed if due else start
        if found is not start:
            self._advanced_at = time.monotonic()
        self._last = found
        return found

    def commit(self, end: Offset) -> None:
        """Called after a micro-batch. There is nothing to release: the log belongs to the server."""
        self._last = end if self._last is None else self._last

    @abstractmethod
    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch; each call returns the same ones."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return a partition per task, in the order of the log. Raises the same as `initialOffset`."""
        self._last = end  # PySpark 4.0 and 4.1 request the first end before the start
        return self.plan(start, end)
