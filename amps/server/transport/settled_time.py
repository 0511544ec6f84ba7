"""Up to which time the log is settled: every record that is still to come is of a later one.

A range that ends at a moment has ended when the clock has passed it and all that was stamped before has arrived. The
core stamps a record with the time of its turn, and announces each turn by its heartbeat. So, if the clock showed a time
and a heartbeat came after that, every later record has a later stamp, and what was stamped before lies below what is
written by then. A clock that is set back meanwhile is beyond this, as it is beyond everything that goes by time.
"""

from typing import Protocol

from amps._core.shm.memory import ControlPage


class _Clocks(Protocol):
    now_ns: int
    unix_ns: int


class SettledTime:
    """As one worker knows it. Looked at once per turn, after the watermarks were read."""

    def __init__(self, control: ControlPage) -> None:
        self._control = control
        self._asked: tuple[int, int] | None = (
            None  # UNIX time in microseconds, and the monotonic one just after it
        )
        self._answered_us: int | None = None
        self._settled = 0, 0

    def ask(self, clocks: _Clocks) -> None:
        """Somebody waits for the time of this turn to be settled; a later turn's `look` may say that it is."""
        if self._asked is None and self._answered_us is None:
            # A later record may be stamped with this very microsecond.
            self._asked = clocks.unix_ns // 1000 - 1, clocks.now_ns

    def look(self, written: int) -> tuple[int, int]:
        """The time, in microseconds, and the log position below which everything of that time or earlier lies.
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
