"""A time in which the storage of a running instance cannot be used: its device fails, its file system is unmounted.

The supervisor then has no other processes: it tries to start them again and again, with growing pauses. Connections are
closed at once meanwhile, so that clients with another server connect there and no client waits in vain. The listening
sockets stay open, because a released address may be taken by another program.
"""

import contextlib
import socket
import time
from collections.abc import Iterable

DELAY_S = 1.0
DELAY_MAX_S = 30.0
TURNED_AWAY_AT_ONCE_MAX = 100


class Outage:
    """One outage, from the first failure until the core is ready again."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._delay_s = DELAY_S
        self._retry_at_s: float | None = None
        self.reason = ""
        """The last reason why the storage could not be used."""

    def failed(self, reason: str) -> float:
        """Note that the storage cannot be used (again). Return how many seconds to wait."""
        self.reason = reason
        delay_s = self._delay_s
        self._retry_at_s = time.monotonic() + delay_s
        self._delay_s = min(2 * delay_s, DELAY_MAX_S)
        return delay_s

    def retry_is_due(self) -> bool:
        """Whether to try again now; returns True once."""
        if self._retry_at_s is None or time.monotonic() < self._retry_at_s:
            return False
        self._retry_at_s = None
        return True

    @property
    def age_s(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self._began_s


def turn_away(listening: Iterable[socket.socket]) -> None:
    """Close the connections that wait to be accepted."""
    for listener in listening:
        with contextlib.suppress(OSError):
            for _ in range(TURNED_AWAY_AT_ONCE_MAX):
                listener.accept()[0].close()
