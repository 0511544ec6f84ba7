"""Reading a journal as entries: windows, compression, damage of every kind, and skipping during a search."""

import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import FILE_HEADER_SIZE, LogDamaged, build_file_header
from amps._core.journal.search import RecordSearch
from amps.journal import entries
from amps.journal.entries import Entry, JournalFile
from amps.journal.grep import Query
from amps.journal.layout import entry_text
from tests.support.journals import journal, topic_payload
from tests.support.records import CLIENT, KIND_TOPIC, RecordParts, element

KIND_NOOP = 8


@pytest.fixture(autouse=True, scope="module")
def nobody_writes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "WRITE_TIME_S", 0.0)
        yield


def entries_in(
    path: Path, search: RecordSearch | None = None, *, with_payload: bool = True
) -> tuple[list[Entry], LogDamaged | None]:
    found: list[Entry] = []
    with JournalFile(path) as file:
        if search is None:
            file.survey()
        try:
            for entry in file.entries(search, with_payload=with_payload):
                found.append(entry)
        except LogDamaged as damage:
            return found, damage
    return found, None


MESSAGES = [
    RecordParts(b"first 1", publisher_id=5, sequence=1, txid=10, timestamp_ns=10**18),
    RecordParts(b"", kind=KIND_NOOP, txid=11, timestamp_ns=10**18),
    RecordParts(
        b"third", topic_id=1, publisher_id=6, sequence=12, txid=12, flags=1, extension=element(CLIENT, 9),
        timestamp_ns=10**18, correlation_id=b"corr", user_id=b"me", sow_key=b"key", expiration_s=7,
    ),
    RecordParts(b"fourth 22", publisher_id=5, sequence=2, txid=14, timestamp_ns=2 * 10**18),
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "inst.0000000003.journal"
    path.write_bytes(journal(MESSAGES, 16384))
    return path


def test_entries_have_all_recorded_fields(path: Path) -> None:
    found, damage = entries_in(path, RecordSearch(include_noops=True))
    assert damage is None
    assert [entry.payload for entry in found] == [record.payload for record in MESSAGES]
    third = found[2]
    assert third.number == 2
    assert (third.topic, third.message_type, third.topic_hash) == (b"blue", b"fix", 78)
    assert (third.correlation_id, third.user_id, third.sow_key) == (b"corr", b"me", b"key")
    assert (third.expiry_ns, third.source_txid, third.source_name_hash) == (10**18 + 7 * 10**9, 9, 0)
    assert (third.previous_txid, third.previous_byte_count) == (11, 80)
    assert [entry.expiry_ns is None for entry in found] == [True, True, False, True]
    assert [entry.number for entry in entries_in(path)[0]] == [0, 2, 3]


@pytest.mark.parametrize(
    ("search", "numbers"),
    [
        (RecordSearch(publishers=[5]), [0, 3]),
        (RecordSearch(publishers=[9]), [2]),
        (RecordSearch(publishers=[6, 77]), [2]),
        (RecordSearch(bookmark=(5, 2)), [3]),
        (RecordSearch(bookmark=(6, 2)), []),
        (RecordSearch(txid=12), [2]),
        (RecordSearch(txid=11), []),
        (RecordSearch(txid=11, include_noops=True), [1]),
        (RecordSearch(texts=[b"th"]), [2, 3]),
        (RecordSearch(texts=[b"corr"]), []),
        (RecordSearch(texts=[b"corr"], whole_record=True), [2]),
        (RecordSearch(texts=[b"first", b"22"]), [0, 3]),
        (RecordSearch(texts=[b"none"], text_bookmark=(5, 1)), [0]),
        (RecordSearch(texts=[b"first"], publishers=[6]), []),
        (RecordSearch(topic_flags=lambda topic, kind: int(topic == b"blue" and kind == b"fix")), [2]),
        (RecordSearch(texts=[b"none"], topic_flags=lambda topic, kind: 3 if kind == b"fix" else 1), [2]),
        (RecordSearch(first_number=1, end_number=3), [2]),
        (RecordSearch(end_number=0), []),
    ],
)
def test_a_search_gives_matching_entries(path: Path, search: RecordSearch, numbers: list[int]) -> None:
    found, damage = entries_in(path, search)
    assert damage is None
    assert [entry.number for entry in found] == numbers


def as_gzip(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def as_zstd(data: bytes) -> bytes:
    """Several frames, and one that must be skipped, as a seek table is stored."""
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    frames = [compressor.compress(data[at : at + 262_144]) for at in range(0, len(data), 262_144)]
    return b"".join(frames) + (0x184D2A5E).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"table"


COMPRESSED: tuple[Callable[[bytes], bytes], ...] = (bytes, as_gzip, as_zstd)


@pytest.mark.parametrize("compressed", COMPRESSED)
def test_records_larger_than_the_window(path: Path, compressed: Callable[[bytes], bytes]) -> None:
    sizes = (100, 5_000_000, 3_000_000, 1, 2_097_152, 9_000_001, 17)
    bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
    records = [RecordParts(body, txid=n + 1) for n, body in enumerate(bodies)]
    path.write_bytes(compressed(journal(records, 20_000_000, finished=True)))
    found, damage = entries_in(path)
    assert damage is None
    assert [entry.payload for entry in found] == bodies
    found, damage = entries_in(path, RecordSearch(texts=[b"\5\5"]), with_payload=False)
    assert [(entry.number, entry.payload, entry.payload_byte_count) for entry in found] == [
        (5, b"", 9_000_001)
    ]
    assert damage is None


def test_bytes_behind_the_end_of_file_record_are_not_read(path: Path) -> None:
    data = journal(MESSAGES, 16384, finished=True)
    path.write_bytes(gzip.compress(data.rstrip(b"\0") + bytes(80)))
    assert entries_in(path)[1] is None
    path.write_bytes(data[:-1] + b"x")
    assert entries_in(path)[1] is None


def test_a_stream_is_read_once(path: Path) -> None:
    with JournalFile(None, io.BufferedReader(io.BytesIO(path.read_bytes()))) as file:  # type: ignore[type-var]
        assert len(list(file.entries())) == 3
        with pytest.raises(io.UnsupportedOperation):
            file.entries()


def test_a_record_that_is_being_written_is_not_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = journal([*MESSAGES, RecordParts(b"the last one", txid=20)], 16384)
    half = whole.index(b"last one")
    path.write_bytes(whole[:half].ljust(16384, b"\0"))
    found, damage = entries_in(path)
    assert len(found) == 3
    assert damage is not None
    monkeypatch.setattr(entries.time, "sleep", lambda _: path.write_bytes(whole))
    path.write_bytes(whole[:half].ljust(16384, b"\0"))
    with JournalFile(path) as file:
        assert len(list(file.entries())) == 3
        assert file.survey()[1] is None


@pytest.mark.parametrize(
    "records",
    [
        [RecordParts(b"x", topic_id=2)],
        [RecordParts(topic_payload(b"x", b"y"), kind=KIND_TOPIC, topic_id=3)],
        [RecordParts(topic_payload(b"x", b"y")[:-1], kind=KIND_TOPIC, topic_id=2)],
        [RecordParts(b"short", kind=KIND_TOPIC, topic_id=2)],
    ],
)
def test_malformed_records_with_a_right_checksum_are_damage(path: Path, records: list[RecordParts]) -> None:
    """Records that no server writes, although their checksum is right."""
    path.write_bytes(journal([*MESSAGES, *records], 16384))
    found, damage = entries_in(path)
    assert len(found) == 3
    assert damage is not None


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_entries_before_any_damage_are_right(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes are changed, cut off or inserted, in plain or compressed journals, before or after compressing.

    The entries read are a beginning of those written, and damage is reported unless they are all.
    """
    path = tmp_path_factory.mktemp("fuzz") / "x.journal"
    whole = journal(MESSAGES, 8192)
    path.write_bytes(whole)
    sound = entries_in(path)[0]
    compressed = data.draw(st.sampled_from(COMPRESSED))
    late = data.draw(st.booleans())
    contents = bytearray(compressed(whole) if late else whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(contents) - 1))
        match data.draw(st.sampled_from(("change", "cut", "insert", "word"))):
            case "change":
                contents[at] = data.draw(st.integers(0, 255))
            case "cut":
                del contents[at + 1 :]
            case "insert":
                contents[at:at] = data.draw(st.binary(max_size=200))
            case _:
                contents[at : at + 8] = data.draw(st.sampled_from((2**64 - 1, 2**63, 0, 80, 4096))).to_bytes(
                    8, "little"
                )
    path.write_bytes(contents if late else compressed(bytes(contents)))
    try:
        found, damage = entries_in(path)
    except LogDamaged:
        return
    assert found == sound[: len(found)]
    if len(found) < len(sound):
        assert damage is not None


@settings(max_examples=200, deadline=None)
@given(
    terms=st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=3),
            st.sampled_from((b"red", b"blue", b"first", b"1", b"12", b"[", b"fix", b": 1", b"noop", b"Z", b"publish\n"))
        ), min_size=1, max_size=3
    )
)  # fmt: skip
def test_skipping_loses_no_match(tmp_path_factory: pytest.TempPathFactory, terms: list[bytes]) -> None:
    """`Query.search` reads all entries that contain a term."""
    path = tmp_path_factory.mktemp("terms") / "x.journal"
    path.write_bytes(journal(MESSAGES, 8192))
    query = Query(terms)
    everything = entries_in(path, RecordSearch(include_noops=True))[0]
    wanted = [entry for entry in everything if query.finds_entry(entry, entry_text(entry), ())]
    read = entries_in(path, query.search((), include_noops=True))[0]
    assert [entry for entry in read if query.finds_entry(entry, entry_text(entry), ())] == wanted


def test_an_inconsistent_header_is_refused(path: Path) -> None:
    for size, start in ((100, 0), (8192, 2**63)):
        path.write_bytes(build_file_header(3, size, start, 1, 1, 2, "inst", True).ljust(8192, b"\0"))
        with pytest.raises(LogDamaged):
            JournalFile(path)
    path.write_bytes(bytes(FILE_HEADER_SIZE))
    with pytest.raises(LogDamaged, match="spare"):
        JournalFile(path)
