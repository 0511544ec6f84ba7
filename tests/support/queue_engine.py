"""The engine of the queues as a subject of comparison with the model (queue_subject.py)."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy

from amps._core.queues.engine import COUNTER_NAMES, COUNTERS_BYTES, Milestones, QueueArena, arena_bytes
from amps._core.queues.manager import QueueManager
from tests.support.queue_subject import (
    Action,
    BarrierSent,
    Bookmark,
    Counts,
    Delivered,
    Entry,
    Event,
    Filter,
    QueueSettings,
    Removed,
)

BLOCKS = 64
DELIVERY = struct.Struct("<QQIIII")
NO_SUBSCRIPTION = 0xFFFFFFFF
ACTIONS = {"acknowledge": 0, "cancel": 1, "expire": 2, "extend": 3}
REASONS = {1: "time_limit", 2: "forced_expire", 4: "max_cancels", 8: "max_deliveries"}
BARRIER_SENT = 16
ANSWERED = 5
DELAYED_RECORD = 6
INACTIVE, AVAILABLE, LEASED, DELIVERED, DELAYED, WAITING = 1, 2, 3, 5, 7, 8
TRANSPORTS = 1  # one worker, so that all deliveries have one order


@dataclass
class EngineSettings:
    """The settings in the engine's own form."""

    of: QueueSettings
    spans: bool = False
    initial_owner: str | None = None
    domain: int = 0

    def __post_init__(self) -> None:
        of = self.of
        self.at_least_once = of.at_least_once
        self.strict_leasing = of.strict
        self.has_priority = of.has_priority
        self.has_ordering_key = of.has_ordering_key
        self.fairness_model = of.fairness
        self.expiration_model = of.expiration_model
        self.lease_period_ns = of.lease_ns
        self.max_backlog = of.max_backlog
        self.max_per_subscription_backlog = of.max_per_subscription
        self.expiration_ns = of.expiration_ns
        self.max_deliveries = of.max_deliveries
        self.max_cancels = of.max_cancels
        self.target_queue_depth = of.target_depth
        self.deferred_ack_expiration_ns = of.deferred_ack_expiration_ns
        self.cancel_delay_ns = of.cancel_delay_ns
        self.cancel_delay_factor = of.cancel_delay_factor
        self.cancel_delay_max_ns = of.cancel_delay_max_ns


@dataclass
class Message:
    bookmark: Bookmark
    published_ns: int
    expiration_s: int | None
    kind: int
    entries: dict[int, Entry]
    deliver_at_ns: int


class QueueEngine:
    """Filters are evaluated at once, as if the transports were infinitely fast."""

    def __init__(self, settings: Sequence[QueueSettings]) -> None:
        self._settings = [EngineSettings(one) for one in settings]
        self._log: dict[int, Message] = {}
        self._positions: dict[Bookmark, int] = {}
        self._clients: dict[int, int] = {}  # by subscription
        self._queues: dict[int, Mapping[int, Filter]] = {}  # by subscription
        self._gone: list[set[int]] = [set() for _ in settings]
        self._recorded_delays: list[dict[int, int]] = [{} for _ in settings]  # as the journal has them
        self._deferred: list[list[tuple[int, Bookmark]]] = [[] for _ in settings]
        self._events: list[Event] = []
        self._begin()

    def _begin(self) -> None:
        memory = numpy.zeros(arena_bytes(BLOCKS), "u1")
        self._counters = numpy.zeros(len(self._settings) * COUNTERS_BYTES, "u1")
        self.manager = QueueManager(
            QueueArena(memory, BLOCKS), self._counters.data, self._settings, TRANSPORTS
        )
        self._known: list[set[int]] = [set() for _ in self._settings]
        self._delivered: set[tuple[int, int]] = set()  # since the start

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
        self.manager.pass_time(now_ns)
        message = Message(bookmark, now_ns, expiration_s, kind, dict(entries), deliver_at_ns)
        self._log[position] = message
        self._positions[bookmark] = position
        for index in entries:
            self._enter(index, position, message, now_ns)
        self._settle(now_ns)

    def _enter(self, index: int, position: int, message: Message, now_ns: int) -> None:
        entry = message.entries[index]
        settings = self._settings[index].of
        self.manager.enqueue(
            index,
            position,
            message.bookmark,
            message.published_ns,
            message.expiration_s,
            now_ns,
            entry.priority if settings.has_priority else None,
            entry.is_barrier and settings.has_barriers,
            message.deliver_at_ns,
            entry.key,
        )
        if all(at != position for at, _ in self.manager.states(index)):
            self._gone[index].add(position)  # its acknowledgement came before it

    def subscribe(
        self, now_ns: int, subscription: int, client: int, queues: Mapping[int, Filter], max_backlog: int
    ) -> int:
        self.manager.pass_time(now_ns)
        self._clients[subscription] = client
        return self._enter_subscription(now_ns, subscription, queues, max_backlog)

    def replace(self, now_ns: int, subscription: int, queues: Mapping[int, Filter], max_backlog: int) -> int:
        self.manager.pass_time(now_ns)
        return self._enter_subscription(now_ns, subscription, queues, max_backlog)

    def _enter_subscription(
        self, now_ns: int, subscription: int, queues: Mapping[int, Filter], max_backlog: int
    ) -> int:
        client = self._clients[subscription]
        self._queues[subscription] = dict(queues)
        limit = self.manager.subscribe(client % TRANSPORTS, subscription, client, queues, max_backlog)
        self._settle(now_ns)
        return limit

    def unsubscribe(self, now_ns: int, subscription: int) -> None:
        self.manager.pass_time(now_ns)
        client = self._clients.pop(subscription)
        del self._queues[subscription]
        assert self.manager.unsubscribe(client % TRANSPORTS, subscription, now_ns)
        self._settle(now_ns)

    def disconnect(self, now_ns: int, client: int) -> None:
        self.manager.pass_time(now_ns)
        for subscription in [number for number, of in self._clients.items() if of == client]:
            del self._clients[subscription], self._queues[subscription]
        self.manager.end_client(client, now_ns)
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
        self.manager.pass_time(now_ns)
        matches = deleted = 0
        for bookmark in bookmarks:
            found, removed = self._acknowledge(now_ns, client, queue, bookmark, action, delay_ns)
            matches += found
            deleted += removed
        self._settle(now_ns)
        return Counts(len(bookmarks), matches, deleted)

    def _acknowledge(
        self, now_ns: int, client: int, queue: int, bookmark: Bookmark, action: str, extension_ns: int = 0
    ) -> tuple[int, int]:
        seen = 2**64 - 1 if bookmark in self._positions else 0
        position = self._positions.get(bookmark, 0)
        before = dict(self.manager.states(queue))
        matches, removed, kept = self.manager.acknowledge(
            queue, client, [(*bookmark, position, 0)], ACTIONS[action], extension_ns, now_ns, seen
        )
        for _, _, at in kept:
            if before.get(at, INACTIVE) != INACTIVE:
                self._leaves(queue, at, ("forced_expire",) if action == "expire" else ())
            else:
                self._deferred[queue].append((now_ns, bookmark))
        return matches, removed

    def acknowledge_matching(
        self, now_ns: int, client: int, queue: int, kinds: frozenset[int], action: Action
    ) -> Counts:
        self.manager.pass_time(now_ns)
        active = [
            position for position, state in self.manager.states(queue) if state not in (INACTIVE, DELIVERED)
        ]
        matching = [position for position in active if self._log[position].kind in kinds]
        deleted = 0
        for position in matching:
            deleted += self._acknowledge(now_ns, client, queue, self._log[position].bookmark, action)[1]
        self._settle(now_ns)
        return Counts(len(active), len(matching), deleted)

    def extend(
        self, now_ns: int, client: int, queue: int, bookmarks: Sequence[Bookmark], extension_ns: int
    ) -> None:
        self.manager.pass_time(now_ns)
        for bookmark in bookmarks:
            self._acknowledge(now_ns, client, queue, bookmark, "extend", extension_ns)
        self._settle(now_ns)

    def tick(self, now_ns: int) -> None:
        self.manager.pass_time(now_ns)
        self._settle(now_ns)

    def restart(self, now_ns: int) -> None:
        """Make a new engine from the log and the record of the messages that have left."""
        self._clients.clear()
        self._queues.clear()
        deferred = [
            [(at, mark) for at, mark in marks if now_ns < at + one.deferred_ack_expiration_ns]
            for marks, one in zip(self._deferred, self._settings, strict=True)
        ]
        self._deferred = [[] for _ in self._settings]
        self._begin()
        for position, message in self._log.items():
            for index in message.entries:
                if position not in self._gone[index]:
                    self._enter(index, position, message, message.published_ns)
        for index, delays in enumerate(self._recorded_delays):
            for position, until_ns in delays.items():
                self.manager.delay_recorded(index, position, until_ns)
        for index, marks in enumerate(deferred):
            for at, bookmark in marks:
                position = self._positions.get(bookmark, 0)
                if position == 0 or index not in self._log[position].entries:
                    self.manager.acknowledge(index, 0, [(*bookmark, 0, 0)], 0, 0, at)
                    self._deferred[index].append((at, bookmark))
                elif dict(self.manager.states(index)).get(position) == INACTIVE:
                    self._acknowledge(at, 0, index, bookmark, "acknowledge")
            # An acknowledged message beyond the target depth may become active now, and leave at once.
            self._known[index] = {position for position, _ in self.manager.states(index)}
        self.manager.pass_time(now_ns)
        self._settle(now_ns)

    # Events

    def _leaves(self, queue: int, position: int, reasons: tuple[str, ...]) -> None:
        self._gone[queue].add(position)
        self._events.append(Removed(queue, position, reasons))

    def _settle(self, now_ns: int) -> None:
        while True:
            self._evaluate(now_ns)
            self._take_removals()
            self.manager.serve(now_ns)
            self._take_deliveries()
            self._take_removals()
            if not self._evaluate(now_ns):
                break
        for index, known in enumerate(self._known):
            now = {position for position, _ in self.manager.states(index)}
            for position in sorted(known - now - self._gone[index]):
                self._leaves(index, position, ())  # its acknowledgement had been deferred
            self._known[index] = now
            self._check_waiting(index)
        self._check_undelivered()

    def _check_waiting(self, queue: int) -> None:
        """Check that the list of each key, and the milestones, have the messages that wait, in the order of the log."""
        keys = self.manager.queues[queue].keys
        if keys is None:
            return
        waiting: dict[int, list[int]] = {}
        for position, state in self.manager.states(queue):
            if state == WAITING:
                waiting.setdefault(self._log[position].entries[queue].key, []).append(position)
        assert {key: keys.waiting(key) for key in waiting} == waiting
        if keys.milestones is not None:
            chosen = {(key, at) for key in waiting for at in waiting[key] if Milestones.chooses(key, at)}
            entries = keys.milestones.entries
            assert entries == sorted(entries)
            assert chosen.issuperset(entries)

    def _check_undelivered(self) -> None:
        """Check the engine's position of the first undelivered message.

        Pages of the log from there on stay in memory. So it must not be behind such a message, and must not exist
        without one.
        """
        lowest = self.manager.undelivered_from
        queues = range(len(self._settings))
        states = [(queue, at, state) for queue in queues for at, state in self.manager.states(queue)]
        waiting = [(queue, at) for queue, at, state in states if state in (INACTIVE, AVAILABLE, WAITING)]
        new = [at for queue, at in waiting if (queue, at) not in self._delivered]
        if new:
            assert lowest is not None
            assert lowest <= min(new)
        if all(state in (LEASED, DELIVERED, DELAYED) for _, _, state in states):
            assert lowest is None

    def _evaluate(self, now_ns: int) -> bool:
        """Report matching messages to the engine. Return True if some were missing."""
        missing = False
        end = max(self._log, default=0) + 1
        for cursor, (queue, _, kinds, until) in self.manager.filters.items():
            if until < end:
                missing = True
                matching = [
                    (position, 0)
                    for position, message in self._log.items()
                    if position >= until and message.kind in kinds  # type: ignore[operator]
                ]
                self.manager.hear(cursor, matching, end, now_ns)
            assert queue < len(self._settings)
        return missing

    def _take_deliveries(self) -> None:
        deliveries = self.manager.output.take_deliveries(0, 1 << 30)
        for position, until_ns, subscription, _, queue, flags in DELIVERY.iter_unpack(deliveries):
            if not flags:
                self._delivered.add((queue, position))
                self._events.append(Delivered(subscription, queue, position, until_ns or None))
                continue
            assert subscription == NO_SUBSCRIPTION
            kind = self._log[position].kind
            takers = {
                subscription
                for subscription, queues in self._queues.items()
                if queue in queues and (queues[queue] is None or kind in queues[queue])  # type: ignore[operator]
            }
            self._events.append(BarrierSent(queue, position, frozenset(takers)))

    def _take_removals(self) -> None:
        removals = self.manager.output.take_removals()
        for queue, action, publisher, sequence, position, bits, until_ns in removals:
            if action == ANSWERED:
                continue  # the message has never been in the queue
            assert self._log[position].bookmark == (publisher, sequence)
            if action == DELAYED_RECORD:
                self._recorded_delays[queue][position] = until_ns
                continue
            reasons = tuple(name for bit, name in REASONS.items() if bits & bit)
            self._leaves(queue, position, reasons)

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # Queries

    def counter(self, queue: int, name: str) -> int:
        row = self._counters[queue * COUNTERS_BYTES : (queue + 1) * COUNTERS_BYTES].view("<u8")
        return int(row[COUNTER_NAMES.index(name)])

    def depth(self, queue: int) -> int:
        return self.counter(queue, "depth")

    def backlog(self, queue: int) -> int:
        return self.counter(queue, "leased") + self.counter(queue, "delivered")

    def deferred(self, queue: int) -> int:
        return self.counter(queue, "deferred")

    def expired_leases(self, queue: int) -> int:
        return self.counter(queue, "expired_leases")

    def inactive(self, queue: int) -> int:
        return self.counter(queue, "inactive")

    def waiting(self, queue: int) -> int:
        return self.counter(queue, "waiting")

    def insert_count(self, queue: int) -> int:
        return self.counter(queue, "insert_count")

    def delete_count(self, queue: int) -> int:
        return self.counter(queue, "delete_count")

    def available(self, queue: int) -> list[int]:
        return self.manager.available(queue)

    def delayed(self, queue: int) -> list[int]:
        found = [position for position, state in self.manager.states(queue) if state == DELAYED]
        assert self.counter(queue, "delayed") == len(found)
        return found

    def next_delivery_ns(self, queue: int) -> int:
        return self.counter(queue, "next_delivery_ns")

    def outstanding(self, subscription: int) -> int:
        found = self.manager.subscriber(self._clients[subscription] % TRANSPORTS, subscription)
        assert found is not None
        return found.outstanding
