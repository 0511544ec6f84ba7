"""The core's deliveries become frames: in order, when durable, from messages anywhere in the log."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amps._core.delivery.output import WANT_TIMESTAMP, OutputBuffer
from amps._core.journal.reader import FrameCache, LogCursor, LogDamaged, LogDirectory, LogUnreadable, Record
from amps._core.journal.search import read
from amps._core.queues.sender import NUMBERS_END, QueueReceiver, QueueSender
from amps._core.values.value import publisher_id
from amps._core.wire.ingress import LeaseTable
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.names import compressed_path, journal_path
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.page_cache import forget
from tests.support.queue_worker import BARRIER, NO_SUBSCRIPTION, Delivery, deliveries_record
from tests.support.records import RecordParts

FILE_BYTES = 1 << 20
SECOND_NS = 10**9
ALL = 1 << 60
NAMES = {0: b'"Q"', 7: b'"Q7"'}


class Log:
    """A journal of several files, with messages of different sizes."""

    def __init__(self, path: Path, messages: int = 40, payload_bytes: int = 100) -> None:
        self.path = path
        self.feeder = Feeder(path, FILE_BYTES, publishers=2)
        for number in range(1, messages + 1):
            parts = RecordParts(
                payload=b"%d" % number + b"x" * payload_bytes,
                publisher_id=publisher_id(f"p{number % 2}"),
                correlation_id=b"c%d" % number,
                user_id=b"u",
            )
            self.feeder.push(Feed(number % 2, number, "T", parts))
            self.feeder.turn(1_700_000_000 * SECOND_NS + number * 1000, 0)
        self.end: int = self.feeder.journal.position
        storage = self.feeder.journal_storage
        cursor = LogCursor(directory_of(storage), 0, 0, True)
        self.messages: list[Record] = read_all(cursor, self.end)

    def directory(self, *more_places: tuple[str, str]) -> LogDirectory:
        prefix = self.feeder.journal_storage.prefix
        return LogDirectory(prefix, ".journal", lambda topic, kind: topic, more_places, FrameCache(1 << 30))


class Stage:
    """A sender with its receivers."""

    def __init__(self, log: Log, directory: LogDirectory | None = None) -> None:
        self.log = log
        self.asked: list[tuple[Any, int, int, Callable[..., object]]] = []
        self.turns = 0
        self.damage: list[tuple[object, LogDamaged]] = []
        self.outputs: dict[int, OutputBuffer] = {}
        self.leases: dict[int, LeaseTable] = {}
        self.sender = QueueSender(
            directory or log.directory(),
            log.feeder.control,
            lambda *asked: self.asked.append(asked),
            self.turn_wanted,
            self.damaged,
        )

    def turn_wanted(self) -> None:
        self.turns += 1

    def damaged(self, owner: object, damage: LogDamaged) -> None:
        """Close the connection, as a worker does."""
        self.damage.append((owner, damage))
        assert isinstance(owner, int)
        self.sender.remove(owner)

    def subscribe(self, number: int, *queues: int, flags: int = 0, sub_id: bytes | None = b"s") -> None:
        self.outputs[number] = OutputBuffer(lambda: None)
        self.leases[number] = LeaseTable()
        names = {queue: NAMES.get(queue, b'"?"') for queue in queues or (0,)}
        self.sender.add(
            QueueReceiver(number, number, self.outputs[number], self.leases[number], flags, sub_id, names)
        )
        self.sender.set_queues(number, names)

    def deliver(self, *deliveries: Delivery, durable_needed: int = 0) -> None:
        self.sender.take(deliveries_record(durable_needed, *deliveries))

    def run(self, durable: int = ALL) -> None:
        while self.sender.run(durable, 1 << 20):
            pass

    def frames(self, number: int) -> list[tuple[dict[str, Any], bytes]]:
        data = b"".join(self.outputs[number].take())
        found = []
        while data:
            (length,) = struct.unpack_from(">I", data)
            payload, data = data[4 : 4 + length], data[4 + length :]
            header, size = json.JSONDecoder().raw_decode(payload.decode())
            found.append((header, payload[len(payload[:size].decode()) :]))
        return found

    def numbers(self, number: int) -> list[int]:
        """The numbers of the messages received."""
        return [int(body.partition(b"x")[0]) for _, body in self.frames(number)]

    def position(self, message: int) -> int:
        position: int = self.log.messages[message - 1].position
        return position


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(Log(tmp_path))


def test_queue_sender_frames_have_the_fields_of_queues_md_5_4(stage: Stage) -> None:
    """queues.md §5.4, D-04, D-05."""
    stage.subscribe(1)
    stage.subscribe(2, 7, flags=WANT_TIMESTAMP, sub_id=None)
    lease_ns = 1_718_097_330 * SECOND_NS + 250_000_999
    stage.deliver(
        Delivery(stage.position(3), 1, slot=9, lease_until_ns=lease_ns),
        Delivery(stage.position(4), 2, queue=7),
    )
    stage.run()
    third, fourth = stage.log.messages[2], stage.log.messages[3]
    assert stage.frames(1) == [
        (
            {
                "c": "p",
                "t": "Q",
                "sids": "s",
                "bm": f"{third.publisher_id}|{third.sequence}|",
                "lp": "20240611T091530.250000Z",
                "x": "c3",
                "user_id": "u",
                "l": len(third.payload),
            },
            third.payload,
        )
    ]
    assert stage.frames(2) == [
        (
            {
                "c": "p",
                "t": "Q7",
                "bm": f"{fourth.publisher_id}|{fourth.sequence}|",
                "lp": "0",
                "ts": "20231114T221320.000004Z",
                "x": "c4",
                "user_id": "u",
                "l": len(fourth.payload),
            },
            fourth.payload,
        )
    ]
    assert stage.leases[1].get(third.publisher_id, third.sequence, 0) == (third.position, 9)
    assert stage.leases[2].get(fourth.publisher_id, fourth.sequence, 7) == (fourth.position, 0)


def test_queue_sender_sends_nothing_before_it_is_durable(stage: Stage) -> None:
    stage.subscribe(1)
    stage.deliver(Delivery(stage.position(1), 1), durable_needed=1000)
    stage.deliver(Delivery(stage.position(2), 1), durable_needed=2000)
    stage.run(999)
    assert stage.numbers(1) == []
    stage.run(1000)
    assert stage.numbers(1) == [1]
    done: list[str] = []
    stage.sender.when_sent(lambda: done.append("sent"))
    stage.run(1999)
    assert not done
    stage.run(2000)
    assert stage.numbers(1) == [2]
    assert done == ["sent"]
    stage.sender.when_sent(lambda: done.append("at once"))
    assert done == ["sent", "at once"]


def test_queue_sender_an_ended_subscription_is_skipped(stage: Stage) -> None:
    for number in (1, 2, 3):
        stage.subscribe(number)
    stage.deliver(*(Delivery(stage.position(each), each) for each in (1, 2, 3)))
    stage.sender.remove(2)
    stage.run()
    assert [stage.numbers(number) for number in (1, 2, 3)] == [[1], [], [3]]


def test_queue_sender_subscription_numbers_are_added_and_removed(stage: Stage) -> None:
    """Hundreds of subscriptions whose numbers collide in the table: each number finds its own."""
    numbers = [*range(0, 300, 3), *range(64, 64 * 40, 64), NUMBERS_END - 1]
    living = dict.fromkeys(numbers)
    for number in living:
        stage.subscribe(number)
    for number in list(living)[::3]:
        stage.sender.remove(number)
        del living[number]
    for number in living:
        stage.deliver(Delivery(stage.position(1), number))
    stage.run()
    assert all(stage.numbers(number) == ([1] if number in living else []) for number in set(numbers))
    with pytest.raises(ValueError, match="in use"):
        stage.subscribe(next(iter(living)))
    with pytest.raises(ValueError, match="in use"):
        stage.subscribe(NO_SUBSCRIPTION)


def test_queue_sender_a_barrier_goes_to_subscriptions_present_at_its_release(stage: Stage) -> None:
    """queues.md §12: it goes to all subscriptions of the queue, without a lease, in its place among their messages."""
    stage.subscribe(1, 0, 7)
    stage.subscribe(2)
    stage.subscribe(3, 7)
    stage.deliver(
        Delivery(stage.position(1), 1),
        Delivery(stage.position(2), NO_SUBSCRIPTION, flags=BARRIER),
        Delivery(stage.position(3), 2),
        durable_needed=10,
    )
    stage.subscribe(4)
    stage.sender.set_queues(2, [])  # subscribed when the barrier was released
    stage.run(9)
    stage.run(10)
    assert [stage.numbers(number) for number in (1, 2, 3, 4)] == [[1, 2], [2, 3], [], []]
    assert stage.leases[1].count == 1
    stage.sender.remove(1)
    stage.deliver(Delivery(stage.position(2), NO_SUBSCRIPTION, flags=BARRIER))
    stage.run()
    assert [stage.numbers(number) for number in (1, 2, 3, 4)] == [[], [], [], [2]]


def test_queue_sender_a_changed_subscription_has_the_names_of_old_and_new_queues(stage: Stage) -> None:
    """queues.md §5.5: deliveries decided before the change are still sent."""
    stage.outputs[1] = OutputBuffer(lambda: None)
    receiver = QueueReceiver(1, 1, stage.outputs[1], LeaseTable(), 0, b"s", {0: NAMES[0]})
    stage.sender.add(receiver)
    stage.deliver(Delivery(stage.position(1), 1, queue=0), Delivery(stage.position(2), 1, queue=7))
    stage.deliver(Delivery(stage.position(3), 1, queue=5))
    receiver.change(0, b"s", {7: NAMES[7]})
    stage.run()
    assert [header["t"] for header, _ in stage.frames(1)] == ["Q", "Q7"]


def test_queue_sender_reads_any_file_of_the_log(tmp_path: Path) -> None:
    """The files are plain, compressed and in use, and are read forwards and backwards."""
    log = Log(tmp_path, messages=60, payload_bytes=50_000)
    last = log.feeder.journal.number
    assert last >= 2
    for number in (0, 1):
        source, target = (
            journal_path(tmp_path, "journal", number),
            compressed_path(tmp_path, "journal", number),
        )
        for _ in compress_journal(Disk(), source, target):
            pass
    log.feeder.control.set_watermarks(log.end, 0, 0, last, 0)
    stage = Stage(log, log.directory((log.feeder.journal_storage.prefix, ".journal.gz")))
    stage.subscribe(1)
    order = [60, 1, 30, 2, 59, 31, 1]
    stage.deliver(*(Delivery(stage.position(number), 1) for number in order))
    stage.run()
    assert stage.numbers(1) == order
    assert not stage.damage


def test_queue_sender_a_turn_has_a_bound_and_loses_nothing(stage: Stage) -> None:
    stage.subscribe(1)
    stage.deliver(*(Delivery(stage.position(number), 1) for number in range(1, 41)))
    turns = 0
    while stage.sender.run(ALL, 1000):
        turns += 1
    assert turns > 5
    assert stage.numbers(1) == list(range(1, 41))


def test_queue_sender_releases_journals_that_it_no_longer_needs(tmp_path: Path) -> None:
    log = Log(tmp_path)
    directory = log.directory()
    released: list[int | None] = []

    class Guard:
        def enter(self, number: int) -> None: ...
        def check(self, number: int) -> None: ...
        def release(self, lowest: int | None) -> None:
            released.append(lowest)

    directory = LogDirectory(
        log.feeder.journal_storage.prefix, ".journal", lambda topic, kind: topic, (), None, Guard()
    )
    stage = Stage(log, directory)
    stage.subscribe(1)
    stage.deliver(Delivery(stage.position(1), 1))
    stage.run()
    stage.outputs[1].take()
    for _ in range(2):
        directory.release_unused()
        stage.sender.release()
    directory.release_unused()
    assert released == [0, 0, None]


def test_queue_sender_damage_disconnects_the_receiver_of_the_message(stage: Stage) -> None:
    """Other receivers are served. The damaged receiver gets no later messages."""
    for number in (1, 2):
        stage.subscribe(number)
    path = stage.log.feeder.journal_storage.path(0)
    data = bytearray(path.read_bytes())
    data[stage.position(2) + 90] ^= 1
    path.write_bytes(data)
    stage.deliver(*(Delivery(stage.position(number), 1 + number // 4) for number in (1, 2, 3, 4, 5)))
    stage.run()
    assert stage.numbers(1) == [1]
    assert stage.numbers(2) == [4, 5]
    ((owner, damage),) = stage.damage
    assert owner == 1
    assert (damage.path, damage.offset) == (str(path), stage.position(2))


@pytest.mark.parametrize("wrong", [8, -8, 1 << 40])
def test_queue_sender_a_place_without_a_message_is_damage(stage: Stage, wrong: int) -> None:
    stage.subscribe(1)
    stage.deliver(Delivery(stage.position(2) + wrong, 1))
    stage.run()
    assert [owner for owner, _ in stage.damage] == [1]
    assert stage.numbers(1) == []


def test_queue_sender_a_missing_journal_is_damage(stage: Stage) -> None:
    stage.subscribe(1)
    stage.log.feeder.journal_storage.path(0).unlink()
    stage.deliver(Delivery(stage.position(2), 1))
    stage.run()
    assert [owner for owner, _ in stage.damage] == [1]


@pytest.mark.parametrize("cut", [1, 16, 80])
def test_queue_sender_a_record_that_is_cut_off_is_refused(stage: Stage, cut: int) -> None:
    record = deliveries_record(0, Delivery(4096, 1))
    with pytest.raises(ValueError, match="cut off"):
        stage.sender.take(record[:-cut])


def test_queue_sender_a_message_not_in_memory_delays_its_receiver_only(tmp_path: Path) -> None:
    """On a file system in memory pages never leave, so nothing is delayed. Order stays within a subscription."""
    log = Log(tmp_path, messages=60, payload_bytes=50_000)
    last = log.feeder.journal.number
    log.feeder.control.set_watermarks(log.end, 0, 0, last, 0)
    forget(log.feeder.journal_storage.path(0))
    stage = Stage(log)
    for number in (1, 2):
        stage.subscribe(number)
    cold, warm = (1, 2, 3), (58, 59, 60)
    deliveries = [Delivery(stage.position(number), 1) for number in (*cold, warm[0])]
    stage.deliver(*deliveries, *(Delivery(stage.position(number), 2) for number in warm))
    stage.deliver(Delivery(stage.position(warm[1]), NO_SUBSCRIPTION, flags=BARRIER))
    stage.run()
    assert stage.numbers(2) == [*warm, warm[1]]
    if not stage.asked:
        assert stage.numbers(1) == [*cold, warm[0], warm[1]]  # pages never leave memory here
        return
    assert stage.numbers(1) == []
    assert stage.leases[1].count == 0
    rounds = 0
    while stage.asked:
        rounds += 1
        assert rounds < 100
        file, offset, length, done = stage.asked.pop()
        assert not stage.asked, "one question at a time for a subscription"
        read(file, offset, length)
        turns = stage.turns
        done()
        assert stage.turns == turns + 1
        stage.run()
    assert stage.numbers(1) == [*cold, warm[0], warm[1]]
    assert rounds < 10


def test_queue_sender_a_receiver_removed_during_a_read_is_forgotten(tmp_path: Path) -> None:
    log = Log(tmp_path, messages=60, payload_bytes=50_000)
    log.feeder.control.set_watermarks(log.end, 0, 0, log.feeder.journal.number, 0)
    forget(log.feeder.journal_storage.path(0))
    stage = Stage(log)
    stage.subscribe(1)
    stage.deliver(*(Delivery(stage.position(number), 1) for number in (1, 2)))
    stage.run()
    stage.outputs[1].take()
    stage.sender.remove(1)
    for file, offset, length, done in stage.asked:
        read(file, offset, length)
        done()
    stage.run()
    assert stage.numbers(1) == []


def test_queue_sender_an_unreadable_message_disconnects_its_receiver_only(tmp_path: Path) -> None:
    """An unreadable place behind the message, which was read ahead, disconnects no receiver."""
    log = Log(tmp_path, messages=60, payload_bytes=50_000)
    log.feeder.control.set_watermarks(log.end, 0, 0, log.feeder.journal.number, 0)
    forget(log.feeder.journal_storage.path(0))
    stage = Stage(log)
    for number in (1, 2):
        stage.subscribe(number)
        stage.deliver(Delivery(stage.position(1), number))
    stage.run()
    if not stage.asked:
        return  # pages never leave memory here
    begin = stage.position(1)
    for broken_at, done in zip((begin, begin + 200_000), [asked[3] for asked in stage.asked], strict=True):
        if broken_at > begin:
            file, offset, length, _ = stage.asked[1]
            read(file, offset, length)
        done(LogUnreadable("x.journal", broken_at, "it cannot be read"))
    stage.run()
    assert [(owner, str(damage)) for owner, damage in stage.damage] == [
        (1, f"x.journal: damaged at offset {begin}: it cannot be read")
    ]
    assert stage.numbers(2) == [1]
    assert stage.numbers(1) == []
