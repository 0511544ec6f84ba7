"""Types of what evaluates filters of queue subscriptions; see queue_filtering.pyx."""

from collections.abc import Callable

from amps._core.filter_set import Filter, FilterBench
from amps._core.frames import LogDamaged
from amps._core.log_file import LogFile, LogUnreadable
from amps._core.queue_messages import MessageReader
from amps._core.queue_walk import QueueWalk, SlotMemory
from amps._core.topic_table import TopicEntry

class FilterCursor:
    def __init__(self, number: int, filter_: Filter) -> None: ...
    @property
    def number(self) -> int: ...

class Scan:
    def __init__(self, walk: QueueWalk, entry: TopicEntry, bench: FilterBench) -> None: ...

class QueueFiltering:
    def __init__(
        self,
        memory: SlotMemory,
        reader: MessageReader,
        read_ahead: Callable[[LogFile, int, int, Callable[[LogUnreadable | None], object]], object],
        schedule: Callable[[], object],
        damaged: Callable[[LogDamaged], object],
        push: Callable[[bytes], object],
    ) -> None: ...
    def __len__(self) -> int: ...
    def begin(
        self, number: int, queue: int, filter_: Filter, bench: FilterBench, entry: TopicEntry
    ) -> None: ...
    def end(self, number: int) -> None: ...
    def run(self, limit: int, bytes_max: int) -> bool: ...
    def wake(self, scan: Scan, needed_until: int, problem: LogUnreadable | None = None) -> None: ...
    def flush(self) -> None: ...
    def release(self) -> None: ...
