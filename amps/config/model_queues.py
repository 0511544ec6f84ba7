"""The configuration of message queues: immutable, with every default already applied.

A queue is bookkeeping over messages in the transaction log. These classes define which messages enter it
(`underlying_topic`, `filter`), how it delivers them, and when a message leaves. They do not change while the instance
runs.
"""

from dataclasses import dataclass, field
from typing import Literal

QueueKind = Literal["Queue", "LocalQueue", "GroupLocalQueue"]
Semantics = Literal["at-least-once", "at-most-once"]
ExpirationModel = Literal["default", "queue", "latest", "earliest"]
FairnessModel = Literal["fast", "round-robin", "proportional"]
Leasing = Literal["strict", "sublet"]


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """The start in the log of a queue without stored state (queues.md §17).

    `kind` determines which other field is set. `bookmark`: `bookmarks` has (publisher id, sequence) of messages; the
    queue begins after the earliest of them in the log. `time`: `time_ns` is in UNIX nanoseconds. `text` is the text in
    the configuration. Points with the same meaning are equal, even if their texts differ.
    """

    kind: Literal["epoch", "now", "bookmark", "time"]
    text: str = field(compare=False)
    bookmarks: tuple[tuple[int, int], ...] = ()
    time_ns: int | None = None


EPOCH = RecoveryPoint("epoch", "epoch")
CANCEL_DELAY_MAX_S = 3600.0


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One queue (queues.md §2). A limit, time or expression that is None does not apply; 0 in `max_deliveries` or
    `max_cancels` means no limit.

    `underlying_topic` is an expression for topics if `underlying_is_regex`, else the name of a topic.
    `default_publish_target`, the topic of publishes to the queue's name, is always a name. `initial_owner` (name of an
    instance) and `domain` (default: the instance's group) belong to a GroupLocalQueue. `place` is file and line, for
    log messages.
    """

    name: str
    message_type: str
    kind: QueueKind
    underlying_topic: str
    underlying_is_regex: bool
    default_publish_target: str
    semantics: Semantics = "at-least-once"
    lease_period_s: float | None = None
    max_backlog: int | None = None
    max_per_subscription_backlog: int = 1
    expiration_s: float | None = None
    expiration_model: ExpirationModel = "default"
    filter: str | None = None
    recovery_point: RecoveryPoint = EPOCH
    fairness_model: FairnessModel = "proportional"
    leasing: Leasing = "sublet"
    max_deliveries: int = 0
    max_cancels: int = 0
    cancel_delay_s: float | None = None
    cancel_delay_factor: float = 1.0
    cancel_delay_max_s: float = CANCEL_DELAY_MAX_S
    priority: str | None = None
    ordering_key: str | None = None
    barrier_expression: str | None = None
    target_queue_depth: int | None = None
    deferred_ack_expiration_s: float = 86400.0
    initial_owner: str | None = None
    domain: str | None = None
    place: str = ""
