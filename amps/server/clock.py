"""The time of an instance: every process of the server reads it here (queue_guarantees.md §5).

`Clock` is the system's. `ManualClock` adds an offset that a program can raise, for an embedded server whose tests do
not want to wait. The offset is one word of a file that all processes map from before the fork; the supervisor alone
writes it, and it never falls. The file is in the server's directory, so a restart keeps it.

What follows this clock: everything that clients and users can see, such as leases, expiries, conflation, heartbeats,
the pace of replays, schedules, timestamps of records and logs, ages in statistics. What stays real: the pauses between
syncs, attempts to repeat what failed, the supervisor's watch over its processes, limits of work, and the times of
files, which the file system sets. These protect the instance, or wait for something outside.

Two rules for timers. A process passes the time to the code that compares times (the core's logic never reads a clock).
A timer of an event loop is made with `call_later` of this clock, because a loop counts real time only; `run_due` calls
those that a new offset has made due.

`amps/server/advancing.py` advances the clock and finds out when all processes have passed the new time.
"""

import mmap
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from amps._core.expressions.functions import follow_clock

if TYPE_CHECKING:
    import asyncio

_MAGIC = b"AMPSCLK1"
_FILE_BYTES = mmap.PAGESIZE
_OFFSET_WORD = 1
OFFSET_NS_MAX = 1 << 62


class Timer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None:
        """Do not call back any more. No effect afterwards."""


class Clock:
    """The system's clocks, and timers on them."""

    time_s = staticmethod(time.time)
    """UNIX time in seconds."""
    time_ns = staticmethod(time.time_ns)
    """UNIX time in nanoseconds."""
    monotonic_s = staticmethod(time.monotonic)
    """Seconds since some moment. It never goes back, and does not follow the setting of the system's clock."""
    monotonic_ns = staticmethod(time.monotonic_ns)
    """The same in nanoseconds."""

    async def sleep(self, delay_s: float) -> None:
        """Wait for so many seconds of this clock."""
        import asyncio  # the core has no event loop

        await asyncio.sleep(delay_s)

    def call_later(
        self, loop: "asyncio.AbstractEventLoop", delay_s: float, callback: Callable[[], object]
    ) -> Timer:
        """Call back after so many seconds of this clock."""
        return loop.call_later(delay_s, callback)


SYSTEM = Clock()


class _ManualTimer:
    """A timer of a manual clock: one of the event loop, which may be called earlier."""

    __slots__ = ("_callback", "_clock", "_handle", "due_ns")

    def __init__(
        self, clock: "ManualClock", loop: "asyncio.AbstractEventLoop", delay_s: float, callback: Callable[[], object]
    ) -> None:
        self._clock = clock
        self._callback = callback
        self.due_ns = clock.monotonic_ns() + int(delay_s * 1e9)
        self._handle = loop.call_later(delay_s, self.ring)

    def ring(self) -> None:
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        self._clock.timers.discard(self)
        self._handle.cancel()


class ManualClock(Clock):
    """The system's clocks plus an offset."""

    def __init__(self, path: Path, requests: socket.socket) -> None:
        """Functions of expressions in this process and those forked from it follow this clock from now on.

        `path`: the file with the offset; made if it is missing. `requests`: the connection to the program.

        Raises OSError, whose text has the path, if the file is not that of a clock.
        """
        self.requests = requests
        self.timers: set[_ManualTimer] = set()
        if not path.exists():
            new = path.with_name(path.name + ".new")
            new.write_bytes(_MAGIC.ljust(_FILE_BYTES, b"\0"))
            new.replace(path)  # whole or not at all: a file of zeros would mean that the offset has fallen
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size != _FILE_BYTES or os.pread(descriptor, len(_MAGIC), 0) != _MAGIC:
                raise OSError(f"{path} is not the file of a clock")
            self._memory = mmap.mmap(descriptor, _FILE_BYTES)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._memory).cast("Q")
        follow_clock(self._memory, _OFFSET_WORD)

    @property
    def offset_ns(self) -> int:
        """How far this clock is ahead of the system's."""
        return self._words[_OFFSET_WORD]

    def advance(self, by_ns: int) -> None:
        """Raise the offset; called by the supervisor only. Raises ValueError if it would be too large."""
        offset_ns = self.offset_ns + by_ns
        if by_ns < 0 or offset_ns > OFFSET_NS_MAX - time.time_ns():
            raise ValueError("the time of the server would be too large")
        self._words[_OFFSET_WORD] = offset_ns

    def run_due(self) -> None:
        """Call the timers of this process that are due now."""
        now_ns = self.monotonic_ns()
        for timer in sorted((each for each in self.timers if each.due_ns <= now_ns), key=lambda each: each.due_ns):
            if timer in self.timers:  # an earlier one may have cancelled it
                timer.ring()

    # In place of the functions of the system.

    def time_s(self) -> float:
        return self.time_ns() / 1e9

    def time_ns(self) -> int:
        return time.time_ns() + self._words[_OFFSET_WORD]

    def monotonic_s(self) -> float:
        return self.monotonic_ns() / 1e9

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self._words[_OFFSET_WORD]

    async def sleep(self, delay_s: float) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        rung = loop.create_future()

        def ring() -> None:
            if not rung.done():
                rung.set_result(None)

        timer = self.call_later(loop, delay_s, ring)
        try:
            await rung
        finally:
            timer.cancel()

    def call_later(
        self, loop: "asyncio.AbstractEventLoop", delay_s: float, callback: Callable[[], object]
    ) -> Timer:
        timer = _ManualTimer(self, loop, delay_s, callback)
        self.timers.add(timer)
        return timer
