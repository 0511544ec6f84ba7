"""Queues whose removals must be recorded in the journal when the journal cannot take records at once.

At-most-once deliveries and barriers leave a queue by a record. While the journal takes no records they wait. They are
sent when the journal takes records again, without any other event. No client learns of a removal that is not in the
journal.
"""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from amps._core.queues.engine import COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import LogAdapter, QueueManager
from amps._core.values.value import publisher_id
from amps.journal.entries import JournalFile
from amps.server.records import KIND_QUEUE_SUBSCRIBE
from tests.support.feed import Feed, Feeder
from tests.support.journals import names_in
from tests.support.queue_engine import EngineSettings
from tests.support.queue_subject import SECOND_NS, QueueSettings
from tests.support.records import EXPIRY, HEADER_BYTES, NO_EXPIRATION, RecordParts, element

START_NS = 1_750_000_000_000_000_000
QUEUES = [
    QueueSettings("M", at_least_once=False, fairness="round-robin", max_per_subscription=5),
    QueueSettings("E", expiration_ns=3 * SECOND_NS),
    QueueSettings("L", lease_ns=SECOND_NS, max_deliveries=1, max_per_subscription=5),
]
ONCE, EXPIRING, LEASING = range(3)
LEASED = 3
FILE_BYTES = 1 << 16
EXPIRING_COUNT = 50
KIND_QUEUE_ACKNOWLEDGEMENT = 4
KIND_QUEUE_EXPIRY = 5


class Topics:
    """Each queue has its own topic."""

    def feeds(self, topic: str, message_type: str) -> tuple[int, ...]:
        return {"TM": (ONCE,), "TE": (EXPIRING,), "TL": (LEASING,)}.get(topic, ())

    def queue(self, name: str, message_type: str) -> int | None:
        return {"M": ONCE, "E": EXPIRING, "L": LEASING}.get(name)


class Stage:
    def __init__(self, directory: Path) -> None:
        counters = numpy.zeros(COUNTERS_BYTES * len(QUEUES), "u1")
        arena = QueueArena(numpy.zeros(arena_bytes(8), "u1"), 8)
        manager = QueueManager(arena, counters.data, [EngineSettings(one) for one in QUEUES], 1)
        self.adapter = LogAdapter(manager, [(one.name, "json") for one in QUEUES])
        topics: Any = Topics()
        self.feeder = Feeder(directory, FILE_BYTES, 1, queues=(self.adapter, topics))
        self.now_ns = START_NS
        self.sequence = 0

    def publish(self, topic: str, **parts: Any) -> None:
        self.sequence += 1
        self.feeder.push(Feed(0, self.sequence, topic, RecordParts(payload=b"{}", publisher_id=1, **parts)))

    def leave_room(self, room_bytes: int) -> None:
        """Publish to a topic without queues, until at most that much room is left in the journal."""
        self.publish("X")
        self.turn()
        journal = self.feeder.journal
        used = journal.position - journal.start_position
        filler = RecordParts(payload=bytes(FILE_BYTES - used - room_bytes - HEADER_BYTES), publisher_id=1)
        self.sequence += 1
        self.feeder.push(Feed(0, self.sequence, "X", filler))
        self.turn()
        assert journal.start_position + FILE_BYTES - journal.position <= room_bytes

    def acknowledge(
        self,
        queue: str,
        position: int,
        bookmark: tuple[int, int] = (1, 1),
        parts: RecordParts = RecordParts(publisher_id=1),  # noqa: B008 - immutable
    ) -> None:
        """Acknowledge a message, by default the first one, with the given log position (0 = unknown)."""
        entry = struct.pack("<QQQII", *bookmark, position, 0, 0)
        acknowledgement = struct.pack("<IIQQII", 0, 1, 0, 0, 7, 0) + entry
        parts = replace(parts, kind=KIND_QUEUE_ACKNOWLEDGEMENT, payload=acknowledgement)
        self.sequence += 1
        self.feeder.push(Feed(0, self.sequence, queue, parts))

    def subscribe(self, queue: int = ONCE) -> None:
        self.feeder.send_control([queue, [queue], 5, None], KIND_QUEUE_SUBSCRIBE, 0)

    def turn(self) -> list[object]:
        """Run a turn and return its answers."""
        self.feeder.turn(self.now_ns, self.feeder.journal.position)
        return [reply for _, reply in self.feeder.sequencer.take_replies()]

    def deliveries(self) -> int:
        """Run a turn and return the number of records of deliveries."""
        return sum(isinstance(reply, bytes) for reply in self.turn())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_message_expires_in_the_turn_of_a_delivery_at_most_once(stage: Stage) -> None:
    """queues.md §6.1: an at-most-once delivery is made although a message of another queue expires in the same turn."""
    stage.subscribe()
    stage.publish("TE")
    assert stage.deliveries() == 0
    stage.now_ns += 4 * SECOND_NS
    stage.publish("TM")
    assert stage.deliveries() == 1
    assert stage.adapter.manager.states(EXPIRING) == []


@pytest.mark.parametrize("expiration_s", [0, 1, 60, NO_EXPIRATION])
def test_an_absolute_expiry_replaces_the_lifetime(stage: Stage, expiration_s: int) -> None:
    """docs/files.md: the element for absolute expiry. Replicated messages will have it."""
    expiry = element(EXPIRY, START_NS + 5 * SECOND_NS)
    stage.publish("TL", extension=expiry, expiration_s=expiration_s)
    stage.turn()
    stage.now_ns += 5 * SECOND_NS - 1
    stage.turn()
    assert len(stage.adapter.manager.states(LEASING)) == 1
    stage.now_ns += 1
    stage.turn()
    assert stage.adapter.manager.states(LEASING) == []


def test_the_journal_takes_records_again(stage: Stage) -> None:
    """The disk was full and has room again: waiting messages of an at-most-once queue are sent."""
    stage.publish("TM")
    assert stage.deliveries() == 0
    storage: Any = stage.feeder.journal_storage
    prepare, storage.prepare_file = storage.prepare_file, lambda number, minimum_bytes: 0
    assert not stage.feeder.sequencer.try_next_journal()
    stage.subscribe()
    assert stage.deliveries() == 0
    storage.prepare_file = prepare
    assert stage.feeder.sequencer.try_next_journal()
    assert stage.deliveries() == 1


def test_an_acknowledgement_of_an_expired_message_still_in_the_journal(stage: Stage) -> None:
    """queues.md §8.3: a persisted acknowledgement means that the removal is in the log.

    If an expired message's removal cannot be recorded, its acknowledgement is refused, since the message may return
    after a restart.
    """
    for _ in range(EXPIRING_COUNT):
        stage.publish("TE")
    stage.turn()
    first = stage.adapter.manager.states(EXPIRING)[0][0]
    stage.leave_room(1000)  # for an acknowledgement, not for the removals of all expired messages
    storage: Any = stage.feeder.journal_storage
    storage.prepare_file = lambda number, minimum_bytes: 0
    stage.now_ns += 4 * SECOND_NS
    stage.acknowledge("E", first)
    answers = stage.turn()
    assert [answer[0] for answer in answers if isinstance(answer, tuple)] == ["refused"]


def test_an_acknowledgement_is_preceded_by_the_name_of_its_client(stage: Stage) -> None:
    """docs/files.md: a name has a name record before the first record of its publisher in that file.

    The removals that must be recorded before the acknowledgement change the journal, so the new one needs the name.
    """
    consumer = RecordParts(publisher_id=publisher_id("p0"))
    for _ in range(EXPIRING_COUNT):
        stage.publish("TE")
    stage.publish("TL")
    stage.turn()
    [(leasing, _)] = stage.adapter.manager.states(LEASING)
    stage.leave_room(1000)  # for an acknowledgement, not for the removals of all expired messages
    stage.now_ns += 4 * SECOND_NS
    stage.acknowledge("L", leasing, parts=consumer)
    stage.turn()
    storage = stage.feeder.journal_storage
    assert storage.numbers == [0, 1]
    with JournalFile(storage.path(1)) as journal:
        entries = [entry for entry in journal.entries() if entry.kind == KIND_QUEUE_ACKNOWLEDGEMENT]
    assert [entry.client_name for entry in entries] == [b"p0"]
    assert names_in(storage.path(1)) == [(publisher_id("p0"), b"p0")]


def test_an_acknowledgement_comes_before_a_delivery_that_waited(stage: Stage) -> None:
    """queues.md §17: at-most-once deliveries are sent when their record is durable, whichever event had it written."""
    stage.publish("TM")
    stage.turn()
    [(position, _)] = stage.adapter.manager.states(ONCE)
    stage.leave_room(200)
    storage: Any = stage.feeder.journal_storage
    prepare, storage.prepare_file = storage.prepare_file, lambda number, minimum_bytes: 0
    stage.subscribe()
    assert stage.deliveries() == 0
    assert stage.adapter.manager.output.has_unwritten_deliveries
    storage.prepare_file = prepare
    assert stage.feeder.sequencer.try_next_journal()
    stage.acknowledge("E", position)
    [delivered] = [answer for answer in stage.turn() if isinstance(answer, bytes)]
    (durable_needed,) = struct.unpack_from("<Q", delivered, HEADER_BYTES)
    assert durable_needed == stage.feeder.journal.position
    assert (
        stage.feeder.sequencer.durable_awaited == durable_needed
    )  # the core demands a sync without a request


def test_no_lease_runs_before_its_delivery_is_sent(stage: Stage) -> None:
    """queues.md §6.2: the lease period begins when the message is sent.

    While deliveries wait for the journal, no further ones are decided: with `MaxDeliveries` they would expire unseen.
    """
    stage.publish("TM")
    stage.publish("TL")
    stage.turn()
    stage.leave_room(200)
    storage: Any = stage.feeder.journal_storage
    prepare, storage.prepare_file = storage.prepare_file, lambda number, minimum_bytes: 0
    stage.subscribe()
    assert stage.deliveries() == 0
    stage.subscribe(LEASING)
    assert stage.deliveries() == 0
    stage.now_ns += 2 * SECOND_NS
    assert stage.deliveries() == 0
    storage.prepare_file = prepare
    assert stage.feeder.sequencer.try_next_journal()
    stage.turn()
    assert [state for _, state in stage.adapter.manager.states(LEASING)] == [LEASED]


def test_a_removal_is_recorded_with_its_number_of_deliveries(stage: Stage, tmp_path: Path) -> None:
    """docs/queues.md: an entry of a record."""
    stage.publish("TL")
    stage.publish("TE")
    stage.turn()
    stage.subscribe(LEASING)
    assert stage.deliveries() == 1
    stage.now_ns += 4 * SECOND_NS
    stage.turn()
    assert stage.adapter.manager.states(LEASING) == stage.adapter.manager.states(EXPIRING) == []
    path = min(tmp_path.glob("*.journal"))
    with JournalFile(path) as journal:
        counted = {
            entry.topic: struct.unpack_from("<QQQI", entry.payload, 32)[3]
            for entry in journal.entries()
            if entry.kind == KIND_QUEUE_EXPIRY
        }
    assert counted == {b"L": 1, b"E": 0}


def test_a_turn_takes_acknowledgements_of_at_most_128_messages(stage: Stage) -> None:
    """Further acknowledgements wait for the next turn, so that new messages are delivered in between."""
    stage.turn()
    for _ in range(600):
        stage.acknowledge("E", 1)
    taken = []
    sequencer, control = stage.feeder.sequencer, stage.feeder.control
    while sequencer.turn(control, stage.now_ns, 0, 1 << 20):
        sequencer.release(())
        taken.append(len(sequencer.take_replies()))
    assert taken == [128, 128, 128, 128, 88]  # a record counts for one message more than it has


@pytest.mark.parametrize(("of_all", "per_client"), [(2, 5), (5, 2)])
def test_acknowledgements_that_wait_for_their_messages_are_bounded(
    stage: Stage, of_all: int, per_client: int
) -> None:
    """queues.md §8.5: acknowledgements beyond the limit are refused without effect; forgotten ones make room."""
    manager = stage.adapter.manager
    manager.limit_deferred(of_all, per_client)

    def is_refused(sequence: int) -> bool:
        stage.acknowledge("E", 0, (9, sequence))
        (answer,) = stage.turn()
        assert isinstance(answer, tuple)
        assert answer[0] == "queue_acknowledged"
        return bool(answer[-1])

    assert [is_refused(sequence) for sequence in (1, 2, 3)] == [False, False, True]
    end = stage.feeder.journal.position
    assert is_refused(4)
    assert stage.feeder.journal.position == end
    assert not is_refused(2), "it is remembered already"
    stage.now_ns += 2 * 86_400 * SECOND_NS
    stage.turn()
    assert not is_refused(3)
