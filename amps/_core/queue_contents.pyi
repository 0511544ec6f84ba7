from amps._core.queue_list import MessageList
from amps._core.queue_output import QueueOutput
from amps._core.queue_slots import QueueArena

class QueueShared:
    @property
    def queues(self) -> list[QueueContents]: ...
    def __init__(self, output: QueueOutput) -> None: ...

class QueueContents(MessageList):
    start_position: int
    @property
    def settings(self) -> object: ...
    def __init__(
        self, arena: QueueArena, number: int, counters: object, settings: object, shared: QueueShared
    ) -> None: ...
