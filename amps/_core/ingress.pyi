"""Types of a connection's input; see ingress.pyx."""

from _typeshed import WriteableBuffer

from amps._core.inbound_frame import InboundFrame
from amps._core.queue_acks import AckList
from amps._core.queue_leases import LeaseTable
from amps._core.shared import ControlPage, Ring
from amps._core.topic_table import TopicEntry, TopicTable

PUBLISH_BACKLOG_BYTES: int
NEED_MORE: int
COMMAND: int
RING_FULL: int
NEW_TOPIC: int
PERMISSION: int
DENIED: int
SPILL: int
BAD_HEADER: int
TOO_LARGE: int
NO_STORAGE: int
AFTER_REFUSAL: int

class Ingress(InboundFrame):
    def __init__(
        self,
        slot: int,
        serial: int,
        ring: Ring,
        control: ControlPage,
        table: TopicTable,
        frame_bytes_max: int,
    ) -> None: ...
    @property
    def ready(self) -> bool: ...
    @property
    def topic_entry(self) -> TopicEntry | None: ...
    @property
    def sequence(self) -> int: ...
    @property
    def ack_sequence(self) -> int: ...
    @property
    def ack_position(self) -> int: ...
    @property
    def ack_requests(self) -> int: ...
    @property
    def messages(self) -> int: ...
    def log_on(
        self,
        message_type: str,
        publisher_id: int,
        derived_id: int,
        user_id: bytes,
        numbered: bool,
        conflated: bool,
        checked: bool,
        plain: bool,
    ) -> None: ...
    def parse(self) -> int: ...
    def publish_current(self, entry: TopicEntry, wants_ack: bool) -> int: ...
    def unread(self) -> None: ...
    def set_permission(self, entry: TopicEntry, allowed: bool) -> None: ...
    def allow_acknowledging(self, entry: TopicEntry) -> None: ...
    def set_leases(self, leases: LeaseTable | None) -> None: ...
    def acknowledgement_records(
        self,
        acks: AckList,
        entry: TopicEntry,
        action: int,
        extension_ns: int,
        searched_until: int,
        token: int,
        sequence: int,
    ) -> list[bytes] | int: ...
    def note_acknowledgement(self, sequence: int, wants_ack: bool) -> None: ...
    def forget_permissions(self) -> None: ...
    def spill_length(self) -> int: ...
    def write_spill(self, memory: WriteableBuffer) -> None: ...
    def finish_spill(self) -> None: ...
    def consume(self) -> None: ...
