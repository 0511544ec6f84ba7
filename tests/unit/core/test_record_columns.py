"""Records as columns: which records become rows, the values of the rows, and the ends of a walk."""

import itertools
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amps._core.columns.columns import (
    COLUMNS,
    STOPPED_AT_DAMAGE,
    STOPPED_AT_END,
    STOPPED_FINISHED,
    STOPPED_FULL,
    RecordColumns,
    RecordRows,
)
from amps._core.journal.reader import FILE_HEADER_SIZE, LogDamaged, LogFile
from amps._core.journal.search import find_message, places
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from tests.support.journals import START_POSITION, journal, name_payload
from tests.support.records import EXPIRY, KIND_NAME, RecordParts, element

SIZE = 1 << 16
NUMBERS = {"position", "timestamp", "sequence", "expiration"}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., LogFile]:
    """Make a journal with topics `red` (json) and `blue` (fix), and these records."""

    def make_file(parts: list[RecordParts], size: int = SIZE, finished: bool = True) -> LogFile:
        path = tmp_path / "inst.0000000003.journal"
        path.write_bytes(journal(parts, size, finished=finished))
        return LogFile(str(path))

    return make_file


def some(count: int) -> list[RecordParts]:
    return [
        RecordParts(b"payload %d" % n, publisher_id=7, sequence=n + 1, timestamp_ns=n * 1000, topic_id=n % 2)
        for n in range(count)
    ]


def everything(topic: bytes, message_type: bytes) -> int:
    return 0


def column(buffers: dict[str, Any], name: str, rows: int) -> list[Any]:
    """The values of a column, read in Arrow's format."""
    validity, offsets, values = buffers[name]
    data = bytes(values)
    if name in NUMBERS:
        assert offsets is None
        found: list[Any] = list(struct.unpack(f"<{rows}q", data))
    else:
        ends = struct.unpack(f"<{rows + 1}i", bytes(offsets))
        assert ends[0] == 0
        assert ends[-1] == len(data)
        found = [data[start:end] for start, end in itertools.pairwise(ends)]
    bits = bytes(validity) if validity is not None else b"\xff" * (rows // 8 + 1)
    return [value if bits[n // 8] >> n % 8 & 1 else None for n, value in enumerate(found)]


def table(rows: RecordRows) -> dict[str, list[Any]]:
    count, buffers = rows.take()
    return {name: column(buffers, name, count) for name in buffers}


def walk(file: LogFile, **options: Any) -> dict[str, list[Any]]:
    """All rows of a file."""
    rows = RecordRows()
    records = RecordColumns(rows, options.pop("topic_wanted", everything), **options)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == STOPPED_FINISHED
    return table(rows)


def test_rows_are_records(make: Callable[..., LogFile]) -> None:
    file = make(some(100))
    found = walk(file)
    assert tuple(found) == COLUMNS
    assert found["payload"] == [b"payload %d" % n for n in range(100)]
    assert found["bookmark"] == [b"7|%d|" % (n + 1) for n in range(100)]
    assert found["topic"] == [b"red", b"blue"] * 50
    assert found["message_type"] == [b"json", b"fix"] * 50
    assert found["timestamp"] == list(range(100))
    assert found["expiration"] == [None] * 100
    assert [file.read(p - START_POSITION + 8, 8) for p in found["position"]] == [
        struct.pack("<Q", p) for p in found["position"]
    ]


@pytest.mark.parametrize("number", [0, 9, 10, 99, 100, 10**18, 2**63 - 1, 2**63, 2**64 - 1])
def test_large_numbers(make: Callable[..., LogFile], number: int) -> None:
    """A number too large for its column is null there, and complete in the bookmark."""
    found = walk(make([RecordParts(publisher_id=max(number, 1), sequence=number)]))
    assert found["sequence"] == [number if number < 2**63 else None]
    assert found["bookmark"] == [b"%d|%d|" % (max(number, 1), number)]
    assert found["publisher"] == [b"%d" % max(number, 1)]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_wanted_alone_has_the_same_values(make: Callable[..., LogFile], name: str) -> None:
    other = 1000 * COLUMNS.index(name)  # differs from the values left in memory that is used again
    parts = [
        RecordParts(
            b"%d" % n,
            publisher_id=7,
            sequence=other + n + 1,
            timestamp_ns=(other + n + 1) * 1_000_000,
            topic_id=n % 2,
            expiration_s=n % 3,
        )
        for n in range(30)
    ]
    file = make(parts)
    rows = RecordRows((name,))
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == STOPPED_FINISHED
    assert table(rows) == {name: walk(file)[name]}


def test_publishers_that_share_a_place_in_the_cache(make: Callable[..., LogFile]) -> None:
    ids = [5, 5 + 1024, 5, 5 + 2048, 6]
    names = [
        RecordParts(name_payload(5, b"anna"), kind=KIND_NAME),
        RecordParts(name_payload(5 + 2048, b"bert"), kind=KIND_NAME),
    ]
    records_of = [RecordParts(publisher_id=known, sequence=1) for known in ids]
    file = make([*names, *records_of])
    rows = RecordRows()
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    records.advance()
    assert table(rows)["publisher"] == [b"anna", b"1029", b"anna", b"bert", b"6"]


def test_a_name_is_shown_for_records_after_it(make: Callable[..., LogFile]) -> None:
    message = RecordParts(publisher_id=5, sequence=1)
    name = RecordParts(name_payload(5, "ann\ud800".encode("utf-8", "surrogatepass")), kind=KIND_NAME)
    file = make([message, name, message])
    rows = RecordRows()
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == STOPPED_FINISHED
    assert table(rows)["publisher"] == [b"5", b"ann?"]


def test_many_publishers_have_their_names(make: Callable[..., LogFile]) -> None:
    names = [RecordParts(name_payload(known, b"n%d" % known), kind=KIND_NAME) for known in range(1, 200)]
    file = make([*names, *(RecordParts(publisher_id=known, sequence=1) for known in range(1, 200))], 1 << 17)
    rows = RecordRows()
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == STOPPED_FINISHED
    assert table(rows)["publisher"] == [b"n%d" % known for known in range(1, 200)]


def test_the_first_name_of_a_publisher_stays(make: Callable[..., LogFile]) -> None:
    names = [RecordParts(name_payload(5, text), kind=KIND_NAME) for text in (b"anna", b"bert")]
    found = walk(make([*names, RecordParts(publisher_id=5, sequence=1)]))
    assert found["publisher"] == [b"anna"]


def test_a_name_of_other_bytes_than_utf8(make: Callable[..., LogFile]) -> None:
    name = RecordParts(name_payload(5, b"a\xff"), kind=KIND_NAME)
    assert walk(make([name, RecordParts(publisher_id=5, sequence=1)]))["publisher"] == ["a\ufffd".encode()]


def test_long_names_fill_a_batch(make: Callable[..., LogFile]) -> None:
    """An Arrow column of texts holds 2 GiB."""
    name = RecordParts(name_payload(5, b"\xff" * 60_000), kind=KIND_NAME)
    file = make([name, *[RecordParts(publisher_id=5, sequence=number) for number in range(1, 101)]], 1 << 20)
    rows = RecordRows(bytes_max=1 << 20)
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == STOPPED_FULL
    assert rows.rows == -(-(1 << 20) // 180_000)


def test_an_absolute_expiry_replaces_the_lifetime(make: Callable[..., LogFile]) -> None:
    expiries = [5 * 10**9, (1 << 64) - 1, 1 << 63, 0]
    message = RecordParts(publisher_id=5, sequence=1, expiration_s=3, timestamp_ns=10**9)
    file = make([replace(message, extension=element(EXPIRY, expiry)) for expiry in expiries])
    assert walk(file)["expiration"] == [5_000_000, None, None, 4_000_000]


def test_a_malformed_name_record_is_damage(make: Callable[..., LogFile]) -> None:
    message = RecordParts(publisher_id=5, sequence=1)
    file = make([message, RecordParts(name_payload(5, b"anna")[:-1], kind=KIND_NAME), message])
    rows = RecordRows()
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == STOPPED_AT_DAMAGE
    assert table(rows)["publisher"] == [b"5"]


def test_a_topic_is_looked_up_once(make: Callable[..., LogFile]) -> None:
    asked: list[tuple[bytes, bytes]] = []

    def wanted(topic: bytes, message_type: bytes) -> int | None:
        asked.append((topic, message_type))
        return 0 if topic == b"blue" else None

    found = walk(make(some(10)), topic_wanted=wanted)
    assert found["payload"] == [b"payload %d" % n for n in range(1, 10, 2)]
    assert asked == [(b"red", b"json"), (b"blue", b"fix")]


def test_ranges_of_time_and_position(make: Callable[..., LogFile]) -> None:
    file = make(some(50))
    all_of = walk(file)["position"]
    assert walk(file, first_time_us=10, last_time_us=12)["timestamp"] == [10, 11, 12]
    assert walk(file, first_position=all_of[5], end_position=all_of[8])["position"] == all_of[5:8]
    assert walk(file, kinds=1 << 2)["position"] == []
    assert walk(file, kinds=1 << 1)["position"] == all_of


@pytest.mark.parametrize("limits", [{"rows_max": 7}, {"bytes_max": 100}, {"rows_max": 1}])
def test_batches_are_limited_and_lose_nothing(make: Callable[..., LogFile], limits: dict[str, int]) -> None:
    file = make(some(100))
    rows = RecordRows(**limits)
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    found = []
    while records.advance() == STOPPED_FULL:
        assert 0 < rows.rows <= 9
        found += table(rows)["payload"]
    found += table(rows)["payload"]
    assert found == [b"payload %d" % n for n in range(100)]
    assert rows.rows == 0


def test_a_walk_stops_at_damage_and_goes_on_behind_it(make: Callable[..., LogFile]) -> None:
    file = make(some(20))
    position = walk(file)["position"][7]
    offset = position - START_POSITION
    with Path(file.path).open("r+b") as raw:
        raw.seek(offset + 85)
        raw.write(b"!")
    rows = RecordRows()
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == records.advance() == STOPPED_AT_DAMAGE
    assert records.offset == offset
    assert rows.rows == 7
    assert records.search()
    assert records.advance() == STOPPED_FINISHED
    assert table(rows)["sequence"] == [n for n in range(1, 21) if n != 8]
    records.seek(offset + 8, file.size)
    assert records.advance() == STOPPED_AT_DAMAGE


def test_no_record_follows_the_last_one(make: Callable[..., LogFile]) -> None:
    file = make(some(3), finished=False)
    records = RecordColumns(RecordRows(), everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    assert records.advance() == STOPPED_AT_DAMAGE
    assert not records.search()
    assert records.offset == file.size


def test_topics_before_the_range_must_be_supplied(make: Callable[..., LogFile]) -> None:
    file = make(some(20))
    first = walk(file)["position"][10] - START_POSITION
    rows = RecordRows()
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(first, file.size)
    assert records.advance() == STOPPED_FINISHED
    assert rows.rows == 0
    assert records.unnamed_records == 10
    told = RecordColumns(rows, everything)
    told.open(file, [(1, b"blue", b"fix")])
    told.seek(first, file.size)
    told.advance()
    assert table(rows)["topic"] == [b"blue"] * 5
    unnamed = RecordColumns(rows, everything, takes_unnamed=True)
    unnamed.open(file)
    unnamed.seek(first, file.size)
    unnamed.advance()
    assert table(rows)["topic"] == [None] * 10


def test_a_range_ends_at_its_limit(make: Callable[..., LogFile]) -> None:
    file = make(some(20))
    offsets = [position - START_POSITION for position in walk(file)["position"]]
    rows = RecordRows()
    records = RecordColumns(rows, everything)
    records.open(file)
    records.seek(FILE_HEADER_SIZE, offsets[4] + 1)
    assert records.advance() == STOPPED_AT_END
    assert table(rows)["sequence"] == [1, 2, 3, 4, 5]


def test_compressed_files_read_the_same(make: Callable[..., LogFile], tmp_path: Path) -> None:
    parts = [RecordParts(bytes([n % 251]) * 3000, publisher_id=7, sequence=n + 1) for n in range(400)]
    file = make(parts, 1 << 21)
    path = tmp_path / "inst.0000000003.journal.gz"
    plain = walk(file)
    for _ in compress_journal(Disk(), Path(file.path), path):
        pass
    assert walk(LogFile(str(path))) == plain
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(LogDamaged):
        walk(LogFile(str(path)))


def test_places_where_reading_may_begin(make: Callable[..., LogFile]) -> None:
    file = make(some(100))
    offsets = [position - START_POSITION for position in walk(file)["position"]]
    found = places(file, file.size, 1000)
    assert found[0] == (FILE_HEADER_SIZE, 0, 0)
    assert {offset for offset, _, _ in found[1:]} <= set(offsets)
    assert all(FILE_HEADER_SIZE < topic < offset and name == 0 for offset, topic, name in found[1:])
    assert len(found) > 8


def test_a_message_is_found_by_its_bookmark(make: Callable[..., LogFile]) -> None:
    file = make(some(30))
    offsets = [position - START_POSITION for position in walk(file)["position"]]
    assert find_message(file, FILE_HEADER_SIZE, file.size, 7, 13) == offsets[12]
    assert find_message(file, FILE_HEADER_SIZE, offsets[12], 7, 13) is None
    assert find_message(file, offsets[13], file.size, 7, 13) is None
    assert find_message(file, FILE_HEADER_SIZE, file.size, 8, 13) is None
