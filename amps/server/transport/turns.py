"""When a worker has a turn, when it busy-polls, and when it sleeps.

Received input, wake-ups and timers start turns. A turn that leaves work behind schedules the next one through the event
loop, so that sockets are served in between. After the last turn the worker polls for a moment. Before it sleeps, it
sets its sleep flag in shared memory and checks once more. A worker without connections rests while the log moves.
"""

import asyncio
import os
import time
import traceback
from collections.abc import Callable

from amps.server.runtime import WakeUp
from amps.server.shared.core_link import CoreLink

BUSY_POLL_NS = 100_000
REST_S = 0.01
"""Of a worker without connections, between turns while the log moves."""


class Turns:
    """The turns of one worker."""

    def __init__(
        self,
        core: CoreLink,
        wake_up: WakeUp,
        work: Callable[[], bool],
        may_deliver: Callable[[], bool],
        has_connections: Callable[[], bool],
        failed: Callable[[str], None],
    ) -> None:
        """`work` runs one turn, and returns True if there is more work at once. `may_deliver`: whether a
        subscription here may get messages. `has_connections`: whether there is a connection at all. `failed` receives
        the traceback of a turn that raised.
        """
        self._core = core
        self._wake_up = wake_up
        self._work = work
        self._may_deliver = may_deliver
        self._has_connections = has_connections
        self._failed = failed
        self._loop: asyncio.AbstractEventLoop
        self._scheduled = False
        self._running = False
        self._busy_polling = False
        self._busy_polls_until_ns = 0
        self._resting: asyncio.TimerHandle | None = None
        self._seen = 0

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle wake-ups from now on. After the first turn the worker sleeps, and the core wakes it."""
        self._loop = loop
        loop.add_reader(self._wake_up.fd, self._woken)
        self.schedule()

    @property
    def scheduled(self) -> bool:
        """Whether a turn has been requested that has not begun."""
        return self._scheduled

    def schedule(self) -> None:
        """Request a turn soon; during a turn: another one right after it."""
        if not self._scheduled:
            self._scheduled = True
            if self._running:
                return
            self._core.view.wake()
            self._loop.call_soon(self._turn)

    def pushed(self, output_waits: bool) -> None:
        """Publish the pushed records after input was processed."""
        published = self._core.publish_pushed()
        if self._running:
            return
        # The core's reaction starts a turn; only output needs a turn before.
        if output_waits:
            self.schedule()
        elif published and self._may_deliver():
            self._busy_poll()

    def _busy_poll(self) -> None:
        """Check the core's progress and the sockets for a moment, before going to sleep.

        The core usually answers soon. A wake-up would cost both processes more than polling, and take longer. The loop
        yields the processor to other processes.
        """
        self._busy_polls_until_ns = time.monotonic_ns() + BUSY_POLL_NS
        if not self._busy_polling:
            self._busy_polling = True
            self._core.view.wake()
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._scheduled:
            self._busy_polling = False  # that turn starts it again at its end
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
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
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
        elif not self._has_connections():
            self._rest()
        else:
            self._busy_poll()

    def _rest(self) -> None:
        """Without connections: sleep if the log stands still. Otherwise look again later, and stay awake until then, so
        that nobody spends time on waking this worker for each move of the log.
        """
        view = self._core.view
        before, self._seen = self._seen, view.journal_written + view.transient_written + view.durable
        if before != self._seen or not view.fall_asleep():
            self._resting = self._loop.call_later(REST_S, self._end_rest)

    def _end_rest(self) -> None:
        self._resting = None
        if not self._scheduled:
            self._turn()
