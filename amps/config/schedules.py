"""When a schedule is due: `Every` of `amps-action-on-schedule` (operations.md §9.2).

An interval counts on the clock that never jumps, from the instance's start. A time of day, or of a day of the week, is
read from a wall clock, which may be set, and whose days may have 23 or 25 hours. Decided here:

- A time that a day does not have, because the clocks were put forward, comes as much after the gap as it lies in it:
  02:30 is then 03:30. A time that a day has twice comes the first time only. So each day has it exactly once.
- A clock that is set forward over several times makes one run. One that is set back makes no run twice, unless it had
  been wrong by more than half a day: whoever waits sees a time further away than that and a period, and asks anew.

Nothing here waits or asks a clock: the time is given.
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
    """Again and again after that many seconds."""

    interval_s: float


@dataclass(frozen=True, slots=True)
class ClockSchedule:
    """At a time of day; on one day of the week (0 = Monday) or on all. `utc`: else local time."""

    hour: int
    minute: int
    weekday: int | None = None
    utc: bool = False

    @property
    def period_s(self) -> float:
        """From one time to the next, if no clock is changed."""
        return DAY_S if self.weekday is None else 7 * DAY_S

    def next_after(self, now_s: float, zone: tzinfo | None = None) -> float:
        """The next time after `now_s`, in UNIX seconds. `zone`: the local one; None = as the system is set."""
        zone = UTC if self.utc else zone
        # From the day before: a time that was moved out of a gap may lie after midnight.
        day = datetime.fromtimestamp(now_s, zone).date() - timedelta(days=1)
        while True:
            if self.weekday is None or day.weekday() == self.weekday:
                # Without a zone it is local time, as the system has it.
                moment = datetime(
                    day.year, day.month, day.day, self.hour, self.minute, tzinfo=zone
                ).timestamp()
                if moment > now_s:
                    return moment
            day += timedelta(days=1)

    def too_far(self, due_s: float, now_s: float) -> bool:
        """Whether a time that was found before can only be so far away because the clock was set back since."""
        return due_s - now_s > self.period_s + CLOCK_SLACK_S


Schedule = IntervalSchedule | ClockSchedule


def read_schedule(text: str) -> Schedule:
    """`4h`, `02:15`, `02:15Z` or `Saturday at 11:00`. Raises ValueError."""
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
