"""Walks through queues that change meanwhile see every message that stays, once, in the order of the log."""

import random

import pytest

from amps._core.queues.engine import BLOCK_SLOT_COUNT
from amps._core.queues.manager import QueueWalk
from tests.support.queue_slots import SharedQueues
from tests.support.queue_subject import QueueSettings

ALL = 1 << 62
BLOCK = BLOCK_SLOT_COUNT
AVAILABLE = 2


@pytest.fixture
def queues() -> SharedQueues:
    return SharedQueues(QueueSettings("Q"), QueueSettings("R"))


def positions(walk: QueueWalk, limit: int = ALL) -> list[int]:
    return [position for position, _, _ in walk.walk(limit)]


def test_queue_walk_sees_messages_below_its_limit(queues: SharedQueues) -> None:
    walk = QueueWalk(queues.memory, 1)
    assert walk.walk(ALL) == []
    queues.enter(0, 8)
    queues.enter(1, 16, 24, 32)
    assert [(position, state) for position, _, state in walk.walk(32)] == [(16, AVAILABLE), (24, AVAILABLE)]
    assert positions(walk) == [32]
    queues.leave(1, 16, 24, 32)
    queues.enter(1, 40)
    assert positions(walk) == [40]
    assert walk.passed == 40
    with pytest.raises(IndexError):
        QueueWalk(queues.memory, 2)


def test_queue_walk_finds_its_place_when_blocks_were_freed_and_used_again(queues: SharedQueues) -> None:
    walk = QueueWalk(queues.memory, 0)
    queues.enter(0, *range(1, 3 * BLOCK + 1))
    assert positions(walk, BLOCK + 10) == list(range(1, BLOCK + 10))
    # The walk stands in the second block, which is freed; the queue takes it again at its end.
    queues.leave(0, *range(BLOCK + 1, 2 * BLOCK + 1))
    queues.enter(0, *range(3 * BLOCK + 1, 4 * BLOCK + 2))
    assert positions(walk) == list(range(2 * BLOCK + 1, 4 * BLOCK + 2))


def test_queue_walk_of_a_block_that_another_queue_took(queues: SharedQueues) -> None:
    walk = QueueWalk(queues.memory, 0)
    queues.enter(0, 1, 2)
    assert positions(walk) == [1, 2]
    queues.leave(0, 1, 2)
    queues.enter(1, 3, 4, 5)
    queues.enter(0, 6)
    assert positions(walk) == [6]


@pytest.mark.parametrize("seed", range(8))
def test_queue_walk_sees_messages_that_stay_once_in_order(queues: SharedQueues, seed: int) -> None:
    chance = random.Random(seed)
    walk = QueueWalk(queues.memory, 0)
    alive: list[int] = []
    last = 0
    newest = 0
    for _ in range(60):
        if chance.random() < 0.6 and len(alive) < 3 * BLOCK:
            count = chance.randrange(1, BLOCK)
            queues.enter(0, *range(newest + 1, newest + count + 1))
            alive += range(newest + 1, newest + count + 1)
            newest += count
        if alive and chance.random() < 0.6:
            begin = chance.randrange(len(alive))
            end = min(len(alive), begin + chance.randrange(1, 2 * BLOCK))
            queues.leave(0, *alive[begin:end])
            del alive[begin:end]
        limit = chance.randrange(newest + 2)
        came = positions(walk, limit)
        expected = [position for position in alive if last < position < limit]
        assert came[:1] + came[-1:] == expected[:1] + expected[-1:]
        assert len(came) == len(expected)
        last = max([last, *came[-1:]])
