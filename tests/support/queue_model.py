"""Message queues, implemented in the simplest and slowest way: the reference for an engine (queues.md).

The model is written from queues.md §19 (states) and §20 (delivery decision), and from the rules of the order per key,
alone: lists in log order, walked from the beginning, without indexes. Tests drive it and another subject
(`queue_subject`) with the same inputs.

An input is processed in this order:

1. Time passes, in all queues. Deferred acknowledgements that are too old are dropped, leases that have ended return
   their messages, and unleased messages whose time is over expire. A moment is reached when `now >= moment`.
2. The input itself is processed.
3. Queue by queue, in order of definition, messages are delivered until no more can be sent.

After 1, after 2, and after each removal in 3, inactive messages become active up to the target depth. So an
acknowledgement of several bookmarks finds the messages active that were active before it.

Where queues.md leaves a choice, the model does this:

- A waiting barrier counts as an unleased message for acknowledgements: one removes it, `expire` expires it.
- `expire` for an inactive or unknown message is deferred as a plain acknowledgement; `cancel` for one has no effect. In
  an at-most-once queue neither is deferred, and neither affects a message that was not delivered (D-06).
- Another acknowledgement of a deferred one restarts its time. A deferred one whose message passes without entering
  the queue stays until its time is over.
- Counts by bookmark (D-10): `matches` are the messages that the command affected. An at-most-once message that was
  delivered matches, but has been deleted before. A bookmark that is given twice is found once.
- Counts by filter (§8.3): `topic_matches` are all active messages, `matches` those that the filter matches, also where
  `strict` or the option prevents an effect on them. Filters do not reach messages delivered at most once.
- A message that is acknowledged before it is published never enters: it counts nowhere, and there is no `Removed`. One
  that is acknowledged while inactive has its `Removed`, without reasons, when it would become active.
- `insert_count` counts messages that became active, `delete_count` those that were active and have left, in any way. So
  their difference is the depth. A restart resets both.
- An inactive message has no timer. If its time is over when it becomes active, it expires then.
- Round-robin goes on behind the previous receiver's place in the order of creation, also when that has ended or moved.
- A barrier that no filter matches is sent to no subscription: there is an empty `BarrierSent`, and the barrier is gone.
- `extend` sets a deadline also where the queue has no lease period, and may bring one forward (D-31).
- A subscription that matches no queue (after a replace) has the limit that it requested.
- A restart ends all subscriptions. Deferred acknowledgements survive with their age.

Delays follow queue_guarantees.md §1 and §2. Time passes for them last, when inactive messages have become active. After
a restart, a message that was ever delayed waits for its latest time again, which may be over: so the target depth does
not hold it back.

Transactions follow queue_guarantees.md §4. A transaction is one input: its messages leave, then its publishes enter.
Sequences and refusals are those of the log, so a restart keeps them. A repetition has no effect, whatever it contains.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.support.queue_subject import (
    AT_ONCE,
    SECOND_NS,
    Action,
    BarrierSent,
    Bookmark,
    Counts,
    Delivered,
    Entry,
    Event,
    Filter,
    Outcome,
    QueueSettings,
    Removed,
    TransactionPublish,
)


class State(enum.Enum):
    """The states of queues.md §19 without other instances; X is the absence of the message."""

    INACTIVE = "I"
    AVAILABLE = "A"
    LEASED = "L"
    BARRIER = "B"
    DELIVERED = "U"
    DELAYED = "D"


ACTIVE = (State.AVAILABLE, State.LEASED, State.BARRIER)
UNLEASED = (State.AVAILABLE, State.BARRIER)


@dataclass(eq=False)
class Subscription:
    number: int
    created: int  # the position of the subscription in the order of creation
    client: int
    queues: dict[int, Filter]
    effective_backlog: int
    outstanding: int = 0

    def takes(self, queue: int, kind: int) -> bool:
        if queue not in self.queues:
            return False
        kinds = self.queues[queue]
        return kinds is None or kind in kinds


@dataclass(eq=False)
class Message:
    position: int
    bookmark: Bookmark
    kind: int
    entry: Entry
    expiry_ns: int | None
    state: State = State.INACTIVE
    holder: Subscription | None = None
    deadline_ns: int | None = None
    deliveries: int = 0
    cancels: int = 0
    deliver_at_ns: int = 0  # the latest time until which it waits or waited
    returned_late: bool = False  # it was cancelled with a delay

    def is_due(self, now_ns: int) -> bool:
        return self.expiry_ns is not None and now_ns >= self.expiry_ns


@dataclass(eq=False)
class Queue:
    index: int
    settings: QueueSettings
    messages: list[Message] = field(default_factory=list)  # in log order; all but those that are gone
    deferred: dict[Bookmark, int] = field(default_factory=dict)  # with the time of the acknowledgement
    last_receiver: int = -1  # by creation
    expired_leases: int = 0
    insert_count: int = 0
    delete_count: int = 0

    @property
    def depth(self) -> int:
        return sum(message.state in ACTIVE for message in self.messages)

    @property
    def outstanding(self) -> int:
        return sum(message.holder is not None for message in self.messages)

    def find(self, bookmark: Bookmark) -> Message | None:
        return next((message for message in self.messages if message.bookmark == bookmark), None)


class QueueModel:
    """See the module. Methods are small, so that tests of the tests can break one rule at a time."""

    def __init__(self, settings: Sequence[QueueSettings]) -> None:
        self._queues = [Queue(index, one) for index, one in enumerate(settings)]
        self._subscriptions: dict[int, Subscription] = {}  # in order of creation
        self._subscriptions_created = 0
        self._seen: set[Bookmark] = set()  # all messages of the log
        self._last_sequences: dict[int, int] = {}  # by publisher
        self._refused: set[Bookmark] = set()  # publisher and first sequence of refused transactions
        self._events: list[Event] = []

    # Inputs

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
        self._pass_time(now_ns)
        self._enter(now_ns, position, bookmark, expiration_s, entries, kind, deliver_at_ns)
        self._settle(now_ns)

    def _enter(
        self,
        now_ns: int,
        position: int,
        bookmark: Bookmark,
        expiration_s: int | None,
        entries: Mapping[int, Entry],
        kind: int,
        deliver_at_ns: int,
    ) -> None:
        self._seen.add(bookmark)
        self._take_sequence(*bookmark)
        for index, entry in entries.items():
            queue = self._queues[index]
            if queue.deferred.pop(bookmark, None) is None:
                expiry_ns = self._expiry_ns(queue.settings, now_ns, expiration_s)
                message = Message(position, bookmark, kind, entry, expiry_ns)
                queue.messages.append(message)
                if deliver_at_ns > now_ns and not self._is_barrier(queue, message):
                    self._delay(queue, message, deliver_at_ns)
                    queue.insert_count += 1

    def subscribe(
        self, now_ns: int, subscription: int, client: int, queues: Mapping[int, Filter], max_backlog: int
    ) -> int:
        assert subscription not in self._subscriptions
        self._pass_time(now_ns)
        effective = self._effective_backlog(queues, max_backlog)
        created = self._subscriptions_created
        self._subscriptions[subscription] = Subscription(
            subscription, created, client, dict(queues), effective
        )
        self._subscriptions_created += 1
        self._settle(now_ns)
        return effective

    def replace(self, now_ns: int, subscription: int, queues: Mapping[int, Filter], max_backlog: int) -> int:
        self._pass_time(now_ns)
        replaced = self._subscriptions[subscription]
        replaced.queues = dict(queues)
        replaced.effective_backlog = self._effective_backlog(queues, max_backlog)
        self._settle(now_ns)
        return replaced.effective_backlog

    def unsubscribe(self, now_ns: int, subscription: int) -> None:
        self._pass_time(now_ns)
        self._end(now_ns, [self._subscriptions[subscription]])
        self._settle(now_ns)

    def disconnect(self, now_ns: int, client: int) -> None:
        self._pass_time(now_ns)
        self._end(now_ns, [one for one in self._subscriptions.values() if one.client == client])
        self._settle(now_ns)

    def acknowledge(
        self,
        now_ns: int,
        client: int,
        queue: int,
        bookmarks: Sequence[Bookmark],
        action: Action,
        delay_ns: int = 0,
    ) -> Counts:
        self._pass_time(now_ns)
        on = self._queues[queue]
        matches = records_deleted = 0
        for bookmark in bookmarks:
            message = on.find(bookmark)
            if message is None or message.state is State.INACTIVE:
                self._defer(now_ns, on, bookmark, message, action)
            elif self._has_effect(on, message, client, action):
                matches += 1
                records_deleted += self._apply(now_ns, on, message, action, delay_ns)
        self._settle(now_ns)
        return Counts(len(bookmarks), matches, records_deleted)

    def acknowledge_matching(
        self, now_ns: int, client: int, queue: int, kinds: frozenset[int], action: Action
    ) -> Counts:
        self._pass_time(now_ns)
        on = self._queues[queue]
        active = [one for one in on.messages if one.state in ACTIVE or one.state is State.DELAYED]
        matching = [message for message in active if message.kind in kinds]
        records_deleted = sum(
            self._apply(now_ns, on, message, action)
            for message in matching
            if self._has_effect(on, message, client, action)
        )
        self._settle(now_ns)
        return Counts(len(active), len(matching), records_deleted)

    def extend(
        self, now_ns: int, client: int, queue: int, bookmarks: Sequence[Bookmark], extension_ns: int
    ) -> None:
        self._pass_time(now_ns)
        for message in self._queues[queue].messages:
            if (
                message.bookmark in bookmarks
                and message.state is State.LEASED
                and message.holder is not None
                and message.holder.client == client
            ):
                message.deadline_ns = now_ns + extension_ns
        self._settle(now_ns)

    def transact(
        self,
        now_ns: int,
        client: int,
        queue: int,
        first: Bookmark,
        bookmarks: Sequence[Bookmark],
        publishes: Sequence[TransactionPublish],
    ) -> Outcome:
        self._pass_time(now_ns)
        on = self._queues[queue]
        if self._is_repeated(first):
            outcome: Outcome = "refused" if first in self._refused else "done"
        elif self._holds(on, client, bookmarks):
            self._take_effect(now_ns, on, first, bookmarks, publishes)
            outcome = "done"
        else:
            self._refuse(first, len(publishes))
            outcome = "refused"
        self._settle(now_ns)
        return outcome

    def tick(self, now_ns: int) -> None:
        self._pass_time(now_ns)
        self._settle(now_ns)

    def restart(self, now_ns: int) -> None:
        self._subscriptions = {}
        for queue in self._queues:
            queue.messages = [
                Message(
                    message.position,
                    message.bookmark,
                    message.kind,
                    message.entry,
                    message.expiry_ns,
                    deliver_at_ns=message.deliver_at_ns,
                    returned_late=message.returned_late,
                )
                for message in queue.messages
                if message.state is not State.DELIVERED
            ]
            queue.last_receiver = -1
            queue.expired_leases = queue.insert_count = queue.delete_count = 0
            for message in queue.messages:
                if message.deliver_at_ns:
                    self._delay(queue, message, message.deliver_at_ns)
                    queue.insert_count += 1
        self._pass_time(now_ns)

    # Queries

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def depth(self, queue: int) -> int:
        return self._queues[queue].depth

    def backlog(self, queue: int) -> int:
        return self._queues[queue].outstanding

    def deferred(self, queue: int) -> int:
        return len(self._queues[queue].deferred)

    def expired_leases(self, queue: int) -> int:
        return self._queues[queue].expired_leases

    def inactive(self, queue: int) -> int:
        return sum(message.state is State.INACTIVE for message in self._queues[queue].messages)

    def waiting(self, queue: int) -> int:
        of = self._queues[queue]
        return sum(self._waits(of, message) for message in of.messages)

    def insert_count(self, queue: int) -> int:
        return self._queues[queue].insert_count

    def delete_count(self, queue: int) -> int:
        return self._queues[queue].delete_count

    def available(self, queue: int) -> list[int]:
        return [message.position for message in self._queues[queue].messages if message.state in UNLEASED]

    def delayed(self, queue: int) -> list[int]:
        return [one.position for one in self._queues[queue].messages if one.state is State.DELAYED]

    def next_delivery_ns(self, queue: int) -> int:
        delayed = [one for one in self._queues[queue].messages if one.state is State.DELAYED]
        return min((one.deliver_at_ns for one in delayed), default=AT_ONCE)

    def outstanding(self, subscription: int) -> int:
        return self._subscriptions[subscription].outstanding

    def last_sequence(self, publisher: int) -> int:
        return self._last_sequences.get(publisher, 0)

    # Time (queues.md §10)

    def _expiry_ns(self, settings: QueueSettings, now_ns: int, expiration_s: int | None) -> int | None:
        """When a message expires, None = never; the table of §10, with D-13."""
        queue_ns = None if settings.expiration_ns is None else now_ns + settings.expiration_ns
        if expiration_s is None or settings.expiration_model == "queue":
            return queue_ns
        own_ns = now_ns + expiration_s * SECOND_NS if expiration_s else None
        if settings.expiration_model == "default":
            return own_ns
        both = [moment for moment in (queue_ns, own_ns) if moment is not None]
        if settings.expiration_model == "latest":
            return max(both) if len(both) == 2 else None
        return min(both, default=None)

    def _pass_time(self, now_ns: int) -> None:
        for queue in self._queues:
            kept_ns = queue.settings.deferred_ack_expiration_ns
            queue.deferred = {mark: at for mark, at in queue.deferred.items() if now_ns < at + kept_ns}
            for message in list(queue.messages):
                if message.deadline_ns is not None and now_ns >= message.deadline_ns:
                    queue.expired_leases += 1
                    self._return(now_ns, queue, message, is_cancelled=False)
            for message in list(queue.messages):
                if (message.state in UNLEASED or self._expires_delayed(message)) and message.is_due(now_ns):
                    self._remove(queue, message, ("time_limit",))
            self._refill(now_ns, queue)
            for message in queue.messages:
                if message.state is State.DELAYED and self._has_come(now_ns, queue, message):
                    message.state = State.AVAILABLE

    # Delays (queue_guarantees.md §1, §2)

    def _delay(self, queue: Queue, message: Message, until_ns: int) -> None:
        message.state = State.DELAYED
        message.deliver_at_ns = until_ns

    def _has_come(self, now_ns: int, queue: Queue, message: Message) -> bool:
        return now_ns >= message.deliver_at_ns

    def _expires_delayed(self, message: Message) -> bool:
        return message.state is State.DELAYED

    def _cancel_delay_ns(self, settings: QueueSettings, message: Message, requested_ns: int) -> int:
        """How long a cancelled message waits: as requested, else as the queue says; 0 = not at all."""
        if requested_ns:
            return 0 if requested_ns == AT_ONCE else requested_ns
        own_ns = settings.cancel_delay_ns * settings.cancel_delay_factor ** (message.cancels - 1)
        return min(int(own_ns), settings.cancel_delay_max_ns)

    def _refill(self, now_ns: int, queue: Queue) -> None:
        """Rows 1 to 4 and 6 of queues.md §19: new messages become active, oldest first, up to the target (§13)."""
        target = queue.settings.target_depth
        for message in [one for one in queue.messages if one.state is State.INACTIVE]:
            if target is not None and queue.depth >= target:
                break
            if queue.deferred.pop(message.bookmark, None) is not None:
                queue.messages.remove(message)
                self._events.append(Removed(queue.index, message.position, ()))
                continue
            message.state = State.BARRIER if self._is_barrier(queue, message) else State.AVAILABLE
            queue.insert_count += 1
            if message.is_due(now_ns):
                self._remove(queue, message, ("time_limit",))

    def _is_barrier(self, queue: Queue, message: Message) -> bool:
        return queue.settings.has_barriers and message.entry.is_barrier

    # Leaving and returning (queues.md §8, §11)

    def _has_effect(self, queue: Queue, message: Message, client: int, action: Action) -> bool:
        """True if the rules of leasing (§8.4) and the message's state let a command affect it."""
        if message.holder is not None:
            return self._may_touch(queue.settings, message.holder, client)
        if action == "cancel":
            return False
        return action == "acknowledge" or queue.settings.at_least_once

    def _may_touch(self, settings: QueueSettings, holder: Subscription, client: int) -> bool:
        return not settings.strict or holder.client == client

    def _apply(self, now_ns: int, queue: Queue, message: Message, action: Action, delay_ns: int = 0) -> bool:
        """Rows 9, 10, 12, 14 and 15 of §19. Return whether the message left the queue."""
        if message.state is State.DELIVERED:
            self._release(message)
            queue.messages.remove(message)
            return False
        if action == "cancel":
            message.cancels += 1
            if self._return(now_ns, queue, message, is_cancelled=True):
                return True
            delay_ns = self._cancel_delay_ns(queue.settings, message, delay_ns)
            if delay_ns:
                message.returned_late = True
                self._delay(queue, message, now_ns + delay_ns)
            return False
        self._remove(queue, message, ("forced_expire",) if action == "expire" else ())
        return True

    def _defer(
        self, now_ns: int, queue: Queue, bookmark: Bookmark, message: Message | None, action: Action
    ) -> None:
        """§8.5 and D-11: keep the acknowledgement of a message that has not come, or is inactive."""
        if message is None and bookmark in self._seen:
            return
        if action == "acknowledge" or (action == "expire" and queue.settings.at_least_once):
            queue.deferred[bookmark] = now_ns

    def _return(self, now_ns: int, queue: Queue, message: Message, is_cancelled: bool) -> bool:
        """`ret(m)` of §19: back to its place, or out if a limit is reached. Return whether it left the queue."""
        self._release(message)
        reasons = self._limits_reached(now_ns, queue.settings, message, is_cancelled)
        if reasons:
            self._remove(queue, message, reasons)
            return True
        message.state = State.AVAILABLE
        return False

    def _limits_reached(
        self, now_ns: int, settings: QueueSettings, message: Message, is_cancelled: bool
    ) -> tuple[str, ...]:
        """The reasons, in the order of D-25, for which a delivered message may not be delivered again."""
        reasons = []
        if message.is_due(now_ns):
            reasons.append("time_limit")
        if is_cancelled and 0 < settings.max_cancels <= message.cancels:
            reasons.append("max_cancels")
        if 0 < settings.max_deliveries <= message.deliveries:
            reasons.append("max_deliveries")
        return tuple(reasons)

    def _release(self, message: Message) -> None:
        """End the lease, if there is one, and free its holder's backlog."""
        if message.holder is not None:
            message.holder.outstanding -= 1
        message.holder = message.deadline_ns = None

    def _remove(self, queue: Queue, message: Message, reasons: tuple[str, ...]) -> None:
        self._release(message)
        queue.messages.remove(message)
        queue.delete_count += 1
        self._events.append(Removed(queue.index, message.position, reasons))

    # Transactions (queue_guarantees.md §4)

    def _take_sequence(self, publisher: int, sequence: int) -> None:
        """Note a sequence of a publisher: that of a message or of a transaction."""
        self._last_sequences[publisher] = max(sequence, self.last_sequence(publisher))

    def _is_repeated(self, first: Bookmark) -> bool:
        """Item 7."""
        publisher, sequence = first
        return sequence <= self.last_sequence(publisher)

    def _holds(self, queue: Queue, client: int, bookmarks: Sequence[Bookmark]) -> bool:
        """The fence, item 3."""
        return all(
            message is not None
            and message.state is State.LEASED
            and message.holder is not None
            and message.holder.client == client
            for message in map(queue.find, bookmarks)
        )

    def _refuse(self, first: Bookmark, publishes: int) -> None:
        """Item 6."""
        publisher, sequence = first
        self._take_sequence(publisher, sequence + publishes)
        self._refused.add(first)

    def _take_effect(
        self,
        now_ns: int,
        queue: Queue,
        first: Bookmark,
        bookmarks: Sequence[Bookmark],
        publishes: Sequence[TransactionPublish],
    ) -> None:
        """Items 1 and 2."""
        publisher, sequence = first
        self._take_sequence(publisher, sequence)
        for message in {bookmark: queue.find(bookmark) for bookmark in bookmarks}.values():
            if message is not None:
                self._remove(queue, message, ())
        for number, one in enumerate(publishes, 1):
            bookmark = publisher, sequence + number
            self._enter(now_ns, one.position, bookmark, None, one.entries, one.kind, 0)

    # Subscriptions (queues.md §5)

    def _effective_backlog(self, queues: Mapping[int, Filter], max_backlog: int) -> int:
        return min([max_backlog, *(self._queues[index].settings.max_per_subscription for index in queues)])

    def _end(self, now_ns: int, ended: Sequence[Subscription]) -> None:
        """§5.6, rows 9 and 17 of §19."""
        for subscription in ended:
            del self._subscriptions[subscription.number]
        for queue in self._queues:
            for message in list(queue.messages):
                if message.holder not in ended:
                    continue
                if message.state is State.LEASED:
                    self._return(now_ns, queue, message, is_cancelled=False)
                else:
                    queue.messages.remove(message)

    # Delivery (queues.md §20)

    def _settle(self, now_ns: int) -> None:
        for queue in self._queues:
            self._refill(now_ns, queue)
        for queue in self._queues:
            while self._send_one(now_ns, queue):
                self._refill(now_ns, queue)

    def _in_order(self, queue: Queue) -> list[Message]:
        """The highest priority first, none last, then the oldest first (§9)."""
        if not queue.settings.has_priority:
            return queue.messages

        def rank(message: Message) -> tuple[bool, int]:
            priority = message.entry.priority
            return priority is None, -(priority or 0)

        return sorted(queue.messages, key=rank)

    def _send_one(self, now_ns: int, queue: Queue) -> bool:
        on_queue = [one for one in self._subscriptions.values() if queue.index in one.queues]
        for message in self._in_order(queue):
            if message.state is State.BARRIER:
                return self._send_barrier(queue, message, on_queue)
            if message.state is not State.AVAILABLE or self._waits(queue, message):
                continue
            limit = queue.settings.max_backlog
            if limit is not None and queue.outstanding >= limit:
                continue
            candidates = [
                one
                for one in on_queue
                if one.outstanding < one.effective_backlog and one.takes(queue.index, message.kind)
            ]
            if candidates:
                self._send(now_ns, queue, message, self._pick(queue, candidates))
                return True
        return False

    def _waits(self, queue: Queue, message: Message) -> bool:
        """The order per key: an active message waits for the one of its key that is held, else for earlier ones.

        A message that was cancelled with a delay counts as held.
        """
        key = self._key(queue, message)
        if key == 0 or message.state not in UNLEASED:
            return False
        return any(
            self._is_held(one) or (one.state in ACTIVE and one.position < message.position)
            for one in queue.messages
            if self._key(queue, one) == key
        )

    def _is_held(self, message: Message) -> bool:
        return message.state is State.LEASED or (message.state is State.DELAYED and message.returned_late)

    def _key(self, queue: Queue, message: Message) -> int:
        """The key of a message; 0: it has none. Barriers have none."""
        is_barrier = queue.settings.has_barriers and message.entry.is_barrier
        return message.entry.key if queue.settings.has_ordering_key and not is_barrier else 0

    def _send_barrier(self, queue: Queue, barrier: Message, on_queue: Sequence[Subscription]) -> bool:
        """§12: not before all earlier messages have been acknowledged, and no later message before it."""
        if not on_queue or queue.messages[0] is not barrier:
            return False
        takers = frozenset(one.number for one in on_queue if one.takes(queue.index, barrier.kind))
        self._events.append(BarrierSent(queue.index, barrier.position, takers))
        self._remove(queue, barrier, ())
        return True

    def _send(self, now_ns: int, queue: Queue, message: Message, receiver: Subscription) -> None:
        queue.last_receiver = receiver.created
        lease_ns = queue.settings.lease_ns
        if queue.settings.at_least_once and lease_ns is not None:
            message.deadline_ns = now_ns + lease_ns
        until_ns = message.deadline_ns
        self._events.append(Delivered(receiver.number, queue.index, message.position, until_ns))
        message.holder = receiver
        receiver.outstanding += 1
        message.deliveries += 1
        if queue.settings.at_least_once:
            message.state = State.LEASED
        else:
            message.state = State.DELIVERED
            queue.delete_count += 1
            self._events.append(Removed(queue.index, message.position, ()))

    def _pick(self, queue: Queue, candidates: Sequence[Subscription]) -> Subscription:
        """§7, with D-07. Candidates are in the order of creation."""
        if queue.settings.fairness == "fast":
            return candidates[0]
        if queue.settings.fairness == "round-robin":
            return min(candidates, key=lambda one: (one.created <= queue.last_receiver, one.created))
        return min(candidates, key=lambda one: Fraction(one.outstanding, one.effective_backlog))
