"""Messages to the service manager (sd_notify): readiness, stopping, and the watchdog.

No function here fails: a server without a service manager, or whose service manager has ended, runs all the same.
"""

import contextlib
import os
import socket
import time


def notify(text: str) -> None:
    """Send a message to systemd, if it has requested messages."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.settimeout(1)
        notifier.sendto(text.encode(), "\0" + path[1:] if path.startswith("@") else path)


class Watchdog:
    """Resets the service manager's watchdog twice in its period, as long as `pat` is called."""

    def __init__(self) -> None:
        period_us = os.environ.get("WATCHDOG_USEC", "")
        self._interval_s = int(period_us) / 2_000_000 if period_us.isascii() and period_us.isdigit() else 0.0
        self._next_s = 0.0

    def pat(self) -> None:
        """Note that the tree is well."""
        now_s = time.monotonic()
        if self._interval_s and now_s >= self._next_s:
            self._next_s = now_s + self._interval_s
            notify("WATCHDOG=1")
