"""Sink flows of replication: from frames to records in the ring (replication.md §24.6), and hostile frames."""

import random
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.replication.stream import FRAME_DATA, FRAME_NAMES, SinkFlow, SourceFlow, StreamError
from amps._core.shm.memory import Ring
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicEntry
from tests.support.records import CLIENT, EXPIRY, PATH, SOURCE, RecordParts, element
from tests.support.streams import KIND_TRANSACTION, SECOND_NS, GrowingLog, records_in, topic_table
from tests.unit.core.test_replication_source import STEP, connect, flow_over, goes, grow, rules, send_all

ALL = 1 << 60
UPSTREAM = "amps-server: from A 5 7"
HOP = b"A\tG\t5"
SLOT, SERIAL = 3, 9
DELIVER_AT = 6
QUEUE_PAYLOAD = struct.pack("<IIQQII", 0, 1, 0, 0, 0, 0) + bytes(32)
DELETION_PAYLOAD = struct.pack("<QQQQ", 4, 0, 9, 0)


@dataclass
class Core:
    """The other end of the ring: what is declared, and the records, parsed without the code under test."""

    ring: Ring = field(default_factory=lambda: Ring(1 << 20))
    names: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    topics: dict[int, tuple[str, str]] = field(default_factory=dict)
    spilled: list[bytes] = field(default_factory=list)
    refuse: int = 0
    """So many declarations find no room."""

    def _has_room(self) -> bool:
        self.refuse -= 1
        return self.refuse < 0

    def declare_topic(self, entry: TopicEntry) -> bool:
        if self._has_room():
            assert entry.number not in self.topics
            self.topics[entry.number] = (entry.name, entry.message_type)
            return True
        return False

    def declare_name(self, name_class: int, name_id: int, text: bytes) -> bool:
        if self._has_room():
            assert name_id not in self.names
            self.names[name_id] = (name_class, text)
            return True
        return False

    def spill(self, record: bytes) -> bool:
        if self._has_room():
            self.spilled.append(record)
            return True
        return False

    def sink(self, allowed: Any = lambda topic, kind: True, last_txid: int = 0, **more: Any) -> SinkFlow:
        return SinkFlow(
            self.ring, SLOT, SERIAL, topic_table(**more), publisher_id(UPSTREAM), HOP, self.declare_topic,
            self.declare_name, self.spill, allowed, set(), last_txid,
        )  # fmt: skip


@dataclass(frozen=True)
class Pushed:
    """A record of the ring."""

    kind: int
    publisher: int
    sequence: int
    topic: tuple[str, str]
    extension: dict[int, tuple[int, ...]]
    rest: bytes
    """Correlation id, user id, sow key, payload."""
    expiration_s: int
    flags: int


def parse(record: bytes, core: Core) -> Pushed:
    length, _sum, slot, serial = struct.unpack_from("<IIII", record)
    assert (slot, serial) == (SLOT, SERIAL)
    publisher, sequence = struct.unpack_from("<QQ", record, 32)
    topic_id, expiration, kind, flags, _c, _u, _k, extension_length, _p = struct.unpack_from(
        "<IIHHHHHHI", record, 56
    )
    at, extension = 80, {}
    while at < 80 + extension_length:
        tag, size = struct.unpack_from("<HH", record, at)
        extension[tag] = struct.unpack_from(f"<{size // 8}Q", record, at + 4)
        at += 4 + size
    assert length == len(record)
    return Pushed(kind, publisher, sequence, core.topics[topic_id], extension, record[at:], expiration, flags)


def popped(core: Core) -> list[bytes]:
    """What was pushed, as the owner of the ring publishes it and the core takes it."""
    core.ring.publish_pushed()
    return core.ring.pop_all()


def pushed_in(core: Core) -> list[list[Pushed]]:
    """The records of the ring; a transaction is one list of its records."""
    found = []
    for record in popped(core):
        if struct.unpack_from("<H", record, 64)[0] != KIND_TRANSACTION:
            found.append([parse(record, core)])
            continue
        publisher, sequence = struct.unpack_from("<QQ", record, 32)
        size, count, _ = struct.unpack_from("<QII", record, 80)
        assert size + 96 == len(record)
        at, group = 96, []
        while at < len(record):
            length = struct.unpack_from("<I", record, at)[0]
            group.append(parse(record[at : at + length], core))
            at += (length + 7) // 8 * 8
        assert (count, publisher, sequence) == (len(group), group[0].publisher, group[0].sequence)
        found.append(group)
    return found


def feed(sink: SinkFlow, frames: list[tuple[int, bytes]], core: Core) -> list[list[Pushed]]:
    """Take all frames; the core empties the ring whenever it is full."""
    found = []
    for kind, payload in frames:
        done = sink.take(kind, payload)
        assert done != sink.unfinished
        while not done:
            found += pushed_in(core)
            done = sink.go_on()
    return found + pushed_in(core)


def transaction(log: GrowingLog, client: str, payload: bytes) -> None:
    """One acknowledgement and one publish."""
    acknowledgement = (client, 1, "t", b"", None, "json", b"", {"payload": QUEUE_PAYLOAD, "kind": 4})
    log.append_group([acknowledgement, (client, 2, "t", b"", None, "json", b"", {"payload": payload})])


def frames_of(log: GrowingLog) -> list[tuple[int, bytes]]:
    flow = flow_over(log)
    connect(flow, log)
    return send_all(flow, log)


@settings(deadline=None)
@given(
    steps=st.lists(STEP, max_size=30), ring_bytes=st.sampled_from([4096, 1 << 20]), refuse=st.integers(0, 5)
)
def test_records_arrive_as_they_were_with_their_origin(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Any],
    ring_bytes: int,
    refuse: int,
) -> None:
    """docs/replication.md: topic, publisher, sequence and content of the original; source and path of the way here."""
    log = GrowingLog(tmp_path_factory.mktemp("log"), 8192)
    grow(log, [as_the_core_writes(step) for step in steps])
    core = Core(Ring(ring_bytes), refuse=refuse)
    sink = core.sink()
    found = feed(sink, frames_of(log), core)
    expected = [one for one in log.records if goes(one)]
    assert [one.sequence for group in found for one in group] == [one.parts.sequence for one in expected]
    for one, before in zip((one for group in found for one in group), expected, strict=True):
        assert (one.kind, one.publisher) == (before.parts.kind, before.parts.publisher_id)
        assert one.topic == (before.topic, "json")
        path = before.path + b"\n" + HOP if before.path else HOP
        assert one.extension == {
            SOURCE: (publisher_id(UPSTREAM), before.parts.txid),
            PATH: (publisher_id(path.decode()),),
        }
        assert core.names[one.extension[PATH][0]] == (3, path)
        assert one.rest == before.parts.payload
        assert one.publisher in core.names
    assert sum(len(group) > 1 for group in found) <= sum(isinstance(step, list) for step in steps)
    assert sink.messages_in == len(expected)
    assert sink.taken_txid == (expected[-1].parts.txid if expected else 0)
    assert sink.consumed(core.ring.tail) == sink.taken_txid
    assert sink.consumed(ALL) == 0


def as_the_core_writes(step: Any) -> Any:
    """The step with queue records that have the payload of such records, and transactions of one publisher."""
    if step == "rotate":
        return step
    if not isinstance(step, list):
        client, topic, path, kind, length = step
        return client, topic, path, kind, {3: DELETION_PAYLOAD, 4: QUEUE_PAYLOAD, 20: bytes(16)}.get(kind, length)
    begin = step[0]
    return [(begin[0], begin[1], begin[2], 4, QUEUE_PAYLOAD)] + [
        (begin[0], topic, begin[2], 1, length) for _client, topic, _path, _kind, length in step[1:]
    ]


def test_the_rest_of_the_extension_area(tmp_path: Path) -> None:
    """Client, expiry and delay stay; other elements mean something at the source alone."""
    log = GrowingLog(tmp_path)
    client = log._name(1, b"anna")
    area = element(5, 99) + element(CLIENT, client) + element(DELIVER_AT, 0) + element(60_000, 4)
    log.append(
        "",
        1,
        publisher_id=77,
        extension=area,
        correlation_id=b"c",
        user_id=b"uu",
        sow_key=b"k",
        payload=b"xyz",
    )
    log.append("p", 2, expiration_s=30)
    log.append("p", 3, extension=element(EXPIRY, 5), expiration_s=30)
    log.append("p", 4, expiration_s=0)
    core = Core()
    full, lifetime, expiry, never = [one for (one,) in feed(core.sink(), frames_of(log), core)]
    assert (full.extension[CLIENT], full.extension[DELIVER_AT]) == ((client,), (0,))
    assert set(full.extension) == {CLIENT, DELIVER_AT, SOURCE, PATH}
    assert full.rest == b"cuukxyz"
    assert core.names[client] == (1, b"anna")
    stored_ns = log.records[1].parts.timestamp_ns
    assert lifetime.extension[EXPIRY] == (stored_ns + 30 * SECOND_NS,)
    assert expiry.extension[EXPIRY] == (5,)
    assert EXPIRY not in never.extension
    assert (lifetime.expiration_s, never.expiration_s) == (30, 0)


def test_a_record_too_long_for_the_ring_is_spilled(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path, 1 << 20)
    log.append("p", 1, payload=b"z" * 10_000)
    transaction(log, "q", b"y" * 10_000)
    core = Core(Ring(4096))
    sink = core.sink()
    frames = frames_of(log)
    assert sink.take(*frames[0])
    assert sink.take(*frames[1])
    first, second = core.spilled
    assert parse(first, core).rest == b"z" * 10_000
    assert struct.unpack_from("<I", second)[0] == len(second) > 10_000
    assert popped(core) == []
    core.refuse = 1
    again = Core(Ring(4096))
    again_sink = again.sink()
    again_sink.take(*frames[0])
    again.declare_name(1, 5, b"")
    again.refuse = 4  # two names and a topic, then the file
    assert not again_sink.take(*frames[1])
    while not again_sink.go_on():
        pass
    assert len(again.spilled) == 2


def test_a_record_that_is_not_permitted_is_passed_over(tmp_path: Path) -> None:
    """Behaviour 49 and decision 25.23 of replication.md: skipped, told to the source, counted as taken."""
    log = GrowingLog(tmp_path)
    log.append("p", 1, "t")
    log.append("p", 2, "t2")
    log.append("p", 3, "t3")
    asked: list[str] = []

    def allowed(topic: str, kind: str) -> bool:
        asked.append(topic)
        return topic != "t2"

    core = Core()
    sink = core.sink(allowed, refusal=lambda topic: "is reserved" if topic == "t3" else None)
    found = feed(sink, frames_of(log), core)
    assert [one.sequence for (one,) in found] == [1]
    assert sink.take_rejections() == [(2, "not entitled to replicate the topic 't2'"), (3, "is reserved")]
    assert sink.take_rejections() == []
    assert sink.taken_txid == 3
    assert sink.consumed(core.ring.tail) == 3
    assert asked == ["t", "t2"]


def test_the_core_has_taken_what_is_before_its_place_in_the_ring(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    core = Core()
    sink = core.sink()
    positions = []
    for number in range(3):
        log.append("p", number + 1)
        for kind, payload in frames_after(log, number):
            assert sink.take(kind, payload)
        core.ring.publish_pushed()
        positions.append(core.ring.head)
    assert sink.consumed(positions[0] - 1) == 0
    assert sink.consumed(positions[0]) == 1
    assert sink.consumed(positions[0]) == 0
    assert sink.consumed(positions[2] - 1) == 2
    assert sink.consumed(positions[2]) == 3


def frames_after(log: GrowingLog, start: int) -> list[tuple[int, bytes]]:
    flow = flow_over(log)
    connect(flow, log, start)
    return send_all(flow, log)


# --- hostile frames ---------------------------------------------------------------------------------------


def data_frame(*records: RecordParts, journal: int = 1, count: int | None = None) -> bytes:
    raw = b"".join(one.to_bytes(sealed=True) + bytes(-len(one.to_bytes()) % 8) for one in records)
    return struct.pack("<QII", journal, len(records) if count is None else count, 0) + raw


def name_entry(kind: int, name_id: int, text: bytes, length: int | None = None) -> bytes:
    return (
        struct.pack("<IIQ", kind, len(text) if length is None else length, name_id)
        + text
        + bytes(-len(text) % 8)
    )


NAMES = struct.pack("<Q", 1) + name_entry(0, 0, b"json\tt")
GOOD = RecordParts(b"x", publisher_id=5, sequence=1, txid=10)


GROUP = (replace(GOOD, kind=4, payload=QUEUE_PAYLOAD), replace(GOOD, txid=11, sequence=2))


def broken(**fields: Any) -> bytes:
    return data_frame(replace(GOOD, **fields))


def with_bytes(frame: bytes, at: int, value: bytes) -> bytes:
    return frame[:at] + value + frame[at + len(value) :]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (FRAME_DATA, b""),
        (FRAME_DATA, data_frame(GOOD)[:15]),
        (0x11, data_frame(GOOD)),
        (FRAME_DATA, data_frame(GOOD, journal=2)),
        (FRAME_DATA, data_frame(GOOD, count=2)),
        (FRAME_DATA, data_frame(GOOD, count=0)),
        (FRAME_DATA, data_frame(GOOD)[:-8]),
        (FRAME_DATA, data_frame(GOOD) + bytes(8)),
        (FRAME_DATA, data_frame(GOOD) + bytes(80)),
        (FRAME_DATA, with_bytes(data_frame(GOOD), 16, struct.pack("<I", 0xFFFFFFFF))),
        (FRAME_DATA, with_bytes(data_frame(GOOD), 16, struct.pack("<I", 79))),
        (FRAME_DATA, with_bytes(data_frame(GOOD), 96, b"y")),
        (FRAME_DATA, broken(kind=7)),
        (FRAME_DATA, broken(kind=16)),
        (FRAME_DATA, broken(kind=257)),
        (FRAME_DATA, broken(publisher_id=0)),
        (FRAME_DATA, broken(publisher_id=publisher_id(UPSTREAM))),
        (FRAME_DATA, broken(topic_id=1)),
        (FRAME_DATA, broken(txid=4)),
        (FRAME_DATA, data_frame(GOOD, GOOD)),
        (FRAME_DATA, broken(extension=element(PATH, 77))),
        (FRAME_DATA, broken(extension=element(PATH, 77)[:-1])),
        (FRAME_DATA, broken(kind=4)),
        (FRAME_DATA, broken(kind=5, payload=QUEUE_PAYLOAD + b"x")),
        (FRAME_DATA, broken(kind=20)),
        (FRAME_DATA, broken(kind=3)),
        (FRAME_DATA, broken(kind=3, payload=struct.pack("<QQQQ", 9, 0, 4, 0))),
        (FRAME_DATA, broken(kind=3, payload=struct.pack("<QQQQ", 4, 0, 4, 0))),
        (FRAME_DATA, broken(kind=3, payload=b"".join(struct.pack("<QQ", key, 0) for key in range(2049)))),
        (FRAME_DATA, broken(kind=9, payload=DELETION_PAYLOAD)),
        (FRAME_NAMES, b""),
        (FRAME_NAMES, NAMES[:-1]),
        (FRAME_NAMES, NAMES + bytes(15)),
        (FRAME_NAMES, NAMES + name_entry(1, publisher_id("p"), b"p", 65537)),
        (FRAME_NAMES, NAMES + name_entry(1, publisher_id("p"), b"p", 9)),
        (FRAME_NAMES, NAMES + name_entry(1, publisher_id("q"), b"p")),
        (FRAME_NAMES, NAMES + name_entry(2, publisher_id("p"), b"p")),
        (FRAME_NAMES, NAMES + name_entry(1, publisher_id(UPSTREAM), UPSTREAM.encode())),
        (FRAME_NAMES, NAMES + name_entry(0, 1 << 32, b"json\tt")),
        (FRAME_NAMES, NAMES + name_entry(0, 1, b"json")),
        (FRAME_NAMES, NAMES + name_entry(0, 1, b"\xff\tt")),
    ],
)  # fmt: skip
def test_a_malformed_frame_is_refused_and_nothing_of_it_taken(kind: int, payload: bytes) -> None:
    """replication.md §24.1: the link is closed with PROTOCOL."""
    core = Core()
    sink = core.sink(last_txid=4)
    assert sink.take(FRAME_NAMES, NAMES)
    with pytest.raises(StreamError):
        sink.take(kind, payload)
    assert popped(core) == []
    assert not sink.unfinished
    assert sink.take(FRAME_NAMES, NAMES)
    assert sink.take(FRAME_DATA, data_frame(GOOD))
    assert [one.sequence for (one,) in pushed_in(core)] == [1]


@pytest.mark.parametrize(
    ("size", "count", "records"),
    [
        (144, 2, 1),
        (144, 0, 1),
        (152, 1, 1),
        (136, 1, 1),
        (144, 1, 0),
        (232, 1, 2),
        (232, 3, 2),
        (1 << 40, 1, 1),
    ],
)
def test_a_transaction_that_does_not_add_up_is_refused(size: int, count: int, records: int) -> None:
    core = Core()
    sink = core.sink()
    sink.take(FRAME_NAMES, NAMES)
    begin = RecordParts(struct.pack("<QII", size, count, 0), kind=KIND_TRANSACTION, txid=10)
    with pytest.raises(StreamError):
        sink.take(FRAME_DATA, data_frame(begin, *GROUP[:records]))
    assert popped(core) == []


@pytest.mark.parametrize(
    "group",
    [
        (replace(GOOD, txid=10), replace(GOOD, txid=11, sequence=2)),
        (GROUP[0], replace(GROUP[0], txid=11, sequence=2)),
        (GROUP[0], replace(GROUP[1], publisher_id=6)),
        (GROUP[0], replace(GROUP[1], sequence=3)),
    ],
)
def test_records_that_are_no_transaction_together_are_refused(group: tuple[RecordParts, RecordParts]) -> None:
    core = Core()
    sink = core.sink()
    sink.take(FRAME_NAMES, NAMES)
    size = sum((len(one.to_bytes()) + 7) // 8 * 8 for one in group)
    begin = RecordParts(struct.pack("<QII", size, 2, 0), kind=KIND_TRANSACTION, txid=10)
    with pytest.raises(StreamError):
        sink.take(FRAME_DATA, data_frame(begin, *group))
    assert popped(core) == []


def test_the_transaction_of_these_tests_is_taken_if_it_is_right() -> None:
    core = Core()
    sink = core.sink()
    sink.take(FRAME_NAMES, NAMES)
    begin = RecordParts(struct.pack("<QII", 232, 2, 0), kind=KIND_TRANSACTION, txid=10)
    refused = RecordParts(bytes(16), kind=20, publisher_id=5, sequence=9, txid=20)
    queue = replace(GOOD, kind=4, payload=QUEUE_PAYLOAD, txid=21)
    assert sink.take(FRAME_DATA, data_frame(begin, *GROUP, refused, queue))
    assert [[one.kind for one in group] for group in pushed_in(core)] == [[4, 1], [20], [4]]


def test_memory_that_is_not_aligned_is_a_mistake_of_the_caller() -> None:
    core = Core()
    sink = core.sink()
    sink.take(FRAME_NAMES, NAMES)
    memory = memoryview(bytearray(3) + data_frame(GOOD))
    with pytest.raises(ValueError, match="multiple of 8"):
        sink.take(FRAME_DATA, memory[3:])


@pytest.mark.parametrize("seed", range(8))
def test_no_damaged_frame_does_harm(tmp_path: Path, seed: int) -> None:
    """Frames with bytes changed, cut or doubled: refused, or harmless names. No changed record is taken."""
    chance = random.Random(seed)
    log = GrowingLog(tmp_path, 1 << 16)
    for number in range(12):
        log.append(
            "pq"[number % 2], number + 1, "t" * (number % 3 + 1), path=b"A\tG\t1" if number % 4 == 0 else b""
        )
    transaction(log, "r", b"y")
    frames = frames_of(log)
    sent = {one.raw[80:] for one in records_in(frames)}
    for _ in range(400):
        core = Core()
        sink = core.sink()
        kind, payload = frames[chance.randrange(2)]
        changed = bytearray(payload)
        for _ in range(chance.randrange(1, 4)):
            verb = chance.randrange(4)
            at = chance.randrange(len(changed))
            if verb == 0:
                changed[at] ^= 1 << chance.randrange(8)
            elif verb == 1:
                del changed[at : at + chance.randrange(1, 40)]
            elif verb == 2:
                changed[at:at] = changed[at : at + chance.randrange(1, 40)]
            else:
                changed[at : at + 4] = struct.pack("<I", chance.choice([0, 1, 80, 0x7FFFFFFF, 0xFFFFFFFF]))
            if not changed:
                break
        if kind == FRAME_DATA:
            sink.take(*frames[0])
        try:
            sink.take(kind, bytes(changed))
            if kind == FRAME_NAMES:
                sink.take(*frames[1])
        except StreamError:
            assert popped(core) == []
            continue
        for group in pushed_in(core):
            assert all(
                any(one.rest == raw[-len(one.rest) :] or not one.rest for raw in sent) for one in group
            )


def test_source_and_sink_agree_on_credit(tmp_path: Path) -> None:
    """The bytes that the sink has taken are those that the source counted (replication.md §24.6)."""
    log = GrowingLog(tmp_path)
    for number in range(9):
        log.append("p", number + 1, payload=b"x" * number)
    transaction(log, "r", b"y")
    flow = SourceFlow(rules(), log.cursor(topic_table()))
    connect(flow, log, window=10_000)
    core = Core()
    sink = core.sink()
    feed(sink, send_all(flow, log), core)
    assert sink.taken_bytes == 10_000 - flow.window
