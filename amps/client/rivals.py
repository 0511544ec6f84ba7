"""Clients with one name, which end each other's connections (protocol.md §4: the newer one ends the older one's).

Two clients that connect again at once would go on like that without end, and neither would get anything done. So a
client that has lost its connection to another of its name waits, longer each time, before it takes the name back. The
waits are random, so that two of them do not wait in step.
"""

import random
import time
from collections.abc import Callable

from amps.client.errors import AMPSException

NAME_IN_USE = "name in use"
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
QUIET_S = 300.0


class Rivals:
    """What one client knows of others with its name."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last_s = 0.0
        self.take_overs = 0
        """How often the name was taken, without QUIET_S seconds of peace in between."""

    def wait_s(self, error: AMPSException | None) -> float:
        """Seconds to wait before connecting again, after this end of a connection; 0 if it was no other client."""
        if error is None or error.reason != NAME_IN_USE:
            return 0.0
        now_s = self._now_s()
        if now_s - self._last_s > QUIET_S:
            self.take_overs = 0
        self._last_s = now_s
        self.take_overs += 1
        full_s: float = min(FIRST_WAIT_S * 2 ** (self.take_overs - 1), LONGEST_WAIT_S)
        return full_s * random.uniform(0.5, 1.0)
