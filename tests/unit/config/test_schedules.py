"""Due times of schedules: forms, local time and UTC, days of 23 and 25 hours, changes of the clock."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from amps.config.schedules import ClockSchedule, IntervalSchedule, read_schedule

BERLIN = ZoneInfo("Europe/Berlin")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # its summer time differs by half an hour


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


def clock(text: str) -> ClockSchedule:
    schedule = read_schedule(text)
    assert isinstance(schedule, ClockSchedule)
    return schedule


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("4h", IntervalSchedule(14400.0)),
        ("2S", IntervalSchedule(2.0)),
        ("10", IntervalSchedule(10.0)),
        ("02:15", ClockSchedule(2, 15)),
        ("2:15", ClockSchedule(2, 15)),
        ("02:15Z", ClockSchedule(2, 15, utc=True)),
        ("Saturday at 11:00", ClockSchedule(11, 0, 5)),
        ("sunday AT 23:59z".replace("AT", "at"), ClockSchedule(23, 59, 6, utc=True)),
    ],
)
def test_operations_9_2_forms(text: str, schedule: object) -> None:
    """operations.md §9.2: an interval, a time of day, a time on a day of the week."""
    assert read_schedule(text) == schedule


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("24:00", "no time of day"),
        ("10:60", "no time of day"),
        ("Someday at 11:00", "no day of the week"),
        ("soon", "not a schedule"),
        ("", "not a schedule"),
        ("-1s", "not a schedule"),
        ("0s", "too short"),
        ("02:15 UTC", "not a schedule"),
        ("1" * 100, "not a schedule"),
    ],
)
def test_invalid_schedules(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_schedule(text)


def test_operations_63_a_time_of_day_in_utc() -> None:
    """operations.md §13 63: `HH:MMZ` is that time in UTC, whatever the local zone is."""
    schedule = clock("02:15Z")
    assert schedule.next_after(at("2026-06-01T02:14:59"), BERLIN) == at("2026-06-01T02:15:00")
    assert schedule.next_after(at("2026-06-01T02:15:00"), BERLIN) == at("2026-06-02T02:15:00")


def test_operations_63_a_local_time_and_a_day_of_the_week() -> None:
    """operations.md §9.2"""
    assert clock("02:15").next_after(at("2026-06-01T00:00:00"), BERLIN) == at("2026-06-01T02:15:00", BERLIN)
    # 1 June 2026 is a Monday.
    saturday = at("2026-06-06T11:00:00", BERLIN)
    assert clock("Saturday at 11:00").next_after(at("2026-06-01T00:00:00"), BERLIN) == saturday
    assert clock("Saturday at 11:00").next_after(saturday, BERLIN) == saturday + 7 * 86400


def test_a_time_missing_on_a_day_is_due_once_after_the_gap() -> None:
    """The clocks go from 02:00 to 03:00 on 29 March 2026."""
    schedule = clock("02:30")
    first = schedule.next_after(at("2026-03-29T00:00:00", BERLIN), BERLIN)
    assert first == at("2026-03-29T03:30:00", BERLIN)
    assert schedule.next_after(first, BERLIN) == at("2026-03-30T02:30:00", BERLIN)


def test_a_time_that_occurs_twice_on_a_day_is_due_once() -> None:
    """The clocks go from 03:00 back to 02:00 on 25 October 2026."""
    schedule = clock("02:30")
    first = schedule.next_after(at("2026-10-25T00:00:00", BERLIN), BERLIN)
    assert first == at("2026-10-25T00:30:00")  # 02:30 of summer time
    assert schedule.next_after(first, BERLIN) == at("2026-10-26T02:30:00", BERLIN)


@pytest.mark.parametrize("zone", [BERLIN, LORD_HOWE, ZoneInfo("America/New_York"), ZoneInfo("Africa/Cairo")])
@pytest.mark.parametrize("text", ["00:00", "00:30", "02:15", "02:30", "03:00", "23:59"])
def test_every_day_of_a_year_has_one_time(zone: ZoneInfo, text: str) -> None:
    schedule = clock(text)
    now_s, days = at("2026-01-01T00:00:00", zone) - 1, []
    while len(days) < 366:
        now_s = schedule.next_after(now_s, zone)
        days.append(datetime.fromtimestamp(now_s, zone).date().toordinal())
    assert days == list(range(days[0], days[0] + 366))


def test_without_a_zone_the_system_s_zone_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert clock("02:15").next_after(at("2026-06-01T00:00:00")) == at("2026-06-01T00:15:00")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_time_too_far_away_means_that_the_clock_was_set_back() -> None:
    schedule = clock("02:15Z")
    due_s = at("2026-06-02T02:15:00")
    assert not schedule.too_far(due_s, at("2026-06-01T02:15:00"))
    assert not schedule.too_far(
        due_s, at("2026-06-01T01:15:00")
    )  # the clock was set back an hour: the due time stays
    assert schedule.too_far(due_s, at("2026-05-31T02:15:00"))
    assert not clock("Monday at 02:15Z").too_far(due_s, at("2026-05-26T02:15:00"))
