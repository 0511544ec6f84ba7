"""Types of acknowledgements of queue messages; see queue_acks.pyx."""

from amps._core.queue_leases import LeaseTable

ACTION_ACKNOWLEDGE: int
ACTION_CANCEL: int
ACTION_EXPIRE: int
ACTION_EXTEND_LEASE: int
ENTRIES_PER_RECORD_MAX: int

class AckList:
    def __init__(self) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def unknown(self) -> int: ...
    def parse_text(self, text: bytes, leases: LeaseTable | None, queue: int) -> bool: ...
    def unknown_bookmarks(self) -> list[tuple[int, int, int]]: ...
    def set_position(self, number: int, position: int) -> None: ...
    def end_leases_of(self, leases: LeaseTable, queue: int) -> None: ...

def make_records(
    acks: AckList,
    slot: int,
    serial: int,
    topic: int,
    action: int,
    extension_ns: int,
    searched_until: int,
    token: int,
    publisher_id: int,
    derived_id: int,
    numbered: bool,
    sequence: int,
) -> list[bytes]: ...
