"""Publishes that the ingress does not handle alone: with acknowledgements of their own, unusual headers, or refused.

Persisted acknowledgements of numbered messages are conflated (publisher_acks.py); all others answer one command.
"""

from amps._core.wire import ingress as inbound
from amps._core.wire.topics import TopicEntry
from amps.server.topics import RESERVED_PREFIX
from amps.server.transport.answering import Header, wanted_acks
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import BAD_DELAY, STORE_FAILED_DETAIL, TX_STORE_FAILED, CommandFailure
from amps.server.transport.session import Session
from amps.server.transport.spilling import Spilling

REFUSALS = {
    "no sow key": "publishers provide the keys of {topic!r}: add a sow_key",
    "bad sow key": "a sow_key consists of characters of Base64",
    "parse error": "the message cannot be read, so it has no place in the SOW topic {topic!r}",
    "computed fields": "the core computes keys or fields of messages to {topic!r}, which it does not in transactions: "
    "publish this message outside of the transaction",
    "message too large": "the SOW topic {topic!r} takes no message of this size: raise its SlabSize",
}
"""Why a SOW topic does not take a message: reason and explanation (sow.md D5, D25)."""


class Publishing:
    """The publishes of one connection."""

    def __init__(self, connection: Session, worker: WorkerContext, spilling: Spilling) -> None:
        self._connection = connection
        self._worker = worker
        self._spilling = spilling
        self._refused: dict[int, str] = {}
        """Why the core has refused publishes, by sequence, until they are answered."""

    def do(self, header: Header) -> None:
        """Carry out a publish with acknowledgements of its own or with unusual headers."""
        connection, ingress = self._connection, self._connection.ingress
        try:
            entry = self._target(header)
        except CommandFailure as failure:
            self._failed(header, failure)
            return
        if entry is None:
            ingress.unread()
            return
        wanted = wanted_acks(header)
        sequence = int(header.get("seq") or 0)
        conflated = "persisted" in wanted and sequence > 0 and self._worker.conflated
        while True:
            result = ingress.publish_current(entry, conflated)
            if result == inbound.PERMISSION:
                ingress.set_permission(entry, connection.may("write", entry.name))
                continue
            break
        if result == inbound.RING_FULL:
            ingress.unread()
            connection.hold()
            self._worker.core.release_when_room(connection)
            return
        if result == inbound.DENIED:
            self._failed(header, denial(entry, ingress.refusal))
            return
        if result == inbound.NO_STORAGE:
            self._refuse(header)
            return
        if result == inbound.AFTER_REFUSAL:
            connection.dismiss(TX_STORE_FAILED, STORE_FAILED_DETAIL)
            return
        if result == inbound.SPILL:
            ingress.unread()
            if not self._spilling.spill():
                return
        self._acknowledge(header, wanted, sequence, conflated, (entry.target or entry).logged)

    def _target(self, header: Header) -> TopicEntry | None:
        """The topic's entry; None if the ring had no room to declare it. Raises CommandFailure."""
        topic = header.get("topic")
        if not topic or not isinstance(topic, str):
            raise CommandFailure("no topic")
        try:
            topic.encode()
        except UnicodeEncodeError as error:
            raise CommandFailure("invalid topic", str(error)) from error
        sequence = header.get("seq", 0)
        expiration = header.get("expiration", 0)
        if not isinstance(sequence, int) or sequence != self._connection.ingress.frame_sequence:
            raise CommandFailure("parse error", "the sequence is no number")
        if not isinstance(expiration, int) or not 0 <= expiration < (1 << 32) - 1:
            raise CommandFailure("parse error", "the expiration is no number of seconds")
        if not self._connection.ingress.parts_fit:
            raise CommandFailure("parse error", "correlation id or SOW key is too long")
        if not self._connection.ingress.delay_fits:
            raise CommandFailure(BAD_DELAY, explain_delay(header))
        if not self._connection.declare_topic(topic):
            return None
        return self._worker.topics.entry(topic, self._connection.message_type)

    def _acknowledge(
        self, header: Header, wanted: set[str], sequence: int, conflated: bool, logged: bool
    ) -> None:
        connection, worker = self._connection, self._worker
        command_id = header.get("cmd_id")
        for kind in ("received", "processed"):
            if kind in wanted:
                connection.acknowledge(kind, command_id)
        position = worker.core.ring.pushed
        if "completed" in wanted:
            worker.core.when_consumed(position, lambda: connection.acknowledge("completed", command_id))
        if "persisted" in wanted and not conflated:
            extra: Header = {"seq": sequence or None}

            def stored() -> None:
                connection.acknowledge("persisted", command_id, self._refused.pop(sequence, None), **extra)

            def consumed() -> None:
                if logged:
                    worker.persisted.when_persisted(connection, worker.core.written(), stored)
                else:
                    stored()

            worker.core.when_consumed(position, consumed)

    def refused(self, sequence: int, reason: str) -> None:
        """Answer a publish to a SOW topic that only the core could refuse. One without a sequence gets no answer."""
        self._worker.log.log(
            "02-0030", client=self._connection.shown_name, command="publish", reason=f"{reason}, sequence {sequence}"
        )
        if sequence and self._worker.conflated:
            self._connection.acks.refuse_taken(sequence, reason)
        elif sequence:
            self._refused[sequence] = reason

    def denied(self) -> None:
        """Answer a plain publish that the ingress refused."""
        ingress = self._connection.ingress
        entry = ingress.topic_entry
        self._failed(ingress.header, CommandFailure("no topic") if entry is None else denial(entry, ingress.refusal))

    def no_storage(self) -> None:
        """Answer a plain publish that the ingress refused because the transaction log cannot accept it now."""
        self._refuse(self._connection.ingress.header)

    def _refuse(self, header: Header) -> None:
        """Refuse a publish that the transaction log cannot accept now. The core logs this once, not for every message.

        A publisher that requested no acknowledgement which could carry the failure is disconnected.
        """
        connection = self._connection
        self._spilling.discard()
        if wanted_acks(header) & {"processed", "persisted"}:
            self._answer_failure(header, CommandFailure(TX_STORE_FAILED))
        else:
            connection.dismiss(TX_STORE_FAILED, STORE_FAILED_DETAIL)

    def _failed(self, header: Header, failure: CommandFailure) -> None:
        self._worker.log.log(
            "02-0030", client=self._connection.shown_name, command="publish", reason=str(failure)
        )
        self._answer_failure(header, failure)

    def _answer_failure(self, header: Header, failure: CommandFailure) -> None:
        connection, worker = self._connection, self._worker
        wanted = wanted_acks(header)
        command_id = header.get("cmd_id")
        sequence = header.get("seq")
        if "received" in wanted:
            connection.acknowledge("received", command_id)
        if "processed" in wanted:
            connection.acknowledge("processed", command_id, failure.reason, **failure.fields)
        if "persisted" in wanted:
            if worker.conflated and isinstance(sequence, int) and sequence > 0:
                connection.acks.refuse(worker.core.ring.pushed, sequence, failure.reason)
                worker.ack_schedule.expect(connection)
                if connection.acks.crowded:
                    connection.hold()
                    worker.core.release_later(connection)
            else:
                number = sequence if type(sequence) is int else None
                connection.acknowledge("persisted", command_id, failure.reason, seq=number, **failure.fields)


def explain_delay(header: Header) -> str:
    """Why the delay of a publish is refused (docs/spec/queue_guarantees.md §1)."""
    if "delay" in header and "not_before" in header:
        return "delay and not_before exclude each other"
    if "delay" in header:
        return f"delay: {str(header['delay'])[:100]!r} is no number of milliseconds up to ten years"
    return f"not_before: {str(header['not_before'])[:100]!r} is no UNIX time in milliseconds"


def denial(entry: TopicEntry, refusal: str | None = None) -> CommandFailure:
    """The reason why this client may not publish to a topic. `refusal`: why a SOW topic does not take the message."""
    if refusal is not None:
        return CommandFailure(refusal, REFUSALS[refusal].format(topic=entry.name))
    if entry.refusal:
        detail = f"{entry.name!r}: names that begin with {RESERVED_PREFIX} belong to the server"
        return CommandFailure(entry.refusal, detail)
    return CommandFailure("not entitled", f"to write {entry.name!r}")
