"""The simulation's short form, and proof that it detects missing precautions.

Each mutation takes one precaution out of the code under test; some seed must then fail. A simulation that misses a
mutation would pass for the wrong reason.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amps.journal import compression
from amps.server.core import journal_retention, recovery
from amps.server.core.flusher import Flusher
from amps.server.shared.journal_floor import JournalFloor
from tests.simulation.run import run_every_call, run_seed
from tests.simulation.transports import Transport
from tests.simulation.world import World

LONG = bool(os.environ.get("AMPS_LONG_TESTS"))
SEEDS = 400 if LONG else 60
BATCHES = 2
MUTATION_SEEDS = 200
EVERY_CALL_SEED = 2


@pytest.mark.parametrize("batch", range(BATCHES))
def test_simulation_seeds(tmp_path: Path, batch: int) -> None:
    """Each seed begins a world of its own; see `world`.

    transaction_log.md §13: journals are archived, compressed and removed in the course of the runs.
    """
    deaths = 0
    events = set()
    for seed in range(batch * SEEDS // BATCHES, (batch + 1) * SEEDS // BATCHES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        world = run_seed(seed, directory)
        deaths += world.deaths
        events |= {text.split()[1] for text in world.history if text.startswith("log ")}
    assert deaths > SEEDS // BATCHES, "so few deaths prove nothing"
    assert {"2C-0005", "2C-0006", "2C-0007", "2C-0008"} <= events


@pytest.mark.parametrize(("machine", "stride"), [(False, 3), (True, 2)] if LONG else [(False, 13), (True, 17)])
def test_simulation_a_death_at_any_call(tmp_path: Path, machine: bool, stride: int) -> None:
    """Run the same work several times, over several journals, and end it at another call of the disk each time.

    `python -m tests.simulation --every-call` tries each of them.
    """
    assert run_every_call(EVERY_CALL_SEED, tmp_path, machine, stride) > 100, "so few calls are no business"


def test_simulation_a_seed_replays_exactly(tmp_path: Path) -> None:
    worlds = []
    for part in ("first", "second"):
        directory = tmp_path / part
        directory.mkdir()
        worlds.append(run_seed(14, directory))
    first, second = worlds
    assert [entry.bookmark for entry in first.subscribers[0].seen] == [
        entry.bookmark for entry in second.subscribers[0].seen
    ]
    assert len(first.subscribers[0].seen) > 20
    # The sizes of compressed files depend on real times.
    histories = [
        [text.replace("first", "second") for text in world.history if not text.startswith("log 2C-0006 ")]
        for world in worlds
    ]
    assert histories[0] == histories[1]


def _no_sync_before_the_next_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "wait_until_synced", lambda self, position: None)


def _acknowledgements_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "_sync", lambda self, descriptor: None)


def _no_watermark_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "read_watermark", lambda path: 0)
    monkeypatch.setattr(World, "damage_share", 1.0)


def _tail_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_make_durable", lambda disk, path, found, durable_offset: 0)


def _consumed_before_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport counts its records as consumed before it has taken the answers that came before."""
    work = Transport.work

    def work_without_answers(self: Any) -> None:
        self._view.read()
        for session in list(self.sessions.values()):
            if session.acks.pending:
                session.acks.advance(self, 0.0, force=True)
        work(self)

    monkeypatch.setattr(Transport, "consumed", lambda self: self._ring.tail)
    monkeypatch.setattr(Transport, "work", work_without_answers)


def _refused_sessions_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropped messages of the core count as consumed, and are acknowledged."""
    monkeypatch.setattr(Transport, "refused", lambda self, session: None)


def _publishers_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_retention, "write_clients_ack", lambda disk, path, clients: None)


def _journals_removed_under_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalFloor, "enter", lambda self, number: None)
    monkeypatch.setattr(JournalFloor, "release", lambda self, lowest: None)


class _Unsynced:
    """A disk whose syncs return without effect, so that file contents are not durable."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync(self, descriptor: int) -> None: ...


def _compressed_journals_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    compress: Any = compression.compress_journal
    monkeypatch.setattr(
        journal_retention, "compress_journal", lambda disk, *paths: compress(_Unsynced(disk), *paths)
    )


@pytest.mark.parametrize(
    ("mutate", "hint"),
    [
        (_publishers_not_written_down, 48),
        (_journals_removed_under_readers, 43),
        (_compressed_journals_not_synced, 29),
        (_no_sync_before_the_next_file, 66),
        (_acknowledgements_before_the_sync, 0),
        (_no_watermark_file, 2),
        (_tail_not_cut, 20),
        (_consumed_before_the_answers, 2),
        (_refused_sessions_live_on, 5),
    ],
)
def test_simulation_finds_a_missing_precaution(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    hint: int,
) -> None:
    """`hint`: a seed that has noticed it. After a change of the simulation, others are searched."""
    mutate(monkeypatch)
    for seed in dict.fromkeys((hint, *range(MUTATION_SEEDS))):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            run_seed(seed, directory)
        except Exception:
            return
    raise AssertionError(f"{MUTATION_SEEDS} seeds did not notice")
