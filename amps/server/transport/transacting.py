"""`transaction`: acknowledging queue messages and publishing, all or nothing (queue_guarantees.md §4).

Plain transactions do not reach this module: the ingress lays them out (wire/transactions.pxi). The commands handled
here name messages that the connection does not hold as far as it knows, or topics that are new or not permitted, are
too large for the ring, or are wrong. They are laid out by the same code. A failure found here is answered here, and
recorded by the core as a refusal, so that a repetition fails again.

The core decides about the fence. It tells a refusal before it frees the ring, so a transaction that the core has read
without a refusal has its effect. All transactions are answered in the order of the ring: `processed` when the core has
decided, `persisted` when its decision is durable. `PendingTransactions` (wire/pending_transactions.pxi) has that order,
and makes the answers to the plain ones that have their effect; all others are answered here.

A client repeats a transaction after a reconnect if it did not get the answer. The core knows what became of every
sequence up to the one that it told at the logon. So the command itself is not looked at again: its topics may have
other permissions now, and its messages are gone.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial

from amps._core.wire import ingress as inbound
from amps._core.wire.framing import parse_header
from amps._core.wire.ingress import (
    ENTRIES_PER_RECORD_MAX,
    TRANSACTION_PUBLISHES_MAX,
    AckList,
    PendingTransactions,
)
from amps._core.wire.topics import TopicEntry
from amps.server.records import KIND_SPILLED_PUBLISH, raw_control_record
from amps.server.shared.journal_view import JournalView
from amps.server.shared.spill_files import write_spilled_record
from amps.server.transport.acknowledging import PositionSearch, malformed_bookmarks
from amps.server.transport.answering import Header, text_of, wanted_acks
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import (
    BAD_DELAY,
    BAD_TRANSACTION,
    LEASE_LOST,
    STORE_FAILED_DETAIL,
    TX_STORE_FAILED,
    CommandFailure,
)
from amps.server.transport.publishing import denial, explain_delay
from amps.server.transport.session import Session

ALLOWED_KEYS = {"cmd", "cmd_id", "ack_type", "topic", "bookmark", "seq"}
PUBLISH_KEYS = {"cmd", "topic", "expiration", "sow_key", "correlation_id", "delay", "not_before"}
SEQUENCE_MAX = (1 << 64) - 1
_LEASE_LOST_DETAIL = (
    "a message is not leased to this connection any more: nothing was acknowledged or published"
)
_REPEATED_DETAIL = "it was refused when it was sent first: nothing was acknowledged or published"


@dataclass(slots=True)
class _Attended:
    """A transaction that is answered here."""

    command_id: str
    last: int
    processed: bool = False
    """Whether its client wants `processed`."""
    failure: CommandFailure | None = None


class Transacting:
    """The `transaction` commands of one connection."""

    def __init__(self, connection: Session, worker: WorkerContext) -> None:
        self._connection = connection
        self._worker = worker
        self._refused: deque[int] = deque()  # first sequences, in ring order
        self._undecided: deque[_Attended] = deque()  # the core has not read them, as far as is known
        self._decided: deque[_Attended] = deque()  # not persisted yet
        self._waits_for = (
            0  # log position up to which it waits for a destination of replication; 0: it does not
        )

    # --- the command ------------------------------------------------------------------------------------------

    def do(self, header: Header) -> None:
        """Carry out a command that the ingress does not handle alone."""
        try:
            checked = self._checked(header)
        except CommandFailure as failure:
            self._refuse(header, failure)
            if 0 < self._connection.ingress.frame_sequence <= SEQUENCE_MAX - TRANSACTION_PUBLISHES_MAX:
                command = Command(self._connection, self._worker, header)
                command.run(self._record_refusal(command, self._connection.ingress.refusal_record()))
            return
        if checked is None:
            self._connection.ingress.unread()
            return
        record, queue, acks, publishes = checked
        command = Command(self._connection, self._worker, header)
        command.run(self._carry_out(command, record, queue, acks, publishes))

    def _checked(self, header: Header) -> tuple[bytearray, int, AckList, int] | None:
        """The record, except for the positions of its messages; the queue; the messages; the number of publishes.

        None: the ring is full, so that a topic could not be declared. Raises CommandFailure.
        """
        connection, ingress, names = self._connection, self._connection.ingress, self._worker.queues.names
        sequence = header.get("seq")
        if not isinstance(sequence, int) or sequence != ingress.frame_sequence or sequence == 0:
            raise CommandFailure(BAD_TRANSACTION, "it needs a sequence above 0")
        if "persisted" not in wanted_acks(header):
            raise CommandFailure(BAD_TRANSACTION, "it must request the acknowledgement 'persisted'")
        if sequence <= connection.logged_sequence:
            publishes = _count_publishes(ingress.body)
            return ingress.empty_transaction_record(), -1, AckList(), min(publishes, SEQUENCE_MAX - sequence)
        others = header.keys() - ALLOWED_KEYS
        if others:
            raise CommandFailure(BAD_TRANSACTION, f"the key {min(others)!r} is not allowed")
        topic = text_of(header, "topic")
        queue = names.acknowledged(topic, connection.message_type) if topic else None
        if queue is None:
            raise CommandFailure("invalid topic", f"{topic!r} is no queue")
        if not connection.may("read", topic):
            raise CommandFailure("not entitled", f"to read {topic!r}")
        if not connection.declare_topic(topic):
            return None
        entry = self._worker.topics.entry(topic, connection.message_type)
        ingress.allow_acknowledging(entry)
        acks = AckList()
        text = text_of(header, "bookmark").encode(errors="replace")
        if not acks.parse_text(text, connection.leases, queue):
            raise malformed_bookmarks(acks)
        record = self._laid_out(acks, entry)
        if record is None:
            return None
        if acks.count > ENTRIES_PER_RECORD_MAX:
            raise CommandFailure(BAD_TRANSACTION, f"it names more than {ENTRIES_PER_RECORD_MAX} messages")
        return record, queue, acks, inbound.transaction_publishes(record)

    def _laid_out(self, acks: AckList, queue: TopicEntry) -> bytearray | None:
        """The record of the current frame. None: the ring has no room to declare a topic. Raises CommandFailure."""
        connection, ingress = self._connection, self._connection.ingress
        while True:
            made = ingress.transaction_record(acks, queue)
            if isinstance(made, bytearray):
                return made
            result, number, raw_topic = made
            topic = raw_topic.decode("utf-8", "replace")
            place = f"publish {number + 1}"
            if result == inbound.LAYING_NEW_TOPIC:
                try:
                    raw_topic.decode()
                except UnicodeDecodeError as error:
                    raise CommandFailure("invalid topic", f"{place}: {error}") from None
                if not connection.declare_topic(topic):
                    return None
            elif result == inbound.LAYING_PERMISSION:
                entry = self._worker.topics.entry(topic, connection.message_type)
                ingress.set_permission(entry, connection.may("write", topic))
            elif result == inbound.LAYING_DENIED:
                failure = denial(self._worker.topics.entry(topic, connection.message_type))
                raise CommandFailure(failure.reason, f"{place}: {failure.detail}")
            elif result == inbound.LAYING_STATE:
                failure = denial(self._worker.topics.entry(topic, connection.message_type), ingress.refusal)
                raise CommandFailure(failure.reason, f"{place}: {failure.detail}")
            elif result == inbound.LAYING_UNRECORDED:
                raise _unrecorded(place, topic)
            elif result == inbound.LAYING_TOO_MANY:
                raise CommandFailure(
                    BAD_TRANSACTION, f"it has more than {TRANSACTION_PUBLISHES_MAX} publishes"
                )
            elif result == inbound.LAYING_SEQUENCE:
                raise CommandFailure(BAD_TRANSACTION, "its sequences end beyond 64 bits")
            elif result == inbound.LAYING_TOO_LONG:
                raise CommandFailure(BAD_TRANSACTION, "it is too long")
            elif result == inbound.LAYING_FIELD:
                raise _wrong_publish(place, _publish_header(ingress.body, number))
            else:
                raise CommandFailure(BAD_TRANSACTION, f"{place}: no header, or a length beyond the end")

    async def _carry_out(
        self, command: Command, record: bytearray, queue: int, acks: AckList, publishes: int
    ) -> None:
        connection, worker, ingress = self._connection, self._worker, self._connection.ingress
        header = command.header
        if acks.count:
            if acks.unknown:
                await command.looked_up(lambda journal: _search(journal, acks))
            acks.fill_transaction_entries(record)
        sequence = header["seq"]
        refusal = ingress.storage_refuses(len(record), sequence) if acks.count else 0
        if refusal == inbound.AFTER_REFUSAL:
            connection.dismiss(TX_STORE_FAILED, STORE_FAILED_DETAIL)
            return
        if refusal:
            self._refuse(header, CommandFailure(TX_STORE_FAILED, STORE_FAILED_DETAIL))
            return
        pushed = bytes(record)
        if len(pushed) > worker.core.ring.capacity // 8:
            token = worker.spill_token()
            try:
                write_spilled_record(pushed, worker.runtime.spill_path(token))
            except OSError as error:
                worker.log.log(
                    "01-0005", place=connection.shown_name, data=f"no room to pass a transaction on: {error}"
                )
                connection.abort(None)
                return
            pushed = raw_control_record(
                token.encode(), KIND_SPILLED_PUBLISH, connection.slot, connection.serial
            )
        await command.until(partial(worker.core.push_control, pushed))
        if connection.leases is not None and acks.count:
            acks.end_leases_of(connection.leases, queue)
        self._undecided.append(
            _Attended(text_of(header, "cmd_id"), sequence + publishes, "processed" in wanted_acks(header))
        )
        ingress.note_transaction(sequence, publishes)
        self.expect()

    async def _record_refusal(self, command: Command, record: bytearray) -> None:
        """Let the core record the refusal: a later transaction could otherwise make it look like one with an effect."""
        await command.until(partial(self._worker.core.push_control, bytes(record)))

    def _refuse(self, header: Header, failure: CommandFailure) -> None:
        """Answer a command that is not in the ring with a failure, and log it."""
        connection, wanted = self._connection, wanted_acks(header)
        connection.log.log(
            "02-0030", client=connection.shown_name, command="transaction", reason=str(failure)
        )
        queue = self._worker.queues.names.acknowledged(text_of(header, "topic"), connection.message_type)
        if queue is not None:
            self._worker.runtime.queue_statistics.count_refused_transaction(self._worker.index, queue)
        sequence = header.get("seq")
        fields = {"seq": sequence if isinstance(sequence, int) else None, **failure.fields}
        for kind in ("processed", "persisted"):
            if kind in wanted:
                connection.acknowledge(kind, header.get("cmd_id"), failure.reason, **fields)

    # --- answers ----------------------------------------------------------------------------------------------

    def expect(self) -> None:
        """Have the transactions in the ring answered."""
        self._worker.transacting[self] = None
        self._worker.schedule()

    def refused(self, first: int) -> None:
        """Note the core's refusal of the transaction with that first sequence."""
        self._refused.append(first)

    def advance(self, consumed: int, written: int, durable: int) -> bool:
        """Send the answers that may be sent; see TransactionAnswers."""
        pending = self._connection.ingress.transactions
        if pending is None:
            return False
        while (
            told := pending.decide(consumed, written, self._refused[0] if self._refused else 0)
        ) is not None:
            self._decide(*told)
        connection = self._connection
        destinations = self._worker.persisted.destinations
        while True:
            frames, attended = pending.answers(durable, destinations, connection.publisher_id)
            if frames:
                connection.send_frames(frames)
            if not attended:
                return len(pending) > 0 and not (destinations is not None and self._waits(pending, durable))
            self._answer("persisted", self._decided.popleft())

    def _waits(self, pending: PendingTransactions, durable: int) -> bool:
        """Whether only a destination of replication is waited for: `expect` is called when it has what it needs."""
        if pending.undecided or pending.awaited_position > durable:
            return False
        if self._waits_for != pending.awaited_position:
            connection, self._waits_for = self._connection, pending.awaited_position
            token = self._worker.persisted.when_acknowledged(
                connection, connection.publisher_id, self._waits_for, self._went_on
            )
            return token is not None
        return True

    def _went_on(self) -> None:
        self._waits_for = 0
        self.expect()

    def _decide(self, command_id: bytes, first: int, last: int) -> None:
        """Note that the core has decided about a transaction which is answered here."""
        connection = self._connection
        one = _Attended(command_id.decode(), last) if command_id else self._undecided.popleft()
        if self._refused and self._refused[0] == first:
            self._refused.popleft()
            repeated = first <= connection.logged_sequence
            one.failure = CommandFailure(LEASE_LOST, _REPEATED_DETAIL if repeated else _LEASE_LOST_DETAIL)
            connection.log.log(
                "02-0030", client=connection.shown_name, command="transaction", reason=LEASE_LOST
            )
        if one.processed:
            self._answer("processed", one)
        self._decided.append(one)

    @property
    def awaits_durable(self) -> bool:
        """Whether an answer waits for the durable watermark."""
        pending = self._connection.ingress.transactions
        return pending is not None and pending.awaits_durable

    def _answer(self, kind: str, one: _Attended) -> None:
        failure = one.failure
        self._connection.acknowledge(
            kind,
            one.command_id or None,
            None if failure is None else failure.reason,
            seq=one.last,
            **({} if failure is None else failure.fields),
        )


def _count_publishes(body: bytes) -> int:
    """The number of publishes in the body of a transaction; 0 if it is not a list of them."""
    at = count = 0
    while at < len(body) and count <= TRANSACTION_PUBLISHES_MAX:
        at += 4 + int.from_bytes(body[at : at + 4], "big")
        count += 1
    return count if at == len(body) and count <= TRANSACTION_PUBLISHES_MAX else 0


def _publish_header(body: bytes, number: int) -> Header:
    """The header of a publish in the body of a transaction; number: from 0. The lengths add up, and it has a header."""
    at = 0
    for _ in range(number):
        at += 4 + int.from_bytes(body[at : at + 4], "big")
    length = int.from_bytes(body[at : at + 4], "big")
    header: Header = parse_header(body[at + 4 : at + 4 + length])[0]
    return header


def _wrong_publish(place: str, header: Header) -> CommandFailure:
    """The failure of a publish with a key or a value that is not allowed."""
    others = header.keys() - PUBLISH_KEYS
    expiration = header.get("expiration", 0)
    if header.get("cmd", "p") not in ("p", "publish"):
        detail = f"the command {str(header['cmd'])[:100]!r} is not publish"
    elif others:
        detail = f"the key {min(others)!r} is not allowed"
    elif not header.get("topic"):
        detail = "it has no topic"
    elif not isinstance(expiration, int) or not 0 <= expiration < (1 << 32) - 1:
        detail = "the expiration is no number of seconds"
    elif "delay" in header or "not_before" in header:
        return CommandFailure(BAD_DELAY, f"{place}: {explain_delay(header)}")
    else:
        detail = "the topic or the command has an escape, or the correlation id or the SOW key is too long"
    return CommandFailure(BAD_TRANSACTION, f"{place}: {detail}")


def _search(journal: JournalView, acks: AckList) -> PositionSearch:
    return PositionSearch(journal, acks)


def _unrecorded(place: str, topic: str) -> CommandFailure:
    return CommandFailure("not recorded", f"{place}: {topic!r} is not recorded by the transaction log")
