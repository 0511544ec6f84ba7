"""The extension area of records and the names of a journal: docs/files.md."""

import mmap
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.journal.reader import FILE_HEADER_SIZE, LogCursor, LogDamaged, LogDirectory, LogFile
from amps._core.journal.search import RecordSearch, RecordWalker, find_message, places
from amps._core.journal.writer import IndexBuilder, IndexDamaged, IndexReader, LogWriter, scan_file
from amps._core.values.value import publisher_id
from amps.journal.entries import Entry, JournalFile
from amps.journal.layout import entry_text, extents_text
from amps.server.records import KIND_LOGON
from tests.support.feed import Feed, Feeder
from tests.support.journals import START_POSITION, journal, name_payload, names_in
from tests.support.records import (
    CLIENT,
    EXPIRY,
    KIND_NAME,
    PATH,
    SOURCE,
    STATE,
    RecordParts,
    element,
)

FILE_BYTES = 16384
SECOND_NS = 10**9
WORD = st.integers(0, (1 << 64) - 1)


def entries_of(path: Path) -> list[Entry]:
    with JournalFile(path) as file:
        return list(file.entries())


def written(directory: Path, *records: RecordParts) -> Path:
    path = directory / "inst.0000000003.journal"
    path.write_bytes(journal(list(records), FILE_BYTES))
    return path


# --- the area ---------------------------------------------------------------------------------------------


def test_every_element_is_read(tmp_path: Path) -> None:
    names = [(11, b"east", 2), (12, b"west\neast", 3), (13, b"anna", 1)]
    area = (
        element(STATE, 99, 4096, 1)
        + element(60_000)
        + element(SOURCE, 11, 77)
        + element(EXPIRY, 5 * SECOND_NS)
        + element(PATH, 12)
        + element(CLIENT, 13)
    )
    path = written(
        tmp_path,
        *(RecordParts(name_payload(*name[:2], name_class=name[2]), kind=KIND_NAME) for name in names),
        RecordParts(b"x", publisher_id=5, sequence=1, txid=1, extension=area, correlation_id=b"c"),
        RecordParts(b"y", publisher_id=13, sequence=1, txid=2),
    )
    full, plain = entries_of(path)
    assert (full.source_name_hash, full.source_txid, full.expiry_ns) == (11, 77, 5 * SECOND_NS)
    assert (full.path, full.previous_position, full.client_name) == (b"west\neast", 4096, b"anna")
    assert (full.payload, full.correlation_id) == (b"x", b"c")
    assert (plain.source_name_hash, plain.source_txid, plain.expiry_ns) == (0, 0, None)
    assert (plain.path, plain.previous_position, plain.client_name) == (b"", None, b"anna")


@pytest.mark.parametrize(
    ("area", "expiration_s", "expiry_ns"),
    [
        (b"", 0xFFFFFFFF, None),
        (b"", 0, None),
        (b"", 3, 7 * SECOND_NS),
        (element(EXPIRY, 5), 3, 5),
        (element(EXPIRY, 5), 0, 5),
        (element(EXPIRY, 5), 0xFFFFFFFF, 5),
        (element(EXPIRY, (1 << 64) - 1), 3, None),
    ],
)
def test_an_absolute_expiry_comes_before_a_lifetime(
    tmp_path: Path, area: bytes, expiration_s: int, expiry_ns: int | None
) -> None:
    record = RecordParts(b"x", timestamp_ns=4 * SECOND_NS, expiration_s=expiration_s, extension=area)
    assert entries_of(written(tmp_path, record))[0].expiry_ns == expiry_ns


MALFORMED = [
    b"\1",
    b"\1\0\x08",
    struct.pack("<HH", CLIENT, 8),
    struct.pack("<HH7s", CLIENT, 8, b""),
    struct.pack("<HH7s", CLIENT, 7, b""),
    struct.pack("<HH16s", CLIENT, 16, b""),
    struct.pack("<HH8s", SOURCE, 8, b""),
    struct.pack("<HH", 900, 1),
    element(CLIENT, 1) + element(CLIENT, 2),
    element(CLIENT, 1) + b"\0\0\0",
]


@pytest.mark.parametrize("area", MALFORMED)
def test_a_malformed_area_is_damage(tmp_path: Path, area: bytes) -> None:
    """This holds although the checksum is right: no program of this version writes such an area."""
    good = RecordParts(b"x", publisher_id=5, sequence=1)
    path = written(tmp_path, good, replace(good, sequence=2, extension=area), replace(good, sequence=3))
    found = scan_file(LogFile(str(path)), START_POSITION)
    assert found.damaged
    assert found.last_bookmark == (5, 1)
    with pytest.raises(LogDamaged):
        entries_of(path)


@pytest.mark.parametrize("sound", [True, False])
def test_a_malformed_area_of_a_long_message_is_damage(tmp_path: Path, sound: bool) -> None:
    """A cursor that shares a thread checks such a record in parts, and its area with the last part."""
    size = 6 << 20
    area = element(CLIENT, 1) if sound else MALFORMED[0]
    long = RecordParts(bytes(5 << 20), publisher_id=5, sequence=1, extension=area)
    (tmp_path / "inst.0000000003.journal").write_bytes(journal([long], size))
    directory = LogDirectory(f"{tmp_path}/inst.", ".journal", lambda topic, kind: topic)
    cursor = LogCursor(directory, 3, START_POSITION, True)
    cursor.allow(size)
    assert cursor.step(START_POSITION + size) is None
    assert cursor.waits
    if sound:
        record = cursor.step(START_POSITION + size)
        assert record is not None
        assert record.sequence == 1
    else:
        with pytest.raises(LogDamaged, match="checksum"):
            cursor.step(START_POSITION + size)


@given(st.binary(max_size=60), st.integers(0, 2))
def test_any_bytes_as_an_area_leave_the_record_whole(area: bytes, which: int) -> None:
    payload = b"p" * (0, 1, 200)[which]
    image = journal([RecordParts(payload, extension=area, publisher_id=9)], FILE_BYTES)
    memory = mmap.mmap(-1, len(image))
    memory[:] = image
    assert scan_file(memory, START_POSITION).record_count in (2, 3)
    walker = RecordWalker(_Source(image), FILE_BYTES, START_POSITION, RecordSearch())
    while walker.next_match():
        entry = Entry(*walker.fields(True))
        assert entry.payload == payload


class _Source:
    def __init__(self, image: bytes) -> None:
        self._rest = image[FILE_HEADER_SIZE:]

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


@pytest.mark.parametrize("area", MALFORMED)
def test_the_core_takes_no_malformed_area(tmp_path: Path, area: bytes) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    feeder.push(Feed(0, 1, "a", RecordParts(b"x", publisher_id=publisher_id("p0"), extension=area)))
    with pytest.raises(ValueError, match="parts do not add up"):
        feeder.turn(2000, 0)


# --- names ------------------------------------------------------------------------------------------------


def publish(feeder: Feeder, publisher: int, sequence: int, size: int = 10, topic: str = "a") -> None:
    parts = RecordParts(b"x" * size, publisher_id=publisher_id(f"p{publisher}"))
    feeder.push(Feed(publisher, sequence, topic, parts))
    feeder.turn(2000, 0)


def test_each_publisher_is_named_once_per_journal(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    for sequence in range(1, 40):
        for publisher in (2, 0):
            publish(feeder, publisher, sequence, 500)
    assert len(feeder.journal_storage.numbers) > 2
    both = {(publisher_id(name), name.encode()) for name in ("p0", "p2")}
    for number in feeder.journal_storage.numbers:
        found = names_in(feeder.journal_storage.path(number))
        assert set(found) == both
        assert len(found) == 2


def test_a_name_comes_before_its_first_record(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    for sequence in range(1, 60):
        publish(feeder, sequence % 3, sequence, 700)
    for number in feeder.journal_storage.numbers:
        for entry in entries_of(feeder.journal_storage.path(number)):
            assert entry.client_name.decode() in ("p0", "p1", "p2")
            assert entry.publisher_id == publisher_id(entry.client_name.decode())


def test_messages_that_are_not_recorded_need_no_name(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    publish(feeder, 0, 1, topic="plain/1")
    assert names_in(feeder.transient_storage.path(0)) == names_in(feeder.journal_storage.path(0)) == []
    publish(feeder, 0, 2)
    assert names_in(feeder.journal_storage.path(0)) == [(publisher_id("p0"), b"p0")]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
def test_a_record_whose_name_does_not_fit_goes_to_the_next_journal(tmp_path: Path, size: int) -> None:
    """Every record is in a file that names its publisher, wherever the file ends."""
    for left in range(160, 420, 8):
        directory = tmp_path / str(left)
        directory.mkdir()
        feeder = Feeder(directory, FILE_BYTES)
        publish(feeder, 0, 1)
        room = FILE_BYTES - (feeder.journal.position - feeder.journal.start_position)
        publish(feeder, 0, 2, room - left - 80)
        publish(feeder, 1, 1, size)
        for number in feeder.journal_storage.numbers:
            entries = entries_of(feeder.journal_storage.path(number))
            assert all(entry.client_name for entry in entries)


@pytest.fixture
def resumed(tmp_path: Path) -> tuple[Feeder, LogWriter]:
    """A log with two named publishers, and a writer that continues its file as after a restart."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    publish(feeder, 0, 1)
    publish(feeder, 1, 1)
    path = feeder.journal_storage.path(0)
    index = IndexBuilder(None, 0, 0, FILE_BYTES)
    found = scan_file(path.read_bytes(), 0, index)
    assert found.name_ids == {publisher_id("p0"), publisher_id("p1")}
    writer = LogWriter(feeder.journal_storage, True)
    writer.resume(0, 0, FILE_BYTES, found.end_offset, index, len(found.topics), found.name_ids)
    return feeder, writer


def test_a_restart_continues_the_names_of_the_journal(resumed: tuple[Feeder, LogWriter]) -> None:
    feeder, writer = resumed
    again = Feeder.over(feeder, writer)
    publish(again, 0, 2)
    publish(again, 2, 1)
    publish(again, 2, 2)
    path = feeder.journal_storage.path(0)
    assert [text for _, text in names_in(path)] == [b"p0", b"p1", b"p2"]
    chain = LogFile(str(path)).names_before(writer.index.last_name_offset)  # type: ignore[union-attr]
    assert chain == {publisher_id(name): name.encode() for name in ("p0", "p1", "p2")}


def test_names_are_found_from_the_middle_of_a_file(tmp_path: Path) -> None:
    """The search starts from the index, and from a split point."""
    feeder = Feeder(tmp_path, 1 << 20)
    for sequence in range(1, 300):
        publish(feeder, sequence % 4, sequence, 1000)
    names = {publisher_id(f"p{number}"): f"p{number}".encode() for number in range(4)}
    file = LogFile(str(feeder.journal_storage.path(0)))
    assert file.names_before(feeder.journal.index.last_name_offset) == names  # type: ignore[union-attr]
    cuts = places(file, file.size, 100_000)
    assert len(cuts) > 2
    assert cuts[0][2] == 0
    assert all(file.names_before(last_name) == names for _, _, last_name in cuts[1:])
    assert file.names_before(0) == {}


def test_a_chain_that_leads_to_another_record_is_damage(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        RecordParts(b"x", txid=1),
        RecordParts(name_payload(7, b"a", previous=FILE_HEADER_SIZE), kind=KIND_NAME),
        RecordParts(name_payload(8, b"b", previous=8000), kind=KIND_NAME),
    )
    file = LogFile(str(path))
    offsets = [at for at in range(FILE_HEADER_SIZE, 5000, 8) if file.read(at + 64, 2) == b"\x12\0"]
    assert len(offsets) == 2
    for offset in (*offsets, FILE_HEADER_SIZE):
        with pytest.raises(LogDamaged, match="name chain meets a record that is no intact name record"):
            file.names_before(offset)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"short",
        name_payload(7, b"abc")[:-1],
        name_payload(7, b"abc") + b"d",
        name_payload(7, b"x" * 65537),
    ],
)
def test_a_malformed_name_record_is_damage(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "inst.0000000003.journal"
    records = [RecordParts(b"x", txid=1), RecordParts(payload, kind=KIND_NAME), RecordParts(b"y", txid=2)]
    path.write_bytes(journal(records, 1 << 18))
    found = scan_file(LogFile(str(path)), START_POSITION)
    assert found.damaged
    assert found.record_count == 3
    with pytest.raises(LogDamaged, match="malformed name record"):
        entries_of(path)


def test_a_text_search_finds_the_name_of_the_client(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        RecordParts(name_payload(5, b"anna"), kind=KIND_NAME),
        RecordParts(b"x", publisher_id=5, sequence=1),
        RecordParts(b"y", publisher_id=6, sequence=1),
    )
    with JournalFile(path) as file:
        search = RecordSearch(texts=[b"ann"], whole_record=True, topic_flags=lambda topic, kind: 1)
        assert [entry.payload for entry in file.entries(search)] == [b"x"]


def test_a_text_search_finds_the_replication_path_and_the_client_of_a_replicated_message(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path,
        RecordParts(name_payload(12, b"west\neast", name_class=3), kind=KIND_NAME),
        RecordParts(b"x", publisher_id=5, sequence=1, extension=element(PATH, 12)),
        RecordParts(b"y", publisher_id=6, flags=1, extension=element(SOURCE, 11, 77) + element(CLIENT, 13)),
    )
    with JournalFile(path) as file:
        search = RecordSearch(texts=[b"east"], whole_record=True, topic_flags=lambda topic, kind: 1)
        assert [entry.payload for entry in file.entries(search)] == [b"x"]
        assert [entry.payload for entry in file.entries(RecordSearch(publishers=[13]))] == [b"y"]
    assert [entry.client_id for entry in entries_of(path)] == [5, 13]
    assert [entry.source_txid for entry in entries_of(path)] == [0, 77]


def test_texts_of_an_entry_end_with_the_name_of_the_client(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        RecordParts(name_payload(5, b"anna"), kind=KIND_NAME),
        RecordParts(name_payload(12, b"west\neast", name_class=3), kind=KIND_NAME),
        RecordParts(b"x", publisher_id=5, sequence=1, extension=element(PATH, 12)),
        RecordParts(b"y", publisher_id=6, sequence=1),
    )
    named, unnamed = (entry_text(entry) for entry in entries_of(path))
    assert re.search(
        rb"rep path byte count +: 10\nrep path +: \[west, east\]\nclient name +: \[anna\]\n$", named
    )
    assert re.search(rb"rep path byte count +: 0\nrep path +: \[\]\n$", unnamed)


def test_a_dump_shows_upstream_path_and_replication_extents(tmp_path: Path) -> None:
    """replication.md §12: who sent a message here, with which transaction id, and which way it took."""
    path = written(
        tmp_path,
        RecordParts(name_payload(11, b"amps-server: from east e1 e2", name_class=2), kind=KIND_NAME),
        RecordParts(name_payload(12, b"west\tG\te0\neast\tG\te1", name_class=3), kind=KIND_NAME),
        RecordParts(b"x", publisher_id=5, sequence=1, extension=element(SOURCE, 11, 70) + element(PATH, 12)),
        RecordParts(b"y", publisher_id=5, sequence=2, extension=element(SOURCE, 11, 77) + element(PATH, 12)),
        RecordParts(b"z", publisher_id=5, sequence=3, extension=element(SOURCE, 13, 4) + element(PATH, 12)),
        RecordParts(b"own", publisher_id=6, sequence=1),
    )
    entries = entries_of(path)
    assert [entry.upstream for entry in entries] == [b"amps-server: from east e1 e2"] * 2 + [b"", b""]
    text = entry_text(entries[0])
    assert re.search(rb"\nsource txid +: 70\nsource name hash +: 11\n", text)
    assert re.search(rb"rep path +: \[west \(G, e0\), east \(G, e1\)\]\n", text)
    assert re.search(rb"\nupstream +: \[amps-server: from east e1 e2\]\n$", text)
    with JournalFile(path) as file:
        survey, _ = file.survey()
    assert b"Replication Extents : 13 [4:4], east e1 e2 [70:77]\n" in extents_text(survey)


# --- which records need a name ----------------------------------------------------------------------------


def test_a_numbered_message_names_the_client(tmp_path: Path) -> None:
    """The publisher id is derived then; the name is that of the session."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    client = element(CLIENT, publisher_id("p1"))
    feeder.push(Feed(1, 0, "a", RecordParts(b"x", publisher_id=99, flags=1, extension=client)))
    feeder.turn(2000, 0)
    (entry,) = entries_of(feeder.journal_storage.path(0))
    assert (entry.publisher_id, entry.client_name) == (99, b"p1")


def test_a_change_of_the_transient_log_writes_no_name(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    for sequence in range(1, 60):
        publish(feeder, 0, sequence, 900, "plain/1")
    assert len(feeder.transient_storage.numbers) > 2
    paths = [feeder.transient_storage.path(number) for number in feeder.transient_storage.numbers]
    assert [names_in(path) for path in (feeder.journal_storage.path(0), *paths)] == [[]] * (len(paths) + 1)


def test_a_large_message_gets_a_file_with_room_for_its_name(tmp_path: Path) -> None:
    """The file is exactly as large as was asked for."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    asked: list[int] = []
    storage = feeder.journal_storage
    make = storage.next_file

    def exactly(number: int, start: int, minimum_bytes: int, first_txid: int) -> tuple[int, None]:
        asked.append(minimum_bytes)
        storage.size_bytes = minimum_bytes
        return make(number, start, minimum_bytes, first_txid)

    storage.next_file = exactly  # type: ignore[method-assign]
    publish(feeder, 0, 1)
    publish(feeder, 3, 1, 3 * FILE_BYTES)
    assert feeder.sequencer.change_journal()
    found = scan_file(
        storage.path(1).read_bytes(), feeder.journal.start_position - len(storage.path(1).read_bytes())
    )
    assert found.finished
    assert names_in(storage.path(1)) == [(publisher_id("p3"), b"p3")]
    assert asked[0] > 3 * FILE_BYTES


def test_a_refused_message_leaves_its_publisher_unnamed(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    publish(feeder, 0, 1)
    publish(feeder, 0, 2, FILE_BYTES - 4096 - 1200)
    storage = feeder.journal_storage
    prepare, storage.prepare_file = storage.prepare_file, lambda number, minimum_bytes: 0  # type: ignore
    publish(feeder, 1, 1, 2000)
    assert feeder.sequencer.refuses
    storage.prepare_file = prepare  # type: ignore[method-assign]
    assert feeder.sequencer.try_next_journal()
    feeder.send_control(("p1", "user"), KIND_LOGON, 1)
    publish(feeder, 1, 1, 2000)
    entries = [entry for number in storage.numbers for entry in entries_of(storage.path(number))]
    assert [entry.client_name for entry in entries] == [b"p0", b"p0", b"p1"]
    assert (
        sum(names_in(storage.path(number)).count((publisher_id("p1"), b"p1")) for number in storage.numbers)
        == 1
    )


# --- limits and damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "sound"), [(65_536, True), (65_537, False)])
def test_the_longest_name(tmp_path: Path, length: int, sound: bool) -> None:
    path = tmp_path / "inst.0000000003.journal"
    name = RecordParts(name_payload(5, b"n" * length), kind=KIND_NAME)
    path.write_bytes(journal([name, RecordParts(b"x", publisher_id=5, sequence=1)], 1 << 18))
    assert scan_file(LogFile(str(path)), START_POSITION).damaged is not sound
    if sound:
        assert entries_of(path)[0].client_name == b"n" * length


def test_unknown_tags_are_accepted_any_number_of_times(tmp_path: Path) -> None:
    area = struct.pack("<HH3s", 0, 3, b"abc") * 2 + element(8) * 2 + element(EXPIRY, 5)
    (entry,) = entries_of(written(tmp_path, RecordParts(b"x", publisher_id=5, extension=area)))
    assert (entry.expiry_ns, entry.payload) == (5, b"x")


def test_a_chain_stops_at_a_damaged_name_and_at_itself(tmp_path: Path) -> None:
    record = RecordParts(name_payload(7, b"a"), kind=KIND_NAME)
    path = written(tmp_path, RecordParts(b"x", txid=1), record)
    file = LogFile(str(path))
    (offset,) = [at for at in range(FILE_HEADER_SIZE, 5000, 8) if file.read(at + 64, 2) == b"\x12\0"]
    assert file.names_before(offset) == {7: b"a"}
    image = bytearray(path.read_bytes())
    image[offset + 80 + 24] ^= 1
    path.write_bytes(bytes(image))
    with pytest.raises(LogDamaged, match="no intact name record"):
        LogFile(str(path)).names_before(offset)
    itself = replace(record, payload=name_payload(7, b"a", previous=offset))
    path = written(tmp_path, RecordParts(b"x", txid=1), itself)
    with pytest.raises(LogDamaged, match="no intact name record"):
        LogFile(str(path)).names_before(offset)


def test_records_behind_damage_are_sound_ones(tmp_path: Path) -> None:
    """A record whose area is malformed is none of them, though its checksum is right."""
    good = RecordParts(b"x", publisher_id=5, sequence=1)
    bad = replace(good, sequence=2, extension=b"\1")
    path = written(tmp_path, good, bad, bad, replace(good, sequence=3))
    found = scan_file(LogFile(str(path)), START_POSITION)
    file = LogFile(str(path))
    offsets = [
        at for at in range(FILE_HEADER_SIZE, 5500, 8) if file.read(at + 40, 8) == (3).to_bytes(8, "little")
    ]
    assert found.valid_after == offsets[0]
    assert find_message(file, FILE_HEADER_SIZE, file.size, 5, 2) is None


def test_an_index_of_the_first_version_is_not_used(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, FILE_BYTES)
    publish(feeder, 0, 1)
    image = bytearray(feeder.journal.index.to_bytes())  # type: ignore[union-attr]
    IndexReader(bytes(image), True)
    image[8:12] = (1).to_bytes(4, "little")
    with pytest.raises(IndexDamaged, match="version"):
        IndexReader(bytes(image), True)
