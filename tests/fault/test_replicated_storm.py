"""Random faults of instances that replicate to each other; see replicated_storm."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.replicated_storm import group_storm, make_group
from tests.support.instances import Instances


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Instances]:
    with make_group(tmp_path, 2) as group:
        group.start()
        yield group


def test_fault_clients_of_a_pair_survive_each_kind_of_fault(pair: Instances) -> None:
    """replication.md §19, §21 F1, F3, F4, F7 to F9, §26 19: clients that move lose nothing, and repeat nothing."""
    group_storm(pair, "AB", 1, ["death while parted", "replication", "silence", "deaths in turn", "pause"])


def test_fault_a_pair_survives_random_faults(pair: Instances) -> None:
    """A new seed for each run; it is printed, and a failure names it."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    group_storm(pair, "AB", seed, [None] * 2)
