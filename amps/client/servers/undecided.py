"""Transactions that an instance cannot decide yet (replication.md 25.93).

The instance ends the connection, and the client repeats the transaction on a new one, until the log of a lost instance
is there. That may take a minute or more. A logon succeeds each time, so the delay strategy does not help: many clients
that reconnect at once would keep the instance busy that has to do all the work. So a client waits, longer each time.
"""

import random
import time
from collections.abc import Callable

from amps.client.errors import AMPSException

TRANSACTION_UNDECIDED = "transaction undecided"
FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
QUIET_S = 30.0


class UndecidedWaits:
    """One client's waits because of undecided transactions."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last_s = 0.0
        self._count = 0

    def wait_s(self, error: AMPSException) -> float:
        """Return the seconds to wait before reconnecting after this error; 0 if it has another reason. Waits begin
        anew QUIET_S seconds after the last one.
        """
        if error.reason != TRANSACTION_UNDECIDED:
            return 0.0
        now_s = self._now_s()
        if now_s - self._last_s > QUIET_S:
            self._count = 0
        self._last_s = now_s
        full_s: float = min(FIRST_WAIT_S * 2**self._count, LONGEST_WAIT_S)
        self._count = min(self._count + 1, 16)
        return full_s * random.uniform(0.5, 1.0)
