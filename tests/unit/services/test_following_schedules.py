"""Waiting for schedules, with clocks that the test sets."""

import asyncio
from datetime import UTC, datetime

from amps.config.schedules import read_schedule
from amps.server.services.actions.schedules import LOOK_S, Clocks, follow


class Time:
    """A wall clock and a monotonic one. Sleeping moves both; `jumps` set the wall clock at a monotonic time."""

    def __init__(self, wall: str, end_s: float, jumps: dict[float, float] | None = None) -> None:
        self.wall_s = at(wall)
        self.monotonic_s = 1000.0
        self.end_s = self.monotonic_s + end_s
        self.jumps = dict(sorted((jumps or {}).items()))
        self.due_at: list[str] = []
        self.longest_s = 0.0

    async def sleep(self, seconds: float) -> None:
        self.longest_s = max(self.longest_s, seconds)
        self.monotonic_s += seconds
        self.wall_s += seconds
        for when in [when for when in self.jumps if 1000.0 + when <= self.monotonic_s]:
            self.wall_s += self.jumps.pop(when)
        if self.monotonic_s > self.end_s:
            raise asyncio.CancelledError

    def due(self) -> None:
        self.due_at.append(datetime.fromtimestamp(self.wall_s, UTC).strftime("%d %H:%M:%S"))

    def follow(self, every: str, began_s: float = 1000.0) -> list[str]:
        clocks = Clocks(lambda: self.wall_s, lambda: self.monotonic_s, self.sleep, UTC)

        async def body() -> None:
            task = asyncio.create_task(follow(read_schedule(every), began_s, self.due, clocks))
            await asyncio.wait([task])
            assert task.cancelled()

        asyncio.run(body())
        return self.due_at


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_operations_63_an_interval_counts_from_the_start() -> None:
    """operations.md §13 63, §9.2"""
    assert Time("2026-06-01T00:00:00", 7).follow("2s") == ["01 00:00:02", "01 00:00:04", "01 00:00:06"]


def test_an_interval_keeps_its_step_after_the_process_was_replaced() -> None:
    assert Time("2026-06-01T00:00:00", 7).follow("4s", began_s=999.0) == ["01 00:00:03", "01 00:00:07"]


def test_an_interval_does_not_depend_on_the_wall_clock() -> None:
    jumping = Time("2026-06-01T00:00:00", 7, {1.0: -86400.0, 3.0: 7200.0})
    assert len(jumping.follow("2s")) == 3


def test_operations_63_a_time_of_day() -> None:
    """operations.md §13 63: that UTC time, every day; the clock is checked at short intervals."""
    time = Time("2026-06-01T00:00:00", 3 * 86400)
    assert time.follow("02:15Z") == ["01 02:15:00", "02 02:15:00", "03 02:15:00"]
    assert time.longest_s <= LOOK_S


def test_a_clock_that_is_set_forward_makes_one_run() -> None:
    """The clock skips three times of the schedule: the action runs at once, and once."""
    time = Time("2026-06-01T00:00:00", 600, {60.0: 3 * 86400.0 - 3600.0})
    assert time.follow("02:15Z") == ["03 23:01:00"]


def test_a_clock_that_is_set_back_an_hour_makes_no_second_run() -> None:
    time = Time("2026-06-01T02:14:00", 86400 + 7200, {120.0: -3600.0})
    assert time.follow("02:15Z") == ["01 02:15:00", "02 02:15:00"]


def test_a_clock_that_was_wrong_by_a_year_does_not_stop_the_schedule() -> None:
    time = Time("2027-06-01T02:14:00", 86400 + 600, {120.0: -365 * 86400.0})
    assert time.follow("02:15Z") == ["01 02:15:00", "02 02:15:00"]
