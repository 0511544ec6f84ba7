"""The column `data`: rows of several message types become one array, in the order of the log."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps._core.log_file import FILE_HEADER_SIZE, LogFile  # noqa: E402
from amps._core.record_columns import RecordColumns  # noqa: E402
from amps._core.record_rows import RecordRows  # noqa: E402
from amps.spark.payload_fields import FieldReaders, PayloadFields  # noqa: E402
from tests.support.journals import journal  # noqa: E402
from tests.support.records import RecordParts  # noqa: E402

TYPE = pyarrow.struct([("text", pyarrow.string())])


class Reader:
    """Makes a field of the whole payload, and says whose it is."""

    def __init__(self, message_type: str) -> None:
        self._message_type = message_type
        self._rows: list[dict[str, str]] = []
        self.malformed = 0

    def add_payload(self, payload: bytes, /) -> object:
        self.malformed += payload == b"4"
        self._rows.append({"text": f"{self._message_type} {payload.decode()}"})
        return None

    def finish(self) -> Any:
        rows, self._rows = self._rows, []
        return pyarrow.array(rows, TYPE)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({"json", "fix"}, ["json 0", "fix 1", "json 2", "fix 3", "json 4"]),
        ({"json"}, ["json 0", None, "json 2", None, "json 4"]),
        (set(), [None] * 5),
    ],
)
def test_each_payload_is_read_by_its_message_type(
    tmp_path: Path, types: set[str], expected: list[str | None]
) -> None:
    path = tmp_path / "inst.0000000003.journal"
    parts = [RecordParts(b"%d" % n, publisher_id=1, sequence=n + 1, topic_id=n % 2) for n in range(5)]
    path.write_bytes(journal(parts, 16384, finished=True))
    fields = PayloadFields(FieldReaders(TYPE, frozenset(types), Reader))
    rows = RecordRows(("payload",), None, 3)
    records = RecordColumns(rows, lambda topic, message_type: fields.number_of(message_type))
    file = LogFile(str(path))
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    found: list[Any] = []
    for _ in range(2):
        records.advance()
        found += fields.take(rows).to_pylist()
        rows.take()
    assert found == [None if text is None else {"text": text} for text in expected]
    assert fields.malformed == ("json" in types)
