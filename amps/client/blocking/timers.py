"""One daemon thread per process that wakes clients when their engine has timed work to do.

Heartbeats and timed acknowledgement batches must be sent even while a client's receive thread runs a slow
handler. The timer thread runs no user code, never blocks on a socket, and does not keep a client alive.
"""

import os
import threading
import time
import weakref
from typing import Protocol


class Timed(Protocol):
    """An object with a deadline."""

    def on_timer(self, now: float) -> float | None:
        """Do the work that is due; return the next deadline, None for none."""


class TimerThread:
    """Calls `on_timer` of each scheduled object at its deadline."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due: dict[weakref.ref[Timed], float] = {}
        self._thread: threading.Thread | None = None

    def schedule(self, target: Timed, when: float) -> None:
        """Wake `target` at `when` (or earlier, if it was scheduled earlier)."""
        reference = weakref.ref(target)
        with self._condition:
            known = self._due.get(reference)
            if known is not None and known <= when:
                return
            self._due[reference] = when
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amps-timer", daemon=True)
                self._thread.start()
            self._condition.notify()

    def forget(self, target: Timed) -> None:
        """Do not wake `target` any more."""
        with self._condition:
            self._due.pop(weakref.ref(target), None)

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            with self._condition:
                ready = [reference for reference, when in self._due.items() if when <= now]
                for reference in ready:
                    del self._due[reference]
                if not ready:
                    earliest = min(self._due.values(), default=None)
                    self._condition.wait(None if earliest is None else earliest - now)
                    continue
            for reference in ready:
                target = reference()
                if target is not None:
                    following = target.on_timer(now)
                    if following is not None:
                        self.schedule(target, following)
                del target


_timer = TimerThread()


def process_timer() -> TimerThread:
    """The timer of this process."""
    return _timer


def _renew_after_fork() -> None:
    """Create a new timer in a forked child: threads do not survive a fork."""
    global _timer
    _timer = TimerThread()


os.register_at_fork(after_in_child=_renew_after_fork)
