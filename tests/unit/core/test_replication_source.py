"""Source flows of replication: which records are sent, and what is acknowledged (replication.md §§9, 24.5-24.7)."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import LogDamaged
from amps._core.replication.stream import (
    FRAME_DATA,
    FRAME_NAMES,
    Rules,
    SourceFlow,
    StreamError,
    TxidSet,
    find_start,
)
from amps._core.shm.memory import PendingTable
from amps._core.values.value import publisher_id
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from tests.support.records import CLIENT, element
from tests.support.streams import (
    KIND_TRANSACTION,
    GrowingLog,
    Logged,
    names_of,
    records_in,
    topic_table,
    whole,
)

ALL = 1 << 60
PEER = ("B", "7")
PATHS = (b"", b"A\tG\t1", b"A\tG\t1\nC\tH\t2", b"B\tG\t7\nC\tG\t2", b"B\tG\t6")
"""Direct, from group G, from group H, through the peer, through an earlier epoch of the peer."""
PASSED_GROUP = "G"


def goes(record: Logged, peer: tuple[str, str] | None = PEER) -> bool:
    """The rules of these tests, a second time: topics that begin with `t`, and messages from group G."""
    if not record.topic.startswith("t") or not record.parts.publisher_id:
        return False
    if not (1 <= record.parts.kind <= 6 or record.parts.kind == 20):
        return False
    hops = [hop.split("\t") for hop in record.path.decode().split("\n")] if record.path else []
    if peer is not None and any((name, epoch) == peer for name, _group, epoch in hops):
        return False
    return not hops or hops[-1][1] == PASSED_GROUP


def rules(peer: tuple[str, str] | None = PEER) -> Rules:
    return Rules(lambda topic, kind: topic.startswith("t"), lambda group: group == PASSED_GROUP, {}, peer)


def flow_over(log: GrowingLog, table: PendingTable | None = None) -> SourceFlow:
    return SourceFlow(rules(), log.cursor(topic_table()), table)


def connect(flow: SourceFlow, log: GrowingLog, start: int = 0, vector: bytes = b"", **more: int) -> None:
    flow.begin(log.cursor(topic_table()), log.position, start, vector, **more)


def send_all(flow: SourceFlow, log: GrowingLog, step: int = ALL) -> list[tuple[int, bytes]]:
    frames: list[tuple[int, bytes]] = []
    while flow.sent_position < log.position:
        frames += whole(flow.fill(log.position, step))
    return frames


RECORD = st.tuples(
    st.sampled_from(["p", "q", "r"]),
    st.sampled_from(["t", "t2", "other"]),
    st.sampled_from(PATHS),
    st.sampled_from([1, 1, 1, 2, 3, 4, 6, 20, 7, 8]),
    st.integers(0, 60),
)
MEMBER = RECORD.filter(lambda one: one[3] != 20)
STEP = st.one_of(RECORD, st.lists(MEMBER, min_size=1, max_size=4), st.just("rotate"))


def grow(log: GrowingLog, steps: list[Any]) -> None:
    sequences: dict[str, int] = {}
    for step in steps:
        if step == "rotate":
            log.rotate()
            continue
        is_group = isinstance(step, list)
        wanted = []
        for client, topic, path, kind, length in step if is_group else [step]:
            sequences[client] = sequences.get(client, 0) + 1
            source = (99, sequences[client]) if path else None
            fields = {"payload": length if isinstance(length, bytes) else bytes(length), "kind": kind}
            wanted.append((client, sequences[client], topic, path, source, "json", b"", fields))
        log.append_group(wanted, is_group)


@settings(deadline=None)
@given(
    steps=st.lists(STEP, max_size=40),
    step=st.sampled_from([1, 500, ALL]),
    start=st.integers(0, 30),
    have=st.dictionaries(st.sampled_from(["p", "q", "x"]), st.integers(0, 12)),
    scanned_before=st.integers(0, 6000),
)
def test_exactly_the_records_that_the_sink_lacks_are_sent_as_they_are(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Any],
    step: int,
    start: int,
    have: dict[str, int],
    scanned_before: int,
) -> None:
    """replication.md §9, §24.5 and §26, 25, 26, 29, 52: by topic, last hop, path and vector."""
    log = GrowingLog(tmp_path_factory.mktemp("log"), 8192)
    grow(log, steps)
    flow = flow_over(log)
    flow.scan(log.position, scanned_before)
    vector = b"".join(struct.pack("<QQ", publisher_id(name), sequence) for name, sequence in have.items())
    connect(flow, log, start, vector)
    frames = send_all(flow, log, step)
    known = {publisher_id(name): sequence for name, sequence in have.items()}

    def lacks(record: Logged) -> bool:
        return record.parts.txid > start and record.parts.sequence > known.get(record.parts.publisher_id, 0)

    expected = [one.raw for one in log.records if goes(one) and lacks(one)]
    sent = records_in(frames)
    assert [one.raw for one in sent if one.kind != KIND_TRANSACTION] == expected
    assert flow.messages_out == len(expected)
    whole = {one.group for one in log.records if one.group} - {
        one.group for one in log.records if not (goes(one) and lacks(one))
    }
    assert sum(one.kind == KIND_TRANSACTION for one in sent) == len(whole)
    check_names(frames, log)


def check_names(frames: list[tuple[int, bytes]], log: GrowingLog) -> None:
    """Each record's topic and names are given before it, topics for the journal of the record."""
    topics: dict[tuple[int, int], bytes] = {}
    names: dict[int, bytes] = {}
    by_raw = {one.raw: one for one in log.records}
    for kind, payload in frames:
        if kind == FRAME_NAMES:
            for journal, name_kind, name_id, text in names_of(payload):
                if name_kind == 0:
                    assert (journal, name_id) not in topics
                    topics[journal, name_id] = text
                else:
                    assert name_id not in names
                    assert name_id == publisher_id(text.decode())
                    names[name_id] = text
            continue
        for one in records_in([(kind, payload)]):
            if one.kind != KIND_TRANSACTION:
                record = by_raw[one.raw]
                assert topics[one.journal, record.parts.topic_id] == b"json\t" + record.topic.encode()
                assert record.parts.publisher_id in names
                assert not record.path or record.path in names.values()


def test_a_client_whose_messages_the_server_numbers_is_named(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    client = log._name(1, b"anna")
    log.append("", 5, publisher_id=77, extension=element(CLIENT, client))
    flow = flow_over(log)
    connect(flow, log)
    (names, _data) = send_all(flow, log)
    assert [one[1:] for one in names_of(names[1])] == [(0, 0, b"json\tt"), (1, client, b"anna")]


def test_publisher_0_and_reserved_topics_stay_here(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.append("p", 1, "/AMPS/x")
    log.append("", 5, publisher_id=0)
    flow = SourceFlow(Rules(lambda topic, kind: True, lambda group: True, {}), log.cursor(topic_table()))
    connect(flow, log)
    assert log._name(1, b"p")
    assert [one.raw for one in records_in(send_all(flow, log))] == [log.records[1].raw]


def test_without_pass_through_only_direct_publishes_are_sent(tmp_path: Path) -> None:
    """Behaviour 25 of replication.md."""
    log = GrowingLog(tmp_path)
    log.append("p", 1)
    log.append("p", 2, path=b"A\tG\t1", source=(9, 1))
    flow = SourceFlow(Rules(lambda topic, kind: True, None, {}), log.cursor(topic_table()))
    connect(flow, log)
    assert [one.txid for one in records_in(send_all(flow, log))] == [1]


def test_the_window_stops_the_source_and_credit_lets_it_go_on(tmp_path: Path) -> None:
    """replication.md §24.6: the source stops reading when the window is used; the scan goes on."""
    log = GrowingLog(tmp_path)
    for number in range(20):
        log.append("p", number + 1)
    flow = flow_over(log)
    connect(flow, log, window=200)
    assert len(records_in(whole(flow.fill(log.position, ALL)))) == 3  # 80 bytes each: the third one uses it up
    assert flow.fill(log.position, ALL) == []
    assert flow.window == -40
    assert flow.scan(log.position, ALL)
    assert flow.scanned_position == log.position > flow.sent_position
    flow.credit(40)
    assert flow.fill(log.position, ALL) == []
    flow.credit(10**6)
    assert [one.txid for one in records_in(whole(flow.fill(log.position, ALL)))] == list(range(4, 21))
    assert flow.sent_position == log.position


def test_a_scan_goes_on_without_the_connection(tmp_path: Path) -> None:
    """The owner leaves the scan to `fill` while the connection takes records: one reading instead of two."""
    log = GrowingLog(tmp_path)
    for number in range(20):
        log.append("p", number + 1)
    flow = flow_over(log)
    assert not flow.scans_by_sending
    connect(flow, log)
    assert flow.scans_by_sending
    assert len(records_in(whole(flow.fill(log.position, 400)))) < 20
    before = flow.scanned_position
    assert flow.scans_by_sending
    assert flow.scan(log.position, ALL)  # the socket is blocked
    assert not flow.scans_by_sending
    assert flow.scanned_position == log.position > flow.sent_position == before
    send_all(flow, log)
    assert flow.scans_by_sending
    assert flow.messages_out == 20
    flow.end()
    assert not flow.scans_by_sending


def test_neighbours_in_a_journal_are_sent_without_a_copy(tmp_path: Path) -> None:
    """Parts of a payload are views of the journal, except for short runs; every record is there, once and in order."""
    log = GrowingLog(tmp_path, 1 << 20)
    for number in range(300):
        log.append("p", number + 1, "other" if number in (100, 102, 104) else "t", payload=bytes([number % 250]) * 100)
    flow = flow_over(log)
    connect(flow, log)
    frames = flow.fill(log.position, ALL)
    (parts,) = [parts for kind, parts in frames if kind == FRAME_DATA]
    views = [part for part in parts if isinstance(part, memoryview)]
    assert len(views) == 2
    assert sum(map(len, parts)) - sum(map(len, views)) < 1000
    assert [one.raw for one in records_in(whole(frames))] == [one.raw for one in log.records if goes(one)]


def test_records_written_meanwhile_are_sent_as_they_are_in_memory(tmp_path: Path) -> None:
    """The sink checks them (`test_replication_sink.py`); earlier ones are checked here, too."""
    log = GrowingLog(tmp_path)
    log.append("p", 1)
    trusted_from = log.position
    records = [log.append("p", number, payload=b"abc") for number in (2, 3)]
    flow = SourceFlow(rules(), log.cursor(topic_table()), trusted_from=trusted_from)
    assert flow.scan(trusted_from, ALL)
    connect(flow, log, 1)
    damage(log, records[1])
    assert [one.txid for one in records_in(whole(flow.fill(log.position, ALL)))] == [2, 3]
    flow = SourceFlow(rules(), log.cursor(topic_table()), trusted_from=log.position)
    with pytest.raises(LogDamaged, match="checksum"):
        flow.scan(log.position, ALL)


def damage(log: GrowingLog, record: Logged) -> None:
    for number in range(1, 10):
        if log.path(number).exists() and (at := log.path(number).read_bytes().find(record.raw)) >= 0:
            with log.path(number).open("r+b") as file:
                file.seek(at + len(record.raw) - 8)
                file.write(b"damaged!")
            return
    raise AssertionError("the record is in no journal")


def test_nothing_at_or_behind_the_limit_is_sent(tmp_path: Path) -> None:
    """A record leaves an instance only below its durable watermark."""
    log = GrowingLog(tmp_path)
    records = [log.append("p", number + 1) for number in range(5)]
    flow = flow_over(log)
    connect(flow, log)
    assert [one.txid for one in records_in(whole(flow.fill(records[3].parts.position, ALL)))] == [1, 2, 3]
    assert flow.scanned_position == records[3].parts.position


def test_batches_are_of_about_half_a_megabyte(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path, 8 << 20)
    for number in range(5):
        log.append("p", number + 1, payload=bytes(300_000))
    flow = flow_over(log)
    connect(flow, log)
    frames = [payload for kind, payload in send_all(flow, log) if kind == FRAME_DATA]
    assert [len(records_in([(FRAME_DATA, payload)])) for payload in frames] == [2, 2, 1]


def test_damage_is_reported_and_never_sent(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    records = [log.append("p", number + 1, payload=b"abc") for number in range(3)]
    damage(log, records[1])
    flow = flow_over(log)
    connect(flow, log)
    with pytest.raises(LogDamaged, match="checksum"):
        flow.fill(log.position, ALL)


def test_a_vector_that_is_no_list_of_pairs_is_refused(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    with pytest.raises(StreamError):
        connect(flow_over(log), log, 0, b"123")


def test_the_vector_counts_only_for_what_was_there_at_the_start(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.append("p", 1)
    flow = flow_over(log)
    connect(flow, log, 0, struct.pack("<QQ", publisher_id("p"), 9))
    log.append("p", 2)
    assert [one.txid for one in records_in(send_all(flow, log))] == [2]
    log.append("p", 3)
    assert [one.txid for one in records_in(send_all(flow, log))] == [3]


# --- the start --------------------------------------------------------------------------------------------


def test_the_start_is_in_the_journal_of_the_first_record_that_the_sink_lacks(tmp_path: Path) -> None:
    """replication.md §24.5: the start, and a gap if journals are gone."""
    log = GrowingLog(tmp_path, first_txid=100)
    for _ in range(3):
        log.append("p", log.txid)
        log.append("p", log.txid)
        log.rotate()
    directory = log.directory(topic_table())
    # Journals 1 to 4 begin with 100, 102, 104, 106.
    assert [find_start(directory, 1, 4, txid)[0] for txid in (0, 99, 100, 101, 102, 103, 105, 200)] == [
        1, 1, 1, 2, 2, 3, 4, 4,
    ]  # fmt: skip
    assert find_start(directory, 1, 4, 98) == (1, (99, 99))
    assert find_start(directory, 3, 4, 100) == (3, (101, 103))
    assert find_start(directory, 3, 4, 103) == (3, None)
    assert find_start(directory, 3, 4, 0) == (3, (1, 103)), "a new instance does not get what was removed"
    assert find_start(directory, 3, 4, 0, 103) == (3, None), "nothing of it goes there"
    assert find_start(directory, 3, 4, 0, 101) == (3, (102, 103))


# --- acknowledgements -------------------------------------------------------------------------------------


class AckModel:
    """What is acknowledged, record by record."""

    def __init__(self) -> None:
        self.acked: set[int] = set()


ACK_STEP = st.one_of(
    st.tuples(st.just("append"), STEP),
    st.tuples(st.just("scan"), st.sampled_from([1, 300, ALL])),
    st.tuples(st.just("fill"), st.sampled_from([1, 300, ALL])),
    st.tuples(st.just("ack"), st.lists(st.integers(0, 4), max_size=3)),
    st.tuples(st.just("ack"), st.lists(st.integers(0, 4), max_size=3)),
    st.tuples(st.just("follow"), st.sampled_from([1, 300, ALL])),
    st.tuples(st.just("connect"), st.integers(0, 100)),
    st.tuples(st.just("end"), st.none()),
)


@settings(deadline=None)
@given(steps=st.lists(ACK_STEP, max_size=60))
def test_watermark_and_pending_publishers_follow_acknowledgements_with_exceptions(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Any],
) -> None:
    """replication.md §7 and §24.7: nobody waits for a record of another publisher, and nobody is acknowledged too
    early.
    """
    log = GrowingLog(tmp_path_factory.mktemp("log"), 8192)
    table = PendingTable(64)
    flow = flow_over(log, table)
    acked: set[int] = set()
    sent: set[int] = set()
    through, sequences = 0, 0
    connect(flow, log)
    for verb, argument in steps:
        if verb == "append":
            sequences += 10
            grow_from(log, argument, sequences)
        elif verb == "scan":
            flow.scan(log.position, argument)
        elif verb == "fill":
            sent |= {
                one.txid
                for one in records_in(whole(flow.fill(log.position, argument)))
                if one.kind != KIND_TRANSACTION
            }
        elif verb == "ack" and flow.connected and sent:
            wanted = sorted(sent)
            through = max(through, wanted[min(len(wanted) - 1, 2 + len(argument) * 3)])
            late = [txid for txid in wanted if txid <= through and txid not in acked and txid % 5 in argument]
            acked |= {txid for txid in wanted if txid <= through} - set(late)
            flow.ack(TxidSet(through, [(txid, txid) for txid in late]))
        elif verb == "follow":
            flow.follow_acks(argument)
        elif verb == "connect":
            # The sink has a prefix of what was sent.
            has = sorted(sent)[:argument]
            sent = set(has) | acked
            connect(flow, log, max(sent, default=0))
        elif verb == "end":
            flow.end()
        check_pending(log, flow, table, acked, exact=False)
    while not flow.follow_acks(200):
        pass
    flow.scan(log.position, ALL)
    while not flow.scan(log.position, ALL):
        pass
    while not flow.follow_acks(200):
        pass
    check_pending(log, flow, table, acked, exact=True)


def grow_from(log: GrowingLog, step: Any, first: int) -> None:
    if step == "rotate":
        log.rotate()
        return
    is_group = isinstance(step, list)
    wanted = []
    for number, (client, topic, path, kind, length) in enumerate(step if is_group else [step]):
        source = (99, first) if path else None
        fields = {"payload": bytes(length), "kind": kind}
        wanted.append((client, first + number, topic, path, source, "json", b"", fields))
    log.append_group(wanted, is_group)


def check_pending(
    log: GrowingLog, flow: SourceFlow, table: PendingTable, acked: set[int], *, exact: bool
) -> None:
    scanned = [one for one in log.records if one.parts.position < flow.scanned_position]
    pending = [one for one in scanned if goes(one) and one.parts.txid not in acked]
    first = min((one.parts.position for one in pending), default=flow.scanned_position)
    assert flow.acked_position <= first
    assert all(not flow.is_acked(one.parts.txid) for one in pending)
    for one in scanned:
        publisher = one.parts.publisher_id
        waits = any(
            other.parts.publisher_id == publisher and other.parts.position <= one.parts.position
            for other in pending
        )
        said = table.is_pending(publisher, one.parts.position + 1, flow.acked_position)[0]
        said = said and one.parts.position >= flow.acked_position
        assert said or not waits
        if exact and goes(one):
            assert said == waits
    if exact:
        assert flow.acked_position == first
        oldest = min((one.parts.timestamp_ns for one in pending), default=0)
        assert flow.oldest_pending_time_ns == oldest
        assert flow.newest_time_ns == (scanned[-1].parts.timestamp_ns if scanned else 0)
        assert all(flow.is_acked(one.parts.txid) for one in scanned if goes(one) and one not in pending)


@settings(deadline=None, max_examples=20)
@given(
    acks=st.lists(st.tuples(st.integers(1, 120), st.lists(st.integers(0, 400), max_size=3)), max_size=12),
    rotate_at=st.sets(st.integers(0, 400), max_size=2),
    step=st.sampled_from([5000, ALL]),
    trusted=st.booleans(),
    scan_first=st.booleans(),
)
def test_the_watermark_is_exact_over_long_stretches_and_journals(
    tmp_path_factory: pytest.TempPathFactory,
    acks: list[tuple[int, list[int]]],
    rotate_at: set[int],
    step: int,
    trusted: bool,
    scan_first: bool,
) -> None:
    """Marks stand for many records each, and for those of one journal only (marks.pxi)."""
    log = GrowingLog(tmp_path_factory.mktemp("log"), 1 << 20)
    for number in range(400):
        if number in rotate_at:
            log.rotate()
        log.append("p", number + 1, "other" if number % 7 == 3 else "t", payload=bytes(1000))
    flow = SourceFlow(rules(), log.cursor(topic_table()), PendingTable(), trusted_from=0 if trusted else 1 << 62)
    if scan_first:
        flow.scan(log.position, ALL)
    connect(flow, log)
    through = 0
    missing: list[int] = []
    rest: list[tuple[int, list[int]]] = [(400, [])]
    for more, late in acks + rest:
        while flow.sent_txid < min(through + more, 400):
            flow.fill(log.position, step)
        before_ack, through = through, min(through + more, flow.sent_txid)
        # What was acknowledged stays so.
        missing = sorted({txid for txid in late if txid <= through and (txid > before_ack or txid in missing)})
        flow.ack(TxidSet(through, [(txid, txid) for txid in missing]))
        while not flow.follow_acks(step):
            pass
        scanned = [one for one in log.records if one.parts.position < flow.scanned_position]
        pending = [one for one in scanned if goes(one) and not flow.is_acked(one.parts.txid)]
        assert [one.parts.txid for one in pending if one.parts.txid <= through] == [
            txid for txid in missing if goes(log.records[txid - 1])
        ]
        first = pending[0].parts.position if pending else flow.scanned_position
        assert flow.acked_position == first
        assert flow.oldest_pending_time_ns == (pending[0].parts.timestamp_ns if pending else 0)
        times = [one.parts.timestamp_ns for one in scanned if one.parts.position < first]
        assert flow.acked_time_ns in {0, *times[-2:]}  # the last one may go nowhere, while nothing was pending
    assert flow.acked_position == log.position


@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["back", "back", "other", "rotate"]), st.integers(1, 6)), max_size=12),
    limits=st.lists(st.integers(0, 70), max_size=12),
    connected=st.booleans(),
    step=st.sampled_from([500, ALL]),
)
def test_what_came_from_the_destination_is_not_read(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    limits: list[int],
    connected: bool,
    step: int,
) -> None:
    """The core tells stretches of it. Everything else is sent, and the positions are those of a scan that reads all."""
    log = GrowingLog(tmp_path_factory.mktemp("log"), 1 << 16)
    log.append("p", 1)
    log.append("p", 2, path=PATHS[3], source=(99, 1))  # names the path
    stretches: list[tuple[int, int, int, int]] = []
    for what, count in steps:
        if what == "rotate":
            log.rotate()
            log.append("p", 1)
            log.append("p", 2, path=PATHS[3], source=(99, 1))
            continue
        begin = log.position
        for number in range(count):
            if what == "other":
                log.append("q", number + 1)
                continue
            record = log.append("p", number + 3, path=PATHS[3], source=(99, number + 3))
            damage(log, record)
            if number % 2 == 1 or number == count - 1:
                stretches.append((begin, log.position, record.parts.txid, record.parts.timestamp_ns))
    flow = flow_over(log)
    if connected:
        connect(flow, log)
    for stretch in stretches:
        flow.note_returned(*stretch)
    ends = sorted({one.parts.position for one in log.records} | {log.position})
    allowed = {end for _, end, *_ in stretches} | {
        position for position in ends if not any(begin < position < end for begin, end, *_ in stretches)
    }
    frames: list[tuple[int, bytes]] = []
    for limit in [*sorted(ends[at % len(ends)] for at in limits), log.position]:
        if limit not in allowed:
            continue
        began = flow.scanned_position
        while True:
            before = flow.scanned_position
            if connected:
                frames += whole(flow.fill(limit, step))
            else:
                flow.scan(limit, step)
            if flow.scanned_position == before:
                break
        assert flow.scanned_position == max(limit, began), "a limit is a durable watermark"
    if connected:
        assert [one.raw for one in records_in(frames)] == [one.raw for one in log.records if goes(one)]
        flow.ack(TxidSet(flow.sent_txid))
        assert flow.follow_acks(ALL)
        assert flow.acked_position == log.position
        assert flow.acked_txid == log.records[-1].parts.txid, "nobody waits for what the destination has sent"
    assert flow.newest_time_ns == log.records[-1].parts.timestamp_ns


def test_what_was_sent_and_is_acknowledged_is_not_read_again(tmp_path: Path) -> None:
    """Not even after a long absence, when the scan is journals ahead: a catch-up would read the whole log twice."""
    log = GrowingLog(tmp_path, 1 << 16)
    for number in range(90):
        if number in (30, 60):
            log.rotate()
        log.append("p", number + 1, payload=bytes(1000))
    flow = flow_over(log, PendingTable())
    assert flow.scan(log.position, ALL)
    connect(flow, log)
    sent = [0]
    while flow.sent_position < log.position:
        flow.fill(log.position, 5000)
        sent.append(flow.sent_txid)
    for record in log.records:
        if record.parts.txid not in {1, *(txid + 1 for txid in sent)}:
            damage(log, record)
    for txid in sent[1:]:
        flow.ack(TxidSet(txid))
        assert flow.follow_acks(ALL)
        following = [one.parts.position for one in log.records if one.parts.txid > txid]
        assert flow.acked_position == min(following, default=log.position)
    assert len(sent) > 10


def test_exceptions_hold_their_own_publishers_only(tmp_path: Path) -> None:
    """docs/replication.md, acknowledgements: nobody waits for a record because of another one."""
    log = GrowingLog(tmp_path)
    table = PendingTable()
    flow = flow_over(log, table)
    connect(flow, log)
    places: dict[int, Logged] = {}

    def publish(*clients: str) -> None:
        for client in clients:
            record = log.append(client, log.txid)
            places[record.parts.txid] = record
        send_all(flow, log)

    def acknowledge(through: int, *late: int) -> list[int]:
        """The records that wait afterwards."""
        settled = flow.settled
        assert flow.ack(TxidSet(through, [(one, one) for one in late]))
        while not flow.follow_acks(1):
            pass
        assert flow.settled > settled
        return [
            txid
            for txid, one in places.items()
            if one.parts.position >= flow.acked_position
            and table.is_pending(one.parts.publisher_id, one.parts.position + 1, flow.acked_position)[0]
        ]

    publish("p", "q", "p", "r", "q", "p")
    assert acknowledge(4, 2) == [2, 5, 6]
    assert flow.acked_position == places[2].parts.position
    assert acknowledge(6, 2, 6) == [2, 5, 6]  # q waits for its first record
    publish("r", "s", "q")
    assert acknowledge(8, 2, 6, 8) == [2, 5, 6, 8, 9]
    assert acknowledge(9, 2, 8) == [2, 5, 8, 9]
    assert acknowledge(9, 8) == [8]
    assert acknowledge(9) == []
    assert flow.acked_position == log.position


def test_records_that_do_not_go_there_never_wait(tmp_path: Path) -> None:
    """Behaviours 5 and 6 of replication.md: a publisher that no destination takes waits for none."""
    log = GrowingLog(tmp_path)
    table = PendingTable()
    flow = flow_over(log, table)
    first = log.append("p", 1)
    log.append("q", 1, "other")
    assert flow.scan(log.position, ALL)
    assert flow.acked_position == first.parts.position
    assert flow.oldest_pending_time_ns == first.parts.timestamp_ns
    assert table.is_pending(publisher_id("p"), log.position, flow.acked_position)[0]
    assert not table.is_pending(publisher_id("q"), log.position, flow.acked_position)[0]


def test_what_the_sink_has_from_elsewhere_counts_as_acknowledged(tmp_path: Path) -> None:
    """replication.md §24.5: covered records are not sent and count as acked."""
    log = GrowingLog(tmp_path)
    flow = flow_over(log, PendingTable())
    log.append("p", 1)
    log.append("p", 2)
    flow.scan(log.position, ALL)
    connect(flow, log, 0, struct.pack("<QQ", publisher_id("p"), 2))
    assert send_all(flow, log) == []
    assert flow.follow_acks(ALL)
    assert flow.acked_position == log.position
    assert flow.acked_txid == 2
    assert flow.oldest_pending_time_ns == 0


def test_resuming_counts_nothing_as_acknowledged(tmp_path: Path) -> None:
    """The sink has the records, but its own destinations may not have them yet (replication.md §24.7)."""
    log = GrowingLog(tmp_path)
    flow = flow_over(log, PendingTable())
    record = log.append("p", 1)
    connect(flow, log, 1)
    assert send_all(flow, log) == []
    flow.scan(log.position, ALL)
    assert flow.follow_acks(ALL)
    assert flow.acked_position == record.parts.position
    assert flow.ack(TxidSet(1))
    assert flow.follow_acks(ALL)
    assert flow.acked_position == log.position


def test_a_known_watermark_is_not_pending_again(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.append("p", 1)
    second = log.append("p", 2)
    flow = SourceFlow(rules(), log.cursor(topic_table()), PendingTable(), second.parts.position, 1)
    assert flow.acked_position == second.parts.position
    flow.scan(log.position, ALL)
    assert flow.acked_position == second.parts.position
    assert flow.oldest_pending_time_ns == second.parts.timestamp_ns
    assert flow.acked_txid == 1


def test_an_older_acknowledgement_changes_nothing(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.append("p", 1)
    log.append("p", 2)
    flow = flow_over(log, PendingTable())
    connect(flow, log)
    send_all(flow, log)
    assert flow.ack(TxidSet(2))
    assert not flow.ack(TxidSet(2))
    assert not flow.ack(TxidSet(1))
    assert flow.is_acked(2)


def test_a_flow_reads_compressed_journals(tmp_path: Path) -> None:
    """Archived and compressed journals are read for resynchronization (behaviour 52)."""
    log = GrowingLog(tmp_path)
    for number in range(50):
        log.append("p", number + 1, payload=b"x" * 100)
    log.append_group([("q", n, "t", b"", None, "json", b"", {"payload": b"y"}) for n in range(1, 4)])
    log.rotate()
    log.append("p", 51)
    compressed = tmp_path / "compressed"
    for _ in compress_journal(Disk(), log.path(1), compressed):
        pass
    compressed.replace(log.path(1))
    flow = flow_over(log)
    connect(flow, log)
    assert [one.txid for one in records_in(send_all(flow, log, 700)) if one.kind != KIND_TRANSACTION] == list(
        range(1, 55)
    )


def test_a_restarted_sink_ends_exceptions_though_it_knows_less(tmp_path: Path) -> None:
    """Duplicates leave nothing in the sink's log: after a restart its acknowledgements may end before earlier ones."""
    log = GrowingLog(tmp_path)
    table = PendingTable()
    flow = flow_over(log, table)
    for client in "pqr":
        log.append(client, 1)
    connect(flow, log)
    send_all(flow, log)
    assert flow.ack(TxidSet(3, [(1, 2)]))
    flow.end()
    connect(flow, log, 2, struct.pack("<QQ", publisher_id("r"), 1))
    assert send_all(flow, log) == []
    assert flow.ack(TxidSet(2, [(2, 2)]))
    assert flow.follow_acks(ALL)
    assert [flow.is_acked(txid) for txid in (1, 2, 3)] == [True, False, True]
    assert flow.ack(TxidSet(2))
    assert flow.follow_acks(ALL)
    assert flow.acked_position == log.position


def test_what_was_passed_over_waits_for_no_exception(tmp_path: Path) -> None:
    """replication.md §24.7: instances of a ring whose records wait for each other would wait for ever."""
    log = GrowingLog(tmp_path)
    table = PendingTable()
    flow = flow_over(log, table)
    first = log.append("p", 1)
    second = log.append("q", 1)
    flow.scan(log.position, ALL)
    connect(flow, log, 1, struct.pack("<QQ", publisher_id("q"), 1))
    assert send_all(flow, log) == []
    assert not flow.is_acked(2), "the sink has not said yet that it has what was sent before"
    assert flow.ack(TxidSet(1, [(1, 1)]))
    assert flow.follow_acks(ALL)
    assert flow.is_acked(2)
    assert flow.acked_position == first.parts.position
    assert table.is_pending(publisher_id("p"), log.position, flow.acked_position)[0]
    assert not table.is_pending(publisher_id("q"), second.parts.position + 1, flow.acked_position)[0]


@given(
    through=st.integers(0, 12),
    held=st.sets(st.integers(1, 12)),
    later=st.sets(st.integers(1, 12)),
    shorter=st.integers(0, 12),
)
def test_acknowledged_stays_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, through: int, held: set[int], later: set[int], shorter: int
) -> None:
    """Of two acknowledgements of which the second one ends earlier, what one of them has counts."""
    log = GrowingLog(tmp_path_factory.mktemp("log"))
    for sequence in range(1, 13):
        log.append("p", sequence)
    flow = flow_over(log)
    connect(flow, log)
    send_all(flow, log)
    shorter = min(shorter, through)
    flow.ack(TxidSet(through, [(one, one) for one in range(1, through + 1) if one not in held]))
    flow.ack(TxidSet(shorter, [(one, one) for one in range(1, shorter + 1) if one not in later]))
    if shorter < through:
        expected = {one for one in held if one <= through} | {one for one in later if one <= shorter}
        assert {one for one in range(1, 13) if flow.is_acked(one)} == expected
