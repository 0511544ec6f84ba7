"""Groups of real instances on simulated time, network and disks, and proof that they notice missing precautions.

Seeds seldom notice acknowledgements before the sync here; those of the model do (`broken_groups`). Precautions that
matter in one situation alone are in `test_group_precautions`.

`python -m tests.simulation --groups` runs more seeds, `--trace` shows everything that happens in one.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amps._core.shm.memory import NO_JOURNAL
from amps.server.core.destination_pins import DestinationPins
from amps.server.core.identity import LogIdentity
from amps.server.replication.core_sessions import CoreSessions
from tests.simulation import group_instance
from tests.simulation.group_instance import GroupInstance
from tests.simulation.group_subscribers import GroupSubscriber
from tests.simulation.group_topologies import TOPOLOGIES
from tests.simulation.group_world import GroupWorld, run_group_seed

LONG = bool(os.environ.get("AMPS_LONG_TESTS"))
SEEDS = 400 if LONG else 40
BATCHES = 4
MUTATION_SEEDS = 100
STEPS = 1000


def _run(seed: int, directory: Path) -> GroupWorld:
    directory.mkdir()
    return run_group_seed(seed, directory, STEPS)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_group_simulation_seeds(tmp_path: Path, batch: int) -> None:
    """replication.md §§6, 7, 9-12, 24: whatever breaks, nothing acknowledged is missing, no message is twice or out
    of its order, and at quiet all logs are equal. Subscribers that move with `fully_durable` miss nothing (§19).
    """
    worlds = [_run(seed, tmp_path / str(seed)) for seed in range(batch, SEEDS, BATCHES)]
    assert sum(world.deaths for world in worlds) > len(worlds), "so few deaths prove nothing"
    assert sum(len(world.promises) for world in worlds) > 10 * len(worlds), "so few promises prove nothing"
    assert sum(world.network.made for world in worlds) > 3 * len(worlds)
    subscribers = [subscriber for world in worlds for subscriber in world.subscribers]
    assert sum(subscriber.moves for subscriber in subscribers) > len(subscribers)
    assert sum(subscriber.held_back for subscriber in subscribers) > len(subscribers)


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_group_simulation_every_topology(tmp_path: Path, name: str) -> None:
    """replication.md §18."""
    world = run_group_seed(3, tmp_path, STEPS, topology=TOPOLOGIES[name])
    assert world.network.made >= len(world.topology.groups) - 1


def test_group_simulation_a_seed_replays_exactly(tmp_path: Path) -> None:
    first, second = _run(6, tmp_path / "first"), _run(6, tmp_path / "second")
    assert [text.replace("first", "second") for text in first.history] == second.history
    assert first.promises
    assert len(first.promises) == len(second.promises)


def _clients_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_instance, "make_destinations", lambda config, runtime: None)


def _subscribers_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = staticmethod(lambda destinations, entry: True)
    monkeypatch.setattr(GroupSubscriber, "_is_persisted", waits)


def _resume_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    begin: Any = CoreSessions.begin_session

    async def ahead(self: CoreSessions, name: str) -> Any:
        session, last_txid = await begin(self, name)
        return session, last_txid + 3 if last_txid else 0

    monkeypatch.setattr(CoreSessions, "begin_session", ahead)


def _same_epoch_after_a_wipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        group_instance, "read_identity", lambda directory, name: LogIdentity(f"uuid-{name}", "e1")
    )


def _journals_go_before_all_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DestinationPins, "oldest_journal", lambda self: NO_JOURNAL)


def _files_survive_a_wipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a fault of the server: the world must notice that an instance was not filled."""
    monkeypatch.setattr(GroupInstance, "begin_replication", lambda self: None)


@pytest.mark.parametrize(
    ("mutate", "hint"),
    [
        (_clients_do_not_wait, 0),
        (_subscribers_do_not_wait, 1),
        (_resume_ahead, 1),
        (_same_epoch_after_a_wipe, 19),
        (_journals_go_before_all_have_them, 3),
        (_files_survive_a_wipe, 0),
    ],
)
def test_group_simulation_finds_a_missing_precaution(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[pytest.MonkeyPatch], None],
    hint: int,
) -> None:
    """`hint`: a seed that has noticed it. After a change of the simulation, others are searched."""
    mutate(monkeypatch)
    for seed in dict.fromkeys((hint, *range(MUTATION_SEEDS))):
        directory = tmp_path / str(seed)
        try:
            _run(seed, directory)
        except Exception as failure:
            if re.search("TypeError|AttributeError", str(failure)):
                raise  # the mutation does not fit the code
            return
        shutil.rmtree(directory)
    raise AssertionError(f"{MUTATION_SEEDS} seeds did not notice")
