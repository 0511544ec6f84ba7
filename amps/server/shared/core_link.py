"""A worker's side of everything it shares with the core: ring, answers, watermarks, and what waits for them.

Transports have one for their clients, the services process for what it publishes itself.

Records go into the ingress ring; control records keep their order even when it is full. A *barrier* is an action that
waits until the core has consumed the ring up to a position; a *durable waiter* is one that waits for the device. Both
run in turns, with the watermarks that the turn read: after the ring's tail, so that what was consumed is below them.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from amps._core.shm.memory import InstanceView
from amps._core.wire.ingress import PUBLISH_BACKLOG_BYTES
from amps._core.wire.topics import TopicEntry
from amps.server.records import (
    KIND_DECLARE_TOPIC,
    KIND_QUEUE_DELIVERIES,
    control_payload,
    control_record,
    record_kind,
)
from amps.server.runtime import Runtime


class Refusals(Protocol):
    """The refused messages of a publisher that wait to be answered."""

    @property
    def crowded(self) -> bool:
        """Whether so many wait that nothing more should be read."""


class HeldInput(Protocol):
    """A connection whose input is held."""

    @property
    def acks(self) -> Refusals:
        """What it must be told first."""

    def release(self) -> None:
        """Go on reading."""


class CoreLink:
    """What one worker says to the core, hears from it and waits for."""

    def __init__(self, runtime: Runtime, index: int, has_journal: bool, schedule: Callable[[], None]) -> None:
        """`schedule`: has a turn of the worker soon."""
        self.index = index
        self.ring = runtime.ingress[index]
        self.ring.attach_producer()
        self._egress = runtime.egress[index]
        self.view = InstanceView(runtime.control, self.ring, self._egress, index)
        self._runtime = runtime
        self._has_journal = has_journal
        self._schedule = schedule
        self.deliveries: Callable[[bytes], object] | None = None
        """Takes the core's deliveries of queue messages, as they came."""
        self._controls: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        self._held: dict[HeldInput, bool] = {}
        """Whose input is held, in the order in which they go on; True: until there is room."""
        self._barriers: deque[tuple[int, Callable[[], None]]] = deque()
        self._durable_waiters: list[tuple[int, int, Callable[[], None]]] = []
        self._waiter_number = itertools.count()

    # --- to the core ------------------------------------------------------------------------------------------

    def publish_pushed(self) -> bool:
        """Let the core see what was pushed, and wake it if it sleeps. False: nothing was."""
        published = bool(self.ring.publish_pushed())
        if published and self._runtime.control.core_needs_wake_up():
            self._runtime.core_wake_up.send()
        return published

    def push_control(self, record: bytes, then: Callable[[], None] | None = None) -> None:
        """Push a control record, now or as soon as there is room; order is kept. `then` is run when it is there."""
        if self._controls or not self.ring.push(record):
            self._controls.append((record, then))
            return
        if self._runtime.control.core_needs_wake_up():
            self._runtime.core_wake_up.send()
        if then is not None:
            then()

    def declare(self, entry: TopicEntry) -> bool:
        """Tell the core a topic's number. False: no room in the ring."""
        record = control_record(
            (entry.raw_name, entry.message_type.encode()), KIND_DECLARE_TOPIC, topic=entry.number
        )
        return not self._controls and self.ring.push(record)

    def release_later(self, connection: HeldInput) -> None:
        """Release the connection's held input in the next turn."""
        self._held[connection] = False
        self._schedule()

    def release_when_room(self, connection: HeldInput) -> None:
        """Release the connection's held input in a turn that finds room in the ring. The core brings it, by taking
        what is there.
        """
        self._held[connection] = True

    def push_waiting(self) -> None:
        """Push the control records that found no room, then let held connections try again."""
        while self._controls and self.ring.push(self._controls[0][0]):
            _, then = self._controls.popleft()
            if then is not None:
                then()
        if self._held and not self._controls:
            for connection, for_room in list(self._held.items()):
                if connection not in self._held:
                    continue  # it has ended meanwhile
                if self._may_go_on(connection, for_room):
                    # Who then fills the ring again comes last the next time.
                    del self._held[connection]
                    connection.release()

    @property
    def release_is_due(self) -> bool:
        """Whether held input may go on, after a turn that came to it too early: acknowledgements that were in its way
        are sent later in the turn, and what ends then moves nothing that would bring the next one.
        """
        return not self._controls and any(self._may_go_on(*each) for each in self._held.items())

    def _may_go_on(self, connection: HeldInput, for_room: bool) -> bool:
        return not connection.acks.crowded and (not for_room or self._has_room())

    def _has_room(self) -> bool:
        """Whether so much of the ring is free that it is worth to go on publishing."""
        return bool(self.ring.pushed - self.ring.tail <= PUBLISH_BACKLOG_BYTES // 2)

    @property
    def has_controls_waiting(self) -> bool:
        """Whether control records wait for room: more should not be made if it can wait."""
        return bool(self._controls)

    @property
    def all_taken(self) -> bool:
        """Whether the core can see everything that it is to get."""
        return not self._controls and bool(self.ring.head == self.ring.pushed)

    def ask_for_durable(self) -> None:
        """Somebody waits for what is written and not durable: see that the core knows."""
        view = self.view
        if view.durable < view.journal_written and view.want_durable(view.journal_written):
            self._runtime.core_wake_up.send()

    # --- from the core ----------------------------------------------------------------------------------------

    def answers(self) -> Iterator[list[Any]]:
        """The core's answers: kind, slot, serial number, and what belongs to the kind. Deliveries that come between two
        of them are passed on between them.
        """
        if self.view.has_answers():
            for record in self._egress.pop_all():
                if record_kind(record) == KIND_QUEUE_DELIVERIES:
                    assert self.deliveries is not None
                    self.deliveries(record)
                    continue
                message = control_payload(record)
                assert isinstance(message, list)
                yield message

    def consumed(self) -> int:
        """Ring position up to which the core has taken records."""
        return self.view.consumed

    def written(self) -> int:
        """Log position up to which the journal is written."""
        return self.view.journal_written

    def durable(self) -> int:
        """Log position up to which the journal is durable."""
        return self.view.durable

    # --- waiting ----------------------------------------------------------------------------------------------

    def when_consumed(self, position: int, action: Callable[[], None]) -> None:
        """Run `action` once the core has consumed the ring up to a position; at once if it has."""
        self.view.read()
        if not self._barriers and self.view.consumed >= position:
            action()
        else:
            self._barriers.append((position, action))
            self._schedule()

    def when_durable(self, position: int, action: Callable[[], None]) -> None:
        """Run `action` once the journal is durable up to a position; at once if it is."""
        if not self._has_journal or self._runtime.control.durable >= position:
            action()
        else:
            heapq.heappush(self._durable_waiters, (position, next(self._waiter_number), action))
            self._schedule()

    def run_waiting(self) -> None:
        """Run what the watermarks of this turn allow."""
        while self._barriers and self._barriers[0][0] <= self.view.consumed:
            self._barriers.popleft()[1]()
        while self._durable_waiters and self._durable_waiters[0][0] <= self.view.durable:
            heapq.heappop(self._durable_waiters)[2]()

    @property
    def durable_awaited(self) -> bool:
        """Whether an action waits for the device."""
        return bool(self._durable_waiters)

    def forget(self, connection: HeldInput) -> None:
        """The connection has ended."""
        self._held.pop(connection, None)
