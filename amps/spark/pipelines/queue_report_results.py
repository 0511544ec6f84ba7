"""The results of a queue report. Times are UNIX microseconds, durations microseconds."""

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
"""The ways in which a message can leave a queue."""
REASONS = {1: "time_limit", 2: "forced_expire", 4: "max_cancels", 8: "max_deliveries"}
"""The reasons for an expiry, by their bits in a record (queues.md §15)."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations from recording to leaving; half of the messages did not exceed the p50."""

    count: int
    mean_us: float
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int
    histogram: tuple[int, ...]
    """The number of durations below the first of DURATION_EDGES_US, below the second, …, not below the last."""


@dataclass(frozen=True, slots=True)
class ConsumerShare:
    """The acknowledgements of one consumer. `consumer`: its name if the log has it, else its id."""

    consumer: str
    acknowledged: int
    share: float
    untimed: int
    """The number of them whose journals are no longer in the log, so that their durations are not known."""
    p50_us: int | None
    """Percentile of the other messages' durations from recording to acknowledgement; None if there are none."""
    p99_us: int | None


@dataclass(frozen=True, slots=True)
class Interval:
    """The figures of one queue in one interval."""

    begin_us: int
    entered: int
    left: int
    expired: int
    depth: int
    """Depth at the end of the interval."""
    depth_max: int


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The figures of one queue in the range of the report."""

    queue: str
    message_type: str
    entered: int
    left: Mapping[str, int]
    """The number of messages that left, by way (WAYS)."""
    expired: Mapping[str, int]
    """The number of expired messages, by reason (REASONS); a message with several reasons counts for each."""
    untimed: int
    """The number of messages that left and whose journals are no longer in the log; they are in no duration."""
    redeliveries: int
    """The number of redeliveries of the messages that left."""
    depth_before: int
    depth: int
    """Depth at the end of the range."""
    depth_max: int
    oldest_us: int | None
    """Recording time of the oldest message in the queue at the end of the range."""
    durations: Mapping[str, Durations]
    """Durations by way (WAYS)."""
    consumer_count: int
    consumers: tuple[ConsumerShare, ...]
    """The consumers, in descending order of acknowledgements."""
    intervals: tuple[Interval, ...]
    notes: tuple[str, ...] = field(default=())
    """Notes on facts about this queue that the log does not have."""

    @property
    def left_total(self) -> int:
        """The number of messages that left in any way."""
        return sum(self.left.values())


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The report: all queues, in descending order of messages."""

    instance: str
    first_us: int | None
    """Time of the first event shown; None if there is none."""
    last_us: int | None
    interval_us: int | None
    queues: tuple[QueueFigures, ...]
    notes: tuple[str, ...]
    """Notes on facts about queues that logs do not have."""
