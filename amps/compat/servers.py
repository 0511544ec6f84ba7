"""Server choosers and delay strategies with times in milliseconds (client.md §9.3, §9.4)."""

from typing import Any

from amps.client import DefaultServerChooser as _DefaultServerChooser
from amps.client import DelayStrategy as _DelayStrategy
from amps.client import ExponentialDelayStrategy as _ExponentialDelayStrategy
from amps.client import FixedDelayStrategy as _FixedDelayStrategy
from amps.compat.names import with_twins


@with_twins
class DefaultServerChooser(_DefaultServerChooser):
    """Tries servers in the order in which they were added."""


class _Strategy:
    """A delay strategy that counts in milliseconds."""

    _strategy: _DelayStrategy

    def get_connect_wait_duration(self, uri: str) -> float:
        """Milliseconds to wait before the next attempt."""
        return self._strategy.get_connect_wait_duration(uri) * 1000

    def reset(self) -> None:
        """Note that the client is connected."""
        self._strategy.reset()


@with_twins
class ExponentialDelayStrategy(_Strategy):
    """Waits longer before each attempt to reach the same server; times in milliseconds, 0 = no maximum retry time."""

    def __init__(
        self,
        initial_delay: float = 200,
        maximum_delay: float = 20_000,
        backoff_exponent: float = 2.0,
        maximum_retry_time: float = 0,
        jitter: float = 1.0,
    ) -> None:
        self._strategy = _ExponentialDelayStrategy(
            initial_delay / 1000, maximum_delay / 1000, backoff_exponent, maximum_retry_time / 1000, jitter
        )


@with_twins
class FixedDelayStrategy(_Strategy):
    """Waits the same time before each further attempt; times in milliseconds, 0 = no maximum."""

    def __init__(self, delay: float = 200, maximum: float = 0) -> None:
        self._strategy = _FixedDelayStrategy(delay / 1000, maximum / 1000)


class InSeconds:
    """A strategy of an application, which counts in milliseconds, for `amps.client`, which counts in seconds."""

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy

    def get_connect_wait_duration(self, uri: str) -> float:
        """Seconds to wait before the next attempt."""
        return float(self.strategy.get_connect_wait_duration(uri)) / 1000

    def reset(self) -> None:
        """Note that the client is connected."""
        self.strategy.reset()
