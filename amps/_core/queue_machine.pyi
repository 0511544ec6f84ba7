from amps._core.queue_contents import QueueShared
from amps._core.queue_holding import QueueHolding
from amps._core.queue_slots import QueueArena

class Queue(QueueHolding):
    @property
    def heap_entries(self) -> int: ...
    def __init__(
        self, arena: QueueArena, number: int, counters: object, settings: object, shared: QueueShared
    ) -> None: ...
