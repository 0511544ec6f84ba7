from amps._core.queue_list import MessageList
from amps._core.queue_members import Membership
from amps._core.queue_output import QueueOutput
from amps._core.queue_slots import QueueArena

class QueueShared:
    @property
    def queues(self) -> list[Queue]: ...
    def __init__(self, output: QueueOutput) -> None: ...

class Queue(MessageList):
    @property
    def settings(self) -> object: ...
    @property
    def member_limit(self) -> int: ...
    @property
    def members(self) -> list[Membership]: ...
    def __init__(
        self, arena: QueueArena, number: int, counters: object, settings: object, shared: QueueShared
    ) -> None: ...
