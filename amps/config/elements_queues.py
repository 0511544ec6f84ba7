"""The elements of message queues: `Queue`, `LocalQueue` and `GroupLocalQueue` in `SOW` (queues.md §2).

The three have the same elements. `amps.config.queues` checks elements that only one of them may have, and applies
the defaults that depend on other elements.
"""

from amps.config.model_queues import EPOCH, RecoveryPoint
from amps.config.readers import one_of, read_text
from amps.config.schema import Block, Leaf, Synonym
from amps.config.units import read_boolean, read_count, read_delay, read_interval, shown
from amps.journal.bookmark_text import read_message_bookmark, read_moment_us

COUNT_MAX = 2**31 - 1
"""The maximum of a limit: counters have 32 bits, signed or unsigned."""

SHORTEST_S = 1e-9
FACTOR_MAX = 100
TARGET_DEPTH_MIN = 1000
DEFERRED_ACK_EXPIRATION_S = 86400.0
QUEUE_DELIVERY_FLUSH_INTERVAL_S = 250e-6

_POINTS_BY_WORD = {
    "epoch": "epoch",
    "now": "now",
    "creation": "now",
    "0": "epoch",
    "0|1": "now",
    "0|1|": "now",
}


def read_period(text: str) -> float:
    """Read a period in seconds: an interval above zero."""
    period_s = read_interval(text)
    if period_s < SHORTEST_S:
        raise ValueError(f"{shown(text)} is no time at all; write 1ns or more, or leave the element out")
    return period_s


def read_cancel_delay(text: str) -> float:
    """Read the delay of cancelled messages in seconds: a period of at most ten years."""
    read_period(text)
    return read_delay(text)


def read_factor(text: str) -> float:
    """Read a number from 1 to FACTOR_MAX, by which a delay grows."""
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= FACTOR_MAX:
        raise ValueError(
            f"{shown(text)} is no number from 1 to {FACTOR_MAX}; write such a number, for example 2"
        )
    return factor


def read_limit(text: str) -> int:
    """Read a limit from 1 to COUNT_MAX."""
    limit = read_tries(text)
    if limit == 0:
        raise ValueError(
            f"{shown(text)} would let nothing through; write 1 or more, or leave the element out"
        )
    return limit


def read_tries(text: str) -> int:
    """Read a number of attempts up to COUNT_MAX; 0 means no limit."""
    count = read_count(text)
    if count > COUNT_MAX:
        raise ValueError(f"{shown(text)} is above the maximum of {COUNT_MAX}; write {COUNT_MAX} or less")
    return count


def read_recovery_point(text: str) -> RecoveryPoint:
    """Read a word, a bookmark, a list of bookmarks of messages, or a time; not a range, because a queue has no end."""
    word = _POINTS_BY_WORD.get("".join(text.lower().split()))
    if word == "epoch":
        return RecoveryPoint("epoch", text)
    if word == "now":
        return RecoveryPoint("now", text)
    bookmarks = [read_message_bookmark(part.strip()) for part in text.split(",")]
    known = tuple(bookmark for bookmark in bookmarks if bookmark is not None)
    if len(known) == len(bookmarks) and (0, 1) not in known:
        return RecoveryPoint("bookmark", text, bookmarks=known)
    try:
        return RecoveryPoint("time", text, time_ns=read_moment_us(text) * 1000)
    except ValueError:
        raise ValueError(
            f"{shown(text)} is no point of a log; write epoch, now, the bookmark of a message, or a time in UTC as "
            "YYYYmmddTHHMMSS"
        ) from None


_EXPRESSION = Leaf(read_text)

_QUEUE = Block(
    {
        "Name": Leaf(read_text, required=True),
        "Topic": Synonym("Name"),
        "MessageType": Leaf(read_text, required=True),
        "UnderlyingTopic": Leaf(read_text),
        "DefaultPublishTarget": Leaf(read_text),
        "Semantics": Leaf(one_of("at-least-once", "at-most-once"), default="at-least-once"),
        "LeasePeriod": Leaf(read_period),
        "MaxBacklog": Leaf(read_limit),
        "MaxPerSubscriptionBacklog": Leaf(read_limit, default=1),
        "Expiration": Leaf(read_period),
        "ExpirationModel": Leaf(one_of("default", "queue", "latest", "earliest"), default="default"),
        "Filter": _EXPRESSION,
        "RecoveryPoint": Leaf(read_recovery_point, default=EPOCH),
        "FairnessModel": Leaf(one_of("fast", "round-robin", "proportional")),
        "Leasing": Leaf(one_of("strict", "sublet"), default="sublet"),
        "MaxDeliveries": Leaf(read_tries, default=0),
        "MaxCancels": Leaf(read_tries, default=0),
        "CancelDelay": Leaf(read_cancel_delay),
        "CancelDelayFactor": Leaf(read_factor),
        "CancelDelayMax": Leaf(read_cancel_delay),
        "Priority": _EXPRESSION,
        "OrderingKey": _EXPRESSION,
        "BarrierExpression": _EXPRESSION,
        "FileBackedMetadata": Leaf(
            read_boolean,
            default=False,
            unused="the contents of a queue are always in memory, and copied to the file queue.cache",
        ),
        "TargetQueueDepth": Leaf(read_tries, at_least=(TARGET_DEPTH_MIN, str(TARGET_DEPTH_MIN))),
        "DeferredAckExpiration": Leaf(read_period, default=DEFERRED_ACK_EXPIRATION_S),
        "InitialOwner": Leaf(read_text),
        "GroupLocalQueueDomain": Leaf(read_text),
    },
    repeatable=True,
)

QUEUES: dict[str, Block | Synonym] = {
    "Queue": _QUEUE,
    "QueueDefinition": Synonym("Queue"),
    "LocalQueue": _QUEUE,
    "GroupLocalQueue": _QUEUE,
}
