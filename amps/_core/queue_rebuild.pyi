from collections.abc import Iterable

from amps._core.log_reader import LogCursor
from amps._core.queue_desk import QueueDesk
from amps._core.queue_machine import Queue

class RecordedTopic:
    @property
    def feeds(self) -> tuple[Queue, ...]: ...
    @property
    def queue(self) -> int: ...
    def __init__(self, feeds: Iterable[Queue], queue: int) -> None: ...

def rebuild(cursor: LogCursor, desk: QueueDesk, limit: int, bytes_max: int) -> bool: ...
