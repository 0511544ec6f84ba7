"""Types of what sends queue messages; see queue_sender.pyx."""

from collections.abc import Callable, Collection, Mapping

from amps._core.filter_set import FilterSet
from amps._core.frames import LogDamaged
from amps._core.log_file import LogFile, LogUnreadable
from amps._core.log_reader import LogDirectory
from amps._core.outlet import Outlet
from amps._core.queue_leases import LeaseTable
from amps._core.shared import ControlPage
from amps._core.topic_table import TopicEntry

NUMBERS_END: int

class QueueReceiver:
    def __init__(
        self,
        number: int,
        owner: object,
        outlet: Outlet,
        leases: LeaseTable,
        flags: int,
        sub_id: bytes | None,
        queues: Mapping[int, bytes],
    ) -> None: ...
    @property
    def number(self) -> int: ...
    @property
    def owner(self) -> object: ...
    def change(self, flags: int, sub_id: bytes | None, queues: Mapping[int, bytes]) -> None: ...
    def select(self, filters: FilterSet | None, entries: Mapping[int, TopicEntry]) -> None: ...

class Batch: ...

class QueueSender:
    def __init__(
        self,
        directory: LogDirectory,
        control: ControlPage,
        read_ahead: Callable[[LogFile, int, int, Callable[[LogUnreadable | None], object]], object],
        schedule: Callable[[], object],
        damaged: Callable[[object, LogDamaged], object],
    ) -> None: ...
    def add(self, receiver: QueueReceiver) -> None: ...
    def remove(self, number: int) -> None: ...
    def set_queues(self, number: int, queues: Collection[int]) -> None: ...
    def take(self, record: bytes) -> None: ...
    def when_sent(self, action: Callable[[], object]) -> None: ...
    def run(self, durable: int, bytes_max: int) -> bool: ...
    def was_read(
        self, receiver: QueueReceiver, needed_until: int, problem: LogUnreadable | None = None
    ) -> None: ...
    def release(self) -> None: ...
