"""What a queue report says. Times are UNIX microseconds, durations microseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

ACKNOWLEDGED = "acknowledged"
DELIVERED = "delivered"
EXPIRED = "expired"
BARRIER = "barrier"
ANSWERED = "answered"
WAYS = {
    ACKNOWLEDGED: "acknowledged",
    DELIVERED: "delivered at most once",
    EXPIRED: "expired",
    BARRIER: "barriers sent to all",
    ANSWERED: "acknowledged before they came",
}
"""How a message can leave a queue."""
REASONS = {1: "time_limit", 2: "forced_expire", 4: "max_cancels", 8: "max_deliveries"}
"""Why one expires, as bits of a record (queues.md §15)."""


@dataclass(frozen=True, slots=True)
class Durations:
    """From when messages were recorded until they left; the p50 is a duration that half of them did not exceed."""

    count: int
    mean_us: float
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int
    histogram: tuple[int, ...]
    """How many lasted less than the first of DURATION_EDGES_US, less than the second, …, no less than the last."""


@dataclass(frozen=True, slots=True)
class ConsumerShare:
    """What one consumer has acknowledged. `consumer`: its name if the log knows it, else its id."""

    consumer: str
    acknowledged: int
    share: float
    untimed: int
    """Of these, those whose journals are not there any more, so that it is not known how long they took."""
    p50_us: int | None
    """From recorded to acknowledged, of the others; None if there are none."""
    p99_us: int | None


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval of a queue's time."""

    begin_us: int
    entered: int
    left: int
    expired: int
    depth: int
    """At its end."""
    depth_max: int


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue, in the range of the report."""

    queue: str
    message_type: str
    entered: int
    left: Mapping[str, int]
    """By way (WAYS)."""
    expired: Mapping[str, int]
    """By reason (REASONS); a message that has several counts for each."""
    untimed: int
    """Of the messages that left, those whose journals are not there any more; they are in no duration."""
    redeliveries: int
    """Of the messages that left: how often they were delivered again."""
    depth_before: int
    depth: int
    """At the end of the range."""
    depth_max: int
    oldest_us: int | None
    """When the oldest message that is in the queue at the end of the range was recorded."""
    durations: Mapping[str, Durations]
    """By way."""
    consumer_count: int
    consumers: tuple[ConsumerShare, ...]
    """Those with most acknowledgements first."""
    intervals: tuple[Interval, ...]
    notes: tuple[str, ...] = field(default=())
    """What the log does not tell of this queue."""

    @property
    def left_total(self) -> int:
        """All ways together."""
        return sum(self.left.values())


@dataclass(frozen=True, slots=True)
class QueueReport:
    """All queues, those with most messages first."""

    instance: str
    first_us: int | None
    """Of what is shown; None: there is nothing."""
    last_us: int | None
    interval_us: int | None
    queues: tuple[QueueFigures, ...]
    notes: tuple[str, ...]
    """What logs do not tell of queues."""
