"""Clients with the same name, which end each other's connections (protocol.md §4: the newer one ends the older one's).

Two such clients that reconnect at once would end each other's connections for ever. So a
client that has lost its connection to another client of its name waits, longer each time, before it reconnects. The
waits are random, so that the two clients do not reconnect in step.
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
    """One client's record of other clients with its name."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last_s = 0.0
        self.take_overs = 0
        """How often another client took the name, without QUIET_S seconds in between."""

    def wait_s(self, error: AMPSException | None) -> float:
        """Return the seconds to wait before reconnecting after this error; 0 if no other client took the name."""
        if error is None or error.reason != NAME_IN_USE:
            return 0.0
        now_s = self._now_s()
        if now_s - self._last_s > QUIET_S:
            self.take_overs = 0
        self._last_s = now_s
        self.take_overs += 1
        full_s: float = min(FIRST_WAIT_S * 2 ** (self.take_overs - 1), LONGEST_WAIT_S)
        return full_s * random.uniform(0.5, 1.0)
