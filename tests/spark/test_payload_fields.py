"""The column `data`: rows of several message types become one array, in the order of the log."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps._core.log_file import FILE_HEADER_SIZE, LogFile  # noqa: E402
from amps._core.record_columns import RecordColumns  # noqa: E402
from amps._core.record_rows import RecordRows  # noqa: E402
from amps.spark.payload_fields import PayloadFields  # noqa: E402
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
    rows = RecordRows(("payload",), None, 3)
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
    # A row without data is null; one that is malformed has none of its fields.
    assert [None if row is None else row["n"] for row in found] == expected
    assert [row is None for row in found] == [
        shown_type not in (b"json", b"nvfix") for shown_type in types * 2 + types[:1]
    ]
    assert fields.malformed == (types[0] == b"json")
