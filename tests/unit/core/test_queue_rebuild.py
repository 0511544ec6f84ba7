"""Queues in the sequencer are the same when rebuilt from the journal."""

from pathlib import Path

import pytest

from amps._core.journal.reader import LogDamaged
from tests.support.feed import Feed
from tests.support.queue_world import HEADER, KIND_QUEUE_ACKNOWLEDGEMENT, World
from tests.support.records import RecordParts


@pytest.mark.parametrize("seed", range(12))
def test_the_journal_determines_the_contents_of_the_queues(tmp_path: Path, seed: int) -> None:
    """queues.md §17: acknowledged, expired and at-most-once messages stay gone; others return in order."""
    world = World(tmp_path, seed)

    def check(step: int) -> None:
        if step % 150 == 149:
            world.turn()
            world.check()

    world.run(1200, check)
    assert world.deliveries > 50
    assert world.feeder.journal.number > 2
    tokens = [answer[3] for answer in world.answers if answer[0] == "queue_acknowledged"]
    assert tokens == list(range(1, world.tokens + 1))


def test_a_malformed_record_is_reported(tmp_path: Path) -> None:
    """Its entries do not fill its length exactly, so the queues cannot be rebuilt from it."""
    world = World(tmp_path, 0)
    world.publish()
    world.turn()
    damaged = RecordParts(
        kind=KIND_QUEUE_ACKNOWLEDGEMENT, publisher_id=1, payload=HEADER.pack(0, 3, 0, 0, 0, 0) + bytes(32)
    )
    world.feeder.push(Feed(0, 99, "Q", damaged))
    with pytest.raises(ValueError, match="do not add up"):
        world.turn()


def test_damage_is_not_skipped(tmp_path: Path) -> None:
    """A record with a wrong checksum ends the rebuilding, so that no wrong queue results."""
    world = World(tmp_path, 0)
    for _ in range(5):
        world.publish()
    world.turn()
    path = world.feeder.journal_storage.path(0)
    data = bytearray(path.read_bytes())
    data[world.feeder.journal.position - 40] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamaged):
        world.rebuilt()
