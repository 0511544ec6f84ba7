from amps._core.queue_contents import QueueContents, QueueShared
from amps._core.queue_lease_order import LeaseOrder
from amps._core.queue_members import Membership
from amps._core.queue_slots import QueueArena

class QueueHolding(QueueContents):
    @property
    def member_limit(self) -> int: ...
    @property
    def leases(self) -> LeaseOrder: ...
    @property
    def members(self) -> list[Membership]: ...
    def __init__(
        self, arena: QueueArena, number: int, counters: object, settings: object, shared: QueueShared
    ) -> None: ...
