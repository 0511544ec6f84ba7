"""When a worker has a turn, when it sleeps, and when it waits actively for the core.

Turns are started by received input, by the doorbell and by timers. A turn that leaves work behind brings the next one,
through the event loop, so that sockets are served in between. Before the worker sleeps it says so in shared memory and
looks once more.
"""

import asyncio
import traceback
from collections.abc import Callable

from amps.server.runtime import Doorbell
from amps.server.transport.core_link import CoreLink

SPIN_NS = 50_000
SPIN_BATCH_BYTES = 16 << 10
SPIN_FAILURES_MAX = 10


class Turns:
    """The turns of one worker."""

    def __init__(
        self, core: CoreLink, bell: Doorbell, work: Callable[[], bool], failed: Callable[[str], None]
    ) -> None:
        """`work`: one turn; True if there is more to do at once. `failed`: a turn ended with this traceback."""
        self._core = core
        self._bell = bell
        self._work = work
        self._failed = failed
        self._loop: asyncio.AbstractEventLoop
        self._scheduled = False
        self._running = False
        self._spin_pause = 0
        self._spin_failures = 0

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer the doorbell. The first turn ends with the worker saying that it sleeps: then the core rings."""
        self._loop = loop
        loop.add_reader(self._bell.fd, self._rung)
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
        elif published and may_wait and not self._scheduled:
            self._wait_briefly()

    def _wait_briefly(self) -> None:
        """After a small batch: wait actively for the core instead of going to sleep and being woken at once.

        It pays while the core has a processor of its own. Where it does not answer in time, that is noticed, and the
        next tries come ever more rarely.
        """
        core = self._core
        if self._spin_pause:
            self._spin_pause -= 1
            return
        if core.ring.pushed - core.view.consumed > SPIN_BATCH_BYTES:
            return
        core.view.wake()
        if core.ring.spin_until_consumed(SPIN_NS):
            self._spin_failures = 0
            self._turn()
            return
        self._spin_failures = min(self._spin_failures + 1, SPIN_FAILURES_MAX)
        self._spin_pause = 1 << self._spin_failures
        if not core.view.fall_asleep():
            self.schedule()

    def _rung(self) -> None:
        self._bell.clear()
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
        if not self._core.view.fall_asleep():
            self.schedule()
