"""Ages of records by a clock that is never set (replication.md 25.17)."""

from amps.server.clock import Clock
from amps.server.replication.write_times import NOTES_MAX, WriteTimes

HOUR_NS = 3600 * 10**9


class _Clock(Clock):
    """The system's clock can be set, the monotonic one cannot."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.set_ns = 0
        self.monotonic_s = lambda: self.now_s
        self.time_ns = lambda: int(self.now_s * 1e9) + self.set_ns


def test_a_record_counts_from_the_first_note_behind_it() -> None:
    clock = _Clock()
    times = WriteTimes(clock, 1000)
    for end in (2000, 2000, 3000):
        clock.now_s += 1
        times.note(end)
    clock.now_s += 1
    assert [times.age_s(position, 0) for position in (1000, 1999, 2000, 2999, 3000)] == [3, 3, 1, 1, 0]


def test_a_clock_that_is_set_makes_no_record_older() -> None:
    for jump_ns in (HOUR_NS, -HOUR_NS):
        clock = _Clock()
        times = WriteTimes(clock, 1000)
        time_ns = clock.time_ns()
        clock.set_ns = jump_ns
        clock.now_s += 2
        times.note(2000)
        clock.now_s += 5
        assert times.age_s(1500, time_ns) == 5


def test_records_from_before_the_start_have_their_own_times() -> None:
    clock = _Clock()
    times = WriteTimes(clock, 1000)
    began_ns = clock.time_ns()
    clock.now_s += 3
    clock.set_ns = HOUR_NS
    assert times.age_s(500, began_ns - 7 * 10**9) == 10
    assert times.age_s(500, began_ns + HOUR_NS) == 3, "written before the clock was set back"


def test_a_long_log_takes_little_memory_and_makes_no_record_older() -> None:
    clock = _Clock()
    times = WriteTimes(clock, 0)
    written_s: list[float] = []
    for number in range(4 * NOTES_MAX):
        clock.now_s += 0.5
        written_s.append(clock.now_s)
        times.note(10 * (number + 1))
    assert len(times._ends) <= NOTES_MAX
    assert len(times._ends) == len(times._times_s)
    ages = [times.age_s(10 * number, 0) for number in range(4 * NOTES_MAX)]
    assert ages == sorted(ages, reverse=True)
    for age, since in zip(ages, written_s, strict=True):
        assert 0.8 * (clock.now_s - since) - 0.5 <= age <= clock.now_s - since
