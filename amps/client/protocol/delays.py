"""The times of delayed messages: in seconds, as applications give them, and in milliseconds, as the wire has them.

A message has a `delay`, which counts from the moment at which the server reads it, or a time `not_before`
(queue_guarantees.md §1). A publish store may send a message long after it was published, also to another server. So for
a message that a store keeps, the client turns the delay into a time, by the clock of this host
(queue_guarantees.md Q-47). Parts of a millisecond are rounded up: no message comes early.
"""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
DELAY_MAX_S = 3653 * 86_400
MOMENT_MAX_S = 2**63 // 10**9

Moment = float | datetime
"""A time: a `datetime` with a time zone, or UNIX seconds."""


def delay_ms(delay: float) -> int:
    """Return a delay of seconds in whole milliseconds. Raises TypeError, and ValueError beyond ten years."""
    return _whole_ms(_seconds_us("delay", delay, DELAY_MAX_S, "3653 days, in seconds"))


def moment_ms(not_before: Moment) -> int:
    """Return a time as a UNIX time in whole milliseconds.

    Raises TypeError, and ValueError for a `datetime` without a time zone and for times before 1970 or after 2262.
    """
    if not isinstance(not_before, datetime):
        what = "the year 2262, in UNIX seconds"
        return _whole_ms(_seconds_us("not_before", not_before, MOMENT_MAX_S, what, "or a datetime"))
    if not_before.tzinfo is None:
        raise ValueError(
            f"{not_before!r} has no time zone: write datetime.now(UTC), or .astimezone() if it is local time"
        )
    since = not_before - _EPOCH
    if not timedelta(0) <= since <= timedelta(seconds=MOMENT_MAX_S):
        raise ValueError(f"not_before must lie between the years 1970 and 2262: {not_before}")
    return _whole_ms(since // _MICROSECOND)


def moment_after(delay: float) -> float:
    """Return the UNIX time, in seconds, at which a delay of seconds from now is over. Raises as `delay_ms` does."""
    return _whole_ms((datetime.now(UTC) - _EPOCH) // _MICROSECOND + delay_ms(delay) * 1000) / 1000


def _seconds_us(name: str, value: float, most_s: int, limit: str, other: str = "") -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise TypeError(f"{name} must be a number of seconds{' ' + other if other else ''}: {value!r}")
    if not 0 <= value <= most_s:
        raise ValueError(f"{name} must lie between 0 and {most_s} ({limit}): {value}")
    return round(value * 1_000_000)


def _whole_ms(microseconds: int) -> int:
    return -(-microseconds // 1000)
