"""Waiting for schedules. `amps.config.schedules` computes the times; this module reads the clocks and waits."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import tzinfo

from amps.config.schedules import ClockSchedule, IntervalSchedule, Schedule

LOOK_S = 5.0
"""Longest sleep without reading the wall clock, which may be set at any time."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The wall clock, a clock that never jumps, and sleeping; replaced in tests. `zone`: None = the system's."""

    now_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    zone: tzinfo | None = None


async def follow(schedule: Schedule, began_s: float, due: Callable[[], object], clocks: Clocks) -> None:
    """Call `due` at each time of the schedule, for ever. `began_s`: the instance's start, on the monotonic clock."""
    if isinstance(schedule, IntervalSchedule):
        await _follow_interval(schedule, began_s, due, clocks)
    else:
        await _follow_clock(schedule, due, clocks)


async def _follow_interval(
    schedule: IntervalSchedule, began_s: float, due: Callable[[], object], clocks: Clocks
) -> None:
    interval_s = schedule.interval_s
    # A process that replaces one that died continues in its rhythm.
    passed = max(0.0, clocks.monotonic_s() - began_s)
    next_s = began_s + (passed // interval_s + 1) * interval_s
    while True:
        while (left_s := next_s - clocks.monotonic_s()) > 0:
            await clocks.sleep(left_s)
        due()
        next_s = max(next_s, clocks.monotonic_s()) + interval_s


async def _follow_clock(schedule: ClockSchedule, due: Callable[[], object], clocks: Clocks) -> None:
    next_s = schedule.next_after(clocks.now_s(), clocks.zone)
    while True:
        while (left_s := next_s - clocks.now_s()) > 0:
            await clocks.sleep(min(left_s, LOOK_S))
            if schedule.too_far(next_s, clocks.now_s()):
                next_s = schedule.next_after(clocks.now_s(), clocks.zone)
        due()
        next_s = schedule.next_after(max(next_s, clocks.now_s()), clocks.zone)
