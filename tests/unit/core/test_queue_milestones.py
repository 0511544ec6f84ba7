"""Delayed messages take their places among many that wait for their key (queue_guarantees.md §3, Q-28)."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.queues.engine import Milestones, OrderingKeys
from amps._core.queues.manager import copy_messages, publisher_table, restore_messages
from tests.support.queue_slots import SharedQueues
from tests.support.queue_subject import QueueSettings

AVAILABLE, LEASED, DELAYED, WAITING = 2, 3, 7, 8
ACKNOWLEDGE, CANCEL = 0, 1
SECOND_NS = 1_000_000_000
CLIENT = 1
SETTINGS = QueueSettings("Q", has_ordering_key=True, has_barriers=True, max_per_subscription=1_000)


class Crowd:
    """A queue with few keys and many messages. had_delay: its first message was delayed."""

    def __init__(
        self, seed: int = 1, keys: int = 1, settings: QueueSettings = SETTINGS, had_delay: bool = True
    ) -> None:
        self.queues = SharedQueues(settings, blocks=128)
        self.manager = self.queues.manager
        self.chance = random.Random(seed)
        self.key_hashes = [self.chance.randrange(1, 2**32) for _ in range(keys)]
        self.keys_of: dict[int, int] = {}  # by log position; 0: a barrier
        self.now_ns = 1
        self.position = 8
        if had_delay:
            self.enter(1, delay_ns=1)
            self.tick(1)

    def enter(self, count: int, delay_ns: int = 0, lifetime_s: int | None = None, barriers: bool = False) -> None:
        """Publish messages with delays of 1 to `delay_ns`."""
        for _ in range(count):
            self.position += 8 * self.chance.randrange(1, 50)
            key = 0 if barriers and self.chance.random() < 0.05 else self.chance.choice(self.key_hashes)
            self.keys_of[self.position] = key
            self.manager.enqueue(
                0,
                self.position,
                (1, self.position),
                self.now_ns,
                lifetime_s,
                self.now_ns,
                None,
                key == 0,
                self.now_ns + self.chance.randrange(1, delay_ns + 1) if delay_ns and key else 0,
                key,
            )

    def tick(self, elapsed_ns: int) -> None:
        """Let time pass, and serve, until nothing more is due."""
        self.now_ns += elapsed_ns
        for _ in range(100):
            self.now_ns += 1
            self.manager.pass_time(self.now_ns)
            self.manager.serve(self.now_ns)
            self.manager.output.take_deliveries(0, 1 << 30)
            self.manager.output.take_removals()
            if self.next_delivery_ns > self.now_ns:
                return
        raise AssertionError("delayed messages do not become available")

    @property
    def next_delivery_ns(self) -> int:
        return self.queues.counter(0, "next_delivery_ns")

    def acknowledge(self, position: int, action: int = ACKNOWLEDGE, delay_ns: int = 0) -> None:
        bookmark = (1, position, position, 0)
        self.manager.acknowledge(0, CLIENT, [bookmark], action, delay_ns, self.now_ns)
        self.manager.output.take_removals()

    def remove(self, count: int) -> None:
        """Acknowledge any messages: waiting ones from the middle, heads, delayed ones."""
        there = [position for position, _ in self.manager.states(0)]
        for position in self.chance.sample(there, min(count, len(there))):
            self.acknowledge(position)

    def in_state(self, state: int) -> list[int]:
        return [position for position, is_in in self.manager.states(0) if is_in == state]

    @property
    def keys(self) -> OrderingKeys:
        keys = self.manager.queues[0].keys
        assert keys is not None
        return keys

    @property
    def milestones(self) -> Milestones:
        milestones = self.keys.milestones
        assert milestones is not None
        return milestones

    def check(self, milestones_from: int = 0) -> None:
        """The lists are in the order of the log, and the milestones are the chosen ones of their messages.

        milestones_from: earlier messages joined before the queue had milestones.
        """
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        heads: Counter[int] = Counter()
        for position, state in self.manager.states(0):
            key = self.keys_of[position]
            if state == WAITING:
                waiting[key].append(position)
            elif state in (AVAILABLE, LEASED):
                heads[key] += 1
        assert {key: self.keys.waiting(key) for key in waiting} == waiting
        assert all(count == 1 for count in heads.values())
        assert self.milestones.entries == sorted(
            (key, position)
            for key, positions in waiting.items()
            for position in positions
            if Milestones.chooses(key, position) and position >= milestones_from
        )
        pages = self.milestones.page_count
        assert self.milestones.memory_bytes <= 1024 + 2100 * pages
        assert pages <= 1 + len(self.milestones.entries) / 60


def test_one_message_in_32_is_a_milestone() -> None:
    """The choice depends on the key, which nobody knows, as well as on the log position."""
    chosen = [[Milestones.chooses(key, at) for at in range(0, 320_000, 8)] for key in (1, 2, 0xFFFFFFFF)]
    assert all(1050 < sum(of) < 1450 for of in chosen)
    both = sum(one and other for one, other in zip(chosen[0], chosen[1], strict=True))
    assert both < 100


@pytest.mark.parametrize("keys", [1, 3])
def test_a_place_is_found_in_few_steps(keys: int) -> None:
    """queue_guarantees.md Q-28: also among 20,000 messages of a key, in whatever order they become available."""
    crowd = Crowd(keys=keys)
    crowd.enter(20_000, SECOND_NS)
    crowd.tick(SECOND_NS)
    crowd.check()
    assert len(crowd.in_state(WAITING)) > 19_990
    assert 20_000 < crowd.keys.steps < 40 * 20_000  # from both ends alone it would be 50,000,000 for one key


def test_messages_that_were_not_delayed_are_no_obstacle() -> None:
    """queue_guarantees.md Q-28: those before the first delayed message are no milestones, and no search passes them."""
    crowd = Crowd(had_delay=False)
    crowd.enter(20_000)
    assert crowd.keys.milestones is None
    first_delayed = crowd.position + 1
    crowd.enter(3_000, SECOND_NS)
    crowd.enter(1_000)
    crowd.tick(SECOND_NS)
    crowd.check(first_delayed)
    assert crowd.keys.steps < 40 * 3_000


def test_a_queue_without_delays_has_no_milestones() -> None:
    crowd = Crowd(had_delay=False)
    crowd.enter(1_000)
    assert crowd.keys.milestones is None
    assert crowd.keys.steps == 0


def test_pages_of_milestones_split_and_join() -> None:
    """Their memory is below a byte per waiting message when there are many, and is given back."""
    crowd = Crowd(3, keys=2)
    crowd.enter(50_000, SECOND_NS)
    crowd.tick(SECOND_NS)
    crowd.check()
    assert crowd.milestones.page_count >= 6
    assert crowd.milestones.memory_bytes < 50_000
    for _ in range(5):
        crowd.remove(10_000)
        crowd.check()
    assert crowd.milestones.entries == []
    assert crowd.milestones.page_count == 0
    crowd.enter(2_000, SECOND_NS)
    crowd.tick(SECOND_NS)
    crowd.check()


def test_the_head_that_comes_back_behind_earlier_messages() -> None:
    """queue_guarantees.md §3.3: a head that was cancelled waits behind those that became available meanwhile."""
    crowd = Crowd(5)
    crowd.enter(500, SECOND_NS)
    crowd.enter(500)
    crowd.manager.subscribe(0, 1, CLIENT, {0: None}, 1)
    crowd.tick(0)
    for _ in range(50):
        (held,) = crowd.in_state(LEASED)
        crowd.tick(SECOND_NS // 100)
        crowd.acknowledge(held, CANCEL)
        crowd.tick(0)
        crowd.check()


def test_a_restart_from_a_copy_has_the_same_order() -> None:
    """queue_guarantees.md §7, 17: messages that still wait for their time find their places in the restored lists."""
    source = Crowd(9, keys=2)
    source.enter(4_000, SECOND_NS)
    source.tick(SECOND_NS // 2)
    copies = []
    after, until = 0, max(position for position, _ in source.manager.states(0))
    while after != until:
        copy, wide, _, after, _ = copy_messages(source.manager.queues[0], after, until, 700)
        copies.append((copy, wide))
    restored = Crowd(9, keys=2, had_delay=False)
    restored.keys_of, restored.now_ns, restored.position = source.keys_of, source.now_ns, source.position
    for copy, wide in copies:
        restore_messages(restored.manager.queues[0], copy, wide, publisher_table(source.manager), 0, {})
    first_delayed = min(restored.in_state(DELAYED))
    restored.check(first_delayed)
    for crowd in (source, restored):
        crowd.tick(SECOND_NS)
    restored.check(first_delayed)
    assert restored.manager.states(0) == source.manager.states(0)
    assert restored.keys.steps < 40 * 4_000


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["enter", "delay", "delay", "expire", "tick", "tick", "remove", "consume", "cancel", "later"]
        ),
        st.integers(1, 400),
    ),
    max_size=20,
)


@given(seed=st.integers(0, 99), keys=st.integers(1, 3), depth=st.sampled_from([None, 50]), steps=steps)
def test_any_messages_join_and_leave(
    seed: int, keys: int, depth: int | None, steps: list[tuple[str, int]]
) -> None:
    """queue_guarantees.md §3, Q-28: with delays, lifetimes, barriers, leases, cancels and a target depth."""
    crowd = Crowd(seed, keys, replace(SETTINGS, target_depth=depth))
    crowd.manager.subscribe(0, 1, CLIENT, {0: None}, 1)
    for step, count in steps:
        if step == "enter":
            crowd.enter(count, barriers=True)
        elif step == "delay":
            crowd.enter(count, SECOND_NS)
        elif step == "expire":
            crowd.enter(count, SECOND_NS, 1)
        elif step == "tick":
            crowd.tick(count * SECOND_NS // 400)
        elif step == "remove":
            crowd.remove(count)
        else:
            action = ACKNOWLEDGE if step == "consume" else CANCEL
            delay_ns = count * SECOND_NS // 400 if step == "later" else 0
            for position in crowd.in_state(LEASED):
                crowd.acknowledge(position, action, delay_ns)
            crowd.tick(0)
        crowd.check()
