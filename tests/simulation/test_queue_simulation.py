"""The short form of the simulation with queues, and proof that it detects broken rules.

`python -m tests.simulation --queues` runs more of it. Each mutation breaks one rule; some seed must then fail.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amps.server.core import queues as core_queues
from amps.server.core.flusher import Flusher
from tests.simulation import queue_log
from tests.simulation.queue_transports import QueueTransport
from tests.simulation.queue_world import QueueWorld
from tests.simulation.run import run_every_call, run_seed

SEEDS = 20
BATCHES = 4
MUTATION_SEEDS = 100
EVERY_CALL_SEED = 3


def _run(seed: int, directory: Path) -> QueueWorld:
    directory.mkdir()
    world = run_seed(seed, directory, world_type=QueueWorld)
    assert isinstance(world, QueueWorld)
    return world


@pytest.mark.parametrize("batch", range(BATCHES))
def test_queue_simulation_seeds(tmp_path: Path, batch: int) -> None:
    """queues.md §6, §8, §10-§12, §17; queue_guarantees.md §3. Each seed has its own queues, consumers and faults; see
    `queue_world`.
    """
    worlds = [
        _run(seed, tmp_path / str(seed))
        for seed in range(batch * SEEDS // BATCHES, (batch + 1) * SEEDS // BATCHES)
    ]
    assert sum(world.deaths for world in worlds) > len(worlds), "so few deaths prove nothing"
    assert sum(world.watch.decided for world in worlds) > 50 * len(worlds), "so few deliveries prove nothing"
    assert sum(world.watch.redelivered for world in worlds) > len(worlds)
    assert sum(world.watch.promises for world in worlds) > 10 * len(worlds)
    assert any(world.watch.received_barriers for world in worlds)
    assert sum(world.watch.decided_delayed for world in worlds) > 5 * len(worlds)


def test_queue_simulation_delays_cancelled_messages(tmp_path: Path) -> None:
    """queue_guarantees.md §2. Few seeds cancel messages with a delay; these do."""
    assert sum(_run(seed, tmp_path / str(seed)).watch.delays for seed in (1, 3, 6)) > 0


@pytest.mark.parametrize(("machine", "stride"), [(False, 41), (True, 29)])
def test_queue_simulation_a_death_at_any_call(tmp_path: Path, machine: bool, stride: int) -> None:
    """Run the same work several times, and end it at another call of the disk each time.

    `python -m tests.simulation --queues --every-call` tries each of them.
    """
    assert run_every_call(EVERY_CALL_SEED, tmp_path, machine, stride, QueueWorld) > 100


def test_queue_simulation_a_seed_replays_exactly(tmp_path: Path) -> None:
    first, second = (_run(4, tmp_path / part) for part in ("first", "second"))
    # The event log contains real times, and sizes of compressed files, which depend on these times.
    assert [text for text in first.history if not text.startswith("log ")] == [
        text for text in second.history if not text.startswith("log ")
    ]
    assert first.watch.received == second.watch.received
    assert len(first.watch.received) > 20


def _passed_on_before_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport does not wait for the watermark."""
    take: Any = QueueTransport._take_answer

    def take_as_durable(self: Any, record: bytes) -> None:
        take(self, record)
        for batch in self._batches:
            batch.durable_needed = 0

    monkeypatch.setattr(QueueTransport, "_take_answer", take_as_durable)


def _durable_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "_sync", lambda self, descriptor: None)


def _settings(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Give the engine other settings than the configuration."""
    settings = core_queues.engine_settings
    monkeypatch.setattr(
        core_queues,
        "engine_settings",
        lambda *queue: dataclasses.replace(settings(*queue), **changes),
    )


def _no_end_of_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    _settings(monkeypatch, max_deliveries=0)


def _leases_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    _settings(monkeypatch, lease_period_ns=None)


def _no_limit_of_the_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    _settings(monkeypatch, max_backlog=None)


def _nothing_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    _settings(monkeypatch, expiration_ns=None)


def _everything_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_queues, "queue_rules", lambda queue, evaluations, functions: None)


def _keys_go_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    _settings(monkeypatch, has_ordering_key=False)


def _rebuilt_without_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery leaves out the records at the end of the log."""
    module: Any = core_queues
    rebuild = module.rebuild
    monkeypatch.setattr(
        core_queues,
        "rebuild",
        lambda cursor, adapter, limit, step: rebuild(
            cursor, adapter, max(cursor.position, limit - 500), step
        ),
    )


def _delays_that_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """All delays last a tenth of a second longer than the core knows."""
    monkeypatch.setattr(queue_log, "delay_end", lambda until_ns: until_ns + 100_000_000)


@pytest.mark.parametrize(
    ("mutate", "hint"),
    [
        (_passed_on_before_durable, 0),
        (_durable_before_the_sync, 0),
        (_no_end_of_deliveries, 4),
        (_leases_without_end, 0),
        (_no_limit_of_the_backlog, 2),
        (_nothing_expires, 0),
        (_everything_enters, 0),
        (_keys_go_in_parallel, 0),
        (_rebuilt_without_the_end, 0),
        (_delays_that_end_early, 0),
    ],
)
def test_queue_simulation_finds_a_broken_rule(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    hint: int,
) -> None:
    """`hint`: a seed that has noticed it. After a change of the simulation, others are searched."""
    mutate(monkeypatch)
    for seed in dict.fromkeys((hint, *range(MUTATION_SEEDS))):
        try:
            _run(seed, tmp_path / str(seed))
        except Exception:
            return
    raise AssertionError(f"{MUTATION_SEEDS} seeds did not notice")
