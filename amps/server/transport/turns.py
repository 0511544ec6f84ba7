"""When a worker has a turn, when it polls, and when it sleeps.

Turns are started by received input, by wake-ups and by timers. A turn that leaves work behind brings the next one,
through the event loop, so that sockets are served in between. After the last one it polls for a moment; before it
sleeps it says so in shared memory and looks once more.
"""

import asyncio
import os
import time
import traceback
from collections.abc import Callable

from amps.server.runtime import WakeUp
from amps.server.shared.core_link import CoreLink

BUSY_POLL_NS = 100_000


class Turns:
    """The turns of one worker."""

    def __init__(
        self, core: CoreLink, wake_up: WakeUp, work: Callable[[], bool], failed: Callable[[str], None]
    ) -> None:
        """`work`: one turn; True if there is more to do at once. `failed`: a turn ended with this traceback."""
        self._core = core
        self._wake_up = wake_up
        self._work = work
        self._failed = failed
        self._loop: asyncio.AbstractEventLoop
        self._scheduled = False
        self._running = False
        self._busy_polling = False
        self._busy_polls_until_ns = 0

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer wake-ups. The first turn ends with the worker asleep: then the core wakes it."""
        self._loop = loop
        loop.add_reader(self._wake_up.fd, self._woken)
        self.schedule()

    def schedule(self) -> None:
        """Have a turn soon; during a turn: another one right after it."""
        if not self._scheduled:
            self._scheduled = True
            if self._running:
                return
            self._core.view.wake()
            self._loop.call_soon(self._turn)

    def pushed(self, output_waits: bool, may_wait: bool) -> None:
        """Input was taken: let the core see what was pushed. `may_wait`: somebody here may get what it sequences."""
        published = self._core.publish_pushed()
        if self._running:
            return
        # What the core does with it starts a turn; only output needs one before.
        if output_waits:
            self.schedule()
        elif published and may_wait:
            self._busy_poll()

    def _busy_poll(self) -> None:
        """Look for a moment what the core does, and at the sockets, before going to sleep.

        The core answers soon, mostly. To be woken would cost both more than the looks do, and take longer; whoever else
        wants the processor gets it.
        """
        self._busy_polls_until_ns = time.monotonic_ns() + BUSY_POLL_NS
        if not self._busy_polling:
            self._busy_polling = True
            self._core.view.wake()
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._scheduled:
            self._busy_polling = False  # until that turn has ended
        elif self._core.view.moved():
            self._busy_polling = False
            self._turn()
        elif time.monotonic_ns() < self._busy_polls_until_ns:
            os.sched_yield()
            self._loop.call_soon(self._look)
        else:
            self._busy_polling = False
            if not self._core.view.fall_asleep():
                self.schedule()

    def _woken(self) -> None:
        self._wake_up.clear()
        if not self._scheduled:
            self._core.view.wake()
            self._turn()

    def _turn(self) -> None:
        self._scheduled = False
        self._running = True
        try:
            more = self._work()
        except Exception:
            self._failed(traceback.format_exc())
            return
        finally:
            self._running = False
        if more or self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)
            return
        self._busy_poll()
