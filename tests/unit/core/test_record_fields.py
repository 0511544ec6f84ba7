"""Fields of payloads, read while records become rows."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps._core.columns.columns import STOPPED_FULL, FieldColumns, RecordColumns, RecordRows
from amps._core.journal.reader import FILE_HEADER_SIZE, LogFile
from tests.support.journals import journal
from tests.support.records import RecordParts


@pytest.fixture
def make(tmp_path: Path) -> Callable[[int], LogFile]:
    """Make a journal with so many messages {"n": 0}, {"n": 1} and so on, of topics red and blue in turn."""

    def make_file(count: int) -> LogFile:
        parts = [
            RecordParts(b'{"n":%d}' % n, publisher_id=7, sequence=n + 1, topic_id=n % 2) for n in range(count)
        ]
        path = tmp_path / "inst.0000000003.journal"
        path.write_bytes(journal(parts, 1 << 16, finished=True))
        return LogFile(str(path))

    return make_file


def walking(rows: RecordRows, file: LogFile, number_of: Callable[[bytes], int]) -> RecordColumns:
    """Columns ready to walk through a file; `number_of` gives the number of a topic's reader."""
    records = RecordColumns(rows, lambda topic, message_type: number_of(topic))
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    return records


def reader() -> FieldColumns:
    return FieldColumns("json", (("n", "long"),))


def read(reader: FieldColumns) -> list[int | None]:
    """The values that a reader has collected."""
    return [row["n"] for row in reader.finish().to_pylist()]


def test_payloads_go_to_the_readers_of_their_topics(make: Callable[[int], LogFile]) -> None:
    file = make(6)
    numbers = {b"red": 2, b"blue": 1}
    rows = RecordRows()
    readers = [reader(), reader()]
    assert [rows.add_reader(one) for one in readers] == [1, 2]
    records = walking(rows, file, lambda topic: numbers[topic])
    records.advance()
    memory = rows.places()
    assert memory is not None
    assert struct.unpack("<6i", bytes(memory)) == (3, 0, 4, 1, 5, 2)
    assert [read(one) for one in readers] == [[1, 3, 5], [0, 2, 4]]
    payloads = rows.take()[1]["payload"][2]
    assert bytes(payloads) == b"".join(b'{"n":%d}' % n for n in range(6))


def test_payloads_without_a_reader_have_no_place(make: Callable[[int], LogFile]) -> None:
    file = make(6)
    rows = RecordRows()
    one = reader()
    rows.add_reader(one)
    records = walking(rows, file, lambda topic: int(topic == b"blue"))
    records.advance()
    memory = rows.places()
    assert memory is not None
    assert struct.unpack("<6i", bytes(memory)) == (-1, 0, -1, 1, -1, 2)
    assert read(one) == [1, 3, 5]


def test_one_reader_for_all_rows_needs_no_places(make: Callable[[int], LogFile]) -> None:
    """Payloads that are only read are not copied either."""
    file = make(40)
    rows = RecordRows(("position",), rows_max=7)
    one = reader()
    number = rows.add_reader(one)
    records = walking(rows, file, lambda topic: number)
    positions: list[int] = []
    values: list[int | None] = []
    full = True
    while full:
        full = records.advance() == STOPPED_FULL
        assert rows.places() is None
        values += read(one)
        count, batch = rows.take()
        assert list(batch) == ["position"]
        positions += struct.unpack(f"<{count}q", bytes(batch["position"][2]))
    assert len(set(positions)) == 40
    assert values == list(range(40))


@pytest.mark.parametrize("columns", [(), ("payload",)])
def test_payloads_with_a_reader_count_once(make: Callable[[int], LogFile], columns: tuple[str, ...]) -> None:
    file = make(10)
    rows = RecordRows(columns, bytes_max=3 * len(b'{"n":0}'))
    rows.add_reader(reader())
    records = walking(rows, file, lambda topic: 1)
    assert records.advance() == STOPPED_FULL
    assert rows.rows == 3


def test_the_number_of_readers_is_bounded() -> None:
    rows = RecordRows()
    assert [rows.add_reader(reader()) for _ in range(255)] == list(range(1, 256))
    with pytest.raises(ValueError, match="up to 255 readers"):
        rows.add_reader(reader())


def test_an_unknown_reader_is_an_error(make: Callable[[int], LogFile]) -> None:
    rows = RecordRows()
    rows.add_reader(reader())
    with pytest.raises(ValueError, match="no reader 2"):
        walking(rows, make(2), lambda topic: 2).advance()
