"""What streams from servers and from journal directories have in common: when there is a micro-batch, and Spark's ways.

From 4.2 on PySpark tells a source where a micro-batch begins, asks it for a limit, and knows sources that end with
what there is (`Trigger.AvailableNow`). In earlier ones the source remembers where it was. Before it knows (for the
first micro-batch of a query, and after a restart if the one before was complete), it goes to the end of the log,
without the limit and in one task; and with `Trigger.AvailableNow` a query ends after one micro-batch.
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
        """Nothing, where Spark does not know of it."""


Offset = dict[str, Any]

IDLE_ADVANCE_S = 60.0
"""So often an empty micro-batch moves a query past what it does not want."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
"""Between two looks that find nothing; the pause grows. Spark asks every ten milliseconds."""


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """Made on the driver, where it finds out what a micro-batch is, and once more for executors, which `read`."""

    def __init__(self, messages_max: int | None) -> None:
        self._messages_max = messages_max
        self._finite = False
        self._last: Offset | None = None
        self._advanced_at = time.monotonic()
        self._look_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    @abstractmethod
    def first_offset(self) -> Offset:
        """Where a new query begins."""

    @abstractmethod
    def next_offset(self, start: Offset, messages_max: int | None) -> Offset | None:
        """Where the next micro-batch ends, which has rows; None if there are none."""

    @abstractmethod
    def passed_offset(self, start: Offset) -> Offset:
        """After `next_offset` has found nothing: how far it has looked, as the end of an empty micro-batch."""

    @abstractmethod
    def end_offset(self) -> Offset:
        """The end of the log, for who does not know where the micro-batch begins."""

    @abstractmethod
    def set_target(self) -> None:
        """From now on the log ends where it ends now."""

    def initialOffset(self) -> Offset:
        """Where a new query begins. Raises StreamReadError, and what reading a log raises."""
        self._last = self.first_offset()
        return self._last

    def getDefaultReadLimit(self) -> Any:
        """As the options say."""
        return ReadAllAvailable() if self._messages_max is None else ReadMaxRows(self._messages_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends where the log ends now."""
        self.set_target()
        self._finite = True

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Where the next micro-batch ends; `start` itself if there is none. Raises as `initialOffset`."""
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
        """A micro-batch is done. There is nothing to release: the log is the server's."""
        self._last = end if self._last is None else self._last

    @abstractmethod
    def plan(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: the same ones whenever it is asked."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One per task, in the order of the log. Raises as `initialOffset`."""
        self._last = end  # PySpark 4.0 and 4.1 ask for the first end before they ask for the beginning
        return self.plan(start, end)
