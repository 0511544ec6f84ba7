"""What the service manager is told (sd_notify): readiness, stopping, and that the tree is well.

Nothing here fails: a server that was not started by a service manager, or by one that has gone, runs all the same.
"""

import contextlib
import os
import socket
import time


def notify(text: str) -> None:
    """Tell systemd something, if it asked to be told."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.settimeout(1)
        notifier.sendto(text.encode(), "\0" + path[1:] if path.startswith("@") else path)


class Watchdog:
    """Pats the service manager's watchdog twice in its period, as long as it is told that all is well."""

    def __init__(self) -> None:
        period_us = os.environ.get("WATCHDOG_USEC", "")
        self._interval_s = int(period_us) / 2_000_000 if period_us.isascii() and period_us.isdigit() else 0.0
        self._next_s = 0.0

    def pat(self) -> None:
        """All is well."""
        now_s = time.monotonic()
        if self._interval_s and now_s >= self._next_s:
            self._next_s = now_s + self._interval_s
            notify("WATCHDOG=1")
