"""What a configuration says of its message queues, once read: immutable, with every default already applied.

A queue is bookkeeping over messages that the transaction log holds. What it takes (`underlying_topic`, `filter`), how
it hands it out, and when a message leaves are all said here; nothing of it changes while the instance runs.
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
    """Where in the log a queue begins that knows nothing yet (queues.md §17).

    `kind` says which of the others is set: `bookmark`: `bookmarks`, (publisher id, sequence) of messages of which the
    earliest in the log counts, the queue begins after it; `time`: `time_ns`, UNIX nanoseconds. `text` is what the
    configuration says. Points are equal if they mean the same, however they are written.
    """

    kind: Literal["epoch", "now", "bookmark", "time"]
    text: str = field(compare=False)
    bookmarks: tuple[tuple[int, int], ...] = ()
    time_ns: int | None = None


EPOCH = RecoveryPoint("epoch", "epoch")


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One queue (queues.md §2). A limit, time or expression that is None is not there; 0 `max_deliveries` and
    `max_cancels` are no limit.

    `underlying_topic` is an expression for topics if `underlying_is_regex`, else the name of one;
    `default_publish_target`, where a publish to the queue's name goes, is always a name. `place` is file and line, for
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
    priority: str | None = None
    barrier_expression: str | None = None
    target_queue_depth: int | None = None
    deferred_ack_expiration_s: float = 86400.0
    place: str = ""
