"""Check the core's decisions about queues against the journal and against the acknowledgements that clients received.

The watch receives every answer of the sequencer in the turn in which it is made. It has two models of the journal
(`queue_log`): of its written part, and of its durable part. So it knows at every decision what was in the queue, and
at every delivery and every promise what would survive a crash of the machine.

State of the core that is not in the journal (leases, counts) is bounded from both sides. A lease may have ended if
its time is over, if its subscription's end was announced, or if a client cancelled or extended it. Otherwise it has
not ended.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from amps._core.journal.reader import LogCursor
from amps.server.records import HEADER_BYTES, KIND_QUEUE_DELIVERIES, record_kind
from tests.simulation.consumers import Command, Received
from tests.simulation.queue_log import (
    ACKNOWLEDGE,
    BARRIER_SENT,
    CANCEL,
    CANCELS,
    DELAYED,
    DELIVERED,
    DELIVERIES,
    EXPIRE,
    EXTEND,
    FORCED,
    TIME_LIMIT,
    Bookmark,
    Left,
    Message,
    QueueLog,
)
from tests.simulation.queue_plans import NS_PER_S, QueuePlan

BARRIER = 1
DELIVERIES_HEADER = struct.Struct("<QII")
DELIVERY = struct.Struct("<QQIIII")
Name = tuple[int, Bookmark]
"""The number of a queue, and the bookmark of a message."""


@dataclass(frozen=True)
class Delivery:
    """One decision of the core."""

    position: int
    lease_until_ns: int
    subscription: int
    slot: int
    queue: int
    flags: int


def deliveries_of(payload: bytes) -> tuple[int, list[Delivery]]:
    """Decode a record of deliveries: the position up to which the journal must be durable, and the deliveries."""
    needed, count, _ = DELIVERIES_HEADER.unpack_from(payload)
    found = [Delivery(*row) for row in DELIVERY.iter_unpack(payload[DELIVERIES_HEADER.size :])]
    assert len(found) == count
    return needed, found


@dataclass
class Request:
    """A subscription as the client requested it."""

    wanted: dict[int, int | None]
    max_backlog: int


@dataclass
class Subscriber:
    """A subscription as the core has it, as far as its answers show."""

    transport: int
    owner: str
    requests: list[Request] = field(default_factory=list)
    wanted: dict[int, int | None] = field(default_factory=dict)
    limit: int = 0
    entered: bool = False
    is_over: bool = False
    """True once its end was announced, or its transport has died."""
    newest: dict[int, int] = field(default_factory=dict)
    """By queue: the position of the last message that was delivered to it first."""


@dataclass
class Hold:
    """A delivery that is not known to have ended."""

    subscription: int
    name: Name
    ends_ns: int | None
    """The earliest time at which the lease may end."""
    touched: bool = False
    """True once a client has sent a command about it."""
    is_vague: bool = False
    """True if the time of the decision is unknown."""


@dataclass
class Run:
    """The known state of one process of the core."""

    cursor: LogCursor
    durable_cursor: LogCursor
    log: QueueLog
    durable_log: QueueLog
    subscribers: dict[int, Subscriber] = field(default_factory=dict)
    holds: dict[Name, Hold] = field(default_factory=dict)
    deliveries: dict[Name, int] = field(default_factory=dict)
    cancels: dict[Name, int] = field(default_factory=dict)
    """The number of cancels that were sent and have not ended a delivery yet."""
    cancels_sent: dict[Name, int] = field(default_factory=dict)
    extensions: dict[Name, int] = field(default_factory=dict)
    """The shortest extension that was sent."""
    recorded: dict[Name, int] = field(default_factory=dict)
    """Messages that the journal records as delivered at most once, and whose delivery was not seen yet: the log
    position of each, in the order of the decisions.
    """
    barriers: set[tuple[Name, int]] = field(default_factory=set)
    known: list[dict[int, Message]] = field(default_factory=list)
    """By queue: all messages that ever entered, by position."""
    counts_vaguely: bool = False
    """True once the journal could not be written for a while: deliveries may have been decided that were not seen in
    time.
    """


class QueueWatch:
    """See the module. One per world."""

    def __init__(self, plans: Sequence[QueuePlan]) -> None:
        self._plans = plans
        self.received: list[Received] = []
        self.received_barriers = 0
        self.decided = 0
        self.redelivered = 0
        self.decided_delayed = 0
        self.delays = 0
        self.promises = 0
        self.drains = False
        self.is_frozen = False
        """True if the journal could not be written in this turn: the core may have removed more than it contains."""
        self.owners: dict[int, str] = {}
        """By publisher id: the names of consumers."""
        self.run: Run
        self._transactions: set[tuple[int, int]] = set()  # publisher id and first sequence
        self._numbers = 0
        self._now_ns = 0
        self._said: dict[tuple[Name, int], int] = {}  # the number of commands for each message and action
        self._promised: set[Name] = set()  # removals that a client was promised
        self._lapses_ns: dict[Name, int] = {}  # end of a deferred acknowledgement
        self._to_be_got: set[Name] = set()
        self._available: dict[int, list[int]] = {}
        self._decided_once: list[tuple[Name, int]] = []  # as `recorded`, at the end of the turn
        self._got_at_most_once: set[Name] = set()

    # The start of a process

    def begin(self, cursor: LogCursor, durable_cursor: LogCursor, limit: int) -> None:
        """The core has recovered; its journal ends at `limit`, and begins where the cursors are."""
        self.run = Run(cursor, durable_cursor, QueueLog(self._plans), QueueLog(self._plans))
        self.run.known = [{} for _ in self._plans]
        self.run.log.follow(cursor, limit)
        self.run.durable_log.follow(durable_cursor, limit)
        self._learn()
        for number, queue in enumerate(self.run.log.queues):
            for message in queue.messages.values():
                self._check_promise((number, message.bookmark), message)

    def _learn(self) -> None:
        for known, queue in zip(self.run.known, self.run.log.queues, strict=True):
            for message in queue.entered[len(known) :]:
                known[message.position] = message

    def entered(self, queue: int) -> list[Message]:
        """All messages that ever entered a queue, in the order of the log."""
        return self.run.log.queues[queue].entered

    # Announcements of transports

    def new_subscription(self) -> int:
        self._numbers += 1
        return self._numbers

    def asked(
        self, transport: int, number: int, owner: str, wanted: dict[int, int | None], max_backlog: int
    ) -> None:
        """A transport announces a subscription, or a change of it."""
        subscriber = self.run.subscribers.setdefault(number, Subscriber(transport, owner))
        subscriber.requests.append(Request(wanted, max_backlog))

    def ended(self, number: int) -> None:
        """A transport announces the end of a subscription."""
        if number in self.run.subscribers:
            self.run.subscribers[number].is_over = True

    def transacted(self, publisher: int, sequence: int) -> None:
        """The command with that sequence is a transaction."""
        self._transactions.add((publisher, sequence))

    def commanded(self, command: Command) -> None:
        """A command about messages has been pushed into a ring."""
        run = self.run
        for bookmark in command.bookmarks:
            name = command.queue, bookmark
            said = name, command.action
            self._said[said] = self._said.get(said, 0) + 1
            kept_ns = int(self._plans[command.queue].config.deferred_ack_expiration_s * NS_PER_S)
            self._lapses_ns.setdefault(name, self._now_ns + kept_ns)
            if command.action == CANCEL:
                run.cancels[name] = run.cancels.get(name, 0) + 1
                run.cancels_sent[name] = run.cancels_sent.get(name, 0) + 1
            elif command.action == EXTEND:
                run.extensions[name] = min(
                    run.extensions.get(name, command.extension_ns), command.extension_ns
                )
            if (hold := run.holds.get(name)) is not None:
                hold.touched = True
                self._shorten(hold, self._now_ns)

    def _shorten(self, hold: Hold, from_ns: int) -> None:
        extension_ns = self.run.extensions.get(hold.name)
        if extension_ns is not None:
            end_ns = from_ns + extension_ns
            hold.ends_ns = end_ns if hold.ends_ns is None else min(hold.ends_ns, end_ns)

    # Decisions of the core

    def follow(self, written: int) -> None:
        """Read the records written since the last call."""
        run = self.run
        for left in run.log.follow(run.cursor, written):
            self._audit(left)
        self._learn()

    def hear(
        self,
        replies: list[tuple[int, object]],
        written: int,
        now_ns: int,
        is_late: bool,
        available: Callable[[int], list[int]],
    ) -> None:
        """Process the answers of one turn, at its end.

        `is_late`: some decisions may be much older, because they waited for a journal that could not be written.
        `available`: returns the log positions of a queue's available messages.
        """
        self._now_ns = now_ns
        self.run.counts_vaguely |= is_late
        self.follow(written)
        decided = []
        for transport, reply in replies:
            if isinstance(reply, tuple):
                if reply[0] == "queue_entered":
                    self._enter(reply[3], reply[4])
                continue
            assert isinstance(reply, bytes)
            assert record_kind(reply) == KIND_QUEUE_DELIVERIES
            needed, deliveries = deliveries_of(reply[HEADER_BYTES:])
            decided += [(transport, delivery, needed) for delivery in deliveries]
        self._available = {delivery.queue: available(delivery.queue) for _, delivery, _ in decided}
        self._decided_once = list(self.run.recorded.items())
        for transport, delivery, needed in decided:
            self._decide(transport, delivery, needed, is_late)

    def _enter(self, number: int, backlog: int) -> None:
        subscriber = self.run.subscribers[number]
        request = subscriber.requests.pop(0)
        limits = [self._plans[queue].config.max_per_subscription_backlog for queue in request.wanted]
        assert backlog == min([request.max_backlog, *limits]), (
            f"subscription {number} has a backlog of {backlog}"
        )
        subscriber.wanted, subscriber.limit, subscriber.entered = request.wanted, backlog, True
        subscriber.newest.clear()

    def _decide(self, transport: int, delivery: Delivery, needed: int, is_late: bool) -> None:
        run, plan = self.run, self._plans[delivery.queue]
        message = run.known[delivery.queue].get(delivery.position)
        assert message is not None, f"{delivery} is of a message that never entered"
        name = delivery.queue, message.bookmark
        assert needed > delivery.position
        self.decided += 1
        if is_late:
            hold = self._note(delivery, name, None)
            hold.touched = hold.is_vague = True
            if not plan.at_least_once and not delivery.flags & BARRIER:
                assert name in run.recorded, f"{message} was delivered without a record, or twice"
                del run.recorded[name]
            return
        self._check_promise(name, message)
        assert message.expires_ns is None or message.expires_ns > self._now_ns, f"{message} is out of date"
        contents = run.log.queues[delivery.queue].messages
        until_ns = run.log.queues[delivery.queue].delayed.get(delivery.position)
        if until_ns is not None:
            self.decided_delayed += 1
            assert until_ns <= self._now_ns, f"{message} is delayed until {until_ns}"
        if delivery.flags & BARRIER:
            assert message.is_barrier
            assert (name, transport) not in run.barriers, f"{message} was sent twice"
            run.barriers.add((name, transport))
            assert name in run.recorded
            assert not [one for one in contents if one < delivery.position], f"{message} was not the oldest"
            return
        assert not message.is_barrier, f"{message} is a barrier"
        barriers = [one for one in contents.values() if one.is_barrier and one.position < delivery.position]
        assert not [one for one in barriers if not self._is_over(one)], f"{message} overtook a barrier"
        if message.key is not None and not self.is_frozen:
            self._check_key(message, contents, run.log.queues[delivery.queue].delayed)
        if plan.at_least_once:
            assert delivery.position in contents, f"{message} is gone"
        else:
            assert name in run.recorded, f"{message} was delivered without a record, or twice"
            del run.recorded[name]
        self._check_subscriber(transport, delivery, message)
        self._check_order(delivery, message)
        self._hold(delivery, name)

    def _is_over(self, message: Message) -> bool:
        """True if the message has expired. If the journal is full, the record of its expiry may be late."""
        return message.expires_ns is not None and message.expires_ns <= self._now_ns

    def _check_key(
        self, message: Message, contents: Mapping[int, Message], delayed: Mapping[int, int]
    ) -> None:
        """A message is delivered when all earlier ones of its key have left (queue_guarantees.md §3).

        A delayed message joins its key at its time, which may be before inactive ones and behind later ones.
        """
        if message.position in delayed:
            return
        earlier = [
            one
            for one in contents.values()
            if one.key == message.key and one.position < message.position and one.position not in delayed
        ]
        assert all(self._is_over(one) for one in earlier), f"{message} overtook {earlier}"

    def _check_subscriber(self, transport: int, delivery: Delivery, message: Message) -> None:
        subscriber = self.run.subscribers.get(delivery.subscription)
        assert subscriber is not None, f"{delivery}: no client made this subscription"
        assert subscriber.entered, f"{delivery}: the subscription was not acknowledged"
        assert subscriber.transport == transport
        assert delivery.queue in subscriber.wanted, f"{delivery}: not subscribed to this queue"
        kind = subscriber.wanted[delivery.queue]
        assert kind is None or kind == message.kind, f"{delivery}: the filter does not match"

    def _check_order(self, delivery: Delivery, message: Message) -> None:
        """Check the order of deliveries.

        Messages that are delivered for the first time reach one subscription in the order of the log, unless they were
        delayed or the queue has priorities or keys. A subscription without a filter receives the first of all available
        messages.
        """
        run, queue = self.run, delivery.queue
        subscriber = run.subscribers[delivery.subscription]
        delayed = run.log.queues[queue].delayed
        is_first = (queue, message.bookmark) not in run.deliveries and delivery.position not in delayed
        config = self._plans[queue].config
        if config.priority is None and config.ordering_key is None and is_first:
            assert subscriber.newest.get(queue, -1) < delivery.position, f"{delivery} comes out of order"
            subscriber.newest[queue] = delivery.position
        if subscriber.wanted[queue] is None:
            for position in self._available[queue]:
                other = run.known[queue][position]
                assert other.rank > message.rank or self._may_have_been_inactive(queue, other, message), (
                    f"{delivery}: {other} comes before {message}"
                )

    def _may_have_been_inactive(self, queue: int, other: Message, message: Message) -> bool:
        """True if an earlier message, which is available at the end of the turn, may have been inactive when `message`
        was delivered.

        A delayed message becomes available also beyond the target depth, so earlier ones may be inactive
        (queue_guarantees.md §1.4). A delivery at most once lowers the depth, and may activate them before the turn
        ends. Inactive messages become active in the order of the log. So while one of them is inactive, the active ones
        are before it, or were delayed; and they reach the target depth.
        """
        plan = self._plans[queue]
        target = plan.config.target_queue_depth
        if target is None or plan.at_least_once:
            return False
        if self._was_delayed(queue, other) or not self._was_delayed(queue, message):
            return False
        names = [name for name, _ in self._decided_once]
        later = self._decided_once[names.index((queue, message.bookmark)) :]
        present = [*self._available[queue], *(position for (number, _), position in later if number == queue)]
        known = self.run.known[queue]
        return target <= sum(
            position < other.position or self._was_delayed(queue, known[position]) for position in present
        )

    def _was_delayed(self, queue: int, message: Message) -> bool:
        """True if the message had to wait for its time when it entered."""
        return self.run.log.queues[queue].delayed.get(message.position, 0) > message.entered_ns

    def _hold(self, delivery: Delivery, name: Name) -> None:
        run, plan = self.run, self._plans[delivery.queue]
        config = plan.config
        before = run.holds.get(name)
        hold = self._note(delivery, name, delivery.lease_until_ns or None)
        count = run.deliveries[name]
        assert not config.max_deliveries or count <= config.max_deliveries or not plan.at_least_once, (
            f"{delivery}: for the {count}th time"
        )
        if before is not None:
            self.redelivered += 1
            self._check_end(delivery, before)
        period_s = config.lease_period_s
        expected_ns = 0 if period_s is None else self._now_ns + int(period_s * NS_PER_S)
        assert delivery.lease_until_ns == expected_ns, f"{delivery}: the lease should end at {expected_ns}"
        # The core may take a command that was sent before the delivery after it.
        hold.touched = any((name, action) in self._said for action in (ACKNOWLEDGE, CANCEL, EXPIRE, EXTEND))
        self._shorten(hold, self._now_ns)
        sure = [one for one in run.holds.values() if self._is_held(one)]
        limit = run.subscribers[delivery.subscription].limit
        held = sum(one.subscription == delivery.subscription for one in sure)
        assert held <= max(limit, 1), f"{delivery}: {held} are held, the limit is {limit}"
        assert limit, f"{delivery}: the limit is 0"
        in_queue = sum(one.name[0] == delivery.queue for one in sure)
        assert config.max_backlog is None or in_queue <= config.max_backlog, (
            f"{delivery}: {in_queue} of the queue are held"
        )

    def _note(self, delivery: Delivery, name: Name, ends_ns: int | None) -> Hold:
        self.run.deliveries[name] = self.run.deliveries.get(name, 0) + 1
        self.run.holds[name] = Hold(delivery.subscription, name, ends_ns)
        return self.run.holds[name]

    def _check_end(self, delivery: Delivery, before: Hold) -> None:
        """Check, when a message is delivered again, that its earlier delivery has ended."""
        run = self.run
        if before.is_vague or (before.ends_ns is not None and before.ends_ns <= self._now_ns):
            return
        if run.subscribers[before.subscription].is_over:
            return
        cancels = run.cancels.get(before.name, 0)
        assert cancels, f"{delivery}: subscription {before.subscription} still has it"
        run.cancels[before.name] = cancels - 1

    def _is_held(self, hold: Hold) -> bool:
        """True if a delivery has certainly not ended."""
        return not (
            hold.touched
            or self.run.subscribers[hold.subscription].is_over
            or (hold.ends_ns is not None and hold.ends_ns <= self._now_ns)
        )

    def _is_of_another(self, name: Name, publisher_id: int) -> bool:
        """True if the message is certainly leased to another client than the given publisher."""
        hold = self.run.holds.get(name)
        if hold is None or hold.is_vague or self.run.cancels.get(name):
            return False
        subscriber = self.run.subscribers[hold.subscription]
        has_ended = subscriber.is_over or (hold.ends_ns is not None and hold.ends_ns <= self._now_ns)
        return not has_ended and subscriber.owner != self.owners[publisher_id]

    def check_lease(self, queue: int, position: int, now_ns: int) -> None:
        """Check, after a turn at that time, that the lease of a message that the core holds as leased has not ended."""
        name = queue, self.run.known[queue][position].bookmark
        hold = self.run.holds.get(name)
        if hold is not None and hold.ends_ns is not None and name not in self.run.extensions:
            assert hold.ends_ns > now_ns, f"the lease of {name} has ended"

    # Records of the journal

    def _audit(self, left: Left) -> None:
        """Check that a removal has a cause."""
        run, plan, name = self.run, self._plans[left.queue], (left.queue, left.bookmark)
        if left.action == DELAYED:
            assert plan.at_least_once
            assert left.publisher_id == 0
            assert (name, CANCEL) in self._said, f"{left}: no client cancelled it"
            self.delays += 1
            return
        if left.publisher_id:
            action = EXPIRE if left.reasons & FORCED else ACKNOWLEDGE
            assert left.action == action
            assert (name, action) in self._said, f"{left}: no client sent this command"
            assert action == ACKNOWLEDGE or plan.at_least_once
            if (left.publisher_id, left.sequence) in self._transactions:
                assert left.message is not None, f"{left}: it was gone, and the transaction was not refused"
                assert not self._is_of_another(name, left.publisher_id), f"{left}"
            assert plan.config.leasing != "strict" or not self._is_of_another(name, left.publisher_id), (
                f"{left}"
            )
            known = left.position == 0 or left.message is not None
            # A message beyond the target depth can be acknowledged again.
            assert known or plan.config.target_queue_depth is not None, f"{left}: it was gone"
            return
        assert left.message is not None, f"{left}: it was gone"
        if left.action == DELIVERED:
            assert left.message.is_barrier == bool(left.reasons & BARRIER_SENT), f"{left}"
            assert left.message.is_barrier or not plan.at_least_once, f"{left}: it should be acknowledged"
            run.recorded[name] = left.position
            if self.drains and not left.message.is_barrier:
                self._to_be_got.add(name)
            return
        assert left.action == EXPIRE, f"{left}"
        assert left.reasons, f"{left}"
        if left.reasons & TIME_LIMIT:
            expires_ns = left.message.expires_ns
            assert expires_ns is not None, f"{left}: it had no end"
            assert expires_ns <= left.timestamp_ns, f"{left}: it had time left"
        if left.reasons & DELIVERIES:
            count = run.deliveries.get(name, 0)
            limit = plan.config.max_deliveries
            assert 0 < limit <= count or run.counts_vaguely, f"{left}: it was delivered {count} times"
        if left.reasons & CANCELS:
            count = run.cancels_sent.get(name, 0)
            assert 0 < plan.config.max_cancels <= count, f"{left}: it was cancelled {count} times"

    # Deliveries and acknowledgements to consumers

    def follow_durable(self, durable: int) -> None:
        """Read the records that have become durable."""
        self.run.durable_log.follow(self.run.durable_cursor, durable)

    def delivered(self, delivery: Delivery, durable: int) -> Message:
        """A transport passes a message on to a client, while the journal is durable up to `durable`."""
        self.follow_durable(durable)
        message = self.run.known[delivery.queue][delivery.position]
        name = delivery.queue, message.bookmark
        log = self.run.durable_log.queues[delivery.queue]
        entered = any(one.position == delivery.position for one in reversed(log.entered))
        assert entered, f"{message} was delivered before it was durable"
        if delivery.flags & BARRIER or not self._plans[delivery.queue].at_least_once:
            assert delivery.position not in log.messages, (
                f"{message} was delivered before its record was durable"
            )
            if not delivery.flags & BARRIER:
                assert name not in self._got_at_most_once, f"{message} was delivered twice"
                self._got_at_most_once.add(name)
                self._to_be_got.discard(name)
        return message

    def told(self, command: Command, durable: int) -> None:
        """A client has received the persisted acknowledgement of a command."""
        self.promises += 1
        plan = self._plans[command.queue]
        if command.action not in (ACKNOWLEDGE, EXPIRE) or plan.config.leasing == "strict":
            return  # under strict leasing it may have done nothing
        if command.action == EXPIRE and not plan.at_least_once:
            return
        self.follow_durable(durable)
        queue = self.run.durable_log.queues[command.queue]
        self._promised.update((command.queue, bookmark) for bookmark in command.bookmarks)
        for message in queue.messages.values():
            if message.bookmark in command.bookmarks:
                self._check_promise((command.queue, message.bookmark), message)

    def _check_promise(self, name: Name, message: Message) -> None:
        """Check that a message is not in the queue if its acknowledgement was promised.

        An acknowledgement that came long before its message may be forgotten.
        """
        broken = name in self._promised and message.entered_ns < self._lapses_ns[name]
        assert not broken, f"{name} was acknowledged, and is there: {message}"

    def check_drained(self) -> None:
        """Check, after all faults have ended, that no message delivered at most once is still undelivered."""
        assert not self._to_be_got, f"{self._to_be_got} have left their queues, and did not arrive"
