"""The due times of a schedule: `Every` of `amps-action-on-schedule` (operations.md §9.2).

An interval is measured by the monotonic clock, from the instance's start. A time of day, or of a day of the week, is
read from a wall clock, which may be set, and whose days may have 23 or 25 hours. The rules:

- A time that a day does not have, because the clocks were put forward, is moved by the length of the gap:
  02:30 becomes 03:30. A time that a day has twice is due the first time only. So each day has it exactly once.
- If a clock is set forward over several due times, there is one run. If it is set back, no run is repeated, unless it
  had been wrong by more than half a day: the caller then finds its due time further away than that and a period
  (`too_far`), and computes a new one.

This module neither waits nor reads a clock: the time is an argument.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from amps.config.units import read_interval, shown

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAY_S = 86400.0
CLOCK_SLACK_S = DAY_S / 2

_TIME = re.compile(
    r"(?:(?P<weekday>[A-Za-z]+)\s+at\s+)?(?P<hour>\d{1,2}):(?P<minute>\d\d)(?P<utc>[zZ]?)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class IntervalSchedule:
    """A schedule that is due each time after that many seconds."""

    interval_s: float


@dataclass(frozen=True, slots=True)
class ClockSchedule:
    """A schedule at a time of day, on one day of the week (0 = Monday) or on all. `utc` False: local time."""

    hour: int
    minute: int
    weekday: int | None = None
    utc: bool = False

    @property
    def period_s(self) -> float:
        """Seconds from one due time to the next, if no clock is changed."""
        return DAY_S if self.weekday is None else 7 * DAY_S

    def next_after(self, now_s: float, zone: tzinfo | None = None) -> float:
        """Return the next due time after `now_s`, in UNIX seconds. `zone`: the local zone; None = the system's."""
        zone = UTC if self.utc else zone
        # Start with the day before: a time that was moved out of a gap may be after midnight.
        day = datetime.fromtimestamp(now_s, zone).date() - timedelta(days=1)
        while True:
            if self.weekday is None or day.weekday() == self.weekday:
                # Without a zone it is local time in the system's zone.
                moment = datetime(
                    day.year, day.month, day.day, self.hour, self.minute, tzinfo=zone
                ).timestamp()
                if moment > now_s:
                    return moment
            day += timedelta(days=1)

    def too_far(self, due_s: float, now_s: float) -> bool:
        """Whether an earlier computed due time is so far away that the clock must have been set back since."""
        return due_s - now_s > self.period_s + CLOCK_SLACK_S


Schedule = IntervalSchedule | ClockSchedule


def read_schedule(text: str) -> Schedule:
    """Read `4h`, `02:15`, `02:15Z` or `Saturday at 11:00`. Raises ValueError."""
    wanted = "a schedule; write an interval such as 4h, a time such as 02:15 or 02:15Z, or Saturday at 11:00"
    if len(text) > 64:
        raise ValueError(f"{shown(text)} is not {wanted}")
    match = _TIME.fullmatch(text)
    if match is None:
        try:
            interval_s = read_interval(text)
        except ValueError as problem:
            if "longer" in str(problem):
                raise
            raise ValueError(f"{shown(text)} is not {wanted}") from None
        if interval_s < 0.001:
            raise ValueError(f"{shown(text)} is too short for a schedule; write 1ms or more")
        return IntervalSchedule(interval_s)
    hour, minute, weekday = int(match["hour"]), int(match["minute"]), match["weekday"]
    if hour > 23 or minute > 59:
        raise ValueError(f"{shown(text)} is no time of day; write a time from 00:00 to 23:59")
    if weekday is not None and weekday.lower() not in WEEKDAYS:
        days = ", ".join(day.title() for day in WEEKDAYS)
        raise ValueError(f"{weekday!r} is no day of the week; write one of {days}")
    return ClockSchedule(
        hour, minute, None if weekday is None else WEEKDAYS.index(weekday.lower()), bool(match["utc"])
    )
