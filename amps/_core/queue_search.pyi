"""Types of looking for messages in queues; see queue_search.pyx."""

from amps._core.filter_set import FilterSet
from amps._core.log_file import LogFile
from amps._core.queue_acks import AckList
from amps._core.queue_messages import MessageReader
from amps._core.queue_walk import SlotMemory
from amps._core.topic_table import TopicEntry

class QueueSearch:
    def __init__(
        self,
        memory: SlotMemory,
        reader: MessageReader,
        queue: int,
        entry: TopicEntry,
        filters: FilterSet | None,
        limit: int,
        shows: bool = False,
        keys: frozenset[int] | None = None,
    ) -> None: ...
    @property
    def found(self) -> AckList: ...
    @property
    def compared(self) -> int: ...
    @property
    def matched(self) -> int: ...
    @property
    def missing(self) -> tuple[LogFile, int, int, int]: ...
    def run(self, bytes_max: int) -> bool | None: ...
    def show(self, skip_count: int, row_limit: int) -> None: ...
    def take_rows(self) -> list[tuple[int, int, bytes, bytes]]: ...
