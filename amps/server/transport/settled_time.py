"""The settled time of the log: every later record has a later timestamp.

A range that ends at a time has ended when the clock has passed that time and all records stamped before have arrived.
The core stamps a record with the time of its turn, and announces each turn by its heartbeat. So, if the clock showed a
time and a heartbeat followed, every later record has a later timestamp, and all records stamped before are below the
watermark written by then. This does not hold if the clock is set back meanwhile, as for everything that depends on
time.
"""

from typing import Protocol

from amps._core.shm.memory import ControlPage


class _Clocks(Protocol):
    unix_ns: int
    beat_ns: int


class SettledTime:
    """The settled time as one worker knows it, updated once per turn after the watermarks were read."""

    def __init__(self, control: ControlPage) -> None:
        self._control = control
        self._asked: tuple[int, int] | None = (
            None  # UNIX time in microseconds, and the clock of heartbeats just after it
        )
        self._answered_us: int | None = None
        self._settled = 0, 0

    def ask(self, clocks: _Clocks) -> None:
        """Request that the time of this turn be settled. `look` returns it in a later turn."""
        if self._asked is None and self._answered_us is None:
            # A later record may be stamped with this very microsecond.
            self._asked = clocks.unix_ns // 1000 - 1, clocks.beat_ns

    def look(self, written: int) -> tuple[int, int]:
        """The settled time, in microseconds, and a log position: all records of that time or earlier are below it.
        `written`: the watermark as this turn has read it.
        """
        if self._answered_us is not None:
            # The watermark was read after the heartbeat had been seen.
            self._settled = self._answered_us, written
            self._answered_us = None
        if self._asked is not None and self._control.core_heartbeat_ns > self._asked[1]:
            self._answered_us = self._asked[0]
            self._asked = None
        return self._settled
