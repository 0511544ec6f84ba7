"""Transactions of workers in the core (queue_guarantees.md §4): the fence, the group in the log, refusals."""

import itertools
import random
import struct
from pathlib import Path

import pytest

from amps._core.columns.columns import STOPPED_FINISHED, RecordColumns, RecordRows
from amps._core.journal.reader import LogCursor, LogFile
from amps._core.journal.writer import IndexBuilder, LogWriter, scan_file
from amps._core.sequencer.sequencer import REFUSED_TRANSACTIONS_MAX
from amps._core.values.value import publisher_id
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.entries import JournalFile
from amps.journal.topic_index import open_topic_index, topic_index_file_steps
from amps.server.core.older import RecoveryRefused
from amps.server.records import (
    KIND_DECLARE_TOPIC,
    KIND_DISCONNECT,
    KIND_LOGON,
    KIND_QUEUE_SUBSCRIBE,
    control_record,
)
from tests.fuzz import cases, transactions
from tests.support.feed import SERIAL, Feed, Feeder, directory_of, read_all
from tests.support.log_directories import FILE_BYTES, Directory
from tests.support.queue_subject import SECOND_NS
from tests.support.queue_world import START_NS, Queues, Topics, World
from tests.support.records import KIND_END_OF_FILE, KIND_TOPIC, RecordParts
from tests.support.transactions import (
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_TRANSACTION,
    KIND_TRANSACTION_REFUSED,
    ring_transaction,
)

WORKER, OTHER = 0, 1
PUBLISHER = 2
QUEUE, RESULT, AGAIN = 50, 51, 52
"""Numbers of topics of the transport: the queue `Q`, a topic without queues, and `U`, which feeds `Q`."""
P0 = publisher_id("p0")


class Bench:
    """A core with the queue `Q`, to which a worker is subscribed, and messages of another publisher."""

    def __init__(self, directory: Path, file_bytes: int = 1 << 16) -> None:
        self.queues = Queues()
        self.now_ns = START_NS
        self.published = 0
        self._begin(Feeder(directory, file_bytes, 3, queues=(self.queues.adapter, Topics())))  # type: ignore[arg-type]

    def _begin(self, feeder: Feeder) -> None:
        self.feeder = feeder
        self.sequencer = feeder.sequencer
        for number, name in ((QUEUE, b"Q"), (RESULT, b"R"), (AGAIN, b"U")):
            self.push(control_record((name, b"json"), KIND_DECLARE_TOPIC, topic=number))
        self.feeder.send_control([0, [0], 1000, None], KIND_QUEUE_SUBSCRIBE, WORKER)
        self.turn()

    def restart(self) -> None:
        """Go on in the same file, with empty queues."""
        path, journal = self.feeder.journal_storage.path(0), self.feeder.journal
        index = IndexBuilder(None, 0, 0, journal.size)
        found = scan_file(LogFile(str(path)), 0, index)
        writer = LogWriter(self.feeder.journal_storage, True)
        writer.resume(
            0,
            0,
            journal.size,
            found.end_offset,
            index,
            len(found.topics),
            found.name_ids,
            found.last_refused_offset,
        )
        self.queues = Queues()
        self._begin(Feeder.over(self.feeder, writer, (self.queues.adapter, Topics())))  # type: ignore[arg-type]

    def push(self, record: bytes) -> None:
        assert self.feeder.ring.push(record)

    def turn(self) -> list[tuple[object, ...]]:
        """Run a turn. Returns the replies that are no deliveries."""
        self.feeder.turn(self.now_ns, self.feeder.journal.position)
        return [reply for _, reply in self.sequencer.take_replies() if not isinstance(reply, bytes)]

    def publish(self, count: int = 1) -> list[tuple[int, int, int]]:
        """Publish messages to the queue. Returns publisher id, sequence and log position of each."""
        first = self.published + 1
        for _ in range(count):
            self.published += 1
            parts = RecordParts(b"job", publisher_id=PUBLISHER + 1)
            self.feeder.push(Feed(PUBLISHER, self.published, "U", parts))
        self.turn()
        return [
            (record.publisher_id, record.sequence, record.position)
            for record in self.records()
            if record.publisher_id == PUBLISHER + 1 and record.sequence >= first
        ]

    def transact(
        self,
        first: int,
        messages: list[tuple[int, int, int]],
        publishes: list[tuple[int, bytes]],
        slot: int = WORKER,
    ) -> list[tuple[object, ...]]:
        self.push(
            ring_transaction((slot, SERIAL), publisher_id(f"p{slot}"), first, QUEUE, messages, publishes)
        )
        return self.turn()

    def records(self) -> list[object]:
        cursor = LogCursor(directory_of(self.feeder.journal_storage), 0, 0, True)
        return read_all(cursor, self.feeder.journal.position)

    def kinds(self) -> list[tuple[int, int, bytes]]:
        """Kind, sequence and payload of the records of the worker."""
        return [(one.kind, one.sequence, one.payload) for one in self.records() if one.publisher_id == P0]

    @property
    def depth(self) -> int:
        return self.queues.counter(0, "depth")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def raw_kinds(path: Path, size: int) -> list[int]:
    """The kinds of all records of a file, bookkeeping included."""
    data, at, kinds = path.read_bytes()[:size], 4096, []
    while at < len(data):
        length = struct.unpack_from("<I", data, at)[0]
        if not length:
            break
        kinds.append(struct.unpack_from("<H", data, at + 64)[0])
        at += (length + 7) // 8 * 8
    return kinds


def test_18_both_or_neither(bench: Bench) -> None:
    """queue_guarantees.md §7, 18: the message leaves the queue, the results are in the log, side by side."""
    messages = bench.publish()
    assert bench.depth == 1
    assert bench.transact(1, messages, [(RESULT, b"r1"), (AGAIN, b"r2")]) == []
    found = [one for one in bench.records() if one.publisher_id == P0]
    assert [(one.kind, one.sequence) for one in found] == [(KIND_QUEUE_ACKNOWLEDGEMENT, 1), (1, 2), (1, 3)]
    assert [one.payload for one in found[1:]] == [b"r1", b"r2"]
    assert [one.txid for one in found] == [found[0].txid + number for number in range(3)]
    assert [one.position for one in found[1:]] == [
        found[0].position + (found[0].length + 7) // 8 * 8,
        found[1].position + (found[1].length + 7) // 8 * 8,
    ]
    assert bench.depth == 1  # r2 entered the queue, the job left it
    assert bench.sequencer.last_sequence(P0) == 3
    path = bench.feeder.journal_storage.path(0)
    assert raw_kinds(path, 1 << 16)[-4:] == [KIND_TRANSACTION, KIND_QUEUE_ACKNOWLEDGEMENT, 1, 1]


def test_18_a_group_is_written_in_one_piece(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """queue_guarantees.md §7, 18: no write ends inside a group, so no watermark is ever inside one."""
    written: list[tuple[int, int]] = []
    storage = bench.feeder.journal_storage
    write = storage.write

    def note(offset: int, data: memoryview) -> None:
        written.append((offset, len(data)))
        write(offset, data)

    monkeypatch.setattr(storage, "write", note)
    messages = bench.publish(3)
    written.clear()
    for number, message in enumerate(messages):
        bench.push(
            ring_transaction(
                (WORKER, SERIAL), P0, 1 + 3 * number, QUEUE, [message], [(RESULT, b"a"), (RESULT, b"b")]
            )
        )
    bench.turn()
    ends = {offset + length for offset, length in written}
    groups = [one for one in bench.records() if one.publisher_id == P0]
    allowed = {groups[3 * number + 2] for number in range(3)}
    inside = {one.position + (one.length + 7) // 8 * 8 for one in groups if one not in allowed}
    assert not ends & inside


def test_19_a_lost_lease_is_refused(bench: Bench) -> None:
    """queue_guarantees.md §7, 19: nothing is acknowledged or published, and the refusal is a record."""
    held = bench.publish(2)
    bench.feeder.send_control(None, KIND_DISCONNECT, WORKER)
    bench.feeder.send_control(("p0", "user"), KIND_LOGON, WORKER)
    bench.turn()
    assert bench.transact(1, held[:1], [(RESULT, b"r")]) == [("transaction_refused", WORKER, SERIAL, 1)]
    assert bench.depth == 2
    assert [(kind, sequence) for kind, sequence, _ in bench.kinds()] == [(KIND_TRANSACTION_REFUSED, 2)]
    assert bench.sequencer.last_sequence(P0) == 2


def test_19_one_lost_lease_of_several_refuses_all(bench: Bench) -> None:
    """queue_guarantees.md §7, 19: one message of another holder is enough."""
    messages = bench.publish(2)
    bench.transact(1, messages[1:], [])
    assert bench.transact(2, messages, [(RESULT, b"r")]) == [("transaction_refused", WORKER, SERIAL, 2)]
    assert bench.depth == 1


def test_19_a_lease_that_ended_by_time(bench: Bench) -> None:
    """queue_guarantees.md §7, 19: when the transaction comes, another connection holds the message."""
    bench.feeder.send_control([1, [2], 1, None], KIND_QUEUE_SUBSCRIBE, WORKER)
    parts = RecordParts(b"job", publisher_id=PUBLISHER + 1)
    bench.feeder.push(Feed(PUBLISHER, 1, "T", parts))
    bench.turn()
    position = next(one.position for one in bench.records() if one.publisher_id == PUBLISHER + 1)
    message = (PUBLISHER + 1, 1, position)
    bench.push(control_record((b"E", b"json"), KIND_DECLARE_TOPIC, topic=QUEUE))
    bench.feeder.send_control([1, [2], 0, None], KIND_QUEUE_SUBSCRIBE, WORKER)
    bench.feeder.send_control([2, [2], 1, None], KIND_QUEUE_SUBSCRIBE, OTHER)
    bench.now_ns += 2 * SECOND_NS
    bench.turn()
    assert bench.transact(1, [message], [(RESULT, b"r")]) == [("transaction_refused", WORKER, SERIAL, 1)]
    assert bench.transact(1, [message], [(RESULT, b"s")], OTHER) == []
    assert [one.payload for one in bench.records() if one.topic == ("R", "json")] == [b"s"]


@pytest.mark.parametrize("case", ["another connection", "not in the log", "no message there"])
def test_19_the_fence_holds_for_the_connection(bench: Bench, case: str) -> None:
    """queue_guarantees.md §7, 19."""
    [message] = bench.publish()
    slot = WORKER
    if case == "another connection":
        slot = OTHER
    elif case == "not in the log":
        message = (7, 7, 0)
    else:
        message = (*message[:2], message[2] + 8)
    replies = bench.transact(1, [message], [(RESULT, b"r")], slot)
    assert replies == [("transaction_refused", slot, SERIAL, 1)]
    assert bench.depth == 1


def test_20_a_repetition_is_answered_as_before(bench: Bench) -> None:
    """queue_guarantees.md §7, 20: once in the log; a refused one is refused again, also after later publishes."""
    first, second = bench.publish(2)
    bench.transact(1, [first], [(RESULT, b"r")])
    assert bench.transact(1, [first], [(RESULT, b"r")]) == []
    refused = [("transaction_refused", WORKER, SERIAL, 3)]
    assert bench.transact(3, [first], [(RESULT, b"s")]) == refused
    assert bench.transact(5, [second], [(RESULT, b"t")]) == []
    assert bench.transact(3, [first], [(RESULT, b"s")]) == refused
    assert [payload for kind, _, payload in bench.kinds() if kind == 1] == [b"r", b"t"]
    assert [kind for kind, _, _ in bench.kinds()].count(KIND_TRANSACTION_REFUSED) == 1


def test_transactions_are_counted_by_queue(bench: Bench) -> None:
    """queue_guarantees.md Q-60: those with an effect, and those that the fence refused; repetitions do not count."""

    def counts() -> list[tuple[int, int]]:
        return [
            (
                bench.queues.counter(queue, "transactions"),
                bench.queues.counter(queue, "transactions_lease_lost"),
            )
            for queue in range(3)
        ]

    first, second = bench.publish(2)
    bench.transact(1, [first], [(RESULT, b"r")])
    assert counts() == [(1, 0), (0, 0), (0, 0)]
    bench.transact(3, [first], [])
    for _ in range(2):
        bench.transact(1, [first], [(RESULT, b"r")])
        bench.transact(3, [first], [])
    assert counts() == [(1, 1), (0, 0), (0, 0)]
    refusal = RecordParts(
        struct.pack("<QII", 0, 1, 0), KIND_TRANSACTION, 0, P0, 4, position=SERIAL << 32 | WORKER
    )
    bench.push(refusal.to_bytes())
    bench.turn()
    bench.transact(5, [second], [(RESULT, b"s")])
    assert counts() == [(2, 1), (0, 0), (0, 0)]


def test_20_a_refusal_of_the_transport_is_recorded(bench: Bench) -> None:
    """queue_guarantees.md Q-32: under its first sequence alone; the core does not answer it, but its repetition."""
    refusal = RecordParts(
        struct.pack("<QII", 0, 1, 0), KIND_TRANSACTION, 0, P0, 4, position=SERIAL << 32 | WORKER
    )
    bench.push(refusal.to_bytes())
    assert bench.turn() == []
    assert [(kind, sequence) for kind, sequence, _ in bench.kinds()] == [(KIND_TRANSACTION_REFUSED, 4)]
    assert bench.sequencer.last_sequence(P0) == 4
    assert bench.sequencer.refused_transactions() == {P0: [4]}
    [message] = bench.publish()
    assert bench.transact(4, [message], [(RESULT, b"r")]) == [("transaction_refused", WORKER, SERIAL, 4)]
    bench.push(refusal.to_bytes())
    assert bench.turn() == []
    assert len(bench.kinds()) == 1


def test_20_a_known_transaction_needs_no_group(bench: Bench) -> None:
    """queue_guarantees.md §7, 20: a transport asks for the answer of a repetition with the first record alone."""
    bench.transact(5, [(7, 7, 0)], [])
    ask = RecordParts(
        struct.pack("<QII", 0, 0, 0), KIND_TRANSACTION, 0, P0, 5, position=SERIAL << 32 | WORKER
    )
    bench.push(ask.to_bytes())
    assert bench.turn() == [("transaction_refused", WORKER, SERIAL, 5)]


def test_20_only_the_latest_refusals_are_remembered(bench: Bench) -> None:
    """queue_guarantees.md §7, 20: memory is bounded."""
    total = REFUSED_TRANSACTIONS_MAX + 2
    for first in range(1, total + 1):
        bench.push(ring_transaction((WORKER, SERIAL), P0, first, QUEUE, [(7, 7, 0)], []))
        if first % 500 == 0:
            bench.turn()
    bench.turn()
    assert bench.sequencer.refused_transactions() == {P0: list(range(3, total + 1))}


def test_a_full_journal_is_left_before_a_group(tmp_path: Path) -> None:
    """queue_guarantees.md §4, 5: a group and the records that it needs are in one journal."""
    for filler in range(0, 1200, 8):
        directory = tmp_path / str(filler)
        directory.mkdir()
        bench = Bench(directory, 8192)
        [message] = bench.publish()
        parts = RecordParts(bytes(1500 + filler), publisher_id=PUBLISHER + 1)
        bench.feeder.push(Feed(PUBLISHER, 2, "V", parts))
        assert bench.transact(1, [message], [(RESULT, b"r" * 500), (AGAIN, b"s")]) == []
        storage = bench.feeder.journal_storage
        kinds = [raw_kinds(storage.path(number), 1 << 20) for number in storage.numbers]
        [home] = [number for number, found in enumerate(kinds) if KIND_TRANSACTION in found]
        at = kinds[home].index(KIND_TRANSACTION)
        assert kinds[home][at : at + 4] == [KIND_TRANSACTION, KIND_QUEUE_ACKNOWLEDGEMENT, 1, 1]
        assert kinds[home][:at].count(KIND_TOPIC) >= 2
        if home:
            assert kinds[0][-1] == KIND_END_OF_FILE
        scan = scan_file(LogFile(str(storage.path(home))), home * 8192)
        assert not scan.damaged


def cut_bench(tmp_path: Path) -> tuple[Bench, int, int]:
    """A log that ends with a group of three records, the worker's sequences 4 to 6, and the group's file offsets."""
    bench = Bench(tmp_path)
    first, second = bench.publish(2)
    bench.transact(1, [first], [(RESULT, b""), (AGAIN, b"")])
    begin = bench.feeder.journal.position
    bench.transact(4, [second], [(AGAIN, b"r" * 30), (RESULT, b"s" * 21)])
    return bench, begin, bench.feeder.journal.position


@pytest.mark.parametrize("mapped", [False, True])
def test_23_a_cut_group_is_removed_whole(tmp_path: Path, mapped: bool) -> None:
    """queue_guarantees.md §7, 23: a journal cut at each byte of a group keeps all or nothing of it."""
    bench, begin, end = cut_bench(tmp_path)
    path = bench.feeder.journal_storage.path(0)
    data = path.read_bytes()
    assert scan_file(data, 0).end_offset == end
    for cut in range(begin, end):
        torn = data[:cut] + bytes(len(data) - cut)
        path.write_bytes(torn)
        index = IndexBuilder(None, 0, 0, len(data))
        found = scan_file(LogFile(str(path)) if mapped else torn, 0, index)
        whole = torn == data
        assert found.end_offset == (end if whole else begin), cut
        assert found.damaged == any(torn[found.end_offset :])
        assert index.end_offset == found.end_offset
        assert index.publishers_seen()[P0][1] == (6 if whole else 3)
        assert found.last_bookmark == (P0, 6 if whole else 3)


@pytest.mark.parametrize("length", [1, 8, 64, 200])
def test_23_a_damaged_group_is_removed_whole(tmp_path: Path, length: int) -> None:
    """queue_guarantees.md §7, 23: bytes of the group that did not reach the disk, anywhere, remove all of it."""
    bench, begin, end = cut_bench(tmp_path)
    data = bench.feeder.journal_storage.path(0).read_bytes()
    for offset in range(begin, end, 1 if length == 1 else 8):
        stop = min(offset + length, end)
        hole = data[:offset] + bytes(stop - offset) + data[stop:]
        if hole == data:
            continue
        index = IndexBuilder(None, 0, 0, len(data))
        found = scan_file(hole, 0, index)
        assert found.end_offset == begin, offset
        assert found.damaged
        assert index.publishers_seen()[P0][1] == 3


def test_23_damage_before_the_tail_is_told_by_what_follows(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 23: the durable watermark in a later record proves that the group was acknowledged."""
    bench, begin, end = cut_bench(tmp_path)
    bench.publish()
    bench.publish()
    data = bytearray(bench.feeder.journal_storage.path(0).read_bytes())
    data[end - 8] ^= 1
    found = scan_file(bytes(data), 0)
    assert found.end_offset == begin
    assert found.durable_position > end


def test_22_readers_see_ordinary_records(bench: Bench) -> None:
    """queue_guarantees.md §7, 22: readers see an acknowledgement and publishes; tools see the group as well."""
    [message] = bench.publish()
    bench.transact(1, [message], [(RESULT, b"r1"), (RESULT, b"r2")])
    bench.transact(4, [(7, 7, 0)], [])
    path = bench.feeder.journal_storage.path(0)
    with JournalFile(path) as file:
        entries = [entry for entry in file.entries() if entry.publisher_id == P0]
    assert [(entry.kind_name, entry.transaction) for entry in entries] == [
        ("queue_acknowledgement", (1, 3)),
        ("publish", (2, 3)),
        ("publish", (3, 3)),
        ("transaction_refused", None),
    ]
    assert {entry.client_name for entry in entries} == {b"p0"}
    assert [one.kind for one in bench.records()].count(KIND_TRANSACTION) == 0
    found = scan_file(LogFile(str(path)), 0)
    assert found.refused == [(P0, 4, 4)]
    assert not found.damaged


def test_refused_transactions_of_a_full_journal(tmp_path: Path) -> None:
    """queue_guarantees.md §4, 6: the end-of-file record leads to the refusals of its journal."""
    bench = Bench(tmp_path, 8192)
    for first in range(1, 120, 3):
        bench.transact(first, [(7, 7, 0)], [(RESULT, b""), (RESULT, b"")])
    storage = bench.feeder.journal_storage
    assert len(storage.numbers) > 1
    found: list[int] = []
    for number in storage.numbers[:-1]:
        file = LogFile(str(storage.path(number)))
        scan = scan_file(file, number * 8192)
        refused = file.refused_transactions(scan.end_offset - 80)
        assert refused == scan.refused
        found += [first for _, first, _ in refused]
    last = LogFile(str(storage.path(storage.numbers[-1])))
    found += [first for _, first, _ in scan_file(last, last.start_position).refused]
    assert found == list(range(1, 120, 3))


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: record[:80] + struct.pack("<QII", 8, 2, 0) + record[96:],
        lambda record: record[:88] + struct.pack("<I", 3) + record[92:],
        lambda record: record[: 96 + 64] + b"\x01" + record[96 + 65 :],
        lambda record: record[: 96 + 40] + struct.pack("<Q", 9) + record[96 + 48 :],
    ],
    ids=["bytes", "count", "kind", "sequence"],
)
def test_a_malformed_group_stops_the_core(bench: Bench, damage: object) -> None:
    """queue_guarantees.md §4, 5: a transport with a defect must not make the log unreadable."""
    [message] = bench.publish()
    position = bench.feeder.journal.position
    record = ring_transaction((WORKER, SERIAL), P0, 1, QUEUE, [message], [(RESULT, b"r")])
    bench.push(damage(record))  # type: ignore[operator]
    with pytest.raises(ValueError, match="a transport pushed a transaction"):
        bench.turn()
    assert bench.feeder.journal.position == position


def test_queues_are_rebuilt_from_groups(tmp_path: Path) -> None:
    """queue_guarantees.md §4, 5: a restart gives the same queues, from every place of the log."""
    world = World(tmp_path, 5)
    worker, chance = 0, random.Random(5)
    for number, name in ((QUEUE, b"Q"), (RESULT, b"R"), (AGAIN, b"U")):
        assert world.feeder.ring.push(control_record((name, b"json"), KIND_DECLARE_TOPIC, topic=number))
    accepted = 0

    def transact(step: int) -> None:
        nonlocal accepted
        if step % 10:
            return
        if worker not in world.live.values():
            world.live[world.numbers] = worker
            world.feeder.send_control([world.numbers, [0], 50, None], KIND_QUEUE_SUBSCRIBE, worker)
            world.numbers += 1
        world.turn()
        world._learn_positions()
        known = {position: bookmark for bookmark, position in world.positions.items()}
        held = [
            position for position, state in world.queues.manager.states(0) if state == 3 and position in known
        ]
        chosen = chance.sample(held, min(len(held), chance.randrange(1, 4)))
        if not chosen:
            return
        first = world.feeder.sequencer.last_sequence(P0) + 1
        publishes = [(chance.choice([RESULT, AGAIN]), bytes(chance.randrange(50))) for _ in range(3)]
        messages = [(*known[position], position) for position in chosen]
        world.feeder.ring.push(ring_transaction((worker, SERIAL), P0, first, QUEUE, messages, publishes))
        world.sequences[worker] = max(world.sequences[worker], first + 3)
        world.turn()
        refused = [answer for answer in world.answers if answer[0] == "transaction_refused"]
        world.answers.clear()
        accepted += not refused
        world.check()

    world.run(600, transact)
    assert accepted > 5


def test_20_recovery_finds_the_refusals_of_all_journals(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 20: also those that no other file knows, in full journals and in the newest one."""
    bench = Bench(tmp_path, FILE_BYTES)
    bench.feeder.send_control(("p1", "user"), KIND_LOGON, OTHER)
    for first in range(1, 160):
        bench.transact(first, [(7, 7, 0)], [])
        bench.transact(2 * first, [(7, 7, 0)], [(RESULT, b"")], OTHER)
    directory = Directory(tmp_path)
    assert len(directory.numbers) > 2
    found = directory.recover()
    expected = {P0: list(range(1, 160)), publisher_id("p1"): list(range(2, 320, 2))}
    assert found.refused == expected == bench.sequencer.refused_transactions()
    assert found.publishers[P0] == 159
    assert 0 < found.last_refused_offset < FILE_BYTES
    # What `clients.ack` covers is not read again.
    assert found.clients.refused.keys() == expected.keys()
    assert len(found.clients.refused[P0]) < 159


def test_20_the_chain_of_refusals_goes_on_after_a_restart(bench: Bench) -> None:
    """queue_guarantees.md §4, 6: a file that two processes of the core wrote has one chain."""
    bench.transact(1, [(7, 7, 0)], [])
    bench.restart()
    bench.transact(2, [(7, 7, 0)], [])
    assert bench.sequencer.change_journal()
    file = LogFile(str(bench.feeder.journal_storage.path(0)))
    scan = scan_file(file, 0)
    assert scan.finished
    refused = file.refused_transactions(scan.end_offset - 80)
    assert [first for _, first, _ in refused] == [1, 2]


def test_23_recovery_cuts_a_torn_group(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 23: the whole group is overwritten with zeros, and the log goes on before it."""
    bench = Bench(tmp_path, FILE_BYTES)
    first, second = bench.publish(2)
    bench.transact(1, [first], [(RESULT, b"a"), (RESULT, b"b")])
    begin = bench.feeder.journal.position
    bench.transact(4, [second], [(RESULT, b"c"), (RESULT, b"d")])
    end = bench.feeder.journal.position
    directory = Directory(tmp_path)
    path = directory.journal(0)
    data = path.read_bytes()
    path.write_bytes(data[: end - 50] + bytes(len(data) - end + 50))
    directory.promise(begin)
    found = directory.recover()
    assert (found.position, found.publishers[P0]) == (begin, 3)
    assert [event for event, _ in directory.reports] == ["1D-0005"]
    assert path.read_bytes() == data[:begin] + bytes(len(data) - begin)
    path.write_bytes(data[: end - 50] + bytes(len(data) - end + 50))
    directory.promise(end)
    with pytest.raises(RecoveryRefused, match=f"damaged at offset {begin}"):
        directory.recover()


def finished_bench(directory: Path) -> tuple[Bench, Path]:
    """A full journal with two groups and a refusal."""
    bench = Bench(directory)
    first, second = bench.publish(2)
    bench.transact(1, [first], [(RESULT, b"r1"), (RESULT, b"r2")])
    bench.transact(4, [(7, 7, 0)], [])
    bench.transact(5, [second], [(RESULT, b"r3")])
    assert bench.sequencer.change_journal()
    return bench, bench.feeder.journal_storage.path(0)


def test_22_columns_of_spark_have_ordinary_rows(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 22: a row for each record of the group, none for the transaction itself."""
    _, path = finished_bench(tmp_path)
    rows = RecordRows(("kind", "sequence"))
    records = RecordColumns(rows, lambda topic, message_type: 0)
    file = LogFile(str(path))
    records.open(file)
    records.seek(4096, file.size)
    assert records.advance() == STOPPED_FINISHED
    count, buffers = rows.take()
    _, offsets, kinds = buffers["kind"]
    ends = struct.unpack(f"<{count + 1}i", bytes(offsets))
    found = [bytes(kinds)[begin:end].decode() for begin, end in itertools.pairwise(ends)]
    group = ["queue_acknowledgement", "publish", "publish"]
    assert found == ["publish", "publish", *group, "transaction_refused", *group[:2]]


def test_22_a_compressed_journal(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 22: its groups are checked, and its refusals found, as in a plain one."""
    _, path = finished_bench(tmp_path)
    packed = tmp_path / "packed.journal.gz"
    plain = LogFile(str(path))
    for _ in compress_journal(Disk(), path, packed):
        pass  # it replaces the plain one
    compressed = LogFile(str(packed))
    assert compressed.compressed
    index = IndexBuilder(None, 0, 0, plain.size)
    scan, again = scan_file(plain, 0), scan_file(compressed, 0, index)
    assert (again.finished, again.end_offset, again.record_count) == (
        True,
        scan.end_offset,
        scan.record_count,
    )
    assert compressed.refused_transactions(scan.end_offset - 80) == scan.refused == [(P0, 4, 4)]
    with JournalFile(packed) as file:
        places = [entry.transaction for entry in file.entries()]
        assert file.survey()[0].entry_count == len(places)
    assert places == [None, None, (1, 3), (2, 3), (3, 3), None, (1, 2), (2, 2)]


def test_22_a_topic_index_leads_to_the_publishes(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 22: its offsets are those of ordinary records."""
    _, path = finished_bench(tmp_path)
    target = tmp_path / "x.topic.index"
    for _ in topic_index_file_steps(Disk(), path, target):
        pass
    reader = open_topic_index(target)
    [number] = [number for number, (topic, _, _) in enumerate(reader.topics()) if topic == b"R"]
    data = path.read_bytes()
    offsets = [int(offset) for offset in reader.offsets(number)]
    assert [data[offset + 64] for offset in offsets] == [1, 1, 1]
    assert [data[offset + 40] for offset in offsets] == [2, 3, 6]


def test_the_core_takes_what_transports_lay_out(tmp_path: Path) -> None:
    """queue_guarantees.md §4, 1, 5: a valid body, as an ingress lays it out, gives exactly its publishes in the log."""
    bench = Bench(tmp_path, 1 << 20)
    sequence = 1
    for seed in range(100):
        rng = cases.Random(seed)
        body = transactions.valid_body(rng)
        expected = transactions.decide(body, sequence, False, (0, 0))
        if isinstance(expected, transactions.Refused):
            continue  # a topic is written with escapes
        entrance = transactions.Entrance(False, 60, P0, bench.publish(rng.randrange(1, 4)))
        for number, name in entrance.numbers().items():
            bench.push(control_record((f"of {name}".encode(), b"json"), KIND_DECLARE_TOPIC, topic=number))
        bench.push(control_record((b"Q", b"json"), KIND_DECLARE_TOPIC, topic=entrance.entry("Q").number))
        frame = entrance.command(body, sequence, "persisted")
        record = entrance.plain([frame]) or entrance.for_python([frame])
        assert isinstance(record, bytes)
        bench.push(record)
        assert bench.turn() == []
        found = [one for one in bench.records() if one.publisher_id == P0 and one.sequence >= sequence]
        assert [(one.kind, one.sequence) for one in found] == [
            (1 if number else KIND_QUEUE_ACKNOWLEDGEMENT, sequence + number)
            for number in range(len(expected) + 1)
        ]
        assert [(one.topic[0], one.payload, one.sow_key, one.correlation_id) for one in found[1:]] == [
            (f"of {one.topic}", one.payload, one.sow_key, one.correlation_id) for one in expected
        ]
        sequence += len(expected) + 1
    assert sequence > 200
    assert bench.depth == 0
