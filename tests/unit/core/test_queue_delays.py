"""Delayed messages of one queue: the cost in memory, the work of a turn, and copies (queue_guarantees.md §1, §2)."""

import random

import pytest

from amps._core.queues.engine import COUNTER_NAMES, COUNTERS_BYTES
from amps._core.queues.manager import (
    CopyDamaged,
    copy_messages,
    publisher_table,
    restore_messages,
    restore_rest,
)
from tests.support.queue_slots import SharedQueues
from tests.support.queue_subject import QueueSettings

NEVER = 2**64 - 1
CLIENT = 7
PER_TURN = 1024
STALE_MAX = 64
AVAILABLE, DELAYED = 2, 7


def counter(queues: SharedQueues, name: str, queue: int = 0) -> int:
    row = queues.counters[queue * COUNTERS_BYTES : (queue + 1) * COUNTERS_BYTES].view("<u8")
    return int(row[COUNTER_NAMES.index(name)])


def enter(queues: SharedQueues, position: int, deliver_at_ns: int, expiration_s: int | None = None) -> None:
    queues.manager.enqueue(0, position, (1, position), 1, expiration_s, 1, deliver_at_ns=deliver_at_ns)


@pytest.fixture
def queues() -> SharedQueues:
    return SharedQueues(QueueSettings("Q", max_per_subscription=5000))


def test_a_turn_makes_a_bounded_number_available(queues: SharedQueues) -> None:
    """queue_guarantees.md Q-14: the earliest first, the others in the next turns."""
    count = 2 * PER_TURN + 5
    times = random.Random(1).sample(range(100, 100 + count), count)
    for number, time_ns in enumerate(times):
        enter(queues, 8 * number + 8, time_ns)
    for turn, left in enumerate((PER_TURN + 5, 5, 0)):
        assert queues.manager.due_ns <= 10_000 + turn
        queues.manager.pass_time(10_000 + turn)
        assert counter(queues, "delayed") == left
        last = sorted(times)[count - left - 1]
        available = [times[position // 8 - 1] for position in queues.manager.available(0)]
        assert max(available) == last
    assert queues.manager.due_ns == NEVER
    assert counter(queues, "next_delivery_ns") == NEVER


def test_the_timer_is_that_of_the_earliest(queues: SharedQueues) -> None:
    for position, time_ns in ((8, 300), (16, 200), (24, 250)):
        enter(queues, position, time_ns)
    assert queues.manager.due_ns == counter(queues, "next_delivery_ns") == 200
    queues.leave(0, 16)
    assert counter(queues, "next_delivery_ns") == 250
    queues.manager.pass_time(249)
    assert queues.manager.available(0) == []
    queues.manager.pass_time(250)
    assert queues.manager.available(0) == [24]
    assert queues.manager.due_ns == counter(queues, "next_delivery_ns") == 300


def test_removed_messages_do_not_keep_memory(queues: SharedQueues) -> None:
    """Entries of messages that have left are dropped at the top, and when most are stale."""
    delays = queues.manager.queues[0].delays
    enter(queues, 8, 1000)
    for number in range(2, 5000):
        enter(queues, 8 * number, 2000 + number)
        queues.leave(0, 8 * number)
        assert delays.entries <= 2 * 2 + STALE_MAX + 1
    queues.leave(0, 8)
    assert (delays.entries, delays.next_ns) == (0, NEVER)


def test_a_slot_that_is_used_again_is_not_taken_for_its_former_message(queues: SharedQueues) -> None:
    enter(queues, 8, 500)
    enter(queues, 16, 600)
    queues.leave(0, 16)
    queues.leave(0, 8)  # the block is free
    queues.enter(0, 24, 32)
    assert queues.manager.queues[0].delays.entries == 0
    enter(queues, 40, 700)
    queues.manager.pass_time(650)
    assert dict(queues.manager.states(0)) == {24: AVAILABLE, 32: AVAILABLE, 40: DELAYED}


def test_a_message_delayed_again_waits_for_the_new_time(queues: SharedQueues) -> None:
    """Its former entry is stale: recovery reads both delays of a message before time passes."""
    enter(queues, 8, 500)
    queues.manager.delay_recorded(0, 8, 900)
    queues.manager.pass_time(899)
    assert queues.manager.states(0) == [(8, DELAYED)]
    queues.manager.delay_recorded(0, 8, 950)
    queues.manager.delay_recorded(0, 16, 950)  # it has left: nothing happens
    queues.manager.pass_time(949)
    assert (counter(queues, "depth"), counter(queues, "delayed")) == (0, 1)
    queues.manager.pass_time(950)
    assert (counter(queues, "depth"), counter(queues, "delayed")) == (1, 0)


@pytest.mark.parametrize("between_ns", [(), (900,)])
def test_a_message_delayed_twice_to_the_same_time_becomes_available_once(
    queues: SharedQueues, between_ns: tuple[int, ...]
) -> None:
    """A copy of the queue has the time already, and the log's record of it follows: the counters stay right."""
    enter(queues, 8, 500)
    enter(queues, 16, 100)  # stale entries behind it stay
    for until_ns in (*between_ns, 500):
        queues.manager.delay_recorded(0, 8, until_ns)
    assert counter(queues, "delayed") == 2
    queues.manager.pass_time(1000)
    assert sorted(queues.manager.available(0)) == [8, 16]
    assert (counter(queues, "delayed"), counter(queues, "depth")) == (0, 2)
    assert queues.manager.due_ns == NEVER
    queues.leave(0, 8)
    queues.leave(0, 16)
    assert counter(queues, "depth") == 0


@pytest.mark.parametrize(
    ("delayed", "expires", "width", "size"), [(False, False, 0, 24), (False, True, 1, 40), (True, True, 2, 48)]
)
def test_copies_have_the_width_that_they_need(
    queues: SharedQueues, delayed: bool, expires: bool, width: int, size: int
) -> None:
    """queue_guarantees.md §1.2: a checkpoint keeps the times."""
    queues.enter(0, 8)
    enter(queues, 16, 99 if delayed else 0, 10 if expires else None)
    queues.enter(0, 24)
    copy, found, looked_at, after, _ = copy_messages(queues.manager.queues[0], 0, 24, 100)
    assert (len(copy), found, looked_at, after) == (3 * size, width, 3, 24)
    other = SharedQueues(QueueSettings("Q"))
    restored = other.manager.queues[0]
    restore_messages(restored, copy, width, publisher_table(queues.manager), 0, {})
    restore_rest(restored, 24, [])
    assert other.manager.states(0) == queues.manager.states(0)
    assert copy_messages(restored, 0, 24, 100)[0] == copy
    assert counter(other, "next_delivery_ns") == (99 if delayed else NEVER)
    assert other.manager.due_ns == queues.manager.due_ns
    with pytest.raises(CopyDamaged, match="width"):
        restore_messages(SharedQueues(QueueSettings("Q")).manager.queues[0], copy, 3, b"", 0, {})
