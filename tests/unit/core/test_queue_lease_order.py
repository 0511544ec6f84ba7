"""The time of a queue's oldest lease, available at any time: after acknowledgements, returns, extensions and expiry."""

import random

import pytest

from amps._core.queues.engine import COUNTER_NAMES, COUNTERS_BYTES, SLOT_DTYPE, blocks_bytes
from amps._core.queues.manager import TIME_NEVER
from tests.support.queue_engine import ACTIONS
from tests.support.queue_slots import BLOCKS, SharedQueues
from tests.support.queue_subject import QueueSettings

SECOND_NS = 10**9
LEASED = 3


def oldest_ns(queues: SharedQueues, queue: int = 0) -> int:
    row = queues.counters[queue * COUNTERS_BYTES : (queue + 1) * COUNTERS_BYTES].view("<u8")
    return int(row[COUNTER_NAMES.index("oldest_lease_ns")])


def leased_positions(queues: SharedQueues) -> set[int]:
    slots = queues.slots[blocks_bytes(BLOCKS) :].view(SLOT_DTYPE)
    return {int(position) for position in slots["position"][slots["state"] == LEASED]}


def acknowledge(queues: SharedQueues, position: int, action: str, now_ns: int, extension_ns: int = 0) -> None:
    queues.manager.acknowledge(
        0, 1, [(1, position, position, 0)], ACTIONS[action], extension_ns, now_ns, 2**64 - 1
    )


@pytest.fixture
def queues() -> SharedQueues:
    made = SharedQueues(QueueSettings("Q", lease_ns=60 * SECOND_NS, max_per_subscription=1000))
    made.manager.subscribe(0, 1, 1, {0: None}, 1000)
    return made


def deliver(queues: SharedQueues, now_ns: int, *positions: int) -> None:
    queues.enter(0, *positions)
    queues.manager.serve(now_ns)


def test_no_lease_has_no_age(queues: SharedQueues) -> None:
    assert oldest_ns(queues) == TIME_NEVER
    deliver(queues, 5, 100)
    assert oldest_ns(queues) == 5
    acknowledge(queues, 100, "acknowledge", 6)
    assert oldest_ns(queues) == TIME_NEVER


def test_the_oldest_remaining_lease_counts(queues: SharedQueues) -> None:
    for number in range(1, 6):
        deliver(queues, 10 * number, 100 * number)
    acknowledge(queues, 300, "acknowledge", 60)
    assert oldest_ns(queues) == 10
    acknowledge(queues, 100, "acknowledge", 61)
    assert oldest_ns(queues) == 20
    acknowledge(queues, 200, "acknowledge", 62)
    assert oldest_ns(queues) == 40, "what was acknowledged in between does not count"


def test_an_extended_lease_is_as_old_as_before(queues: SharedQueues) -> None:
    """queues.md D-31: the message stays leased."""
    deliver(queues, 10, 100)
    deliver(queues, 20, 200)
    acknowledge(queues, 100, "extend", 30, 3600 * SECOND_NS)
    acknowledge(queues, 100, "extend", 31, SECOND_NS)
    assert oldest_ns(queues) == 10
    acknowledge(queues, 100, "acknowledge", 32)
    assert oldest_ns(queues) == 20


def test_a_message_returned_and_delivered_again_has_a_new_lease(queues: SharedQueues) -> None:
    deliver(queues, 10, 100)
    deliver(queues, 20, 200)
    acknowledge(queues, 100, "extend", 25, 3600 * SECOND_NS)
    acknowledge(queues, 100, "cancel", 30)
    assert oldest_ns(queues) == 20
    queues.manager.serve(40)
    acknowledge(queues, 200, "acknowledge", 50)
    assert oldest_ns(queues) == 40


def test_delivered_twice_at_the_same_time(queues: SharedQueues) -> None:
    deliver(queues, 10, 100)
    acknowledge(queues, 100, "cancel", 10)
    queues.manager.serve(10)
    deliver(queues, 10, 200)
    acknowledge(queues, 200, "cancel", 10)
    queues.manager.serve(10)
    deliver(queues, 20, 300)
    acknowledge(queues, 100, "acknowledge", 30)
    acknowledge(queues, 200, "acknowledge", 30)
    assert oldest_ns(queues) == 20


def test_a_lease_that_ends_by_itself(queues: SharedQueues) -> None:
    deliver(queues, 10, 100)
    deliver(queues, 20 * SECOND_NS, 200)
    queues.manager.pass_time(10 + 60 * SECOND_NS)
    assert oldest_ns(queues) == 20 * SECOND_NS
    queues.manager.serve(61 * SECOND_NS)
    queues.manager.end_client(1, 62 * SECOND_NS)
    assert oldest_ns(queues) == TIME_NEVER


@pytest.mark.parametrize("lease_ns", [None, 50])
def test_the_oldest_lease_after_any_history(lease_ns: int | None) -> None:
    """Compared with a record of all leases ever given."""
    for seed in range(20):
        chance = random.Random(seed)
        queues = SharedQueues(QueueSettings("Q", lease_ns=lease_ns, max_per_subscription=1000))
        queues.manager.subscribe(0, 1, 1, {0: None}, 1000)
        began: dict[int, int] = {}
        now_ns = position = 0
        for _ in range(300):
            now_ns += chance.randrange(3)
            queues.manager.pass_time(now_ns)
            leased = leased_positions(queues)
            began = {at: since for at, since in began.items() if at in leased}
            if chance.random() < 0.5:
                position += 8
                queues.enter(0, position)
            for at in chance.sample(sorted(leased), min(len(leased), chance.randrange(4))):
                action = chance.choice(("acknowledge", "acknowledge", "cancel", "extend"))
                acknowledge(queues, at, action, now_ns, chance.randrange(1, 100))
                if action != "extend":
                    del began[at]
            queues.manager.serve(now_ns)
            for at in leased_positions(queues) - began.keys():
                began[at] = now_ns
            assert oldest_ns(queues) == min(began.values(), default=TIME_NEVER), seed


def test_ended_leases_take_no_room_for_ever(queues: SharedQueues) -> None:
    """One message that is never acknowledged does not keep the entries of all later leases."""
    deliver(queues, 1, 8)
    for number in range(2, 20_000):
        deliver(queues, number, 8 * number)
        acknowledge(queues, 8 * number, "acknowledge", number)
    assert oldest_ns(queues) == 1
    assert queues.manager.queues[0].leases.capacity < 100


def test_returned_and_delivered_again_at_the_same_time_very_often(queues: SharedQueues) -> None:
    """Entries of ended leases look like current ones here, so there must be room for them."""
    deliver(queues, 5, 8, 16)
    for _ in range(200):
        acknowledge(queues, 16, "cancel", 5)
        queues.manager.serve(5)
    assert oldest_ns(queues) == 5
    acknowledge(queues, 8, "acknowledge", 6)
    assert oldest_ns(queues) == 5
    acknowledge(queues, 16, "acknowledge", 6)
    assert oldest_ns(queues) == TIME_NEVER


def test_many_leases_at_once(queues: SharedQueues) -> None:
    positions = [8 * number for number in range(1, 1001)]
    deliver(queues, 7, *positions)
    for position in positions[:-1]:
        acknowledge(queues, position, "acknowledge", 8)
        assert oldest_ns(queues) == 7
    acknowledge(queues, positions[-1], "acknowledge", 8)
    assert oldest_ns(queues) == TIME_NEVER
    assert queues.counter(0, "oldest_lease_ns") == TIME_NEVER
