"""The operations on a set of message queues in tests: the interface of the model and of an engine.

There is no log, no network and no clock here. Times are UNIX ns and are arguments, as are log positions (ascending)
and bookmarks (never twice). A message's content is a *kind*, a small number; a filter is a set of kinds. The simplest
subject, `queue_model`, defines the methods in every detail.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

SECOND_NS = 1_000_000_000

Bookmark = tuple[int, int]
"""Publisher id and sequence, both up to 64 bits."""

AT_ONCE = 2**64 - 1
"""As the delay of a cancel: none, whatever the queue's own is."""

Filter = frozenset[int] | None
"""The kinds of messages that it matches; None matches all."""

Action = Literal["acknowledge", "cancel", "expire"]
Fairness = Literal["proportional", "round-robin", "fast"]
ExpirationModel = Literal["default", "queue", "latest", "earliest"]


@dataclass(frozen=True)
class QueueSettings:
    """The elements of a queue's definition that matter here (queues.md §2); None is an element that was not given."""

    name: str
    at_least_once: bool = True
    fairness: Fairness = "proportional"
    strict: bool = False
    lease_ns: int | None = None
    max_backlog: int | None = None
    max_per_subscription: int = 1
    expiration_ns: int | None = None
    expiration_model: ExpirationModel = "default"
    max_deliveries: int = 0
    max_cancels: int = 0
    has_priority: bool = False
    has_barriers: bool = False
    has_ordering_key: bool = False
    target_depth: int | None = None
    deferred_ack_expiration_ns: int = 86_400 * SECOND_NS
    cancel_delay_ns: int = 0
    cancel_delay_factor: float = 1.0
    cancel_delay_max_ns: int = 3_600 * SECOND_NS


@dataclass(frozen=True)
class Entry:
    """The results of the queue's own expressions for a message that enters it. No priority is the lowest one.

    `key` is the hash of its key; 0: it has none.
    """

    priority: int | None = None
    is_barrier: bool = False
    key: int = 0


@dataclass(frozen=True)
class Counts:
    """The counts in a statistics acknowledgement (queues.md §8.3, D-10)."""

    topic_matches: int
    matches: int
    records_deleted: int


@dataclass(frozen=True)
class Delivered:
    subscription: int
    queue: int
    position: int
    lease_until_ns: int | None


@dataclass(frozen=True)
class BarrierSent:
    queue: int
    position: int
    subscriptions: frozenset[int]


@dataclass(frozen=True)
class Removed:
    """A message has left for good. Without reasons it was acknowledged, or delivered at most once."""

    queue: int
    position: int
    reasons: tuple[str, ...]


Event = Delivered | BarrierSent | Removed


@dataclass(frozen=True)
class TransactionPublish:
    """A publish in a transaction: it has its log position and enters these queues if the transaction has its effect."""

    position: int
    entries: Mapping[int, Entry]
    kind: int = 0


Outcome = Literal["done", "refused"]
"""The answer to a transaction."""


class Subject(Protocol):
    """The operations on a set of queues, and the queries. `queue` is an index into the settings."""

    def publish(
        self,
        now_ns: int,
        position: int,
        bookmark: Bookmark,
        expiration_s: int | None,
        entries: Mapping[int, Entry],
        kind: int,
        deliver_at_ns: int = 0,
    ) -> None:
        """A message has been recorded, and enters the queues of `entries`.

        Its own expiration is None if it was not given, and 0 if it never expires. `deliver_at_ns`: 0 if it has no
        delay.
        """

    def subscribe(
        self, now_ns: int, subscription: int, client: int, queues: Mapping[int, Filter], max_backlog: int
    ) -> int:
        """Begin one subscription to one queue or several, and return its effective backlog."""

    def replace(
        self, now_ns: int, subscription: int, queues: Mapping[int, Filter], max_backlog: int
    ) -> int: ...

    def unsubscribe(self, now_ns: int, subscription: int) -> None: ...

    def disconnect(self, now_ns: int, client: int) -> None:
        """End all subscriptions of a client."""

    def acknowledge(
        self,
        now_ns: int,
        client: int,
        queue: int,
        bookmarks: Sequence[Bookmark],
        action: Action,
        delay_ns: int = 0,
    ) -> Counts:
        """`delay_ns`: of a cancel, 0 if none was requested."""

    def acknowledge_matching(
        self, now_ns: int, client: int, queue: int, kinds: frozenset[int], action: Action
    ) -> Counts:
        """Acknowledge by filter."""

    def extend(
        self, now_ns: int, client: int, queue: int, bookmarks: Sequence[Bookmark], extension_ns: int
    ) -> None: ...

    def tick(self, now_ns: int) -> None:
        """Let time pass."""

    def restart(self, now_ns: int) -> None:
        """Restart the instance (queues.md §17)."""

    def take_events(self) -> list[Event]:
        """Return the events since the last call, in order."""

    def depth(self, queue: int) -> int:
        """Active messages that are in the queue, leased ones included."""

    def backlog(self, queue: int) -> int:
        """Messages that were delivered and hold a place in a backlog."""

    def deferred(self, queue: int) -> int: ...

    def expired_leases(self, queue: int) -> int: ...

    def inactive(self, queue: int) -> int: ...

    def waiting(self, queue: int) -> int:
        """Messages that wait for the head of their key (queue_guarantees.md §3)."""

    def insert_count(self, queue: int) -> int: ...

    def delete_count(self, queue: int) -> int: ...

    def available(self, queue: int) -> list[int]:
        """The positions that a query shows: active and unleased, barriers included, in log order."""

    def delayed(self, queue: int) -> list[int]:
        """The positions of delayed messages, in log order."""

    def next_delivery_ns(self, queue: int) -> int:
        """The time of the first of them; AT_ONCE if there are none."""

    def outstanding(self, subscription: int) -> int:
        """Messages that count toward a subscription's backlog, of all its queues."""
