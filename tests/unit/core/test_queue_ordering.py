"""The order per key inside a queue: hashes of keys, the table of keys, copies and restarts (queue_guarantees.md §3).

Examples and random comparison with the model are in `queue_scenarios/ordering.py` and `test_queue_engine.py`.
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amps._core.queues.engine import OrderingKeys
from amps._core.queues.manager import (
    ORDERING_SEED_BYTES,
    CopyDamaged,
    QueueManager,
    copy_messages,
    publisher_table,
    restore_messages,
)
from tests.support.queue_slots import SharedQueues
from tests.support.queue_subject import QueueSettings
from tests.support.records import RecordParts
from tests.unit.core.test_queue_expressions import BROKEN, Instance, judged, positions, queue, rules

AVAILABLE, LEASED, BARRIER, WAITING = 2, 3, 4, 8
MASK = 2**64 - 1
KEYED = QueueSettings("Q", has_ordering_key=True, max_per_subscription=1_000_000)


# --- hashes -------------------------------------------------------------------------------------------------


def hashes(*values: str, seed: bytes = bytes(range(ORDERING_SEED_BYTES)), text: str = "/o") -> list[int]:
    made = rules(ordering_key=text)
    made.use_ordering_seed(seed)
    return [
        made.key_hash_of(RecordParts(payload=b'{"o":%s}' % value.encode()).to_bytes(), b"T")
        for value in values
    ]


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def sip_hash_1_3(seed: bytes, data: bytes) -> int:
    """The definition of SipHash, with one round per word and three at the end."""
    k0, k1 = (int.from_bytes(seed[at : at + 8], "little") for at in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turn() -> None:
        v[0] = (v[0] + v[1]) & MASK
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] = (v[2] + v[3]) & MASK
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & MASK
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & MASK
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        turn()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        turn()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_the_reference_has_the_published_value() -> None:
    """The first of the test vectors of SipHash-1-3, for the key 00 01 … 0f and no data."""
    assert sip_hash_1_3(bytes(range(16)), b"") == 0xABAC0158050FC4DC


@pytest.mark.parametrize("length", [*range(1, 18), 63, 64, 65, 300])
def test_a_text_is_hashed_with_the_seed(length: int) -> None:
    text = ("x" + "abcdefghij" * 30)[:length]
    for seed in (bytes(range(16)), b"\xff" * 16):
        whole = sip_hash_1_3(seed, text.encode())
        assert hashes(json.dumps(text), seed=seed) == [(whole ^ whole >> 32) & 0xFFFFFFFF]


@pytest.mark.parametrize(
    "equal",
    [
        ["7", "7.0", "7e0", '"7"', '"7.0"', '"07"'],
        ["2.5", '"2.5"', "25e-1"],
        ["18446744073709551615", '"18446744073709551615"'],
        ["9223372036854775808", "9.223372036854775808e18"],
        ["1", "true"],
        ["0", "-0.0", "false"],
        ['"ann"', '"\\u0061nn"'],
    ],
)
def test_equal_values_have_one_key(equal: list[str]) -> None:
    """queue_guarantees.md §3.1, Q-21."""
    found = hashes(*equal)
    assert len(set(found)) == 1
    assert found[0] != 0


def test_different_values_have_different_keys() -> None:
    """queue_guarantees.md Q-21: also long texts of digits that are equal as floating-point numbers."""
    values = [
        "7", "8", "-7", "7.5", '"ann"', '"Ann"', '"ann "', '"a"', "9223372036854775807", "9223372036854775808",
        '"200000000000000000000001"', '"200000000000000000000002"',
        '"1.00000000000000000001"', '"1.00000000000000000002"',
    ]  # fmt: skip
    assert len(set(hashes(*values))) == len(values)


@pytest.mark.parametrize("value", ["null", '""', "{}", "[]", '{"a":1}'])
def test_values_that_are_no_key(value: str) -> None:
    """queue_guarantees.md §3.1."""
    assert hashes(value) == [0]
    assert hashes('"x"', text="/p") == [0]
    assert hashes('"x"', text="/o * 2") == [0]  # not a number
    assert hashes('"x"', text="IF(/o LIKE '(?R)', 1, 2)") == [0]  # given up


def test_an_unreadable_message_has_no_key() -> None:
    """queue_guarantees.md §3.1; the other expressions are evaluated as without it."""
    both = rules(filter="/x > 1", priority="/p", ordering_key="/o")
    assert judged(both, b'{"x":2,"p":3,"o":"ann"}') == (False, 3)
    assert both.key_hash_of(RecordParts(payload=b"not readable").to_bytes(), b"T") == 0
    assert rules(ordering_key="/p").key_hash_of(RecordParts(payload=BROKEN).to_bytes(), b"T") == 0
    assert rules(ordering_key="/x").key_hash_of(RecordParts(payload=BROKEN).to_bytes(), b"T") != 0


def test_each_queue_has_a_seed_of_its_own() -> None:
    one, other = rules(ordering_key="/o"), rules(ordering_key="/o")
    assert one.ordering_seed is not None
    assert len(one.ordering_seed) == ORDERING_SEED_BYTES
    assert one.ordering_seed != other.ordering_seed
    assert rules(priority="/o").ordering_seed is None
    with pytest.raises(ValueError, match="a seed of 3 bytes"):
        one.use_ordering_seed(b"abc")


# --- the table of keys --------------------------------------------------------------------------------------


class Keyed:
    """A queue, and what its states must be: the oldest message of each key is available, the others wait."""

    def __init__(self, blocks: int = 128) -> None:
        self.queues = SharedQueues(KEYED, blocks=blocks)
        self.manager = self.queues.manager
        self.by_key: defaultdict[int, list[int]] = defaultdict(list)
        self.position = 0

    def enter(self, key: int) -> None:
        self.position += 8
        self.manager.enqueue(0, self.position, (1, self.position), 1, None, 1, key_hash=key)
        self.by_key[key].append(self.position)

    def leave(self, key: int, at: int = 0) -> None:
        position = self.by_key[key].pop(at)
        if not self.by_key[key]:
            del self.by_key[key]
        self.queues.leave(0, position)

    def check(self) -> None:
        expected = {}
        for key, messages in self.by_key.items():
            expected |= {
                position: WAITING if key and at else AVAILABLE for at, position in enumerate(messages)
            }
        assert dict(self.manager.states(0)) == expected
        assert self.table.count == len(self.by_key) - (0 in self.by_key)
        assert self.queues.counter(0, "waiting") == sum(state == WAITING for state in expected.values())

    @property
    def table(self) -> OrderingKeys:
        keys = self.manager.queues[0].keys
        assert keys is not None
        return keys


def hashes_anywhere(chance: random.Random) -> Iterator[int]:
    while True:
        yield chance.randrange(1, 2**32)


def hashes_that_begin_alike(chance: random.Random) -> Iterator[int]:
    """They fill one part of the table, and it is split until their different bits decide."""
    while True:
        yield 0xABCD0000 + chance.randrange(2**12)


def few_hashes(chance: random.Random) -> Iterator[int]:
    while True:
        yield chance.choice([0, 1, 2, 0xFFFFFFFF, 0x80000000])


@pytest.mark.parametrize("kind", [hashes_anywhere, hashes_that_begin_alike, few_hashes])
def test_random_messages_join_and_leave(kind: Callable[[random.Random], Iterator[int]]) -> None:
    """queue_guarantees.md §3.2, §7, 14: for a growing and a shrinking number of keys."""
    chance = random.Random(5)
    keyed = Keyed()
    new = kind(chance)
    for growth in (0.8, 0.45, 0.1, 0.7, 0.05):
        for _ in range(2500):
            if chance.random() < growth or not keyed.by_key:
                old = (
                    chance.choice(list(keyed.by_key)) if keyed.by_key and chance.random() < 0.3 else next(new)
                )
                keyed.enter(old)
            else:
                key = chance.choice(list(keyed.by_key))
                keyed.leave(key, chance.randrange(len(keyed.by_key[key])))
        keyed.check()
    for key in list(keyed.by_key):
        while key in keyed.by_key:
            keyed.leave(key)
    keyed.check()


def test_parts_of_a_deep_directory_are_split() -> None:
    """Keys that begin alike make the directory deep. It contains other parts of the table many times; these grow."""
    keyed, chance = Keyed(), random.Random(9)
    for number in range(1500):
        keyed.enter(0xABCD0000 + number)
    others = chance.sample(range(1, 2**32), 6000)
    for key in [*others, *others]:
        keyed.enter(key)
    keyed.check()
    for key in others:
        keyed.leave(key)
    keyed.check()


def test_memory_per_key() -> None:
    """queue_guarantees.md §3.9: at most 10 bytes per key, when there are many."""
    chance = random.Random(7)
    keyed = Keyed()
    keys = chance.sample(range(1, 2**32), 100_000)
    for count, key in enumerate(keys, 1):
        keyed.enter(key)
        if count >= 2000 and count % 500 == 0:
            assert keyed.table.table_bytes < 10 * count, count
    for count, key in zip(range(99_999, 20_000, -1), keys, strict=False):
        keyed.leave(key)
        if count % 500 == 0:
            assert keyed.table.table_bytes < 10 * count, count
    for key in list(keyed.by_key):
        keyed.leave(key)
    assert keyed.table.count == 0
    assert keyed.table.table_bytes < 0.5 * 100_000


def test_a_block_of_another_queue_has_no_hashes_of_this_one() -> None:
    """Blocks of the arena pass from queue to queue, with an OrderingKey and without."""
    queues = SharedQueues(KEYED, QueueSettings("R"), blocks=4)
    position = 0
    for turn in range(6):
        entered = []
        for _ in range(3000):
            position += 8
            entered.append(position)
            queues.manager.enqueue(turn % 2, position, (1, position), 1, None, 1, key_hash=position % 5)
        waiting = [at for at, state in queues.manager.states(turn % 2) if state == WAITING]
        assert len(waiting) == (0 if turn % 2 else 3000 - 600 - 4)
        queues.leave(turn % 2, *reversed(entered))


# --- copies and restarts ------------------------------------------------------------------------------------


def manager() -> QueueManager:
    return SharedQueues(KEYED, blocks=128).manager


def copied(source: QueueManager, slots: int = 7) -> Iterator[tuple[bytes, bool]]:
    """The copies of a queue, in steps."""
    after, until = 0, max(position for position, _ in source.states(0))
    while after != until:
        copy, wide, _, after, _ = copy_messages(source.queues[0], after, until, slots)
        yield copy, wide


@pytest.mark.parametrize("priority", [None, 3])
def test_a_copy_keeps_the_keys(priority: int | None) -> None:
    """queue_guarantees.md §7, 17: the oldest message of each key is its head, and later messages join the same keys."""
    source, chance = manager(), random.Random(3)
    source.subscribe(0, 1, 1, {0: None}, 4)
    for position in range(8, 800, 8):
        own_priority = priority if chance.random() < 0.5 else None
        source.enqueue(0, position, (1, position), 1, None, 1, own_priority, key_hash=chance.randrange(4))
    source.serve(1)
    removed = [position for position in range(8, 800, 8) if chance.random() < 0.3]
    for position in removed:
        source.acknowledge(0, 1, [(1, position, position, 0)], 0, 0, 1)
    restored = manager()
    for copy, wide in copied(source):
        restore_messages(restored.queues[0], copy, wide, publisher_table(source), 0, {})
    active = {AVAILABLE: AVAILABLE, LEASED: AVAILABLE, WAITING: WAITING}
    assert restored.states(0) == [(at, active[state]) for at, state in source.states(0)]
    for one in (source, restored):
        one.enqueue(0, 808, (1, 808), 1, None, 1, key_hash=3)
    assert restored.states(0)[-1] == source.states(0)[-1] == (808, WAITING)


def test_a_copy_without_hashes_is_damaged() -> None:
    source = SharedQueues(QueueSettings("Q")).manager
    source.enqueue(0, 8, (1, 8), 1, None, 1)
    ((copy, wide),) = copied(source)
    with pytest.raises(CopyDamaged, match="length"):
        restore_messages(manager().queues[0], copy, wide, publisher_table(source), 0, {})


def test_a_queue_without_keys_is_copied_as_before() -> None:
    """24 bytes per message."""
    source = SharedQueues(QueueSettings("Q")).manager
    source.enqueue(0, 8, (1, 8), 1, None, 1, key_hash=99)
    ((copy, wide),) = copied(source)
    assert (len(copy), wide) == (24, False)


def test_the_log_adapter_enters_messages_by_their_keys(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 15 and 17: also after a restart without a copy."""
    queues = (
        queue("Q0", ordering_key="/o"),
        queue("Q1"),
        queue("Q2", ordering_key="/o", priority="/p", filter="/p > 0"),
        queue("Q3", ordering_key="/o", barrier_expression="/b = 1"),
    )
    instance = Instance(tmp_path, queues)
    instance.publish(
        b'{"o":"ann","p":1}',
        b'{"o":"bob","p":2}',
        b'{"o":"ann","p":3,"b":1}',
        b'{"o":"ann","p":4}',
        b'{"p":5}',
        b"not readable",
        b'{"o":"bob","p":0}',
        b'{"o":"bob","p":7}',
    )
    a, w, b = AVAILABLE, WAITING, BARRIER
    for adapter in (instance.adapter, instance.restarted()):
        states = [[state for _, state in adapter.manager.states(number)] for number in range(4)]
        assert states == [
            [a, a, w, w, a, a, w, w],
            [a] * 8,
            [a, a, w, w, a, w],
            [a, a, b, w, a, a, w, w],
        ]
        first = positions(adapter, 0)[0]
        adapter.manager.acknowledge(0, 1, [(1, 1, first, 0)], 0, 0, 1)
        assert [state for _, state in adapter.manager.states(0)] == [a, a, w, a, a, w, w]


def test_a_queue_without_room_keeps_its_keys() -> None:
    small = SharedQueues(KEYED, blocks=1).manager
    for position in range(8, 8 * 1025, 8):
        small.enqueue(0, position, (1, position), 1, None, 1, key_hash=5)
    with pytest.raises(MemoryError, match="can hold 1024 messages"):
        small.enqueue(0, 10_000, (1, 1), 1, None, 1, key_hash=5)
    assert [state for _, state in small.states(0)] == [AVAILABLE] + [WAITING] * 1023
