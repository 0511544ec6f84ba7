"""When a worker checks whether persisted acknowledgements can be sent (publisher_acks.py makes them).

A connection is *active* while it waits for a watermark: each turn checks it. It is *scheduled* while it waits for the
end of its conflation interval: a timer starts the turn. It is *parked* while it waits for a destination of replication:
it costs nothing until that destination has what it needs (persisted_waits.py).
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable

from amps.server.clock import Clock
from amps.server.shared.core_link import CoreLink
from amps.server.transport.persisted_waits import PersistedWaits
from amps.server.transport.publisher_acks import AWAITS_DESTINATION
from amps.server.transport.session import Session


class AckSchedule:
    """The connections of one worker that have acknowledgements to send."""

    def __init__(
        self, core: CoreLink, persisted: PersistedWaits, schedule: Callable[[], None], clock: Clock
    ) -> None:
        """`schedule` requests a turn of the worker."""
        self._persisted = persisted
        self._clock = clock
        self._core = core
        self._schedule = schedule
        self._active: dict[Session, None] = {}
        self._due: list[tuple[float, int, Session]] = []
        self._scheduled: set[Session] = set()
        self._parked: set[Session] = set()
        self._noted: dict[Session, None] = {}  # those with places whose log positions are not bounded yet
        self._number = itertools.count()
        self._timer_s = math.inf

    def __bool__(self) -> bool:
        return bool(self._active or self._due or self._noted)

    @property
    def durable_awaited(self) -> bool:
        """Whether an acknowledgement waits for the durable watermark."""
        return bool(self._active or self._noted)

    def expect(self, connection: Session) -> None:
        """Register that the connection has acknowledgements to send."""
        if self._persisted.destinations is not None and connection.acks.note_place():
            self._noted[connection] = None
        if connection in self._parked:
            return
        if connection.acks.urgent:
            self._scheduled.discard(connection)
        if connection not in self._scheduled:
            self._active[connection] = None
            if self._core.ring.pushed == self._core.ring.tail:
                # No record is on its way to the core, so none would start a turn.
                self._schedule()

    def forget(self, connection: Session) -> None:
        """Remove a connection that has ended."""
        self._active.pop(connection, None)
        self._scheduled.discard(connection)
        self._parked.discard(connection)
        self._noted.pop(connection, None)

    def send(self, loop: asyncio.AbstractEventLoop, now_s: float) -> None:
        """Send the acknowledgements that are due."""
        while self._due and self._due[0][0] <= now_s:
            _, _, connection = heapq.heappop(self._due)
            if connection in self._scheduled:
                self._scheduled.discard(connection)
                self._active[connection] = None
        if self._noted:
            for connection in list(self._noted):
                if connection.acks.resolve(self._core):
                    del self._noted[connection]
        for connection in list(self._active):
            due_s = connection.acks.advance(self._core, now_s)
            if due_s == 0.0:
                continue
            del self._active[connection]
            if due_s == AWAITS_DESTINATION:
                self._park(connection)
            elif due_s is not None:
                self._scheduled.add(connection)
                heapq.heappush(self._due, (due_s, next(self._number), connection))
        if self._due and self._due[0][0] < self._timer_s:
            # The event loop counts in milliseconds and may fire early: a millisecond more costs less than a second
            # turn.
            self._timer_s = self._due[0][0]
            self._clock.call_later(loop, max(0.0, self._timer_s - now_s) + 0.001, self._timer)

    def _park(self, connection: Session) -> None:
        """Let a connection wait for a destination."""

        def go_on() -> None:
            self._parked.discard(connection)
            self._active[connection] = None
            self._schedule()

        self._parked.add(connection)
        acks = connection.acks
        self._persisted.when_acknowledged(connection, acks.publisher_id, acks.awaited_position, go_on)

    def _timer(self) -> None:
        self._timer_s = math.inf
        self._schedule()
