"""SOW topics in the simulation: the short form, and proof that it detects missing precautions."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from amps._core.shm.memory import NO_JOURNAL
from amps.server.core.sow_states import CoreStates
from amps.server.core.sow_value_files import TopicFile
from tests.simulation.run import run_every_call, run_seed
from tests.simulation.sow_world import SowWorld

LONG = bool(os.environ.get("AMPS_LONG_TESTS"))
SEEDS = 600 if LONG else 20
MUTATION_SEEDS = 300


def test_simulation_of_sow_topics(tmp_path: Path) -> None:
    """sow.md §4: after every death, the state is that of the log, now and as of each moment that the log holds."""
    deaths = gone = past = 0
    for seed in range(SEEDS):
        directory = tmp_path / str(seed)
        directory.mkdir()
        world = run_seed(seed, directory, world_type=SowWorld)
        deaths += world.deaths
        if isinstance(world, SowWorld):
            gone += world.journals_gone
            past += world.past_states
    assert deaths > SEEDS, "so few deaths prove nothing"
    assert gone > 10 * SEEDS, "so few removed records prove nothing"
    assert past > 10 * SEEDS


@pytest.mark.parametrize(("machine", "stride"), [(False, 3), (True, 2)] if LONG else [(False, 23), (True, 29)])
def test_simulation_of_sow_topics_a_death_at_any_call(tmp_path: Path, machine: bool, stride: int) -> None:
    assert run_every_call(2, tmp_path, machine, stride, SowWorld) > 100, "so few calls are no business"


def _journals_removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not kept until values are carried over."""
    monkeypatch.setattr(CoreStates, "oldest_journal", lambda self, number_at: NO_JOURNAL)


def _beginning_of_the_past_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicFile, "write_begin", lambda self, txid: None)


@pytest.mark.parametrize(
    ("mutate", "hint"),
    [
        (_journals_removed_at_once, 0),
        (_beginning_of_the_past_not_written, 0),
    ],
)
def test_simulation_of_sow_topics_finds_a_missing_precaution(
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
            run_seed(seed, directory, world_type=SowWorld)
        except Exception:
            print("noticed by seed", seed)
            return
    raise AssertionError(f"{MUTATION_SEEDS} seeds did not notice")
