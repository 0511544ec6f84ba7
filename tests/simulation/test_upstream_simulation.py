"""The simulation of an instance to which two others replicate, and proof that it detects missing precautions."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from amps.server.core.flusher import Flusher
from tests.simulation.run import run_every_call, run_seed
from tests.simulation.upstreams import Sink, UpstreamWorld

LONG = bool(os.environ.get("AMPS_LONG_TESTS"))
SEEDS = 300 if LONG else 25
MUTATION_SEEDS = 100


def test_upstream_simulation_seeds(tmp_path: Path) -> None:
    """replication.md §10, §12: crashes, full disks, repeats, and each message on two ways."""
    deaths = duplicates = 0
    for seed in range(SEEDS):
        directory = tmp_path / str(seed)
        directory.mkdir()
        world = run_seed(seed, directory, world_type=UpstreamWorld)
        assert isinstance(world, UpstreamWorld)
        deaths += world.deaths
        duplicates += world.server.core.sequencer.duplicates
    assert deaths > SEEDS
    assert duplicates > SEEDS


@pytest.mark.parametrize(("machine", "stride"), [(False, 3), (True, 2)] if LONG else [(False, 23), (True, 17)])
def test_upstream_simulation_a_death_at_any_call(tmp_path: Path, machine: bool, stride: int) -> None:
    assert run_every_call(3, tmp_path, machine, stride, UpstreamWorld) > 100


def _refusals_that_are_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Sink._begin

    def go_on(self: Sink, upstream: object, slot: int) -> object:
        flow = begin(self, upstream, slot)  # type: ignore[arg-type]
        if hasattr(self, "flows"):
            flow.under_way = self.flows[slot].under_way
        return flow

    monkeypatch.setattr(Sink, "_begin", go_on)


def _acknowledgements_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flusher, "_sync", lambda self, descriptor: None)


@pytest.mark.parametrize(
    ("mutate", "hint"), [(_refusals_that_are_overlooked, 5), (_acknowledgements_before_the_sync, 1)]
)
def test_upstream_simulation_detects_a_missing_precaution(
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
            run_seed(seed, directory, world_type=UpstreamWorld)
        except AssertionError:
            return
    pytest.fail("no seed noticed it")
