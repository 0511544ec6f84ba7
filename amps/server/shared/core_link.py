"""A worker's side of all memory that it shares with the core: ring, answers, watermarks, and actions waiting for them.

Transports have a link for their clients, the services process has one for its own publishes.

Records go into the ingress ring; control records keep their order even when it is full. A *barrier* is an action that
waits until the core has read the ring up to a position. A *durable waiter* is an action that waits for the durable
watermark. Both run in turns, with the watermarks of the turn. These are read after the ring's tail, so that records
read by the core are below them.
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
    """The refused messages of a publisher whose failures are not sent yet."""

    @property
    def crowded(self) -> bool:
        """Whether so many wait that no more input should be read."""


class HeldInput(Protocol):
    """A connection whose input is held."""

    @property
    def acks(self) -> Refusals:
        """Refusals to be sent before its input continues."""

    def release(self) -> None:
        """Resume reading."""


class CoreLink:
    """Records to the core, answers from it, and waiting for its progress, for one worker."""

    def __init__(self, runtime: Runtime, index: int, has_journal: bool, schedule: Callable[[], None]) -> None:
        """`schedule` requests a turn of the worker."""
        self.index = index
        self.ring = runtime.ingress[index]
        self.ring.attach_producer()
        self._egress = runtime.egress[index]
        self.view = InstanceView(runtime.control, self.ring, self._egress, index)
        self._runtime = runtime
        self._has_journal = has_journal
        self._schedule = schedule
        self.deliveries: Callable[[bytes], object] | None = None
        """Receives the core's deliveries of queue messages, unparsed."""
        self._controls: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        self._held: dict[HeldInput, bool] = {}
        """Connections with held input, in the order of their release. True: held until the ring has room."""
        self._barriers: deque[tuple[int, Callable[[], None]]] = deque()
        self._durable_waiters: list[tuple[int, int, Callable[[], None]]] = []
        self._waiter_number = itertools.count()

    # --- to the core ------------------------------------------------------------------------------------------

    def publish_pushed(self) -> bool:
        """Publish the pushed records, and wake the core if it sleeps. False: there were none."""
        published = bool(self.ring.publish_pushed())
        if published and self._runtime.control.core_needs_wake_up():
            self._runtime.core_wake_up.send()
        return published

    def push_control(self, record: bytes, then: Callable[[], None] | None = None) -> None:
        """Push a control record, now or as soon as there is room; order is kept. `then` is called when it is in the
        ring.
        """
        if self._controls or not self.ring.push(record):
            self._controls.append((record, then))
            return
        if self._runtime.control.core_needs_wake_up():
            self._runtime.core_wake_up.send()
        if then is not None:
            then()

    def declare(self, entry: TopicEntry) -> bool:
        """Send a topic's number to the core. False: no room in the ring."""
        record = control_record(
            (entry.raw_name, entry.message_type.encode()), KIND_DECLARE_TOPIC, topic=entry.number
        )
        return not self._controls and self.ring.push(record)

    def release_later(self, connection: HeldInput) -> None:
        """Release the connection's held input in the next turn."""
        self._held[connection] = False
        self._schedule()

    def release_when_room(self, connection: HeldInput) -> None:
        """Release the connection's held input in a turn that finds room in the ring. The core makes room by reading
        records.
        """
        self._held[connection] = True

    def push_waiting(self) -> None:
        """Push the control records that found no room, then release held connections."""
        while self._controls and self.ring.push(self._controls[0][0]):
            _, then = self._controls.popleft()
            if then is not None:
                then()
        if self._held and not self._controls:
            for connection, for_room in list(self._held.items()):
                if connection not in self._held:
                    continue  # its connection has ended meanwhile
                if self._may_go_on(connection, for_room):
                    # A connection that fills the ring again is then the last one of the next turn.
                    del self._held[connection]
                    connection.release()

    @property
    def release_is_due(self) -> bool:
        """Whether held input may continue after a turn that checked it too early. Refusals that blocked it are sent
        later in the turn, and no other event would start the next one.
        """
        return not self._controls and any(self._may_go_on(*each) for each in self._held.items())

    def _may_go_on(self, connection: HeldInput, for_room: bool) -> bool:
        return not connection.acks.crowded and (not for_room or self._has_room())

    def _has_room(self) -> bool:
        """Whether enough of the ring is free for publishing to continue efficiently."""
        return bool(self.ring.pushed - self.ring.tail <= PUBLISH_BACKLOG_BYTES // 2)

    @property
    def has_controls_waiting(self) -> bool:
        """Whether control records wait for room: records that can wait should not be made then."""
        return bool(self._controls)

    @property
    def all_taken(self) -> bool:
        """Whether all records are in the ring and published."""
        return not self._controls and bool(self.ring.head == self.ring.pushed)

    def ask_for_durable(self) -> None:
        """Request the durability of written records, for an action that waits for it."""
        view = self.view
        if view.durable < view.journal_written and view.want_durable(view.journal_written):
            self._runtime.core_wake_up.send()

    # --- from the core ----------------------------------------------------------------------------------------

    def answers(self) -> Iterator[list[Any]]:
        """The core's answers: kind, slot, serial number, and the values of the kind. Deliveries between two answers are
        passed on between them.
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
        """Ring position up to which the core has read records."""
        return self.view.consumed

    def written(self) -> int:
        """Log position up to which the journal is written."""
        return self.view.journal_written

    def durable(self) -> int:
        """Log position up to which the journal is durable."""
        return self.view.durable

    # --- waiting ----------------------------------------------------------------------------------------------

    def when_consumed(self, position: int, action: Callable[[], None]) -> None:
        """Call `action` once the core has read the ring up to a position; at once if it has."""
        self.view.read()
        if not self._barriers and self.view.consumed >= position:
            action()
        else:
            self._barriers.append((position, action))
            self._schedule()

    def when_durable(self, position: int, action: Callable[[], None]) -> None:
        """Call `action` once the journal is durable up to a position; at once if it is."""
        if not self._has_journal or self._runtime.control.durable >= position:
            action()
        else:
            heapq.heappush(self._durable_waiters, (position, next(self._waiter_number), action))
            self._schedule()

    def run_waiting(self) -> None:
        """Call the actions that the watermarks of this turn allow."""
        while self._barriers and self._barriers[0][0] <= self.view.consumed:
            self._barriers.popleft()[1]()
        while self._durable_waiters and self._durable_waiters[0][0] <= self.view.durable:
            heapq.heappop(self._durable_waiters)[2]()

    @property
    def durable_awaited(self) -> bool:
        """Whether an action waits for the durable watermark."""
        return bool(self._durable_waiters)

    def forget(self, connection: HeldInput) -> None:
        """Remove a connection that has ended."""
        self._held.pop(connection, None)
