"""A subject with the surroundings of an example: a clock, positions and bookmarks, names for the results.

A message is named by its position, as `publish` returns it. A consumer is one subscription of one connection; two of
them may share the connection. Events are kept by kind until they are read: deliveries, barriers, removals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.queue_subject import (
    AT_ONCE,
    SECOND_NS,
    Action,
    BarrierSent,
    Bookmark,
    Counts,
    Delivered,
    Entry,
    Filter,
    QueueSettings,
    Removed,
    Subject,
)

MakeSubject = Callable[[Sequence[QueueSettings]], Subject]
Scenario = Callable[[MakeSubject], None]

START_NS = 1_750_000_000_000_000_000
FIRST_POSITION = 4096
RECORD_BYTES = 144
PUBLISHER = 2**64 - 59


@dataclass(frozen=True)
class Consumer:
    subscription: int
    client: int
    backlog: int


STRANGER = Consumer(subscription=0, client=99, backlog=0)
"""A client that has no subscription."""


def queue(name: str = "Q", max_per_subscription: int = 10, **elements: object) -> QueueSettings:
    """The queue of queues.md §24, with other elements where an example needs them."""
    return QueueSettings(name, max_per_subscription=max_per_subscription, **elements)  # type: ignore[arg-type]


class Harness:
    def __init__(self, make_subject: MakeSubject, *settings: QueueSettings) -> None:
        self.subject = make_subject(settings)
        self.now_ns = START_NS
        self._queues = len(settings)
        self._messages = 0
        self._consumers: dict[int, Consumer] = {}
        self._delivered: list[Delivered] = []
        self._barriers: list[BarrierSent] = []
        self._removed: list[Removed] = []

    # Inputs

    def publish(
        self,
        *,
        kind: int = 0,
        expiration_s: int | None = None,
        priority: int | None = None,
        is_barrier: bool = False,
        key: int = 0,
        queues: Sequence[int] | None = None,
        delay_s: float | None = None,
    ) -> int:
        """Publish into all queues, or those given. Return the position."""
        position = FIRST_POSITION + self._messages * RECORD_BYTES
        self._messages += 1
        entries = {index: Entry(priority, is_barrier, key) for index in self._chosen(queues)}
        deliver_at_ns = 0 if delay_s is None else self.now_ns + round(delay_s * SECOND_NS)
        self.subject.publish(
            self.now_ns, position, self.bookmark(position), expiration_s, entries, kind, deliver_at_ns
        )
        return position

    def bookmark(self, position: int) -> Bookmark:
        """The bookmark of a message; it may be one still to come."""
        return PUBLISHER, (position - FIRST_POSITION) // RECORD_BYTES + 1

    @property
    def next_position(self) -> int:
        return FIRST_POSITION + self._messages * RECORD_BYTES

    def subscribe(
        self,
        max_backlog: int,
        *,
        kinds: Filter = None,
        queues: Sequence[int] | None = None,
        beside: Consumer | None = None,
        number: int | None = None,
    ) -> Consumer:
        """Subscribe to all queues, or those given; on a connection of its own, or that of another consumer."""
        subscription = number or len(self._consumers) + 1
        client = beside.client if beside else 100 + subscription
        matched = self._matched(queues, kinds)
        backlog = self.subject.subscribe(self.now_ns, subscription, client, matched, max_backlog)
        consumer = self._consumers[subscription] = Consumer(subscription, client, backlog)
        return consumer

    def replace(
        self,
        consumer: Consumer,
        max_backlog: int,
        *,
        kinds: Filter = None,
        queues: Sequence[int] | None = None,
    ) -> int:
        matched = self._matched(queues, kinds)
        return self.subject.replace(self.now_ns, consumer.subscription, matched, max_backlog)

    def unsubscribe(self, consumer: Consumer) -> None:
        self.subject.unsubscribe(self.now_ns, consumer.subscription)

    def disconnect(self, consumer: Consumer) -> None:
        self.subject.disconnect(self.now_ns, consumer.client)

    def ack(
        self,
        consumer: Consumer,
        *positions: int,
        action: Action = "acknowledge",
        queue: int = 0,
        delay_s: float | None = 0,
    ) -> Counts:
        """`delay_s`: of a cancel; None: at once, whatever the queue's own delay is."""
        bookmarks = [self.bookmark(position) for position in positions]
        delay_ns = AT_ONCE if delay_s is None else round(delay_s * SECOND_NS)
        return self.subject.acknowledge(self.now_ns, consumer.client, queue, bookmarks, action, delay_ns)

    def ack_matching(
        self, consumer: Consumer, *kinds: int, action: Action = "acknowledge", queue: int = 0
    ) -> Counts:
        return self.subject.acknowledge_matching(
            self.now_ns, consumer.client, queue, frozenset(kinds), action
        )

    def extend(self, consumer: Consumer, *positions: int, extension_s: float, queue: int = 0) -> None:
        bookmarks = [self.bookmark(position) for position in positions]
        self.subject.extend(self.now_ns, consumer.client, queue, bookmarks, round(extension_s * SECOND_NS))

    def wait(self, seconds: float, tick: bool = True) -> None:
        self.now_ns += round(seconds * SECOND_NS)
        if tick:
            self.subject.tick(self.now_ns)

    def restart(self, down_s: float = 0) -> None:
        self.now_ns += round(down_s * SECOND_NS)
        self.subject.restart(self.now_ns)

    # Events

    def delivered(self) -> list[tuple[Consumer, int]]:
        self._take()
        deliveries, self._delivered = self._delivered, []
        return [(self._consumers[one.subscription], one.position) for one in deliveries]

    def leases_until_ns(self) -> list[int | None]:
        """The ends of the leases of the deliveries since the last call of this or `delivered`."""
        self._take()
        deliveries, self._delivered = self._delivered, []
        return [one.lease_until_ns for one in deliveries]

    def barriers(self) -> list[tuple[int, set[Consumer]]]:
        self._take()
        barriers, self._barriers = self._barriers, []
        return [(one.position, {self._consumers[name] for name in one.subscriptions}) for one in barriers]

    def removed(self) -> list[tuple[int, tuple[str, ...]]]:
        """The removals in the order of positions: the order within a single step is unspecified."""
        self._take()
        removals, self._removed = self._removed, []
        return sorted((one.position, one.reasons) for one in removals)

    def depth(self, queue: int = 0) -> int:
        return self.subject.depth(queue)

    def backlog(self, queue: int = 0) -> int:
        return self.subject.backlog(queue)

    def available(self, queue: int = 0) -> list[int]:
        return self.subject.available(queue)

    def outstanding(self, consumer: Consumer) -> int:
        return self.subject.outstanding(consumer.subscription)

    def _take(self) -> None:
        for event in self.subject.take_events():
            match event:
                case Delivered():
                    self._delivered.append(event)
                case BarrierSent():
                    self._barriers.append(event)
                case Removed():
                    self._removed.append(event)

    def _chosen(self, queues: Sequence[int] | None) -> Sequence[int]:
        return range(self._queues) if queues is None else queues

    def _matched(self, queues: Sequence[int] | None, kinds: Filter) -> Mapping[int, Filter]:
        return dict.fromkeys(self._chosen(queues), kinds)
