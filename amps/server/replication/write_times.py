"""When the log reached which position, by a clock that nobody sets: how old a record is (decision 25.17).

The times in the records are those of the system's clock. If that is set forward, a record of the last second looks an
hour old; if it is set back, all records have the same time until it has caught up. Either would downgrade a
destination that works. So the end of the log is noted now and then with the monotonic clock, and a record counts from
the first note behind it: its age is never more than it is. For records that were there when this process began, their
own times tell how old they were then.
"""

from bisect import bisect_right

from amps.server.clock import Clock

NOTES_MAX = 4096


class WriteTimes:
    """Notes about one log. `written`: its end now."""

    def __init__(self, clock: Clock, written: int) -> None:
        self._clock = clock
        self._began_s, self._began_ns, self._began_at = clock.monotonic_s(), clock.time_ns(), written
        self._ends: list[int] = []
        self._times_s: list[float] = []

    def note(self, written: int) -> None:
        """The log ends there now."""
        if written <= (self._ends[-1] if self._ends else self._began_at):
            return
        self._ends.append(written)
        self._times_s.append(self._clock.monotonic_s())
        if len(self._ends) > NOTES_MAX:
            # The older a record is, the less a little more or less matters.
            del self._ends[: NOTES_MAX // 2 : 2], self._times_s[: NOTES_MAX // 2 : 2]

    def age_s(self, position: int, time_ns: int) -> float:
        """The age in seconds of the record at a log position, which has this time."""
        now_s = self._clock.monotonic_s()
        if position < self._began_at:
            return now_s - self._began_s + max(0, self._began_ns - time_ns) / 1e9
        at = bisect_right(self._ends, position)
        return now_s - self._times_s[at] if at < len(self._ends) else 0.0
