"""Points in a log in users' notations, and the text sent to the server."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from amps.journal.written_points import points_text

NOON = datetime(2026, 11, 24, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("epoch", "0"),
        ("EPOCH", "0"),
        ("0", "0"),
        ("now", "0|1|"),
        ("0|1", "0|1|"),
        ("0|1|", "0|1|"),
        ("123|4|", "123|4|"),
        ("123|4|,55|6|", "123|4|,55|6|"),
        ("20261124T093000", "20261124T093000"),
        ("20261124T093000Z", "20261124T093000Z"),
        ("2026-11-24", "20261124T000000Z"),
        ("2026-11-24T09:30", "20261124T093000Z"),
        ("2026-11-24 09:30:05", "20261124T093005Z"),
        ("2026-11-24T09:30:05.25Z", "20261124T093005.250000Z"),
        ("2026-11-24T09:30:00+01:00", "20261124T083000Z"),
        ("-5m", "20261124T115500Z"),
        ("-1.5h", "20261124T103000Z"),
        (" -2D ", "20261122T120000Z"),
        ("-250ms", "20261124T115959.750000Z"),
        ("[-5m:now]", "[20261124T115500Z:0|1|]"),
        ("(epoch:-1w)", "(0:20261117T120000Z)"),
        ("[2026-11-24T09:30:2026-11-24T10:30:15)", "[20261124T093000Z:20261124T103015Z)"),
        ("[2026-11-24T09:30+01:00:-5m]", "[20261124T083000Z:20261124T115500Z]"),
        ("[123|4|,-5m:0|1|]", "[123|4|,20261124T115500Z:0|1|]"),
        (NOON, "20261124T120000Z"),
        (datetime(2026, 11, 24, 12, tzinfo=timezone(timedelta(hours=2))), "20261124T100000Z"),
        (datetime(99, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "00990102T030405.000006Z"),
    ],
)
def test_usual_notations_become_points_that_a_server_reads(written: str | datetime, read: str) -> None:
    """transaction_log.md §5, client.md §7."""
    assert points_text(written, NOON) == read


@pytest.mark.parametrize(
    "written",
    [
        "yesterday",
        "-5",
        "5m",
        "-5y",
        "2026-13-01",
        "2026-11-24T25:00",
        "-999999999w",
        "[1:2:3]",
        "[now]",
        "",
        "a,b",
    ],
)
def test_unknown_notations_are_sent_unchanged(written: str) -> None:
    assert points_text(written, NOON) == written


def test_a_datetime_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has no time zone: write datetime\.now\(UTC\)"):
        points_text(datetime(2026, 11, 24))
    with pytest.raises(TypeError, match="a bookmark must be a str or a datetime, not float"):
        points_text(1.5)  # type: ignore[arg-type]
