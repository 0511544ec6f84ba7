"""Queues of many messages: blocks of the arena are taken, found again, freed and used by other queues."""

import random
import struct

import numpy
import pytest

from amps._core.queues.engine import (
    BLOCK_DTYPE,
    BLOCK_SLOT_COUNT,
    COUNTER_NAMES,
    COUNTERS_BYTES,
    SLOT_DTYPE,
    QueueArena,
    QueueMemoryFull,
    arena_bytes,
    blocks_bytes,
)
from amps._core.queues.manager import QueueManager
from tests.support.queue_engine import EngineSettings
from tests.support.queue_slots import SharedQueues
from tests.support.queue_subject import SECOND_NS, QueueSettings

NOW_NS = 1_750_000_000_000_000_000
DELIVERY = struct.Struct("<QQIIII")
AVAILABLE, LEASED = 2, 3
CLIENT = 7


class Harness:
    """Queues in an arena, and plain lists of the messages in them."""

    def __init__(self, queues: int, blocks: int, **settings: object) -> None:
        self.memory = numpy.zeros(arena_bytes(blocks), "u1")
        self.counters = numpy.zeros(COUNTERS_BYTES * queues, "u1")
        made = [EngineSettings(QueueSettings(f"Q{n}", **settings)) for n in range(queues)]  # type: ignore[arg-type]
        self.room: list[tuple[int, int]] = []
        arena = QueueArena(self.memory, blocks, lambda offset, length: self.room.append((offset, length)))
        self.manager = QueueManager(arena, self.counters.data, made, 1)
        self.expected: list[list[int]] = [[] for _ in range(queues)]
        self.slots: dict[tuple[int, int], int] = {}
        self.position = 4096

    def publish(self, queue: int, now_ns: int = NOW_NS, expiration_s: int | None = None) -> int:
        self.position += 144
        self.manager.enqueue(queue, self.position, (1, self.position), now_ns, expiration_s, now_ns)
        self.expected[queue].append(self.position)
        return self.position

    def ack(self, queue: int, position: int, hint: int = 0xFFFFFFFF) -> bool:
        _, removed, _ = self.manager.acknowledge(
            queue, CLIENT, [(1, position, position, hint)], 0, 0, NOW_NS, 2**64 - 1
        )
        if removed:
            self.expected[queue].remove(position)
        return removed == 1

    def deliver(self) -> list[tuple[int, int]]:
        self.manager.serve(NOW_NS)
        found = []
        for position, _, _, slot, queue, _ in DELIVERY.iter_unpack(
            self.manager.output.take_deliveries(0, 1 << 30)
        ):
            self.slots[queue, position] = slot
            found.append((queue, position))
        return found

    def check(self) -> None:
        for queue, expected in enumerate(self.expected):
            assert [position for position, _ in self.manager.states(queue)] == expected
            assert self.read(queue) == expected
            row = self.counters[queue * COUNTERS_BYTES : (queue + 1) * COUNTERS_BYTES].view("<u8")
            counters = dict(zip(COUNTER_NAMES, row.tolist(), strict=True))
            assert counters["depth"] == len(expected)
            assert counters["oldest_position"] == (expected[0] if expected else 2**64 - 1)

    def read(self, queue: int) -> list[int]:
        """The messages that another process would find in the memory."""
        capacity = len(self.memory) // (BLOCK_SLOT_COUNT * SLOT_DTYPE.itemsize)
        blocks = self.memory[: capacity * BLOCK_DTYPE.itemsize].view(BLOCK_DTYPE)
        slots = self.memory[blocks_bytes(capacity) :].view(SLOT_DTYPE)
        row = self.counters[queue * COUNTERS_BYTES : (queue + 1) * COUNTERS_BYTES].view("<u8")
        block = int(row[COUNTER_NAMES.index("first_block_plus_one")]) - 1
        found: list[int] = []
        while block not in (-1, 0xFFFFFFFF):
            assert blocks[block]["queue_plus_one"] == queue + 1
            of_block = slots[block * BLOCK_SLOT_COUNT :][: int(blocks[block]["used"])]
            found += of_block["position"][(of_block["state"] > 0) & (of_block["state"] < 6)].tolist()
            block = int(blocks[block]["next"])
        return found


@pytest.mark.parametrize("seed", range(6))
def test_queues_share_the_arena(seed: int) -> None:
    """After removals in any places, each queue keeps its other messages in order, and finds them."""
    chance = random.Random(seed)
    harness = Harness(3, 40)
    for _ in range(30):
        queue = chance.randrange(3)
        for _ in range(chance.choice([1, 100, 3000])):
            harness.publish(queue)
        for queue, expected in enumerate(harness.expected):
            left = list(expected)
            match chance.randrange(5):
                case 0:  # all
                    leaving = left
                case 1:  # all but a few, which hold a block each
                    leaving = [position for position in left if chance.random() > 0.0005]
                case 2:  # from the front
                    leaving = left[: len(left) // 2]
                case 3:  # from the end
                    leaving = left[len(left) // 2 :]
                case _:
                    leaving = chance.sample(left, len(left) // 3)
            chance.shuffle(leaving)
            for position in leaving[:4000]:
                assert harness.ack(queue, position)
                assert not harness.ack(queue, position)
        harness.check()


def test_a_message_that_is_never_removed_holds_one_block() -> None:
    """This holds for any number of messages that pass behind it."""
    harness = Harness(1, 4)
    stuck = harness.publish(0)
    for _ in range(20):
        passing = [harness.publish(0) for _ in range(BLOCK_SLOT_COUNT)]
        for position in passing:
            assert harness.ack(0, position)
    harness.check()
    assert harness.expected == [[stuck]]


def test_an_empty_queue_holds_nothing() -> None:
    """The last block is freed, too; the next message takes a new one."""
    harness = Harness(2, 1)
    for round_ in range(5):
        for _ in range(10):
            position = harness.publish(round_ % 2)
            assert harness.ack(round_ % 2, position)
        harness.check()
    assert harness.room == [(blocks_bytes(1), BLOCK_SLOT_COUNT * SLOT_DTYPE.itemsize)]


def test_the_memory_is_full() -> None:
    """A full memory is reported. Existing messages stay, and new ones enter after a removal."""
    harness = Harness(1, 2)
    positions = [harness.publish(0) for _ in range(2 * BLOCK_SLOT_COUNT)]
    harness.position += 144
    with pytest.raises(QueueMemoryFull, match="2048 messages"):
        harness.manager.enqueue(0, harness.position, (1, harness.position), NOW_NS, None, NOW_NS)
    harness.check()
    for position in positions[:BLOCK_SLOT_COUNT]:
        assert harness.ack(0, position)
    harness.publish(0)
    harness.check()


def test_hints_lead_to_the_message_or_are_ignored() -> None:
    """The slot of a hint may hold another message by then, of this queue or another one."""
    harness = Harness(2, 8, max_per_subscription=5000)
    harness.manager.subscribe(0, 1, CLIENT, {0: None, 1: None}, 5000)
    positions = [harness.publish(n % 2) for n in range(4000)]
    assert sorted(position for _, position in harness.deliver()) == positions
    wrong = [0, 1, 1023, 1024, 8191, 8192, 0xFFFFFFFE, 0xFFFFFFFF]
    chance = random.Random(1)
    for number, position in enumerate(positions):
        queue = number % 2
        hint = harness.slots[queue, position] if number % 3 else chance.choice(wrong)
        assert not harness.ack(1 - queue, position, hint)
        assert harness.ack(queue, position, hint)
    harness.check()


def test_times_pass_over_blocks() -> None:
    """Thousands of messages: some expire in the order of the log, others do not, and some are leased then."""
    harness = Harness(1, 40, expiration_ns=10 * SECOND_NS, max_per_subscription=1)
    harness.manager.subscribe(0, 1, CLIENT, {0: None}, 1)
    chance = random.Random(3)
    due: dict[int, int] = {}
    for number in range(6000):
        now_ns = NOW_NS + number * SECOND_NS // 1000
        own = chance.choice([None, None, None, 1, 3, 60])
        position = harness.publish(0, now_ns, own)
        due[position] = now_ns + (10 if own is None else own) * SECOND_NS
    first = harness.expected[0][0]
    assert harness.deliver() == [(0, first)]
    for step in range(100):
        now_ns = NOW_NS + step * SECOND_NS
        harness.manager.pass_time(now_ns)
        harness.expected[0] = [
            position for position in harness.expected[0] if due[position] > now_ns or position == first
        ]
        harness.check()
    assert harness.expected[0] == [first]
    harness.manager.unsubscribe(0, 1, now_ns)
    harness.expected[0] = []
    harness.check()
    assert len(harness.manager.output.take_removals()) == 6000


def test_cursors_in_a_freed_block_move_behind_it() -> None:
    """The cursors are those for delivery and for expiry. Another queue uses the block by then."""
    harness = Harness(2, 8, expiration_ns=10 * SECOND_NS, max_per_subscription=10_000)
    first = [harness.publish(0) for _ in range(BLOCK_SLOT_COUNT)]
    second = [harness.publish(0) for _ in range(BLOCK_SLOT_COUNT)]
    for position in first:
        assert harness.ack(0, position)
    others = [harness.publish(1, NOW_NS + 5 * SECOND_NS) for _ in range(10)]
    harness.manager.subscribe(0, 1, CLIENT, {0: None}, 10)
    assert harness.deliver() == [(0, position) for position in second[:10]]
    harness.manager.pass_time(NOW_NS + 11 * SECOND_NS)
    harness.expected[0] = second[:10]
    harness.check()
    assert harness.expected[1] == others


def test_returned_messages_are_delivered_first() -> None:
    """Returned messages of all places are delivered before messages that were never delivered."""
    harness = Harness(1, 40, max_per_subscription=3000)
    harness.manager.subscribe(0, 1, CLIENT, {0: None}, 3000)
    positions = [harness.publish(0) for _ in range(5000)]
    assert [position for _, position in harness.deliver()] == positions[:3000]
    harness.manager.subscribe(0, 2, CLIENT + 1, {0: None}, 1500)
    harness.deliver()
    harness.manager.unsubscribe(0, 1, NOW_NS)
    assert [position for _, position in harness.deliver()] == []
    harness.manager.subscribe(0, 3, CLIENT, {0: None}, 3000)
    assert [position for _, position in harness.deliver()] == positions[:3000]


def test_cancelling_over_and_over_takes_no_more_memory() -> None:
    """A heap is rebuilt when most entries are stale, also that of a filter whose subscription has no free backlog."""
    harness = Harness(1, 2, max_per_subscription=10, max_backlog=11)
    messages = [harness.publish(0) for _ in range(11)]
    harness.manager.subscribe(0, 1, CLIENT + 1, {0: "a filter"}, 1)
    [cursor] = harness.manager.filters
    harness.manager.hear(cursor, [(position, 0) for position in messages], messages[-1] + 1, NOW_NS)
    assert harness.deliver() == [(0, messages[0])]
    harness.manager.subscribe(0, 2, CLIENT, {0: None}, 10)
    for _ in range(500):
        assert [position for _, position in harness.deliver()] == messages[1:]
        for position in reversed(messages[1:]):
            harness.manager.acknowledge(0, CLIENT, [(1, position, position, 0)], 1, 0, NOW_NS, 2**64 - 1)
        assert harness.manager.queues[0].heap_entries <= 2 * (2 * len(messages) + 64 + 1)
    harness.check()


def test_expirations_of_messages_that_left_take_no_memory() -> None:
    """Each message has an expiration of its own."""
    harness = Harness(1, 4)
    for number in range(5000):
        position = harness.publish(0, expiration_s=1000 + number)
        assert harness.ack(0, position)
        assert harness.manager.queues[0].heap_entries <= 70


def test_messages_beyond_the_target_depth_keep_their_place() -> None:
    """A message that enters while there is unused room is queued behind those that wait."""
    harness = Harness(1, 2, target_depth=1, max_per_subscription=5)
    first, second, third = (harness.publish(0) for _ in range(3))
    assert harness.ack(0, first)
    fourth = harness.publish(0)
    harness.manager.subscribe(0, 1, CLIENT, {0: None}, 5)
    assert harness.deliver() == [(0, second)]
    assert harness.ack(0, second)
    assert harness.deliver() == [(0, third)]
    assert [position for position, _ in harness.manager.states(0)] == [third, fourth]


def test_a_message_does_not_expire_for_the_one_that_had_its_slot() -> None:
    """The entry of a message that has left stays among those that expire until its time comes."""
    queues = SharedQueues(QueueSettings("Q"))
    queues.manager.enqueue(0, 8, (1, 8), 1, 1, 1)
    queues.leave(0, 8)
    queues.enter(0, 16)
    queues.manager.pass_time(2 * SECOND_NS)
    assert [position for position, _ in queues.manager.states(0)] == [16]
