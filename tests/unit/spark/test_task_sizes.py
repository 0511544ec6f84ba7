"""How much a task reads."""

import pytest

from amps.spark.task_sizes import (
    PARALLELISM,
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    task_bytes,
    tell_parallelism,
)

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "parallelism", "size"),
    [
        (0, "8", TASK_BYTES_MIN),
        (1 * GIB, "1", 256 * MIB),
        (3 * GIB, "2", 384 * MIB),
        (3 * GIB, "8", TASK_BYTES_MIN),
        (16 * GIB, "16", 256 * MIB),
        (100 * GIB, "16", TASK_BYTES_MAX),
        (1 << 60, "1", TASK_BYTES_MAX),
    ],
)
def test_each_core_gets_several_tasks_within_bounds(total: int, parallelism: str, size: int) -> None:
    assert task_bytes(total, {PARALLELISM: parallelism}) == size


@pytest.mark.parametrize("told", [{}, {PARALLELISM: ""}, {PARALLELISM: "-1"}, {PARALLELISM: "many"}])
def test_not_knowing_the_cores_a_cluster_is_assumed(told: dict[str, str]) -> None:
    assert task_bytes(16 * GIB, told) == TASK_BYTES_MIN
    assert task_bytes(40 * GIB, told) == 320 * MIB


def test_no_cores_are_one() -> None:
    assert task_bytes(1 * GIB, {PARALLELISM: "0"}) == 256 * MIB


def test_what_somebody_has_told_stays() -> None:
    environment: dict[str, str] = {}
    tell_parallelism(environment, 3)
    tell_parallelism(environment, 5)
    assert environment == {PARALLELISM: "3"}
