"""A transport worker without event loop and sockets: the real ingress, ring and acknowledgements, stepped by hand.

It follows the worker's rules about shared state. Records become visible only when `publish_pushed` is called. Records
that the core consumed count only when the worker has taken its answers. Acknowledgements come out of `PublisherAcks`.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from amps._core.shm.memory import NO_JOURNAL, InstanceView, Ring
from amps._core.values.value import derived_publisher_id, publisher_id
from amps._core.wire import ingress as inbound
from amps._core.wire.ingress import Ingress
from amps._core.wire.topics import TopicTable
from amps.server.records import (
    KIND_DECLARE_TOPIC,
    KIND_DISCONNECT,
    KIND_LOGON,
    KIND_SPILLED_PUBLISH,
    control_payload,
    control_record,
    raw_control_record,
)
from amps.server.runtime import Runtime
from amps.server.transport.failures import TX_STORE_FAILED
from amps.server.transport.publisher_acks import PublisherAcks
from tests.simulation.clients import UNLOGGED, Wire

FRAME_BYTES_MAX = 1 << 24


@dataclass(eq=False)
class Session:
    """The server's end of one connection."""

    wire: Wire
    slot: int
    serial: int
    ingress: Ingress
    acks: PublisherAcks = field(init=False)
    ready: bool = False
    known_to_core: bool = False
    spilled: tuple[str, bytes] | None = None

    def __post_init__(self) -> None:
        self.acks = PublisherAcks(self.ingress, self, 0.5)

    def persisted(self, sequence: int, reason: str | None) -> None:
        if not self.wire.closed:
            self.wire.persisted(sequence, reason)


class Transport:
    """One worker between its fork and its death."""

    serials = itertools.count(1)

    def __init__(self, runtime: Runtime, index: int, instance_name: str, chance: random.Random) -> None:
        self.index = index
        self.sessions: dict[int, Session] = {}
        self._runtime = runtime
        self._instance_name = instance_name
        self._chance = chance
        self._ring: Ring = runtime.ingress[index]
        self._egress: Ring = runtime.egress[index]
        self._ring.attach_producer()
        self._topics = TopicTable(lambda topic, message_type: (topic != UNLOGGED, False, None, None))
        self._free_slots = [3, 2, 1, 0]
        self._control_waiting: deque[bytes] = deque()
        self._barriers: deque[tuple[int, Callable[[], None]]] = deque()
        self._durable_waiters: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._view = InstanceView(runtime.control, self._ring, self._egress, index)
        self._view.set_transient_read(self._view.transient_written)
        runtime.control.set_journal_floor(index, NO_JOURNAL)  # readers run elsewhere
        runtime.control.set_transport_alive(index, True)

    # The watermarks that acknowledgements follow

    def consumed(self) -> int:
        return int(self._view.consumed)

    def written(self) -> int:
        return int(self._view.journal_written)

    def durable(self) -> int:
        return int(self._view.durable)

    # Connections

    def connect(self, wire: Wire) -> bool:
        """Accept a connection and begin its logon. Return False if there are too many connections."""
        if not self._free_slots:
            return False
        slot = self._free_slots.pop()
        serial = next(self.serials) & 0xFFFFFFFF
        ingress = Ingress(slot, serial, self._ring, self._runtime.control, self._topics, FRAME_BYTES_MAX)
        session = self.sessions[slot] = Session(wire, slot, serial, ingress)
        session.known_to_core = True
        self._push_control(control_record((wire.client.name, wire.user), KIND_LOGON, slot, serial))
        return True

    def end(self, session: Session) -> None:
        """End a connection, from either side."""
        session.wire.closed = True
        del self.sessions[session.slot]
        self._free_slots.append(session.slot)
        self._discard_spill(session)
        if session.known_to_core:
            self._push_control(control_record(None, KIND_DISCONNECT, session.slot, session.serial))

    def refused(self, session: Session) -> None:
        """The core could not store a message of the session: its messages under way are in no log."""
        self.end(session)

    def _discard_spill(self, session: Session) -> None:
        if session.spilled is not None:
            self._runtime.spill_path(session.spilled[0]).unlink()
            session.spilled = None

    def die(self) -> None:
        """End as by SIGKILL: nothing is announced, and records that are not published in the ring are lost."""
        for session in self.sessions.values():
            session.wire.closed = True
        self.sessions.clear()

    # Steps

    def receive(self) -> None:
        """Take some of the bytes that clients have sent, in pieces of any size, and lay the frames out in the ring."""
        for session in list(self.sessions.values()):
            if not session.ready:
                continue
            data = session.wire.to_server
            if data:
                buffer = session.ingress.receive_buffer()
                count = min(len(data), len(buffer), self._chance.choice([1, 7, 300, 1 << 20]))
                buffer[:count] = data[:count]
                del data[:count]
                session.ingress.received(count)
            self._process_input(session)

    def publish(self) -> None:
        """Make the laid-out records visible to the core."""
        self._ring.publish_pushed()

    def work(self) -> None:
        """One turn."""
        self._take_answers()
        self._view.read()
        while self._control_waiting and self._ring.push(self._control_waiting[0]):
            self._control_waiting.popleft()
        for session in list(self.sessions.values()):
            if session.ready:
                self._process_input(session)
        while self._barriers and self._barriers[0][0] <= self.consumed():
            self._barriers.popleft()[1]()
        while self._durable_waiters and self._durable_waiters[0][0] <= self.durable():
            heapq.heappop(self._durable_waiters)[2]()
        for session in list(self.sessions.values()):
            if session.acks.pending:
                session.acks.advance(self, 0.0, force=self._chance.random() < 0.7)
        self._view.set_transient_read(self._view.transient_written)

    def flush(self, session: Session) -> None:
        """Process a `flush` with `persisted`: it is answered when everything before it is durable."""
        bodies = session.wire.unnumbered
        if not session.ready or session.wire.to_server or session.ingress.unparsed_bytes or not bodies:
            return
        session.wire.unnumbered = []

        def persisted() -> None:
            if not session.wire.closed:
                session.wire.flushed(bodies)

        self._barriers.append((self._ring.pushed, lambda: self._when_durable(self.written(), persisted)))

    # Internal methods

    def _process_input(self, session: Session) -> None:
        ingress = session.ingress
        while True:
            result = ingress.parse()
            if result == inbound.NEED_MORE or result == inbound.RING_FULL:
                break
            if result == inbound.NEW_TOPIC:
                entry = self._topics.entry(ingress.topic_name, "json")
                names = (entry.raw_name, b"json")
                declaration = control_record(names, KIND_DECLARE_TOPIC, topic=entry.number)
                if self._control_waiting or not self._ring.push(declaration):
                    break
                entry.mark_declared()
            elif result == inbound.SPILL:
                if not self._spill(session):
                    break
            elif result == inbound.NO_STORAGE:
                self._discard_spill(session)
                if ingress.header.get("ack_type") != "persisted":
                    self.end(session)
                    return
                session.acks.refuse(self._ring.pushed, ingress.sequence, TX_STORE_FAILED)
            elif result == inbound.AFTER_REFUSAL:
                self.end(session)
                return
            else:
                raise AssertionError(f"parse returned {result}")
        ingress.keep()

    def _spill(self, session: Session) -> bool:
        ingress = session.ingress
        if session.spilled is None:
            token = f"{self.index}.{session.serial}.{next(self._numbers)}"
            room = bytearray(ingress.spill_length())
            ingress.write_spill(room)
            self._runtime.spill_path(token).write_bytes(room)
            record = raw_control_record(token.encode(), KIND_SPILLED_PUBLISH, session.slot, session.serial)
            session.spilled = (token, record)
        if not self._ring.push(session.spilled[1]):
            return False
        session.spilled = None
        ingress.finish_spill()
        ingress.consume()
        return True

    def _push_control(self, record: bytes) -> None:
        if self._control_waiting or not self._ring.push(record):
            self._control_waiting.append(record)

    def _take_answers(self) -> None:
        for record in self._egress.pop_all():
            self._take_answer(record)

    def _take_answer(self, record: bytes) -> None:
        message = control_payload(record)
        assert isinstance(message, list)
        kind, slot, serial, *rest = message
        session = self.sessions.get(slot)
        if session is None or session.serial != serial:
            return
        if kind == "logon":
            self._logon_answered(session, *rest)
        elif kind == "refused":
            self.refused(session)
        else:
            assert kind == "kick"
            self.end(session)

    def _logon_answered(self, session: Session, accepted: bool, last_sequence: int, position: int) -> None:
        wire = session.wire
        stranger = wire.user != wire.client.user
        if not accepted:
            assert stranger or wire.client.strangers, "a name was refused although no other client had it"
            session.known_to_core = False
            self.end(session)
            return
        if stranger:
            # It had the name for a moment, because its owner had just disconnected.
            self.end(session)
            return

        def complete() -> None:
            if wire.closed:
                return
            name = wire.client.name
            derived = derived_publisher_id(name, self._instance_name)
            session.ingress.log_on(
                "json", publisher_id(name), derived, wire.user.encode(), True, True, False, True
            )
            session.ready = True
            wire.logged_on(last_sequence)

        self._when_durable(position, complete)

    def _when_durable(self, position: int, action: Callable[[], None]) -> None:
        if self._runtime.control.durable >= position:
            action()
        else:
            heapq.heappush(self._durable_waiters, (position, next(self._numbers), action))
