"""Checkpoints of queues: written beside a running sequencer, and restored (queues.md §17)."""

import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps._core.journal.reader import LogDirectory
from amps._core.queues.manager import forget_answered, oldest_needed
from amps._core.shm.memory import ControlPage
from amps.config.model_queues import QueueConfig, RecoveryPoint
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader, read_header
from amps.journal.queues_ack import LogMark, read_queues_ack
from amps.server.core.queue_checkpoints import QueueCheckpoints
from amps.server.core.queue_starts import QueueStarts
from amps.server.core.recovery_points import RecoveryPoints
from tests.support.queue_world import FILE_BYTES, QUEUES, Queues, World
from tests.support.reports import Reports


def configured(
    name: str, recovery_point: RecoveryPoint | None = None, filter_: str | None = None
) -> QueueConfig:
    return QueueConfig(
        name,
        "json",
        "Queue",
        "T",
        False,
        "T",
        recovery_point=recovery_point or RecoveryPoint("epoch", "epoch"),
        filter=filter_,
    )


CONFIGS = [configured(one.name) for one in QUEUES]


class Instance:
    """The parts of an instance besides its sequencer: checkpoints, and a start."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.paths = directory / "I.queues.ack", directory / "I.queue.cache"
        self.control = SimpleNamespace(durable=0)
        self.reports = Reports()
        self.disk = Disk()
        self.checkpoints = QueueCheckpoints(
            CONFIGS,
            world.queues.adapter,
            self.paths,
            cast(ControlPage, self.control),
            self.disk,
            self.reports,
        )
        self.checkpoints.log_bytes_min = 2000
        self.checkpoints.slots_per_step = 7
        self.checkpoints.piece_bytes = 100

    @property
    def position(self) -> int:
        position: int = self.world.feeder.journal.position
        return position

    def journals(self) -> list[JournalHeader]:
        storage = self.world.feeder.journal_storage
        return [read_header(storage.path(number)) for number in range(self.world.feeder.journal.number + 1)]

    def mark(self) -> LogMark:
        last = self.journals()[-1]
        return LogMark(self.position, last.number, last.start_position, last.first_txid)

    def look(self) -> None:
        self.checkpoints.look(self.mark, self.position)

    def start(self, configs: list[QueueConfig] = CONFIGS) -> tuple[Queues, QueueStarts]:
        """The queues as a start now would restore them."""
        queues = Queues()
        journals = self.journals()
        points = RecoveryPoints(
            LogDirectory(self.world.feeder.journal_storage.prefix, ".journal", lambda topic, type_: topic),
            journals,
            self.position,
            lambda number: [],
        )

        def starts_of() -> QueueStarts:
            return QueueStarts(
                configs,
                journals,
                self.position,
                *self.paths,
                self.reports,
            )

        starts = starts_of()
        if not starts.restore(queues.adapter):
            queues = Queues()
        starts.find_others(queues.adapter, points)
        self.world.rebuilt(queues, starts.position)
        for queue in queues.manager.queues:
            forget_answered(queue, self.world.feeder.sequencer.last_sequence)
        return queues, starts


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_made_beside_a_running_core_is_right(tmp_path: Path, seed: int) -> None:
    """queues.md §17: the queues are restored exactly, for any changes during the copy."""
    world = World(tmp_path, seed)
    instance = Instance(world, tmp_path)
    chance = random.Random(seed)
    positions = set()

    def go_on(step: int) -> None:
        if chance.random() < 0.5:
            world.turn()  # whole turns only: a copy covers only records that the sequencer has written
            instance.look()
        if chance.random() < 0.7:
            instance.control.durable = chance.choice([instance.control.durable, instance.position])
            instance.checkpoints.step()
        if step % 100 == 99:
            world.turn()
            queues, starts = instance.start()
            positions.add(starts.position)
            assert queues.contents() == world.queues.contents()
            world.check(queues)

    world.run(1000, go_on)
    assert len(positions) > 4  # several copies were used
    assert max(positions) > FILE_BYTES
    assert not instance.reports


def written(tmp_path: Path, seed: int = 1) -> Instance:
    """An instance that stopped in order."""
    world = World(tmp_path, seed)
    instance = Instance(world, tmp_path)
    world.run(300, lambda step: None)
    world.turn()
    instance.checkpoints.write_now(instance.mark())
    assert [path.exists() for path in instance.paths] == [True, True]
    return instance


def test_after_an_orderly_stop_nothing_is_read(tmp_path: Path) -> None:
    instance = written(tmp_path)
    queues, starts = instance.start()
    assert queues.contents() == instance.world.queues.contents()
    assert starts.position == instance.position
    assert starts.copied == (instance.position, instance.paths[1].stat().st_size)
    assert not starts.news


def cut_off(data: bytes) -> bytes:
    return data[:-10]


def torn(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes(len(data) - len(data) // 2)


def flipped(data: bytes) -> bytes:
    return data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]


def other_kind(data: bytes) -> bytes:
    return b"X" + data[1:]


@pytest.mark.parametrize(
    "damage", [cut_off, torn, flipped, other_kind, lambda data: b"", lambda data: data[:20]]
)
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_a_damaged_file_is_never_a_wrong_queue(
    tmp_path: Path, damage: Callable[[bytes], bytes], which: tuple[int, ...]
) -> None:
    """The damage is reported, and the log is read instead."""
    instance = written(tmp_path)
    for at in which:
        path = instance.paths[at]
        path.write_bytes(damage(path.read_bytes()))
    queues, _ = instance.start()
    assert queues.contents() == instance.world.queues.contents()
    assert [event for event, _ in instance.reports] == ["31-0005"] * len(which)


@pytest.mark.parametrize("seed", range(30))
def test_any_flipped_bit_is_noticed(tmp_path: Path, seed: int) -> None:
    instance = written(tmp_path)
    chance = random.Random(seed)
    path = instance.paths[chance.randrange(2)]
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    queues, _ = instance.start()
    assert queues.contents() == instance.world.queues.contents()


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_without_the_files_the_log_is_enough(tmp_path: Path, which: tuple[int, ...]) -> None:
    """D-37. The absence is not reported, since there may never have been files."""
    instance = written(tmp_path)
    for at in which:
        instance.paths[at].unlink()
    queues, starts = instance.start()
    assert queues.contents() == instance.world.queues.contents()
    assert starts.news == (0 in which)
    assert not instance.reports


def test_a_copy_of_keys_without_their_seed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """queue_guarantees.md Q-20: with another seed, messages of one key would be delivered in parallel."""
    keyed = [replace(config, ordering_key="/o") for config in CONFIGS]
    monkeypatch.setattr(sys.modules[__name__], "CONFIGS", keyed)
    instance = written(tmp_path)
    queues, _ = instance.start(keyed)
    assert queues.contents() == instance.world.queues.contents()
    ((event, details),) = instance.reports
    assert event == "31-0005"
    assert "the keys of a queue have no seed" in str(details)


def test_files_of_another_log_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    written(tmp_path / "one")
    other = World(tmp_path / "other", 4)
    other.now_ns += 10_000_000_000
    for _ in range(400):
        other.publish()
        other.turn()
    stranger = Instance(other, tmp_path / "one")
    queues, _ = stranger.start()
    assert queues.contents() == other.queues.contents()
    assert [event for event, _ in stranger.reports] == ["31-0005", "31-0005"]


def test_a_queue_with_another_definition_is_made_anew(tmp_path: Path) -> None:
    """The queue is rebuilt from the first position that it needs, since other messages may enter it now."""
    instance = written(tmp_path)
    changed = [configured("Q", filter_="/x = 1"), *CONFIGS[1:]]
    queues, starts = instance.start(changed)
    _, known = read_queues_ack(instance.paths[0])
    assert starts.position == known[0].position < instance.position
    assert queues.contents() == instance.world.queues.contents()  # the world has no filters
    assert queues.manager.queues[0].start_position == known[0].position
    assert queues.manager.queues[1].start_position == instance.position


def test_recovery_points(tmp_path: Path) -> None:
    """queues.md §24, 64: with another RecoveryPoint the queue starts anew; with the same one it does not."""
    instance = written(tmp_path)
    world = instance.world
    now = RecoveryPoint("now", "now")
    contents = world.queues.contents()
    queues, starts = instance.start([configured("Q", now), *CONFIGS[1:]])
    assert queues.contents() == [[], *contents[1:]]
    assert starts.news

    world._learn_positions()
    in_order = sorted(world.positions.items(), key=lambda item: item[1])
    bookmark, position = in_order[len(in_order) // 2]
    later = RecoveryPoint("bookmark", "some", bookmarks=(bookmark, in_order[-1][0]))
    queues, _ = instance.start([configured("Q", later), *CONFIGS[1:]])
    assert queues.contents() == [[p for p in contents[0] if p > position], *contents[1:]]

    unknown = RecoveryPoint("bookmark", "none", bookmarks=((77, 1),))
    queues, _ = instance.start([configured("Q", unknown), *CONFIGS[1:]])
    assert queues.contents() == contents
    assert [event for event, _ in instance.reports] == ["31-0006"]


def test_a_recovery_point_in_time(tmp_path: Path) -> None:
    """The first message of that time or later is in the queue."""
    world = World(tmp_path, 5)
    instance = Instance(world, tmp_path)
    for _ in range(200):
        world._push_publish(0, world.sequences[0] + 1, "T")
        world.sequences[0] += 1
        world.now_ns += 1_000_000_000
        world.turn()
    middle = world.now_ns - 100_000_000_000
    point = RecoveryPoint("time", "then", time_ns=middle)
    queues, _ = instance.start([configured("Q", point), *CONFIGS[1:]])
    since = queues.contents()[0]
    assert since == world.queues.contents()[0][-len(since) :]
    assert 20 < len(since) < 180
    after = RecoveryPoint("time", "later", time_ns=world.now_ns + 1)
    assert instance.start([configured("Q", after), *CONFIGS[1:]])[0].contents()[0] == []


class FailingDisk(Disk):
    """A disk whose n-th call that changes a file fails."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._calls = calls

    def _count(self) -> None:
        self._calls -= 1
        if self._calls == 0:
            raise OSError(28, "No space left on device")

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self._count()
        return super().open(path, flags)

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        self._count()
        super().write(descriptor, data, offset, zeros)

    def sync(self, descriptor: int) -> None:
        self._count()
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)


@pytest.mark.parametrize("calls", range(1, 12))
def test_a_full_disk_costs_the_copy_only(tmp_path: Path, calls: int) -> None:
    """The failure is reported, the previous copy stays, and a later copy is tried."""
    instance = written(tmp_path)
    cast(Any, instance.checkpoints)._disk = FailingDisk(calls)
    instance.world.run(200, lambda step: None)
    instance.world.turn()
    instance.control.durable = instance.position
    for _ in range(600):
        instance.look()
        instance.checkpoints.step()
    assert [event for event, _ in instance.reports] in (["31-0004"], [])
    assert instance.reports or calls > 5
    queues, _ = instance.start()
    assert queues.contents() == instance.world.queues.contents()
    instance.world.run(200, lambda step: None)
    instance.world.turn()
    instance.control.durable = instance.position
    for _ in range(600):
        instance.look()
        instance.checkpoints.step()
    queues, starts = instance.start()
    assert queues.contents() == instance.world.queues.contents()
    assert starts.copied[0] > 0
    assert not list(tmp_path.glob("*.new"))


def test_messages_delivered_at_most_once_need_no_journal(tmp_path: Path) -> None:
    """queues.md §14.6: the oldest message that is neither acknowledged, nor delivered at most once, nor expired."""
    world = World(tmp_path, 3)
    world.run(400, lambda step: None)
    world.turn()
    for queue, contents in zip(world.queues.manager.queues, world.queues.contents(), strict=True):
        assert oldest_needed(queue) == (contents[0] if contents else None)


def test_a_copy_does_not_count_before_the_journal_is_durable(tmp_path: Path) -> None:
    """A machine crash may remove records from the end of the log.

    Their effects, above all acknowledgements, must not be in the copy.
    """
    world = World(tmp_path, 6)
    instance = Instance(world, tmp_path)
    world.run(200, lambda step: None)
    world.turn()
    for _ in range(200):
        instance.look()
        instance.checkpoints.step()
    assert not instance.checkpoints.due()
    assert not instance.paths[1].exists()
    end = instance.position
    instance.control.durable = end - 1
    assert not instance.checkpoints.step()
    instance.control.durable = end
    assert instance.checkpoints.due()
    assert instance.checkpoints.step()
    assert [path.exists() for path in instance.paths] == [True, True]
