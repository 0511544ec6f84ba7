"""Records that other instances sent: order, repeats, duplicates, names, refusals (replication.md §10, §11, §24.6)."""

import mmap
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import FILE_HEADER_SIZE, LogCursor, LogFile, Record
from amps._core.journal.writer import IndexBuilder, IndexReader, LogWriter, scan_file
from amps._core.queues.manager import LogAdapter
from amps._core.sequencer.sequencer import Sequencer
from amps._core.shm.memory import ControlPage, Ring
from amps._core.values.value import derived_publisher_id, publisher_id
from amps.server.records import (
    KIND_DECLARE_NAME,
    KIND_DECLARE_TOPIC,
    KIND_DISCONNECT,
    KIND_LOGON,
    KIND_REPLICATION_FLOW,
    KIND_REPLICATION_VECTOR,
    KIND_SPILLED_PUBLISH,
    control_record,
    raw_control_record,
)
from tests.support.feed import UNLOGGED_PREFIX, directory_of, read_all
from tests.support.records import (
    CLIENT,
    FLAG_DERIVED_PUBLISHER,
    PATH,
    SOURCE,
    DirectoryStorage,
    RecordParts,
    element,
    padded,
    ring_position,
)
from tests.support.transactions import (
    GROUP,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_TRANSACTION,
    KIND_TRANSACTION_REFUSED,
    TRANSACTION_BYTES,
    acknowledgement_payload,
)

CLIENTS, FLOWS = 0, 1
"""The processes that push: a transport and the replication process."""
SERIAL = 7
P0, P1 = publisher_id("p0"), publisher_id("p1")
FROM_B, FROM_C = "amps-server: from B eb ea", "amps-server: from C ec ea"
DIRECT = "B\tG\teb"


class Storage(DirectoryStorage):
    """A storage that can be full."""

    files_max = 1 << 30

    def prepare_file(self, number: int, minimum_bytes: int) -> int | None:  # type: ignore[override]
        return None if number < self.files_max else 0


@dataclass
class Upstream:
    """A flow from an instance; `slot` is that of its session."""

    name: str
    slot: int
    serial: int = SERIAL
    path: str = DIRECT

    @property
    def id(self) -> int:
        return publisher_id(self.name)

    def extension(self, txid: int, *more: bytes) -> bytes:
        return b"".join(more) + element(SOURCE, self.id, txid) + element(PATH, publisher_id(self.path))


@dataclass
class Core:
    """A core with a transport and a replication process."""

    directory: Path
    file_bytes: int = 1 << 20
    last_sequences: dict[int, int] = field(default_factory=dict)
    vector: bytes | None = None
    make_queues: Callable[[], tuple[LogAdapter, Any]] | None = None

    def __post_init__(self) -> None:
        self.storage = Storage(self.directory, self.file_bytes, "journal")
        self.journal = LogWriter(self.storage, True)
        self.journal.open_first(0, 0, 1)
        self.begin(1)

    def begin(self, next_txid: int) -> None:
        transient_storage = DirectoryStorage(self.directory, 1 << 20, "transient")
        self.transient = LogWriter(transient_storage, False)
        self.transient.open_first(0, 0, next_txid)
        self.transient_storage = transient_storage
        self.control = ControlPage()
        self.rings = [Ring(1 << 20), Ring(1 << 20)]
        self.spills: dict[bytes, bytes] = {}
        self.writes_vectors = True
        self.sequencer = Sequencer(
            self.journal,
            self.transient,
            lambda topic, message_type: not topic.startswith(UNLOGGED_PREFIX),
            self._open_spill,
            next_txid,
            self.last_sequences,
            1000,
            None if self.make_queues is None else self.make_queues(),
            None,
            self._write_vector,
        )
        for index, ring in enumerate(self.rings):
            self.sequencer.attach_transport(index, ring)
            for number, topic in enumerate((b"t", b"u", b"Q", UNLOGGED_PREFIX.encode())):
                self.push(index, control_record((topic, b"json"), KIND_DECLARE_TOPIC, topic=number))
        self.turn()

    def restart(self) -> None:
        """Go on after the core died: with what the journals and their indexes tell."""
        last: dict[int, int] = {}
        for number in range(self.journal.number):
            index = IndexReader(self.storage.indexes[number], True)
            last.update({int(row["publisher_id"]): int(row["last_sequence"]) for row in index.publishers()})
        number, start = self.journal.number, self.journal.start_position
        builder = IndexBuilder(None, number, start, self.journal.size)
        found = scan_file(LogFile(str(self.storage.path(number)), number), start, builder)
        last.update({id_: row[1] for id_, row in builder.publishers_seen().items()})
        size, next_txid = self.journal.size, self.sequencer.next_txid
        self.journal = LogWriter(self.storage, True)
        self.journal.resume(
            number,
            start,
            size,
            start + found.end_offset,
            builder,
            len(found.topics),
            found.name_ids,
            found.last_refused_offset,
        )
        self.last_sequences = last
        self.begin(next_txid)

    def _open_spill(self, token: bytes) -> mmap.mmap:
        memory = mmap.mmap(-1, len(self.spills[token]))
        memory[:] = self.spills[token]
        return memory

    def _write_vector(self, path: str, pairs: bytearray) -> bool:
        self.vector = bytes(pairs)
        return self.writes_vectors

    def push(self, index: int, record: bytes) -> None:
        assert self.rings[index].push(record)

    def turn(self, now_ns: int = 2000) -> list[tuple[object, ...]]:
        while self.sequencer.turn(self.control, now_ns, 0, 1 << 20):
            self.sequencer.release(())
        return [reply for _, reply in self.sequencer.take_replies()]  # type: ignore[misc]

    def flow(self, name: str = FROM_B, slot: int = 0, serial: int = SERIAL, path: str = DIRECT) -> Upstream:
        """Begin a flow."""
        upstream = Upstream(name, slot, serial, path)
        self.push(FLOWS, control_record([name], KIND_REPLICATION_FLOW, slot, serial))
        self.name(3, path)
        return upstream

    def name(self, name_class: int, text: str) -> None:
        self.push(FLOWS, control_record([name_class, publisher_id(text), text.encode()], KIND_DECLARE_NAME))

    def send(
        self,
        upstream: Upstream,
        txid: int,
        publisher: int,
        sequence: int,
        payload: bytes = b"{}",
        **more: object,
    ) -> None:
        """Push one record of a flow."""
        parts = RecordParts(
            payload,
            publisher_id=publisher,
            sequence=sequence,
            position=ring_position(upstream.slot, upstream.serial),
            extension=upstream.extension(txid),
        )
        self.push(FLOWS, replace(parts, **more).to_bytes())  # type: ignore[arg-type]

    def records(self, transient: bool = False) -> list[Record]:
        storage = self.transient_storage if transient else self.storage
        writer = self.transient if transient else self.journal
        return read_all(LogCursor(directory_of(storage), 0, 0, True), writer.position)

    def rows(self) -> list[tuple[int, int, bytes]]:
        """Publisher, sequence and payload of each message in the journal."""
        return [(one.publisher_id, one.sequence, one.payload) for one in self.records()]

    def transaction(
        self,
        upstream: Upstream,
        txid: int,
        publisher: int,
        first: int,
        payloads: list[bytes],
        head: int | None = None,
    ) -> bytes:
        """A transaction of a flow: an acknowledgement on the topic `Q`, and publishes to `u`."""
        position = ring_position(upstream.slot, upstream.serial)
        parts = [
            RecordParts(
                acknowledgement_payload([(P1, 1, 1)]) if not number else payloads[number - 1],
                1 if number else KIND_QUEUE_ACKNOWLEDGEMENT,
                1 if number else 2,
                publisher,
                first + number,
                position=position,
                extension=upstream.extension(txid + number),
            )
            for number in range(len(payloads) + 1)
        ]
        group = b"".join(padded(one.to_bytes()) for one in parts)
        length = len(group) if head is None else head
        top = RecordParts(
            GROUP.pack(length, len(parts), 0), KIND_TRANSACTION, 2, position=position
        ).to_bytes()
        return struct.pack("<I", TRANSACTION_BYTES + len(group)) + top[4:] + group


@pytest.fixture
def core(tmp_path: Path) -> Core:
    return Core(tmp_path)


def names_in_use(core: Core) -> dict[int, str]:
    """The names in the file in use."""
    file = LogFile(str(core.storage.path(core.journal.number)), core.journal.number)
    assert core.journal.index is not None
    names = file.names_before(core.journal.index.last_name_offset)
    return {name_id: text.decode() for name_id, text in names.items()}


def test_a_record_keeps_what_the_first_instance_gave_it(core: Core) -> None:
    """replication.md §3: bookmark, user, correlation id, lifetime, payload; time and transaction id are local."""
    b = core.flow()
    core.name(1, "p0")
    core.send(
        b,
        900,
        P0,
        5,
        b"body",
        user_id=b"u",
        correlation_id=b"c",
        sow_key=b"k",
        expiration_s=9,
        timestamp_ns=1,
    )
    assert core.turn(2000) == [("replication_flow", 0, SERIAL, 0, 4096)]
    (record,) = core.records()
    assert (record.publisher_id, record.sequence, record.payload) == (P0, 5, b"body")
    assert (record.user_id, record.correlation_id, record.sow_key, record.expiration_s) == (
        b"u",
        b"c",
        b"k",
        9,
    )
    assert (record.timestamp_ns, record.txid) == (2000, 1)
    assert core.sequencer.last_sequence(b.id) == 900
    assert names_in_use(core) == {P0: "p0", b.id: FROM_B, publisher_id(DIRECT): DIRECT}


def test_each_file_names_what_its_records_use(tmp_path: Path) -> None:
    """The client, the upstream and the path have one name record in each file, before their first use."""
    core = Core(tmp_path, 12288)
    b, c = core.flow(), core.flow(FROM_C, 1, path="A\tG\tea\nC\tG\tec")
    for name in ("p0", "p1"):
        core.name(1, name)
    core.turn()
    for number in range(1, 60):
        core.send(b, number, P0, number, b"x" * 400)
        core.send(c, number, P1, number, b"y" * 300)
    core.turn()
    assert core.journal.number >= 4
    assert [row[1] for row in core.rows() if row[0] == P1] == list(range(1, 60))
    expected = {
        P0: "p0",
        P1: "p1",
        b.id: FROM_B,
        c.id: FROM_C,
        publisher_id(DIRECT): DIRECT,
        publisher_id(c.path): c.path,
    }
    assert names_in_use(core) == expected
    kinds = []
    for number in core.storage.numbers:
        data, at, found = core.storage.path(number).read_bytes(), 4096, []
        while at + 80 <= len(data) and (length := struct.unpack_from("<I", data, at)[0]):
            if struct.unpack_from("<H", data, at + 64)[0] == 18:
                found.append(data[at + 104 : at + length].decode())
            at += (length + 7) // 8 * 8
        kinds.append(sorted(found))
    assert all(found == sorted(expected.values()) for found in kinds)


def test_a_publisher_of_both_ways_is_named_once(core: Core) -> None:
    """Whether a client's name came by a logon or from another instance."""
    core.push(CLIENTS, control_record(("p0", "user"), KIND_LOGON, 3, 1))
    core.push(
        CLIENTS, RecordParts(b"1", publisher_id=P0, sequence=1, position=ring_position(3, 1)).to_bytes()
    )
    core.turn()
    b = core.flow()
    core.name(1, "p0")
    core.send(b, 1, P0, 2)
    core.turn()
    core.push(
        CLIENTS, RecordParts(b"3", publisher_id=P0, sequence=3, position=ring_position(3, 1)).to_bytes()
    )
    core.turn()
    assert [row[1] for row in core.rows()] == [1, 2, 3]
    assert core.storage.path(0).read_bytes().count(b"p0") == 1


def test_repeats_of_an_upstream_are_dropped(core: Core) -> None:
    """replication.md §12: a record whose transaction id is not above the last one of its upstream."""
    b = core.flow()
    for txid in (10, 20, 10, 20, 5, 30):
        core.send(b, txid, P0 + txid, 1, b"%d" % txid)
    core.turn()
    assert [row[2] for row in core.rows()] == [b"10", b"20", b"30"]
    assert core.sequencer.repeats == 3


def test_first_arrivals_count_and_duplicates_are_dropped(core: Core) -> None:
    """Behaviours 21, 28: a message that came by another way, or from its publisher, is dropped; the number of the
    upstream moves on all the same.
    """
    b, c = core.flow(), core.flow(FROM_C, 1)
    core.push(CLIENTS, control_record(("p1", "user"), KIND_LOGON, 3, 1))
    core.push(
        CLIENTS, RecordParts(b"own", publisher_id=P1, sequence=4, position=ring_position(3, 1)).to_bytes()
    )
    core.turn()
    core.send(b, 10, P0, 5, b"from b")
    core.send(c, 70, P0, 5, b"from c")
    core.send(c, 80, P0, 3, b"too late")
    core.send(c, 90, P1, 4, b"from c")
    core.send(c, 95, P1, 9, b"gaps are legal")
    core.turn()
    assert core.rows() == [(P1, 4, b"own"), (P0, 5, b"from b"), (P1, 9, b"gaps are legal")]
    assert core.sequencer.duplicates == 3
    core.send(c, 99, P0, 5)
    core.turn()
    assert core.sequencer.last_sequence(c.id) == 99


def sources(core: Core, upstreams: list[Upstream]) -> dict[int, int]:
    """The upstream of each record in the journal by log position, those of the server included; 0: it is from here."""
    found = {}
    for number in range(core.journal.number + 1):
        data = core.storage.path(number).read_bytes()
        at, start = FILE_HEADER_SIZE, number * core.file_bytes
        while at < core.file_bytes and (length := int.from_bytes(data[at : at + 4], "little")):
            raw = data[at : at + length]
            found[start + at] = sum(one.id for one in upstreams if element(SOURCE, one.id, 0)[:-8] in raw)
            at += (length + 7) // 8 * 8
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["b", "b", "b", "c", "own", "turn", "group", "topic", "name"]), st.integers(1, 5)),
        max_size=30,
    )
)
def test_a_stretch_has_nothing_but_records_of_one_upstream(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """docs/replication.md, "How a source sends": nobody reads it who replicates to that upstream only."""
    core = Core(tmp_path_factory.mktemp("log"), 16384)
    flows = {"b": core.flow(), "c": core.flow(FROM_C, 1)}
    core.push(CLIENTS, control_record(("p1", "user"), KIND_LOGON, 3, 1))
    core.turn()
    number = 0
    longest = 0
    for what, count in [*steps, ("b", 3), ("turn", 1)]:
        for _ in range(count):
            number += 1
            if what in flows:
                core.send(flows[what], number, P0, number)
            elif what == "own":
                parts = RecordParts(b"own", publisher_id=P1, sequence=number, position=ring_position(3, 1))
                core.push(CLIENTS, parts.to_bytes())
            elif what == "group":
                core.push(FLOWS, core.transaction(flows["b"], number, P0, number, [b"x"]))
                number += 1
            elif what == "topic":
                core.send(flows["b"], number, P0, number, topic_id=1)
            elif what == "name":
                path = f"A\tG\t{number}\n{DIRECT}"
                core.name(3, path)
                core.send(
                    flows["b"], number, P0, number, extension=replace(flows["b"], path=path).extension(number)
                )
            if what == "turn":
                core.turn()
                upstream, begin, end, last_txid, _ = core.control.newest_stretch()
                found = sources(core, list(flows.values()))
                inside = [at for at in found if begin <= at < end]
                assert {found[at] for at in inside} <= {upstream}
                assert inside[:1] == [begin] * bool(inside)
                txids = {one.position: one.txid for one in core.records()}
                assert not inside or txids[inside[-1]] == last_txid
                assert not inside or min((at for at in found if at >= end), default=core.journal.position) == end
                longest = max(longest, len(inside))
    assert longest >= 3


def test_a_client_that_logs_on_learns_the_sequence_that_came_by_replication(core: Core) -> None:
    """Behaviour 20: its last sequence is that of its messages published elsewhere."""
    b = core.flow()
    core.send(b, 1, P0, 50)
    core.turn()
    core.push(CLIENTS, control_record(("p0", "user"), KIND_LOGON, 3, 1))
    assert core.turn() == [("logon", 3, 1, True, 50, core.journal.position)]
    for sequence in (50, 51):
        core.push(
            CLIENTS,
            RecordParts(b"", publisher_id=P0, sequence=sequence, position=ring_position(3, 1)).to_bytes(),
        )
    core.turn()
    assert [row[1] for row in core.rows()] == [50, 51]


def test_a_flow_begins_behind_what_the_log_has_of_its_upstream(core: Core) -> None:
    """replication.md §24.5: also after a restart, from records alone, over several files."""
    b = core.flow()
    for number in range(1, 20):
        core.send(b, number * 10, P0, number, b"x" * 2000)
        core.turn()
    position = core.journal.position
    core.push(FLOWS, control_record([FROM_B], KIND_REPLICATION_FLOW, 0, SERIAL + 1))
    assert core.turn() == [("replication_flow", 0, SERIAL + 1, 190, position)]
    core.restart()
    core.flow()
    assert core.turn() == [("replication_flow", 0, SERIAL, 190, position)]
    core.flow(FROM_C, 1)
    assert core.turn() == [("replication_flow", 1, SERIAL, 0, position)]


def test_after_a_restart_an_upstream_is_known_from_older_journals(tmp_path: Path) -> None:
    """The index of a full journal has the last transaction id of each upstream."""
    core = Core(tmp_path, 12288)
    b, c = core.flow(), core.flow(FROM_C, 1)
    core.send(b, 77, P0, 1)
    for number in range(1, 60):
        core.send(c, number, P1, number, b"x" * 1000)
    core.turn()
    assert core.journal.number > 2
    core.restart()
    assert (core.sequencer.last_sequence(b.id), core.sequencer.last_sequence(c.id)) == (77, 59)


def test_duplicates_at_the_end_are_repeated_after_a_restart(core: Core) -> None:
    """The recovered number of an upstream is never ahead of its records; the repeat is dropped again."""
    b, c = core.flow(), core.flow(FROM_C, 1)
    core.send(b, 10, P0, 1)
    core.send(c, 500, P0, 1)
    core.turn()
    assert core.sequencer.last_sequence(c.id) == 500
    core.restart()
    assert core.sequencer.last_sequence(c.id) == 0
    c = core.flow(FROM_C, 1)
    core.send(c, 500, P0, 1)
    core.turn()
    assert len(core.rows()) == 1
    assert core.sequencer.last_sequence(c.id) == 500


def test_an_upstream_has_one_flow(core: Core) -> None:
    """A new flow of an upstream ends the session of the one before, whose records in the ring are dropped."""
    old = core.flow()
    new = core.flow(slot=5)
    core.send(old, 10, P0, 1)
    core.send(new, 20, P0, 2)
    core.turn()
    assert [row[1] for row in core.rows()] == [2]
    core.push(FLOWS, control_record([], KIND_DISCONNECT, 5, SERIAL))
    core.send(new, 30, P0, 3)
    core.turn()
    assert [row[1] for row in core.rows()] == [2]
    assert core.sequencer.fenced == 2


def test_messages_that_a_server_numbered_keep_their_numbers(core: Core) -> None:
    """Behaviour 22: publisher id and sequence of the instance that numbered them, the client beside."""
    b = core.flow()
    core.name(1, "p0")
    core.push(CLIENTS, control_record(("p0", "user"), KIND_LOGON, 3, 1))
    there, here = derived_publisher_id("p0", "B"), derived_publisher_id("p0", "A")
    core.send(b, 9, there, 9, flags=FLAG_DERIVED_PUBLISHER, extension=b.extension(9, element(CLIENT, P0)))
    core.push(
        CLIENTS,
        RecordParts(
            b"",
            publisher_id=here,
            flags=FLAG_DERIVED_PUBLISHER,
            position=ring_position(3, 1),
            extension=element(CLIENT, P0),
        ).to_bytes(),
    )
    core.turn()
    rows = core.records()
    assert {(row.publisher_id, row.sequence) for row in rows} == {(there, 9), (here, 1)}
    # A record of this instance's numbers that comes back is a duplicate, as it is after a restart.
    core.send(b, 12, here, 1, flags=FLAG_DERIVED_PUBLISHER, extension=b.extension(12, element(CLIENT, P0)))
    core.send(b, 13, there, 9, flags=FLAG_DERIVED_PUBLISHER, extension=b.extension(13, element(CLIENT, P0)))
    core.turn()
    assert len(core.rows()) == 2
    assert names_in_use(core)[P0] == "p0"


def test_a_topic_that_is_not_recorded_here_is_not_in_the_journal(core: Core) -> None:
    """Its messages reach the subscribers all the same (validation `txlog` may be excluded)."""
    b = core.flow()
    core.send(b, 1, P0, 1, b"x", topic_id=3)
    core.turn()
    assert core.rows() == []
    assert [one.payload for one in core.records(transient=True)] == [b"x"]
    assert core.sequencer.last_sequence(b.id) == 1


def test_a_transaction_is_one_unit(core: Core) -> None:
    """queue_guarantees.md §4: its records are in one group; repeated or known, it is dropped as a whole."""
    b, c = core.flow(), core.flow(FROM_C, 1)
    core.send(b, 5, P1, 1)
    core.push(FLOWS, core.transaction(b, 10, P0, 7, [b"one", b"two"]))
    core.push(FLOWS, core.transaction(b, 10, P0, 7, [b"one", b"two"]))
    core.push(FLOWS, core.transaction(c, 40, P0, 7, [b"one", b"two"]))
    core.send(b, 13, P0, 10, b"after")
    core.turn()
    assert [(row[1], row[2]) for row in core.rows() if row[0] == P0][1:] == [
        (8, b"one"),
        (9, b"two"),
        (10, b"after"),
    ]
    assert (core.sequencer.repeats, core.sequencer.duplicates) == (3, 3)
    assert (core.sequencer.last_sequence(b.id), core.sequencer.last_sequence(c.id)) == (13, 42)
    txids = [one.txid for one in core.records()]
    assert txids == sorted(txids)
    core.restart()
    assert core.sequencer.last_sequence(b.id) == 13


def test_refused_transactions_of_other_instances_are_remembered(core: Core) -> None:
    """A worker that moves here and repeats a refused transaction is refused again."""
    b = core.flow()
    core.push(CLIENTS, control_record(("p0", "user"), KIND_LOGON, 3, 1))
    for txid, first, last in ((10, 7, 9), (11, 20, 21)):
        core.send(
            b, txid, P0, last, struct.pack("<QQ", 4711, first), kind=KIND_TRANSACTION_REFUSED, topic_id=2
        )
    core.turn()
    assert core.sequencer.refused_transactions() == {P0: [7, 20]}
    head = RecordParts(
        GROUP.pack(0, 1, 0), KIND_TRANSACTION, 2, P0, 20, position=ring_position(3, 1)
    ).to_bytes()
    core.push(CLIENTS, head)
    core.turn()
    found = scan_file(LogFile(str(core.storage.path(0)), 0), 0)
    assert found.refused == [(P0, 7, 9), (P0, 20, 21)]
    core.sequencer.change_journal()
    file = LogFile(str(core.storage.path(0)), 0)
    index = IndexReader(core.storage.indexes[0], True)
    assert file.refused_transactions(index.end_offset) == [(P0, 7, 9), (P0, 20, 21)]


def test_records_of_queues_elsewhere_are_kept(core: Core) -> None:
    """Also where the queue itself is not configured; with a count that is wrong they are malformed."""
    b = core.flow()
    core.send(b, 1, P0, 1, acknowledgement_payload([(P1, 1, 1)]), kind=KIND_QUEUE_ACKNOWLEDGEMENT, topic_id=2)
    core.turn()
    assert len(core.rows()) == 1
    core.send(
        b,
        2,
        P0,
        2,
        struct.pack("<IIQQII", 0, 1 << 31, 0, 0, 0, 0),
        kind=KIND_QUEUE_ACKNOWLEDGEMENT,
        topic_id=2,
    )
    assert core.turn() == [("malformed", 0, SERIAL)]


def test_a_large_record_comes_by_a_spill_file(core: Core) -> None:
    """As a large message of a client does."""
    b = core.flow()
    record = RecordParts(
        b"z" * (1 << 19),
        publisher_id=P0,
        sequence=1,
        position=ring_position(0, SERIAL),
        extension=b.extension(4),
    ).to_bytes()
    core.spills[b"1"] = padded(record)
    core.push(FLOWS, raw_control_record(b"1", KIND_SPILLED_PUBLISH, 0, SERIAL))
    core.turn()
    assert [len(row[2]) for row in core.rows()] == [1 << 19]
    assert core.sequencer.last_sequence(b.id) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"publisher_id": 0},
        {"publisher_id": publisher_id(FROM_B)},
        {"topic_id": 4},
        {"topic_id": 0xFFFFFFFF},
        {"kind": 0},
        {"kind": 7},
        {"kind": 16},
        {"kind": 17},
        {"kind": 18},
        {"kind": 200},
        {"flags": 4},
        {"extension": b""},
        {"extension": b"\1\0\xff\xff"},
        {"extension": element(SOURCE, publisher_id(FROM_C), 2) + element(PATH, publisher_id(DIRECT))},
        {"extension": element(SOURCE, publisher_id(FROM_B), 2)},
        {"extension": element(SOURCE, publisher_id(FROM_B), 2) + element(PATH, 4711)},
        {"kind": KIND_TRANSACTION_REFUSED, "payload": b"short"},
        {"kind": KIND_TRANSACTION_REFUSED, "payload": struct.pack("<QQ", 0, 99)},
        {"kind": KIND_QUEUE_ACKNOWLEDGEMENT, "payload": b"short"},
        {"kind": KIND_TRANSACTION, "payload": b"x" * 16},
        {"kind": KIND_TRANSACTION, "payload": b""},
    ],
    ids=lambda change: "-".join(map(str, change)),
)
def test_a_malformed_record_ends_its_flow_and_nothing_else(core: Core, change: dict[str, object]) -> None:
    """What a peer sends neither stops the core nor enters the log; the next flow begins before that record."""
    b, c = core.flow(), core.flow(FROM_C, 1)
    core.turn()
    values: dict[str, object] = {"txid": 2, "publisher": P0, "sequence": 2} | {
        ("publisher" if key == "publisher_id" else key): value for key, value in change.items()
    }
    core.send(b, 1, P0, 1)
    core.send(b, **values)  # type: ignore[arg-type]
    core.send(b, 3, P0, 3)
    core.send(c, 1, P1, 1)
    assert core.turn() == [("malformed", 0, SERIAL)]
    assert [row[:2] for row in core.rows()] == [(P0, 1), (P1, 1)]
    assert core.sequencer.last_sequence(b.id) == 1


def test_a_publisher_that_becomes_an_upstream_is_refused_from_then_on(core: Core) -> None:
    """Also if its last record was valid: no peer may publish under the name of an upstream."""
    b = core.flow()
    core.send(b, 1, publisher_id(FROM_C), 1)
    assert all(reply[0] != "malformed" for reply in core.turn())
    core.flow(FROM_C, 1)
    core.send(b, 2, publisher_id(FROM_C), 2)
    assert ("malformed", 0, SERIAL) in core.turn()
    assert [row[1] for row in core.rows()] == [1]


def test_a_text_that_comes_late_is_in_the_journal_before_the_next_record(core: Core) -> None:
    b = core.flow()
    core.send(b, 1, P0, 1)
    core.send(b, 2, P0, 2)
    core.turn()
    assert P0 not in names_in_use(core)
    core.name(1, "p0")
    core.send(b, 3, P0, 3)
    core.turn()
    assert P0 in names_in_use(core)
    assert [row[1] for row in core.rows()] == [1, 2, 3]


@pytest.mark.parametrize("damage", ["length", "count", "sequence", "kind", "txid", "cut"])
def test_a_malformed_transaction_ends_its_flow(core: Core, damage: str) -> None:
    """No record of it enters the log."""
    b = core.flow()
    core.turn()
    data = bytearray(core.transaction(b, 10, P0, 7, [b"one", b"two"]))
    second = TRANSACTION_BYTES + struct.unpack_from("<I", data, TRANSACTION_BYTES)[0]
    if damage == "length":
        struct.pack_into("<Q", data, 80, 1 << 40)
    elif damage == "count":
        struct.pack_into("<I", data, 88, 2)
    elif damage == "sequence":
        struct.pack_into("<Q", data, second + 40, 9)
    elif damage == "kind":
        struct.pack_into("<H", data, second + 64, 4)
    elif damage == "txid":
        struct.pack_into("<Q", data, second + 80 + 12, 10)
    else:
        del data[TRANSACTION_BYTES + 8 :]
        struct.pack_into("<I", data, 0, len(data))
    core.push(FLOWS, bytes(data))
    assert core.turn() == [("malformed", 0, SERIAL)]
    assert core.rows() == []


def test_a_name_whose_text_has_another_id_is_ignored(core: Core) -> None:
    """No peer can give a client another name, nor make the core fall by a text."""
    core.flow()
    for text in (b"impostor", b"\xff\xfe", b"x" * 70000):
        core.push(FLOWS, control_record([1, P0, text], KIND_DECLARE_NAME))
    core.send(Upstream(FROM_B, 0), 1, P0, 1)
    core.turn()
    assert P0 not in names_in_use(core)
    assert core.sequencer.client_names == {FROM_B}


def test_a_full_disk_refuses_and_the_flow_begins_again(tmp_path: Path) -> None:
    """The record that finds no room and those behind it come again in a new session, in order, none twice."""
    core = Core(tmp_path, 12288)
    b = core.flow()
    core.turn()
    core.storage.files_max = 1
    for number in range(1, 30):
        core.send(b, number, P0, number, b"x" * 1000)
    core.push(FLOWS, core.transaction(b, 40, P1, 1, [b"one"]))
    assert core.turn() == [("refused", 0, SERIAL)]
    stored = len(core.rows())
    assert core.sequencer.refuses
    assert core.sequencer.last_sequence(b.id) == stored < 29
    core.storage.files_max = 1 << 30
    assert core.sequencer.try_next_journal()
    again = core.flow(serial=SERIAL + 1)
    assert core.turn()[0][3] == stored
    for number in range(stored + 1, 30):
        core.send(again, number, P0, number, b"x" * 1000)
    core.push(FLOWS, core.transaction(again, 40, P1, 1, [b"one"]))
    core.turn()
    assert [row[1] for row in core.rows() if row[0] == P0] == list(range(1, 30))
    assert [row[1] for row in core.rows() if row[0] == P1] == [1, 2]


def test_a_transaction_that_finds_no_room_is_refused_as_a_whole(tmp_path: Path) -> None:
    """Its sequences are free, so that it can be sent again."""
    core = Core(tmp_path, 12288)
    b = core.flow()
    core.storage.files_max = 1
    core.push(FLOWS, core.transaction(b, 40, P1, 1, [b"x" * 4000, b"y" * 4000]))
    assert core.turn()[-1] == ("refused", 0, SERIAL)
    assert core.rows() == []
    assert core.sequencer.last_sequence(P1) == core.sequencer.last_sequence(b.id) == 0


def test_the_vector_has_the_highest_sequence_of_each_publisher(core: Core) -> None:
    """replication.md §24.5: of any way, with the position that must be durable before it is used."""
    b = core.flow()
    core.push(CLIENTS, control_record(("p1", "user"), KIND_LOGON, 3, 1))
    core.push(CLIENTS, RecordParts(b"", publisher_id=P1, sequence=6, position=ring_position(3, 1)).to_bytes())
    core.send(b, 10, P0, 5)
    core.turn()
    core.push(FLOWS, control_record(["file"], KIND_REPLICATION_VECTOR, 0, SERIAL))
    assert core.turn() == [("replication_vector", 0, SERIAL, 3, core.journal.position)]
    assert core.vector is not None
    assert set(struct.iter_unpack("<QQ", core.vector)) == {(P0, 5), (P1, 6), (b.id, 10)}
    core.writes_vectors = False
    core.push(FLOWS, control_record(["file"], KIND_REPLICATION_VECTOR, 0, SERIAL))
    assert core.turn() == [("refused", 0, SERIAL)]


def test_random_bytes_never_stop_the_core(core: Core) -> None:
    """Any bytes in a record's fields give a record of the log that readers understand, or end the flow."""
    dice = random.Random(4)
    for number in range(1, 3000):
        b, publisher = core.flow(f"amps-server: from {number}", serial=number), P0 + number
        record = bytearray(
            RecordParts(
                acknowledgement_payload([(P1, 1, 1)]),
                dice.choice((1, 1, 2, 3, 4, 5, 6, 20)),
                dice.randrange(5),
                publisher,
                number,
                position=ring_position(0, number),
                extension=b.extension(number),
            ).to_bytes()
        )
        if dice.random() < 0.3:
            record = bytearray(core.transaction(b, number, publisher, number, [b"one", b"two"]))
        length = record[:4]
        for _ in range(dice.choice((0, 1, 1, 3))):
            record[dice.randrange(16, len(record))] = dice.choice((0, 1, 0xFF, dice.randrange(256)))
        record[:4] = length
        if struct.unpack_from("<H", record, 64)[0] >= 256:
            continue
        core.push(FLOWS, bytes(record))
        core.turn()
    assert len(core.rows()) > 500
    assert scan_file(LogFile(str(core.storage.path(0)), 0), 0).damaged is False
