"""Deadlines on the monotonic clock, and the time that is left until them."""

import time

from amps.client.enums import Timeout
from amps.client.protocol.command import check_timeout

AT_ONCE = 0.0
"""A deadline in the past: nothing waits."""


def deadline_of(timeout: Timeout) -> float | None:
    """Return the deadline of a time limit that starts now."""
    seconds = check_timeout(timeout)
    return None if seconds is None else time.monotonic() + seconds


def left_until(deadline: float | None) -> float | None:
    """Return the seconds left, never negative; None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
