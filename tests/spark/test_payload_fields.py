"""The column `data`: rows of several message types become one array, in the order of the log."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps._core.columns.columns import (  # noqa: E402
    RecordColumns,
    RecordRows,
)
from amps._core.journal.reader import FILE_HEADER_SIZE, LogFile  # noqa: E402
from amps.spark.options import read_options  # noqa: E402
from amps.spark.payload_fields import ROWS_MAX, PayloadFields, rows_at_once  # noqa: E402
from amps.spark.payload_schema import parse_ddl  # noqa: E402
from amps.spark.source import JournalReader  # noqa: E402
from tests.support.journals import journal  # noqa: E402
from tests.support.records import RecordParts  # noqa: E402

FIELDS = (("n", "long"),)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((b"json", b"nvfix"), [0, 1, 2, 3, None]),
        ((b"json", b"binary"), [0, None, 2, None, None]),
        ((b"binary", b"no such type"), [None] * 5),
    ],
)
def test_each_payload_is_read_by_its_message_type(
    tmp_path: Path, types: tuple[bytes, bytes], expected: list[int | None]
) -> None:
    path = tmp_path / "inst.0000000003.journal"
    payloads = [b'{"n":0}', b"n=1\x01", b'{"n":2}', b"n=3\x01", b"{"]
    parts = [
        RecordParts(payload, publisher_id=1, sequence=n + 1, topic_id=n % 2)
        for n, payload in enumerate(payloads)
    ]
    path.write_bytes(journal(parts, 16384, finished=True))
    rows = RecordRows(("payload",), 3)
    fields = PayloadFields(rows, FIELDS)
    shown = {b"red": types[0], b"blue": types[1]}
    records = RecordColumns(rows, lambda topic, message_type: fields.number_of(shown[topic]))
    file = LogFile(str(path))
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    found: list[Any] = []
    for _ in range(2):
        records.advance()
        found += fields.take().to_pylist()
        rows.take()
    # A row without data is null; in a malformed row all fields are null.
    assert [None if row is None else row["n"] for row in found] == expected
    assert [row is None for row in found] == [
        shown_type not in (b"json", b"nvfix") for shown_type in types * 2 + types[:1]
    ]
    assert fields.malformed == (types[0] == b"json")


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ("n long", ROWS_MAX),
        (", ".join(f"n{number} long" for number in range(256)), ROWS_MAX),
        (", ".join(f"n{number} long" for number in range(1024)), ROWS_MAX // 4),
        (
            "s struct<a: struct<" + ", ".join(f"n{number}: decimal(38,3)" for number in range(512)) + ">>",
            4096,
        ),
        (", ".join(f"t{number} string, e{number} array<long>" for number in range(1024)), 4096),
        (", ".join(f"f{number} boolean, d{number} date, b{number} byte" for number in range(8192)), 682),
    ],
)
def test_batches_have_fewer_rows_where_there_are_very_many_fields(fields: str, rows: int) -> None:
    assert rows_at_once(parse_ddl(fields)) == rows


def test_batches_of_many_fields_have_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amps.spark.payload_fields.CELL_BYTES_MAX", 100)
    parts = [RecordParts(b'{"n1":%d}' % n, publisher_id=1, sequence=n + 1) for n in range(13)]
    (tmp_path / "inst.0000000003.journal").write_bytes(journal(parts, 16384, finished=True))
    options = read_options({"path": str(tmp_path), "schema": "n0 long, n1 long"})
    reader = JournalReader(options, ("sequence", "data"))
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert [batch.num_rows for batch in batches] == [6, 6, 1]
    assert [row["data"]["n1"] for batch in batches for row in batch.to_pylist()] == list(range(13))
