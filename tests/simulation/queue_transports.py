"""A transport worker with queues: subscriptions, deliveries, filters, acknowledgements, stepped by hand.

It follows the worker's rules. It passes deliveries on in the order of the core's decisions, and only when the journal
is durable up to the position they need. It drops deliveries to a subscription that has ended. It reports a filter as
evaluated up to a watermark that it read before. If no client of this worker was given a bookmark, it looks that
bookmark up in the journal, and reports to the core the position up to which it searched.
"""

import json
import random
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from amps._core.values.value import publisher_id
from amps._core.wire import ingress as inbound
from amps._core.wire.ingress import AckList, LeaseTable
from amps.server.records import (
    HEADER_BYTES,
    KIND_DECLARE_TOPIC,
    KIND_QUEUE_DELIVERIES,
    KIND_QUEUE_MATCHES,
    KIND_QUEUE_SUBSCRIBE,
    KIND_QUEUE_UNSUBSCRIBE,
    control_payload,
    control_record,
    raw_control_record,
    record_kind,
)
from amps.server.runtime import Runtime
from amps.server.shared.journal_view import JournalView, at_once
from amps.server.transport.failures import TX_STORE_FAILED
from amps.server.transport.transacting import Transacting
from tests.simulation.consumers import Command, ConsumerWire, Received
from tests.simulation.queue_log import EXTEND
from tests.simulation.queue_plans import KINDS
from tests.simulation.queue_watch import BARRIER, Delivery, QueueWatch, deliveries_of
from tests.simulation.transports import Session, Transport
from tests.support.transactions import ring_transaction

SLOTS = 12
MATCHES_MAX = 50
RESULTS = "orders"
"""The topic to which transactions publish; queues may take its messages."""
MATCHES_HEADER = struct.Struct("<QII")
MATCH = struct.Struct("<QII")


@dataclass
class Subscription:
    """One subscription of a session."""

    number: int
    session: Session
    wire: ConsumerWire
    wanted: dict[int, int | None]
    """By number of the queue: the kind that its filter selects, None = all."""


@dataclass
class Batch:
    """Deliveries that came in one record."""

    durable_needed: int
    deliveries: list[Delivery]
    barriers: dict[int, list[int]]
    """By number of the queue: the subscriptions that existed when a barrier came."""


@dataclass
class Cursor:
    """A filter that the core has requested to be evaluated."""

    queue: int
    kind: int
    evaluated_until: int = 0


@dataclass
class Prepared:
    """A command whose bookmarks have been looked up and that waits for room in the ring."""

    command: Command
    acks: AckList
    searched_until: int
    messages: list[tuple[int, int, int]]
    """Publisher id, sequence and log position of each message; 0: it is not in the log."""


class Answers:
    """What the answers to transactions use of a connection and of its worker."""

    shown_name = ""
    logged_sequence = 0
    publisher_id = 0
    persisted = SimpleNamespace(destinations=None)  # nothing is replicated

    def __init__(self, session: Session) -> None:
        self._wire = session.wire
        self.ingress = session.ingress
        self.transacting: dict[Any, None] = {}
        self.log = self
        self.made = Transacting(self, self)  # type: ignore[arg-type]

    def schedule(self) -> None:
        """Do nothing: the simulation takes the turns."""

    def send_frames(self, frames: bytes) -> None:
        """Take the answers that were made for successes."""
        at = 0
        while at < len(frames):
            end = at + 4 + int.from_bytes(frames[at : at + 4], "big")
            header = json.loads(frames[at + 4 : end])
            assert header["status"] == "success"
            self.acknowledge(header["a"], header["cid"], None)
            at = end

    def acknowledge(self, kind: str, command_id: str, failure: str | None, **fields: Any) -> None:
        assert kind == "persisted"
        assert isinstance(self._wire, ConsumerWire)
        if not self._wire.closed:
            self._wire.transaction_answered(int(command_id), failure is None)

    def __call__(self, *record: object, **values: object) -> None:
        """Log nothing."""


class QueueTransport(Transport):
    """One worker between its fork and its death."""

    def __init__(
        self,
        runtime: Runtime,
        index: int,
        instance_name: str,
        chance: random.Random,
        watch: QueueWatch,
        journal: Callable[[], JournalView],
        names: list[str],
    ) -> None:
        """`names`: the names of the queues, by number. `journal`: returns the journal of the running server."""
        super().__init__(runtime, index, instance_name, chance)
        self._free_slots = list(range(SLOTS))
        self._watch = watch
        self._journal = journal
        self._names = names
        self._subscriptions: dict[int, Subscription] = {}
        self._leases: dict[int, LeaseTable] = {}  # by serial number of the session
        self._prepared: dict[int, Prepared] = {}  # by serial number of the session
        self._answers: dict[int, Answers] = {}  # by serial number of the session
        self._batches: deque[Batch] = deque()
        self._cursors: dict[int, Cursor] = {}
        self._tokens = 0

    def session_of(self, wire: ConsumerWire) -> Session | None:
        """The server's end of a connection; None if it is not on this worker."""
        return next((session for session in self.sessions.values() if session.wire is wire), None)

    @property
    def has_waiting(self) -> bool:
        """True if any record is on its way to a consumer or to the core."""
        return bool(self._batches or self._prepared or self._control_waiting)

    # Subscriptions

    def subscribe(
        self, session: Session, number: int | None, wanted: dict[int, int | None], max_backlog: int
    ) -> None:
        """Subscribe to queues, or replace a subscription. One subscription has one filter."""
        wire = session.wire
        assert isinstance(wire, ConsumerWire)
        if number is None:
            number = self._watch.new_subscription()
            self._subscriptions[number] = Subscription(number, session, wire, wanted)
            wire.subscriptions.append(number)
        self._subscriptions[number].wanted = wanted
        [kind] = set(wanted.values())
        self._watch.asked(self.index, number, wire.consumer.name, wanted, max_backlog)
        record = [number, list(wanted), max_backlog, kind]
        self._push_control(control_record(record, KIND_QUEUE_SUBSCRIBE, session.slot, session.serial))

    def unsubscribe(self, session: Session, number: int) -> None:
        """End a subscription. The messages that it holds return to their queues."""
        subscription = self._subscriptions.pop(number)
        subscription.wire.subscriptions.remove(number)
        self._watch.ended(number)
        record = control_record([number], KIND_QUEUE_UNSUBSCRIBE, session.slot, session.serial)
        self._push_control(record)

    def end(self, session: Session) -> None:
        self._forget(session)
        super().end(session)

    def die(self) -> None:
        for session in self.sessions.values():
            self._forget(session)
        super().die()

    def _forget(self, session: Session) -> None:
        for number in [n for n, one in self._subscriptions.items() if one.session is session]:
            del self._subscriptions[number]
            self._watch.ended(number)
        self._leases.pop(session.serial, None)
        self._prepared.pop(session.serial, None)
        self._answers.pop(session.serial, None)

    # Commands

    def prepare(self, session: Session, command: Command) -> bool:
        """Look up the bookmarks of a consumer's command. Return False if an earlier command of the session is still
        to be pushed.
        """
        if session.serial in self._prepared or not session.ready:
            return False
        journal = self._journal()
        text = ",".join(f"{publisher}|{sequence}|" for publisher, sequence in command.bookmarks)
        acks = AckList()
        assert acks.parse_text(text.encode(), self._leases.get(session.serial), command.queue)
        searched_until = journal.end
        for place, publisher, sequence in acks.unknown_bookmarks():
            if (found := at_once(journal.find(publisher, sequence, {}))) is not None:
                acks.set_position(place, found[0])
        messages = []
        for publisher, sequence in dict.fromkeys(command.bookmarks):
            found = at_once(journal.find(publisher, sequence, {}))
            messages.append((publisher, sequence, 0 if found is None else found[0]))
        self._prepared[session.serial] = Prepared(command, acks, searched_until, messages)
        return True

    def _declared(self, name: str) -> int | None:
        """The number of a topic; None: the ring has no room to declare it."""
        entry = self._topics.entry(name, "json")
        if not entry.declared:
            record = control_record((entry.raw_name, b"json"), KIND_DECLARE_TOPIC, topic=entry.number)
            if not self._ring.push(record):
                return None
            entry.mark_declared()
        return int(entry.number)

    def _push_transaction(self, session: Session, prepared: Prepared) -> None:
        command, wire = prepared.command, session.wire
        assert command.publishes is not None
        assert isinstance(wire, ConsumerWire)
        queue, results = self._declared(self._names[command.queue]), self._declared(RESULTS)
        if queue is None or results is None:
            return
        name, first = wire.consumer.name, command.sequence
        bodies = [
            json.dumps({"id": f"{name}:{first + place}", "k": place % KINDS, "p": place}).encode()
            for place in range(1, command.publishes + 1)
        ]
        publisher = publisher_id(name)
        record = ring_transaction(
            (session.slot, session.serial),
            publisher,
            first,
            queue,
            prepared.messages,
            [(results, body) for body in bodies],
        )
        if session.ingress.storage_refuses(len(record), first):
            self.end(session)  # the consumer sends it again
            return
        if not self._ring.push(record):
            return
        del self._prepared[session.serial]
        self._watch.commanded(command)
        self._watch.transacted(publisher, first)
        session.ingress.note_transaction(first, command.publishes, str(first).encode())
        self._answers.setdefault(session.serial, Answers(session)).made.expect()

    def push_prepared(self, session: Session) -> None:
        """Push the session's prepared command into the ring, if there is room."""
        prepared = self._prepared.get(session.serial)
        if prepared is None or self._control_waiting:
            return
        command = prepared.command
        if command.publishes is not None:
            self._push_transaction(session, prepared)
            return
        entry = self._topics.entry(self._names[command.queue], "json")
        if not entry.declared:
            record = control_record((entry.raw_name, b"json"), KIND_DECLARE_TOPIC, topic=entry.number)
            if not self._ring.push(record):
                return
            entry.mark_declared()
        self._tokens += 1
        records = session.ingress.acknowledgement_records(
            prepared.acks,
            entry,
            command.action,
            command.extension_ns,
            prepared.searched_until,
            self._tokens,
            command.sequence,
        )
        if isinstance(records, int):
            del self._prepared[session.serial]
            if records == inbound.AFTER_REFUSAL or not command.sequence:
                self.end(session)
            else:
                session.acks.refuse(self._ring.pushed, command.sequence, TX_STORE_FAILED)
            return
        [record] = records
        if not self._ring.push(record):
            return
        del self._prepared[session.serial]
        self._watch.commanded(command)
        leases = self._leases.get(session.serial)
        if leases is not None and command.action != EXTEND and self._chance.random() < 0.8:
            prepared.acks.end_leases_of(leases, command.queue)
        session.ingress.note_acknowledgement(command.sequence, command.sequence > 0)

    # Records from the core

    def work(self) -> None:
        super().work()
        durable = self.durable()
        consumed, written = self.consumed(), self.written()
        self._take_answers()
        for answers in list(self._answers.values()):
            answers.made.advance(consumed, written, durable)
        while self._batches and self._batches[0].durable_needed <= durable:
            batch = self._batches.popleft()
            for delivery in batch.deliveries:
                if delivery.flags & BARRIER:
                    for number in batch.barriers[delivery.queue]:
                        self._deliver(number, delivery, durable)
                else:
                    self._deliver(delivery.subscription, delivery, durable)
        for session in list(self.sessions.values()):
            if self._chance.random() < 0.5:
                self.push_prepared(session)
        self.evaluate(self._chance.choice([0.3, 1.0, 1.0]))

    def _deliver(self, number: int, delivery: Delivery, durable: int) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return  # it has ended; the core gives the message to another subscription
        message = self._watch.delivered(delivery, durable)
        kind = subscription.wanted.get(delivery.queue)
        wire, session = subscription.wire, subscription.session
        if delivery.flags & BARRIER:
            if delivery.queue in subscription.wanted and kind in (None, message.kind):
                self._watch.received_barriers += 1
            return
        received = Received(delivery.queue, message.bookmark, delivery.position, delivery.slot)
        leases = self._leases.setdefault(session.serial, LeaseTable())
        leases.add(*message.bookmark, delivery.position, delivery.slot, delivery.queue)
        wire.held[delivery.queue, message.bookmark] = None
        wire.consumer.receive(received)
        self._watch.received.append(received)

    def evaluate(self, share: float) -> None:
        """Report to the core the messages that match its filters, up to the written watermark at the beginning of the
        turn.
        """
        until = self.written()
        for number, cursor in self._cursors.items():
            end = cursor.evaluated_until + int((until - cursor.evaluated_until) * share)
            if end <= cursor.evaluated_until:
                continue
            matching = [
                message.position
                for message in self._watch.entered(cursor.queue)
                if cursor.evaluated_until <= message.position < end and message.kind == cursor.kind
            ]
            if len(matching) > MATCHES_MAX:
                end = matching[MATCHES_MAX]
                del matching[MATCHES_MAX:]
            payload = MATCHES_HEADER.pack(end, number, len(matching))
            for position in matching:
                payload += MATCH.pack(position, self._chance.choice([0, 1, 0xFFFFFFFF]), 0)
            cursor.evaluated_until = end
            self._push_control(raw_control_record(payload, KIND_QUEUE_MATCHES))

    def _take_answer(self, record: bytes) -> None:
        if record_kind(record) == KIND_QUEUE_DELIVERIES:
            needed, deliveries = deliveries_of(record[HEADER_BYTES:])
            barriers = {
                delivery.queue: [n for n, one in self._subscriptions.items() if delivery.queue in one.wanted]
                for delivery in deliveries
                if delivery.flags & BARRIER
            }
            self._batches.append(Batch(needed, deliveries, barriers))
            return
        message: Any = control_payload(record)
        kind, _, serial, *rest = message
        if kind == "transaction_refused":
            if serial in self._answers:
                self._answers[serial].made.refused(*rest)
        elif kind == "queue_evaluate":
            number, queue, key = rest
            self._cursors[number] = Cursor(queue, key)
        elif kind == "queue_evaluated_enough":
            self._cursors.pop(rest[0], None)  # it may belong to a transport that died
        elif kind in ("queue_entered", "queue_ended", "queue_acknowledged"):
            pass  # the watch sees these answers itself
        else:
            super()._take_answer(record)
