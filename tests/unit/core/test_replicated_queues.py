"""Records of queues that span instances, through the sequencer: what enters the log, and what recovery makes of it."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy
import pytest

from amps._core.journal.reader import LogCursor, LogDirectory, Record
from amps._core.queues.engine import COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import LogAdapter, QueueManager, RecordedTopic, rebuild
from amps._core.values.value import publisher_id
from amps.server.records import control_record
from tests.support.queue_engine import EngineSettings
from tests.support.queue_group import acknowledgement
from tests.support.queue_subject import QueueSettings
from tests.support.records import RecordParts, ring_position
from tests.support.transactions import KIND_TRANSACTION_REFUSED, ring_transaction
from tests.unit.core.test_replicated_records import CLIENTS, FLOWS, FROM_C, P0, SERIAL, Core

BLOCKS = 4
KIND_ACKNOWLEDGEMENT, KIND_EXPIRY, KIND_TRANSFER = 4, 5, 6
KIND_LOGON, KIND_QUEUE_SUBSCRIBE, KIND_TRANSFER_REQUEST, KIND_REACHABLE = 258, 261, 267, 268
KIND_DISCONNECT, KIND_LOG_COMPLETE = 259, 269
GONE = 2**64 - 1
DECIDER = publisher_id("amps-server: M/queue")
AVAILABLE, LEASED, ELSEWHERE = 2, 3, 9
HEADER_BYTES = 80


class _Topics:
    """`t` feeds the queue `Q`."""

    def feeds(self, topic: str, message_type: str) -> tuple[int, ...]:
        return (0,) if topic == "t" else ()

    def queue(self, topic: str, message_type: str) -> int | None:
        return 0 if topic == "Q" else None


class Queued(Core):
    """The core of the instance M, with the queue Q over t."""

    options: ClassVar[Mapping[str, Any]] = {}
    queue_options: ClassVar[Mapping[str, Any]] = {}

    def queues(self) -> tuple[LogAdapter, _Topics]:
        self.memory = numpy.zeros(arena_bytes(BLOCKS), "u1")
        self.counters = numpy.zeros(COUNTERS_BYTES, "u1")
        queue = QueueSettings("Q", max_per_subscription=100, **self.queue_options)
        settings = EngineSettings(queue, True, **self.options)
        manager = QueueManager(QueueArena(self.memory, BLOCKS), self.counters.data, [settings], 2, "M")
        return LogAdapter(manager, [("Q", "json")]), _Topics()

    def begin(self, next_txid: int) -> None:
        self.make_queues = self.queues
        super().begin(next_txid)
        self.sequencer.replication_index = FLOWS
        self.sequencer.publish_decisions_as("amps-server: M/queue")

    @property
    def manager(self) -> QueueManager:
        adapter = self.sequencer.adapter
        assert adapter is not None
        return adapter.manager

    def owners(self) -> list[tuple[str, int, bool]]:
        return [(owner, epoch, by) for _, owner, epoch, by in self.manager.owners(0)]

    def states(self) -> list[int]:
        return [state for _, state in self.manager.states(0)]

    def queue_records(self) -> list[Record]:
        return [record for record in self.records() if record.kind in (4, 5, 6)]

    def publish(self, sequence: int) -> None:
        """A client publishes a message here."""
        self.push(
            CLIENTS,
            RecordParts(b"{}", publisher_id=P0, sequence=sequence, position=ring_position(1, 1)).to_bytes(),
        )

    def log_on(self, name: str = "p0") -> None:
        self.push(CLIENTS, control_record((name, ""), KIND_LOGON, 1, 1))

    def recovered(self) -> LogAdapter:
        """The queue that a start makes of the log."""
        adapter, topics = self.queues()
        queues = adapter.manager.queues

        def resolve(topic: str, message_type: str) -> RecordedTopic:
            number = topics.queue(topic, message_type)
            return RecordedTopic(
                topic.encode(),
                [queues[n] for n in topics.feeds(topic, message_type)],
                -1 if number is None else number,
            )

        directory = LogDirectory(self.storage.prefix, ".journal", resolve)
        cursor = LogCursor(directory, 0, 0, True)
        cursor.learns_names = lambda class_, id_, text: (
            adapter.note_path(id_, text.decode()) if class_ == 3 else None
        )
        assert rebuild(cursor, adapter, self.journal.position, 1 << 30)
        return adapter


@pytest.fixture
def core(tmp_path: Path) -> Queued:
    return Queued(tmp_path)


def entries_of(record: Record) -> list[tuple[int, int, int, int, int]]:
    (count,) = struct.unpack_from("<I", record.payload, 4)
    return [struct.unpack_from("<QQQII", record.payload, 32 + 32 * at) for at in range(count)]


def transfer(entries: list[tuple[int, int, int]], names: bytes, is_proxied: bool = False) -> bytes:
    """The payload of a transfer: publisher, sequence and epoch of each message."""
    body = struct.pack("<IIQQII", 7, len(entries), 0, 0, 0, 0)
    for publisher, sequence, epoch in entries:
        body += struct.pack("<QQQII", publisher, sequence, 12345, epoch, is_proxied)
    return body + names


def acknowledge_payload(*messages: tuple[int, int]) -> bytes:
    return acknowledgement(1, 1, [(*message, 12345) for message in messages], 0, 0)[HEADER_BYTES:]


def bookmarks(*messages: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *message) for message in messages)


def test_the_first_instance_of_the_path_owns_a_message(core: Queued) -> None:
    """replication.md §24.8: epoch 0; the first hop of the path, or this instance for a direct publish."""
    core.log_on()
    core.publish(1)
    upstream = core.flow(path="B\tG\teb")
    core.send(upstream, 11, 99, 1)
    behind = core.flow(FROM_C, 1, path="A\tG\tea\nC\tG\tec")
    core.send(behind, 5, 98, 1)
    core.turn()
    assert core.owners() == [("M", 0, False), ("B", 0, False), ("A", 0, False)]
    assert core.recovered().manager.owners(0) == core.manager.owners(0)


def test_positions_in_the_log_are_those_of_this_instance(core: Queued) -> None:
    """An acknowledgement names a message that is here, one that has not come, and one that has left."""
    upstream = core.flow()
    core.send(upstream, 10, 99, 1)
    core.send(upstream, 11, 99, 2)
    core.turn()
    (first, _), _ = core.manager.states(0)
    core.send(upstream, 12, 77, 1, acknowledge_payload((99, 1)), kind=4, topic_id=2)
    core.send(upstream, 13, 77, 2, acknowledge_payload((99, 1), (99, 2), (99, 9)), kind=4, topic_id=2)
    core.turn()
    positions = [[entry[2] for entry in entries_of(record)] for record in core.queue_records()]
    assert positions[0] == [first]
    assert positions[1][0] == GONE
    assert positions[1][2] == 0
    assert not core.states()
    assert core.manager.queues[0].span is not None
    core.send(upstream, 14, 99, 9)
    core.turn()
    assert not core.states()
    recovered = core.recovered()
    assert recovered.manager.states(0) == []


def test_a_grant_is_one_record_that_others_get(core: Queued) -> None:
    """replication.md §24.8: publisher `amps-server: <instance>/queue`, one record for all messages of a grant."""
    core.log_on()
    for sequence in (1, 2, 3):
        core.publish(sequence)
    core.turn()
    core.push(FLOWS, control_record([0, "B", bookmarks((P0, 1), (P0, 2)), 2], KIND_TRANSFER_REQUEST))
    core.turn()
    (record,) = core.queue_records()
    assert (record.kind, record.publisher_id, record.sequence) == (KIND_TRANSFER, DECIDER, record.txid)
    assert record.payload.endswith(b"M\tB")
    assert [entry[:2] + entry[3:] for entry in entries_of(record)] == [(P0, 1, 1, 0), (P0, 2, 1, 0)]
    assert core.owners() == [("B", 1, False), ("B", 1, False), ("M", 0, False)]
    assert core.recovered().manager.owners(0) == core.manager.owners(0)
    assert core.sequencer.last_sequence(DECIDER) == record.txid
    core.restart()
    assert core.sequencer.last_sequence(DECIDER) == record.txid


def test_a_transfer_from_another_instance(core: Queued) -> None:
    """replication.md §24.8: it has its effect here; the higher epoch wins, whatever the order."""
    upstream = core.flow()
    core.send(upstream, 10, 99, 1)
    core.send(upstream, 11, 55, 1, transfer([(99, 1, 2)], b"C\tM"), kind=6, topic_id=2)
    core.send(upstream, 12, 55, 2, transfer([(99, 1, 1)], b"B\tC"), kind=6, topic_id=2)
    core.turn()
    assert core.owners() == [("M", 2, False)]
    assert core.states() == [AVAILABLE]
    assert core.recovered().manager.owners(0) == core.manager.owners(0)


@pytest.mark.parametrize("names", [b"", b"B", b"B\t", b"\xff\tM", b"B\tM\tC", b"B\t" + b"M" * 5000])
def test_a_transfer_without_sound_names_is_malformed(core: Queued, names: bytes) -> None:
    upstream = core.flow()
    core.send(upstream, 10, 99, 1)
    core.send(upstream, 11, 55, 1, transfer([(99, 1, 1)], names), kind=6, topic_id=2)
    assert ("malformed", 0, SERIAL) in core.turn()
    assert core.owners() == [("B", 0, False)]
    assert not core.queue_records()


def test_a_request_is_sent_when_its_owner_can_be_reached(core: Queued) -> None:
    """replication.md §14.2, 25.79: no request is made before."""
    upstream = core.flow()
    core.send(upstream, 10, 99, 1)
    core.log_on("c")
    core.push(CLIENTS, control_record([1, [0], 10, None, ["s", "Q", ""]], KIND_QUEUE_SUBSCRIBE, 1, 1))
    replies = core.turn()
    later_ns = 5 * 10**9
    assert all(reply[0] != "transfer_wanted" for reply in [*replies, *core.turn(later_ns)])
    core.push(FLOWS, control_record([["B"]], KIND_REACHABLE))
    assert ("transfer_wanted", 0, 0, 0, "B", bookmarks((99, 1)), 1) in core.turn(later_ns + 10**9)


def test_a_message_that_was_published_to_two_instances_gets_one_owner(core: Queued) -> None:
    """25.76: the one whose name comes first; a message that a client holds stays."""
    core.log_on()
    core.publish(1)
    core.publish(2)
    core.turn()
    upstream = core.flow(path="B\tG\teb")
    later = core.flow(FROM_C, 1, path="X\tG\tex")
    core.send(later, 4, P0, 1)
    core.turn()
    assert core.owners() == [("M", 0, False)] * 2
    core.send(upstream, 4, P0, 1)
    core.turn()
    assert core.owners() == [("B", 1, False), ("M", 0, False)]
    assert core.states() == [ELSEWHERE, AVAILABLE]
    core.push(CLIENTS, control_record([1, [0], 10, None, ["s", "Q", ""]], KIND_QUEUE_SUBSCRIBE, 1, 1))
    core.turn()
    core.send(upstream, 5, P0, 2)
    core.turn()
    assert core.owners() == [("B", 1, False), ("M", 0, False)]
    assert core.states() == [ELSEWHERE, LEASED]
    (record,) = core.queue_records()
    assert record.publisher_id == DECIDER


def test_records_of_another_domain_have_no_effect(tmp_path: Path) -> None:
    """64, 25.80: they are in the log, for others, but name no message here."""
    Queued.options = {"domain": 5, "initial_owner": "M"}
    try:
        core = Queued(tmp_path)
    finally:
        Queued.options = {}
    upstream = core.flow()
    core.send(upstream, 10, 99, 1)
    core.send(upstream, 11, 77, 1, acknowledge_payload((99, 1)), kind=4, topic_id=2)
    core.turn()
    assert core.states() == [AVAILABLE]
    (record,) = core.queue_records()
    assert [entry[2] for entry in entries_of(record)] == [GONE]


WORKER = publisher_id("worker")
QUEUE_TOPIC = 2
START_NS = 10**12
SECOND_NS = 10**9


def transact(core: Queued, now_s: float, message: tuple[int, int, int], first: int = 1) -> list[tuple[object, ...]]:
    """A worker connects and sends a transaction of a message, `now_s` after the start. Returns the core's answers."""
    core.log_on("worker")
    core.push(CLIENTS, ring_transaction((1, 1), WORKER, first, QUEUE_TOPIC, [message], [(1, b"{}")]))
    replies = core.turn(START_NS + int(now_s * SECOND_NS))
    core.push(CLIENTS, control_record([], KIND_DISCONNECT, 1, 1))
    return [reply for reply in replies if reply[0] in ("undecided", "transaction_refused")]


def complete(core: Queued, now_s: float, name: str, partners: list[str] | None, age_s: float = 0) -> None:
    """The log of an instance is here, up to a moment `age_s` before `now_s`."""
    core.flow()
    core.push(FLOWS, control_record([name, int(age_s * SECOND_NS), partners], KIND_LOG_COMPLETE, 0, SERIAL))
    core.turn(START_NS + int(now_s * SECOND_NS))


def undecided(*names: str) -> list[tuple[object, ...]]:
    return [("undecided", 1, 1, list(names))]


REFUSED = [("transaction_refused", 1, 1, 1)]
NEVER_CAME = (99, 7, 0)


def test_a_transaction_of_a_message_that_never_comes_is_refused_when_all_logs_are_here(core: Queued) -> None:
    """25.93, 25.94: not before each partner's log is complete up to 60 s after the first try."""
    assert transact(core, 0, NEVER_CAME) == undecided("")
    assert transact(core, 1000, NEVER_CAME) == undecided(""), "time alone decides nothing"
    complete(core, 1000, "B", None)
    assert transact(core, 1000, NEVER_CAME) == undecided(""), "a partner is not connected"
    complete(core, 1000, "B", ["B", "C"])
    assert transact(core, 1000, NEVER_CAME) == undecided("C")
    complete(core, 1001, "C", ["B", "C"], age_s=942)
    assert transact(core, 1001, NEVER_CAME) == undecided("C"), "what happened in the first minute may be missing"
    assert not [record for record in core.records() if record.publisher_id == WORKER]
    complete(core, 1002, "C", ["B", "C"], age_s=942)
    assert transact(core, 1002, NEVER_CAME) == REFUSED
    (record,) = [record for record in core.records() if record.publisher_id == WORKER]
    assert (record.kind, record.sequence) == (KIND_TRANSACTION_REFUSED, 2)
    assert transact(core, 1003, NEVER_CAME) == REFUSED, "a repetition"


def test_an_earlier_statement_says_nothing_about_a_later_transaction(core: Queued) -> None:
    """25.94: and each transaction has a first try of its own; a statement never takes an earlier one back."""
    complete(core, 0, "B", ["B"])
    assert transact(core, 0, NEVER_CAME) == undecided("B")
    complete(core, 61, "B", ["B"])
    complete(core, 62, "B", ["B"], age_s=62)
    assert transact(core, 62, NEVER_CAME, first=9) == undecided("B")
    assert transact(core, 62, NEVER_CAME) == REFUSED


def test_the_owner_of_a_message_must_have_told_all_too(core: Queued) -> None:
    """25.93, 25.94: the instance that owns a message may have recorded the transaction, partner or not."""
    upstream = core.flow(path="A\tG\tea\nB\tG\teb")
    core.send(upstream, 11, 99, 1)
    core.turn(START_NS)
    ((position, _),) = core.manager.states(0)
    message = (99, 1, position)
    assert transact(core, 0, message) == undecided("", "A")
    complete(core, 100, "B", ["B"])
    assert transact(core, 100, message) == undecided("A")
    complete(core, 100, "A", ["B"])
    assert transact(core, 100, message) == REFUSED
    assert core.states() == [ELSEWHERE], "the message is still that of its owner"


def test_a_flow_that_ended_tells_nothing(core: Queued) -> None:
    """25.94: the core has dropped records of it, so what follows them says nothing about what is here."""
    assert transact(core, 0, NEVER_CAME) == undecided("")
    upstream = core.flow()
    core.send(upstream, 11, 55, 1, transfer([(99, 1, 1)], b"B"), kind=6, topic_id=2)
    core.push(FLOWS, control_record(["B", 0, ["B"]], KIND_LOG_COMPLETE, 0, SERIAL))
    assert ("malformed", 0, SERIAL) in core.turn(START_NS + 100 * SECOND_NS)
    assert transact(core, 100, NEVER_CAME) == undecided("")


class Impatient(Queued):
    queue_options: ClassVar[Mapping[str, Any]] = {"deferred_ack_expiration_ns": 5 * SECOND_NS}


def test_a_shorter_deferred_ack_expiration_shortens_the_wait(tmp_path: Path) -> None:
    """25.94: the acknowledgement would be forgotten by then."""
    core = Impatient(tmp_path)
    assert transact(core, 0, NEVER_CAME) == undecided("")
    complete(core, 4, "B", ["B"])
    assert transact(core, 4, NEVER_CAME) == undecided("B")
    complete(core, 5, "B", ["B"])
    assert transact(core, 5, NEVER_CAME) == REFUSED


def test_what_has_left_decides_a_transaction_at_once(core: Queued) -> None:
    """25.93: the message is in the log, and no longer in the queue: its owner has said so."""
    upstream = core.flow()
    core.send(upstream, 10, 99, 1)
    core.turn()
    ((position, _),) = core.manager.states(0)
    core.send(upstream, 12, 77, 1, acknowledge_payload((99, 1)), kind=4, topic_id=QUEUE_TOPIC)
    core.turn()
    assert transact(core, 0, (99, 1, position)) == REFUSED
