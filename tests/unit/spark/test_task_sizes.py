"""The number of bytes that a task reads."""

from dataclasses import replace
from pathlib import Path

import pytest

from amps.spark.planning import GAP_BYTES, Plan, Split
from amps.spark.selection import Selection
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


@pytest.mark.parametrize(
    "told", [{}, {PARALLELISM: ""}, {PARALLELISM: "-1"}, {PARALLELISM: "many"}, {PARALLELISM: "9" * 5000}]
)
def test_without_the_number_of_cores_a_cluster_is_assumed(told: dict[str, str]) -> None:
    assert task_bytes(16 * GIB, told) == TASK_BYTES_MIN
    assert task_bytes(40 * GIB, told) == 320 * MIB


def test_zero_cores_count_as_one() -> None:
    assert task_bytes(1 * GIB, {PARALLELISM: "0"}) == 256 * MIB


def test_a_given_size_is_kept() -> None:
    environment: dict[str, str] = {}
    tell_parallelism(environment, 3)
    tell_parallelism(environment, 5)
    assert environment == {PARALLELISM: "3"}


def split(number: int, *ranges: tuple[int, int], to_end: bool = False) -> Split:
    return Split(Path("/log"), None, "inst", number, ranges, 7, 0, (), to_end, False, 0)


def test_splits_are_distributed_in_the_order_of_the_log() -> None:
    """Each task gets about the wanted number of bytes, and one split of each journal."""
    plan = Plan(
        Selection(),
        [
            split(1, (0, 100)),
            split(1, (100, 200), (300, 400), to_end=True),
            split(2, (0, 100), (200, 250)),
            split(2, (260, 300), (310, 360), to_end=True),
            split(3, (0, 1000), to_end=True),
        ],
    )
    assert plan.byte_count == 1540
    assert plan.tasks(1 << 20) == [
        (
            split(1, (0, 200), (300, 400), to_end=True),
            split(2, (0, 100), (200, 250), (260, 300), (310, 360), to_end=True),
            split(3, (0, 1000), to_end=True),
        )
    ]
    assert plan.tasks(400) == [
        (split(1, (0, 200), (300, 400), to_end=True), split(2, (0, 100), (200, 250))),
        (split(2, (260, 300), (310, 360), to_end=True),),
        (split(3, (0, 1000), to_end=True),),
    ]
    assert [len(task) for task in plan.tasks(1)] == [1] * 5
    assert Plan(Selection()).tasks(100) == []


def test_entries_of_scattered_topics_are_distributed_by_the_cost_of_reading_them() -> None:
    """Each entry has a range of one byte, at which it begins."""
    topics = ((0, b"red", b"json"),)
    apart = [
        replace(split(number, *((n << 20, (n << 20) + 1) for n in range(8))), topics=topics)
        for number in range(6)
    ]
    plan = Plan(Selection(), apart)
    assert plan.byte_count == 6 * 8 * (GAP_BYTES + 1)
    assert [len(task) for task in plan.tasks(16 * GAP_BYTES)] == [2, 2, 2]
    assert [len(task) for task in plan.tasks(1)] == [1] * 6
