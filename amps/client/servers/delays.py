"""Delay strategies: how long a client with failover waits before it tries a server (client.md §9.4, §19.8).

Without growing and random waits, all clients of a server that has died would try to connect to it, or to the next one,
at the same moments. All times are in seconds.
"""

import random as _random
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from amps.client.errors import ConnectionException


class DelayStrategy(Protocol):
    """Decides how long to wait before an attempt. Called by the one thread that reconnects."""

    def get_connect_wait_duration(self, uri: str) -> float:
        """Return the seconds to wait before this server is tried. An exception ends reconnecting."""

    def reset(self) -> None:
        """Note that the client is connected: the next failure is the first one again."""


class _TimeLimit:
    """The limit for the time that is spent on reconnecting."""

    def __init__(self, maximum_s: float, clock: Callable[[], float]) -> None:
        self._maximum_s = maximum_s
        self._clock = clock
        self._began: float | None = None

    def limited(self, wait_s: float) -> float:
        """Return the wait, shortened so that the last attempt is at the limit. ConnectionException after that."""
        now = self._clock()
        if self._began is None:
            self._began = now
        if not self._maximum_s:
            return wait_s
        left_s = self._began + self._maximum_s - now
        if left_s <= 0 and now > self._began:
            raise ConnectionException(f"no server could be reached within {self._maximum_s:g} s")
        return min(wait_s, left_s)

    def reset(self) -> None:
        self._began = None


class ExponentialDelayStrategy:
    """Doubles the wait with each attempt at the same server, and adds a random time.

    - initial_delay, maximum_delay: the first wait that is not zero, and the longest. The first attempt at a server is
      made at once.
    - backoff_exponent: the factor between a wait and the next.
    - maximum_retry_time: after so many seconds without a connection, reconnecting ends with ConnectionException; 0 =
      never.
    - jitter: a random time below `jitter * initial_delay` is added to each wait that is not zero.
    - random, clock: replace `random.random` and `time.monotonic` in tests.
    """

    def __init__(
        self,
        initial_delay: float = 0.2,
        maximum_delay: float = 20.0,
        backoff_exponent: float = 2.0,
        maximum_retry_time: float = 0.0,
        jitter: float = 1.0,
        *,
        random: Callable[[], float] = _random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_not_negative(
            initial_delay=initial_delay,
            maximum_delay=maximum_delay,
            maximum_retry_time=maximum_retry_time,
            jitter=jitter,
        )
        if backoff_exponent < 1:
            raise ValueError(f"backoff_exponent must be at least 1: {backoff_exponent}")
        self._initial_s = initial_delay
        self._maximum_s = maximum_delay
        self._factor = backoff_exponent
        self._jitter = jitter
        self._random = random
        self._limit = _TimeLimit(maximum_retry_time, clock)
        self._next_s: dict[str, float] = {}

    def get_connect_wait_duration(self, uri: str) -> float:
        """Return the seconds to wait before this server is tried."""
        wait_s = self._next_s.get(uri)
        if wait_s is None:
            self._next_s[uri] = min(self._initial_s, self._maximum_s)
            return self._limit.limited(0.0)
        self._next_s[uri] = min(wait_s * self._factor, self._maximum_s)
        if wait_s:
            wait_s += self._random() * self._jitter * self._initial_s
        return self._limit.limited(wait_s)

    def reset(self) -> None:
        """Begin again with no wait."""
        self._next_s.clear()
        self._limit.reset()


class FixedDelayStrategy:
    """Waits the same time before each attempt at a server, except the first.

    - delay: seconds. - maximum: after so many seconds without a connection, reconnecting ends with
      ConnectionException; 0 = never.
    - clock: replaces `time.monotonic` in tests.
    """

    def __init__(
        self, delay: float = 0.2, maximum: float = 0.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        _check_not_negative(delay=delay, maximum=maximum)
        self._delay_s = delay
        self._limit = _TimeLimit(maximum, clock)
        self._tried: Counter[str] = Counter()

    def get_connect_wait_duration(self, uri: str) -> float:
        """Return the seconds to wait before this server is tried."""
        self._tried[uri] += 1
        return self._limit.limited(self._delay_s if self._tried[uri] > 1 else 0.0)

    def reset(self) -> None:
        """Begin again with no wait."""
        self._tried.clear()
        self._limit.reset()


def _check_not_negative(**seconds: float) -> None:
    for name, value in seconds.items():
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be a finite number, not negative: {value}")
