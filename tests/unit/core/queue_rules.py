"""Random inputs for a set of queues, and a comparison with the model after each of them.

`queue_rules` makes a hypothesis state machine for a subject; `check_queue_rules` runs it. Settings, messages,
subscriptions and acknowledgements are drawn so that limits are met: backlogs of a few messages, leases and expirations
in halves of a second, a clock that moves by the same halves and by a nanosecond more or less. It never goes back.

The comparison covers the result of each command, deliveries and barriers of each queue in their order, removals of each
queue in any order, and all figures. Some laws that hold for any queue are checked as well, so that the model is not the
only reference.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.queue_model import QueueModel
from tests.support.queue_scenarios import MakeSubject
from tests.support.queue_subject import (
    AT_ONCE,
    SECOND_NS,
    Action,
    Bookmark,
    Delivered,
    Entry,
    Event,
    Filter,
    QueueSettings,
    Removed,
    Subject,
)

HALF_NS = SECOND_NS // 2
DAY_NS = 86_400 * SECOND_NS
START_NS = 1_750_000_000_000_000_000
FIRST_POSITION = 2**40
RECORD_BYTES = 144
QUEUES_MAX = 3
KINDS = 3
CLIENTS = 4
SUBSCRIPTIONS_MAX = 6
LARGEST_EXPIRATION_S = 2**32 - 2
FIRST_SEQUENCES = {7: 1, 2**64 - 1: 1_700_000_000_000_000_001}
"""The first sequence of each publisher: one number of a client and one that a server assigned."""
CALM_STEPS_MIN = 3
"""Steps between two that remove many messages at once, so that queues fill up meanwhile."""

NOT_ASKED: Filter = frozenset()
"""In place of a filter: the subscription does not include that queue."""

Answer = TypeVar("Answer")
Thing = TypeVar("Thing")

actions: st.SearchStrategy[Action] = st.sampled_from(["acknowledge", "acknowledge", "cancel", "expire"])
halves = st.integers(1, 8).map(lambda number: number * HALF_NS)
pauses = st.sampled_from([0, 0, 0, 0, 0, 1, HALF_NS - 1, HALF_NS])
ticks = st.sampled_from([1, HALF_NS - 1, HALF_NS, HALF_NS, SECOND_NS, 2 * SECOND_NS])
long_pauses = st.sampled_from([0, HALF_NS, 3 * SECOND_NS, 3 * SECOND_NS, DAY_NS, 400 * DAY_NS])
choices = st.integers(0, 2**16)
clients = st.integers(1, CLIENTS)
backlogs = st.sampled_from([1, 2, 3, 4, 2, 3, 4, 10, 10, 0])
expirations_s = st.sampled_from([None, None, None, None, 0, 1, 3, LARGEST_EXPIRATION_S])
limits = st.sampled_from([0, 0, 1, 2, 3])
delays = st.sampled_from([0, 0, 0, 0, 0, 1, HALF_NS, HALF_NS, SECOND_NS, 3 * SECOND_NS, -1])
cancel_delays = st.sampled_from([0, 0, 0, 1, HALF_NS, SECOND_NS, AT_ONCE])
filters: st.SearchStrategy[Filter] = st.sampled_from(
    [None, None, None, frozenset({0}), frozenset({0, 1}), frozenset({1, 2}), NOT_ASKED, NOT_ASKED]
)
other_filters_of_queues = st.tuples(*[filters] * QUEUES_MAX)
filters_of_queues = st.one_of(st.just((None,) * QUEUES_MAX), other_filters_of_queues)
Publication = tuple[int, tuple[int, ...]]
"""A message's kind, and the index of its entry for each queue."""
publication = st.tuples(st.integers(0, KINDS - 1), st.tuples(*[st.integers(0, 11)] * QUEUES_MAX))
publications = st.lists(publication, min_size=1, max_size=4)

PLAIN_ENTRIES = [Entry(), Entry(), Entry(), Entry(), Entry(), None]
PRIORITIES = [Entry(None), Entry(0), Entry(1), Entry(None), Entry(0), Entry(2**63), Entry(2**64 - 1), None]
BARRIERS = [Entry(), Entry(), Entry(is_barrier=True), Entry(), Entry(is_barrier=True), None]
KEYS = [5, 5, 9, 5, 0, 9]


@st.composite
def queue_settings(draw: st.DrawFn) -> QueueSettings:
    """Settings that a configuration allows (queues.md §2.2), except for target depths that take long to reach."""
    at_least_once = draw(st.sampled_from([True, True, True, False]))
    speciality = draw(st.sampled_from(["none", "priority", "barriers", "target"]))
    return QueueSettings(
        "Q",
        at_least_once=at_least_once,
        fairness=draw(st.sampled_from(["proportional", "round-robin", "fast"]))
        if at_least_once
        else "round-robin",
        strict=draw(st.booleans()),
        lease_ns=draw(st.one_of(st.none(), halves)),
        max_backlog=draw(st.sampled_from([None, None, None, None, None, 4, 3, 2, 1, 0])),
        max_per_subscription=draw(st.sampled_from([10, 10, 10, 4, 3, 2, 1, 0])),
        expiration_ns=draw(st.sampled_from([None, None, None, None, SECOND_NS, 3 * SECOND_NS, DAY_NS])),
        expiration_model=draw(st.sampled_from(["default", "queue", "latest", "earliest"])),
        max_deliveries=draw(limits),
        max_cancels=draw(limits),
        has_priority=speciality == "priority",
        has_barriers=speciality == "barriers",
        has_ordering_key=at_least_once and draw(st.sampled_from([False, False, True])),
        target_depth=draw(st.integers(1, 4)) if speciality == "target" else None,
        deferred_ack_expiration_ns=draw(st.one_of(halves, st.just(DAY_NS))),
        cancel_delay_ns=draw(st.sampled_from([0, 0, HALF_NS, 2 * SECOND_NS])) if at_least_once else 0,
        cancel_delay_factor=draw(st.sampled_from([1.0, 1.5, 2.0])),
        cancel_delay_max_ns=draw(st.sampled_from([3_600 * SECOND_NS, SECOND_NS])),
    )


@dataclass(frozen=True)
class Live:
    """A subscription as the state machine requested it."""

    client: int
    queues: dict[int, Filter]
    backlog: int

    def takes(self, queue: int, kind: int) -> bool:
        kinds = self.queues.get(queue, NOT_ASKED)
        return kinds is None or kind in kinds


def pick(things: Sequence[Thing], choice: int) -> Thing:
    return things[choice % len(things)]


class QueueRules(RuleBasedStateMachine):
    has_keys = False
    """True: each queue that may have an OrderingKey has one."""
    focus: Mapping[str, Any] | None = None
    """Fields of the settings that all queues have, whatever was drawn."""

    def make_subjects(self, settings: Sequence[QueueSettings]) -> tuple[Subject, Subject]:
        """The subject and the model."""
        raise NotImplementedError

    @initialize(
        settings=st.lists(queue_settings(), min_size=1, max_size=QUEUES_MAX),
        subscriptions=st.lists(
            st.tuples(choices, clients, backlogs, filters_of_queues), min_size=2, max_size=4
        ),
        publications=st.lists(publication, min_size=2, max_size=6),
    )
    def begin(
        self,
        settings: list[QueueSettings],
        subscriptions: list[tuple[int, int, int, tuple[Filter, ...]]],
        publications: list[Publication],
    ) -> None:
        """Begin with subscriptions and messages, since hypothesis leaves many rules out of each example."""
        self.settings = [
            replace(
                one,
                name=f"Q{index}",
                has_ordering_key=one.has_ordering_key or (self.has_keys and one.at_least_once),
            )
            if self.focus is None
            else replace(one, name=f"Q{index}", **self.focus)
            for index, one in enumerate(settings)
        ]
        self.subject, self.model = self.make_subjects(self.settings)
        self.now_ns = START_NS
        self.position = FIRST_POSITION
        self.log: list[Bookmark] = []
        self.kinds: dict[int, int] = {}  # by position
        self.barriers: set[tuple[int, int]] = set()  # queue and position
        self.deliver_at_ns: dict[int, int] = {}  # by position
        self.has_delays = False  # a message was published or cancelled with a delay
        self.keys: dict[tuple[int, int], int] = {}  # by queue and position; messages that have one
        self.bookmarks: dict[int, Bookmark] = {}  # by position
        self.next_sequences = dict(FIRST_SEQUENCES)
        self.live: dict[int, Live] = {}
        self.held: list[dict[int, int]] = [
            {} for _ in self.settings
        ]  # for each queue: position to subscription
        self.removed: list[set[int]] = [set() for _ in self.settings]
        self.deliveries: list[Counter[int]] = [Counter() for _ in self.settings]  # since the start
        self.calm_steps = 0
        for choice, client, backlog, asked in subscriptions:
            self.subscribe(0, choice, client, backlog, asked)
        self.publish_plainly(publications)

    # Messages

    @rule(
        pause_ns=pauses,
        publications=publications,
        publisher=st.sampled_from(list(FIRST_SEQUENCES)),
        expiration_s=expirations_s,
        delay_ns=delays,
    )
    def publish(
        self,
        pause_ns: int,
        publications: list[Publication],
        publisher: int,
        expiration_s: int | None,
        delay_ns: int,
    ) -> None:
        for kind, entry_choices in publications:
            bookmark = publisher, self.next_sequences[publisher]
            self.next_sequences[publisher] += 1
            self._publish(pause_ns, kind, bookmark, expiration_s, self._entries(entry_choices), delay_ns)
            pause_ns = 0

    @rule(publications=publications)
    def publish_plainly(self, publications: list[Publication]) -> None:
        self.publish(0, publications, next(iter(FIRST_SEQUENCES)), None, 0)

    def _entries(self, entry_choices: tuple[int, ...]) -> dict[int, Entry]:
        entries: dict[int, Entry] = {}
        for index, settings in enumerate(self.settings):
            some = (
                PRIORITIES if settings.has_priority else BARRIERS if settings.has_barriers else PLAIN_ENTRIES
            )
            entry = pick(some, entry_choices[index])
            if entry is not None and settings.has_ordering_key:
                entry = replace(entry, key=pick(KEYS, entry_choices[index] // 2))
            if entry is not None:
                entries[index] = entry
        return entries

    def _publish(
        self,
        pause_ns: int,
        kind: int,
        bookmark: Bookmark,
        expiration_s: int | None,
        entries: dict[int, Entry],
        delay_ns: int,
    ) -> None:
        position = self.position
        self.position += RECORD_BYTES
        self.log.append(bookmark)
        self.bookmarks[position] = bookmark
        self.kinds[position] = kind
        self.barriers |= {(index, position) for index, entry in entries.items() if entry.is_barrier}
        self.has_delays |= delay_ns > 0
        deliver_at_ns = self.deliver_at_ns[position] = self.now_ns + pause_ns + delay_ns if delay_ns else 0
        self.keys |= {
            (index, position): entry.key
            for index, entry in entries.items()
            if entry.key and not (entry.is_barrier and self.settings[index].has_barriers)
        }
        self._step(
            pause_ns,
            lambda one, now_ns: one.publish(
                now_ns, position, bookmark, expiration_s, entries, kind, deliver_at_ns
            ),
        )

    # Subscriptions

    @precondition(lambda self: len(self.live) < SUBSCRIPTIONS_MAX)
    @rule(pause_ns=pauses, choice=choices, client=clients, backlog=backlogs, asked=filters_of_queues)
    def subscribe(
        self, pause_ns: int, choice: int, client: int, backlog: int, asked: tuple[Filter, ...]
    ) -> None:
        """Numbers of ended subscriptions are used again, so their order is not the order of creation."""
        free = [number for number in range(1, SUBSCRIPTIONS_MAX + 1) if number not in self.live]
        number = pick(free, choice)
        queues = self._asked(asked) or {0: None}
        self.live[number] = Live(client, queues, backlog)
        self._step(pause_ns, lambda one, now_ns: one.subscribe(now_ns, number, client, queues, backlog))

    @precondition(lambda self: self.live)
    @rule(pause_ns=pauses, choice=choices, backlog=backlogs, asked=other_filters_of_queues)
    def replace(self, pause_ns: int, choice: int, backlog: int, asked: tuple[Filter, ...]) -> None:
        number = self._pick_live(choice)
        queues = self._asked(asked)
        self.live[number] = Live(self.live[number].client, queues, backlog)
        self._step(pause_ns, lambda one, now_ns: one.replace(now_ns, number, queues, backlog))

    @precondition(lambda self: self.live and self.calm_steps >= CALM_STEPS_MIN)
    @rule(pause_ns=pauses, choice=choices, is_connection=st.booleans())
    def leave(self, pause_ns: int, choice: int, is_connection: bool) -> None:
        """One subscription ends, or a connection with all its subscriptions."""
        number = self._pick_live(choice)
        client = self.live[number].client
        if is_connection:
            self.live = {name: live for name, live in self.live.items() if live.client != client}
            self._step(pause_ns, lambda one, now_ns: one.disconnect(now_ns, client), is_calm=False)
        else:
            del self.live[number]
            self._step(pause_ns, lambda one, now_ns: one.unsubscribe(now_ns, number), is_calm=False)

    def _pick_live(self, choice: int) -> int:
        """Pick a subscription. For odd choices it is one that holds a message, if there is one."""
        holders = sorted({number for held in self.held for number in held.values()})
        return pick(holders if holders and choice % 2 else sorted(self.live), choice // 2)

    def _asked(self, asked: tuple[Filter, ...]) -> dict[int, Filter]:
        return {index: asked[index] for index in range(len(self.settings)) if asked[index] != NOT_ASKED}

    # Acknowledgements

    @precondition(lambda self: any(self.held))
    @rule(pause_ns=pauses, choice=choices, action=actions)
    def acknowledge_own(self, pause_ns: int, choice: int, action: Action) -> None:
        """A consumer acknowledges a message that it holds."""
        queue, client, bookmarks = self._pick_held(choice)
        self._step(pause_ns, lambda one, now_ns: one.acknowledge(now_ns, client, queue, bookmarks, action))

    @precondition(lambda self: any(self.held))
    @rule(choice=choices, delay_ns=cancel_delays)
    def cancel_own(self, choice: int, delay_ns: int) -> None:
        self.has_delays |= delay_ns > 0
        queue, client, bookmarks = self._pick_held(choice)
        self._step(
            0, lambda one, now_ns: one.acknowledge(now_ns, client, queue, bookmarks, "cancel", delay_ns)
        )

    @precondition(lambda self: any(self.held))
    @rule(pause_ns=pauses, choice=choices, extension_ns=halves, client=st.one_of(st.none(), clients))
    def extend(self, pause_ns: int, choice: int, extension_ns: int, client: int | None) -> None:
        """A client extends a lease, either its own or another client's."""
        queue, holder, bookmarks = self._pick_held(choice)
        sender = client or holder
        self._step(pause_ns, lambda one, now_ns: one.extend(now_ns, sender, queue, bookmarks, extension_ns))

    @rule(
        pause_ns=pauses,
        queue_choice=choices,
        client=clients,
        picks=st.lists(st.tuples(st.integers(0, 4), choices), min_size=1, max_size=4),
        action=actions,
    )
    def acknowledge(
        self, pause_ns: int, queue_choice: int, client: int, picks: list[tuple[int, int]], action: Action
    ) -> None:
        """Acknowledge any bookmarks: leased messages, waiting ones, removed ones and messages not yet published."""
        queue = pick(range(len(self.settings)), queue_choice)
        to_come = [(name, number + ahead) for name, number in self.next_sequences.items() for ahead in (0, 1)]
        held = [self.bookmarks[position] for position in sorted(self.held[queue])]
        waiting = [self.bookmarks[position] for position in self.subject.available(queue)]
        delayed = [self.bookmarks[position] for position in self.subject.delayed(queue)]
        sources = [held, waiting, self.log[-20:], to_come, delayed]
        bookmarks = [pick(sources[source] or to_come, choice) for source, choice in picks]
        self._step(pause_ns, lambda one, now_ns: one.acknowledge(now_ns, client, queue, bookmarks, action))

    @precondition(lambda self: self.calm_steps >= CALM_STEPS_MIN)
    @rule(
        pause_ns=pauses,
        queue_choice=choices,
        client=clients,
        kinds=st.frozensets(st.integers(0, KINDS - 1), min_size=1),
        action=actions,
    )
    def acknowledge_matching(
        self, pause_ns: int, queue_choice: int, client: int, kinds: frozenset[int], action: Action
    ) -> None:
        queue = pick(range(len(self.settings)), queue_choice)
        self._step(
            pause_ns,
            lambda one, now_ns: one.acknowledge_matching(now_ns, client, queue, kinds, action),
            is_calm=False,
        )

    def _pick_held(self, choice: int) -> tuple[int, int, list[Bookmark]]:
        """A leased message: its queue, the holder's client, its bookmark."""
        all_held = [(index, position) for index, held in enumerate(self.held) for position in sorted(held)]
        queue, position = pick(all_held, choice)
        return queue, self.live[self.held[queue][position]].client, [self.bookmarks[position]]

    # Time

    @precondition(lambda self: self.log)
    @rule(pause_ns=ticks)
    def tick(self, pause_ns: int) -> None:
        self._step(pause_ns, lambda one, now_ns: one.tick(now_ns))

    @precondition(lambda self: self.calm_steps >= CALM_STEPS_MIN)
    @rule(pause_ns=long_pauses)
    def tick_late(self, pause_ns: int) -> None:
        self._step(pause_ns, lambda one, now_ns: one.tick(now_ns), is_calm=False)

    @precondition(lambda self: self.calm_steps >= CALM_STEPS_MIN)
    @rule(pause_ns=pauses, down_ns=st.sampled_from([0, 0, 0, 3 * SECOND_NS, DAY_NS]))
    def restart(self, pause_ns: int, down_ns: int) -> None:
        """Restart, then restore the first subscriptions."""
        self.live = {}
        for deliveries in self.deliveries:
            deliveries.clear()
        self._step(pause_ns + down_ns, lambda one, now_ns: one.restart(now_ns), is_calm=False)
        for client in (1, 2):
            self.subscribe(0, client, client, 2, (None,) * QUEUES_MAX)

    # Comparison

    def _step(self, pause_ns: int, do: Callable[[Subject, int], Answer], is_calm: bool = True) -> None:
        self.calm_steps = self.calm_steps + 1 if is_calm else 0
        self.now_ns += pause_ns
        answer, expected = do(self.subject, self.now_ns), do(self.model, self.now_ns)
        _same("answer", answer, expected)
        events, expected_events = self.subject.take_events(), self.model.take_events()
        for index in range(len(self.settings)):
            _same(f"sent by {index}", _sent(events, index), _sent(expected_events, index))
            _same(f"removed from {index}", _removed(events, index), _removed(expected_events, index))
        for number in self.live:
            _same(f"outstanding {number}", self.subject.outstanding(number), self.model.outstanding(number))
        for index in range(len(self.settings)):
            _same(f"figures of {index}", _figures(self.subject, index), _figures(self.model, index))
        self._check_laws(events)

    def _check_laws(self, events: Sequence[Event]) -> None:
        """Check laws that hold independently of the model."""
        sent = [event for event in events if isinstance(event, Delivered)]
        for event in sent:
            settings = self.settings[event.queue]
            assert event.position not in self.removed[event.queue]
            assert self.deliver_at_ns[event.position] <= self.now_ns
            assert self.live[event.subscription].takes(event.queue, self.kinds[event.position])
            leased = settings.at_least_once and settings.lease_ns is not None
            assert event.lease_until_ns == (self.now_ns + (settings.lease_ns or 0) if leased else None)
            deliveries = self.deliveries[event.queue]
            deliveries[event.position] += 1
            limit = settings.max_deliveries if settings.at_least_once else 1
            assert not limit or deliveries[event.position] <= limit
            self.held[event.queue][event.position] = event.subscription
        assert max(Counter((event.queue, event.position) for event in sent).values(), default=1) == 1
        for gone in (event for event in events if isinstance(event, Removed)):
            assert gone.position not in self.removed[gone.queue]
            self.removed[gone.queue].add(gone.position)
        for index, settings in enumerate(self.settings):
            not_held = {*self.subject.available(index), *self.subject.delayed(index)}
            if settings.at_least_once:
                not_held |= self.removed[index]
            self.held[index] = {
                position: number
                for position, number in self.held[index].items()
                if position not in not_held and number in self.live
            }
            self._check_figures(index)

    def _check_figures(self, queue: int) -> None:
        settings = self.settings[queue]
        available, backlog = self.subject.available(queue), self.subject.backlog(queue)
        assert self.subject.depth(queue) == len(available) + (backlog if settings.at_least_once else 0)
        delayed = len(self.subject.delayed(queue))
        entered, left = self.subject.insert_count(queue), self.subject.delete_count(queue)
        assert self.subject.depth(queue) + delayed == entered - left
        if settings.at_least_once:
            assert backlog == len(self.held[queue])
        if settings.target_depth is not None:
            inactive = self.subject.inactive(queue)
            assert self.subject.depth(queue) >= settings.target_depth or inactive == 0
        waiting = self._check_keys(queue, available)
        if settings.max_backlog is not None:
            assert backlog <= settings.max_backlog
            if backlog == settings.max_backlog:
                return
        for position in available:
            if (queue, position) in self.barriers:
                break
            if position not in waiting:
                assert not any(self._could_take(number, queue, position) for number in self.live)

    def _check_keys(self, queue: int, available: Sequence[int]) -> set[int]:
        """Check that only the oldest message of each key is held, and return those that must not be delivered
        (queue_guarantees.md §3).
        """
        held_keys = [key for position in self.held[queue] if (key := self.keys.get((queue, position), 0))]
        assert len(held_keys) == len(set(held_keys))
        if self.has_delays or self.settings[queue].cancel_delay_ns:
            # The order of a key is that in which messages join it, which only the model knows.
            return {position for position in available if (queue, position) in self.keys}
        heads: dict[int, int] = {}
        waiting: set[int] = set()
        for position in sorted({*available, *self.held[queue]}):
            key = self.keys.get((queue, position), 0)
            if key and heads.setdefault(key, position) != position:
                waiting.add(position)
        assert not waiting & set(self.held[queue])
        assert self.subject.waiting(queue) == len(waiting)
        return waiting

    def _could_take(self, number: int, queue: int, position: int) -> bool:
        live = self.live[number]
        limits = [live.backlog, *(self.settings[index].max_per_subscription for index in live.queues)]
        has_room = self.subject.outstanding(number) < min(limits)
        return has_room and live.takes(queue, self.kinds[position])


def _same(what: str, got: object, expected: object) -> None:
    assert got == expected, f"{what}: {got}, but the model has {expected}"


def _sent(events: Sequence[Event], queue: int) -> list[Event]:
    return [event for event in events if event.queue == queue and not isinstance(event, Removed)]


def _removed(events: Sequence[Event], queue: int) -> Counter[Event]:
    return Counter(event for event in events if event.queue == queue and isinstance(event, Removed))


def _figures(subject: Subject, queue: int) -> dict[str, int | list[int]]:
    return {
        "depth": subject.depth(queue),
        "backlog": subject.backlog(queue),
        "deferred": subject.deferred(queue),
        "expired_leases": subject.expired_leases(queue),
        "inactive": subject.inactive(queue),
        "waiting": subject.waiting(queue),
        "insert_count": subject.insert_count(queue),
        "delete_count": subject.delete_count(queue),
        "available": subject.available(queue),
        "delayed": subject.delayed(queue),
        "next_delivery_ns": subject.next_delivery_ns(queue),
    }


def queue_rules(make_subject: MakeSubject, make_model: MakeSubject = QueueModel) -> type[QueueRules]:
    """Make the state machine that compares a subject with the model, or with another subject."""

    class Rules(QueueRules):
        def make_subjects(self, settings: Sequence[QueueSettings]) -> tuple[Subject, Subject]:
            return make_subject(settings), make_model(settings)

    return Rules


def check_queue_rules(
    make_subject: MakeSubject,
    settings: hypothesis.settings | None = None,
    has_keys: bool = False,
    focus: Mapping[str, Any] | None = None,
) -> None:
    """Run the state machine. A difference raises AssertionError; exceptions of the subject are passed on.

    `has_keys`: all queues at least once have an ordering key. `focus`: fields of `QueueSettings` that all queues have.
    """
    rules = queue_rules(make_subject)
    rules.has_keys = has_keys
    rules.focus = focus
    run_state_machine_as_test(rules, settings=settings)
