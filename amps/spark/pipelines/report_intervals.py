"""Times in reports: the intervals of a log, and the text form of moments and durations.

All times are UNIX microseconds, the resolution of the log's columns.
"""

import math
from datetime import UTC, datetime, timedelta

from amps.spark.pipelines.job import PipelineError

US_PER_S = 1_000_000
_NICE_S = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
    86400, 172800, 604800, 2592000, 7776000, 31536000,
)  # fmt: skip
_UNITS = (
    (86400 * US_PER_S, "d"),
    (3600 * US_PER_S, "h"),
    (60 * US_PER_S, "m"),
    (US_PER_S, "s"),
    (1000, "ms"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DURATION_EDGES_US = tuple(mantissa * 10**power for power in range(2, 11) for mantissa in (1, 2, 5))
"""Lower bounds of the bars of a duration histogram: 100 µs, 200 µs, 500 µs, 1 ms, … 50,000 s; one bar is below them."""


def chosen_interval_us(first_us: int, last_us: int, intervals_max: int) -> int:
    """Return a round interval of which at most `intervals_max` cover the time."""
    for nice_s in _NICE_S:
        interval_us = round(nice_s * US_PER_S)
        if intervals_covering(first_us, last_us, interval_us) <= intervals_max:
            return interval_us
    return last_us - first_us + 1


def intervals_covering(first_us: int, last_us: int, interval_us: int) -> int:
    """Return the number of intervals, aligned to the epoch, that cover the time from the first to the last moment."""
    return last_us // interval_us - first_us // interval_us + 1


def check_interval(first_us: int, last_us: int, interval_us: int, intervals_max: int) -> None:
    """Raise PipelineError if an interval of this length would make too many intervals."""
    count = intervals_covering(first_us, last_us, interval_us)
    if count > intervals_max:
        raise PipelineError(
            f"the interval {duration(interval_us)} cuts this log into {count:,} intervals, and a report has at most "
            f"{intervals_max:,}: take {duration(chosen_interval_us(first_us, last_us, intervals_max))} or longer, or a "
            "shorter range"
        )


def moment(us: int) -> str:
    """Return a time in ISO 8601, in UTC, with as many digits as needed."""
    text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").removesuffix("+00:00")
    return text.rstrip("0").rstrip(".") + "Z"


def duration(us: float) -> str:
    """Return a duration with three digits and a unit: `1.25 s`, `340 ms`, `12 µs`, `3 h`."""
    for unit_us, name in _UNITS:
        if us >= unit_us:
            return f"{_three_digits(us / unit_us)} {name}"
    return f"{_three_digits(us)} µs"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
