"""Fields of payloads, read while records become rows: tests that need a process of their own."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from tests.support.journals import journal
from tests.support.records import RecordParts
from tests.support.server import package_path

WALKING = """
import json
import sys
from amps._core.columns.columns import FieldColumns
from amps._core.journal.reader import FILE_HEADER_SIZE, LogFile
from amps._core.columns.columns import RecordColumns
from amps._core.columns.columns import COLUMNS, RecordRows

def walking(message_type, fields, columns):
    rows = RecordRows(columns)
    reader = FieldColumns(message_type, fields)
    number = rows.add_reader(reader)
    records = RecordColumns(rows, lambda topic, of: number)
    file = LogFile(sys.argv[1])
    records.open(file)
    records.seek(FILE_HEADER_SIZE, file.size)
    return rows, reader, records
"""

DOUBLES = """
rows, reader, records = walking(sys.argv[2], (("a", "string"),), ("position",))
records.advance()
print(json.dumps([row["a"] for row in reader.finish().to_pylist()]))
"""

WITHOUT_ROOM = """
import resource
from pathlib import Path

members = tuple((f"m{number}", "long") for number in range(20))
rows, reader, records = walking("msgpack", (("a", ("array", ("struct", members))),), COLUMNS)
before = resource.getrlimit(resource.RLIMIT_AS)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), before[1]))
try:
    records.advance()
    raised = None
except MemoryError as error:
    raised = repr(error)
resource.setrlimit(resource.RLIMIT_AS, before)
told = [raised, rows.rows, reader.rows]
records.advance()
told.append([len(row["a"]) for row in reader.finish().to_pylist()])
count, batch = rows.take()
texts = {}
for name, (_, offsets, values) in batch.items():
    if offsets is not None:
        ends = memoryview(offsets).cast("i").tolist()
        texts[name] = [len(bytes(values)), *(end - first for first, end in zip(ends, ends[1:]))]
print(json.dumps([*told, count, texts, [name for name, buffers in batch.items() if buffers[0] is not None]]))
"""


def printed(program: str, directory: Path, payloads: list[bytes], *arguments: str, **settings: str) -> Any:
    """The output of a program that walks through a journal with these payloads."""
    path = directory / "inst.0000000003.journal"
    parts = [
        RecordParts(payload, publisher_id=7 * (number % 2), sequence=number + 1, expiration_s=5)
        for number, payload in enumerate(payloads)
    ]
    path.write_bytes(journal(parts, 1 << 19, finished=True))
    ran = subprocess.run(
        [sys.executable, "-P", "-c", WALKING + program, str(path), *arguments],
        env={**os.environ, "PYTHONPATH": package_path(), **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("message_type", "head", "order", "tail"),
    [("msgpack", b"\x81\xa1a\xcb", ">d", b""), ("bson", b"\x10\0\0\0\x01a\0", "<d", b"\0")],
)
def test_numbers_become_texts_without_holding_the_interpreter(
    tmp_path: Path, message_type: str, head: bytes, order: str, tail: bytes
) -> None:
    """The walk does not hold the interpreter, but texts of numbers need its memory.

    Python's debug allocator checks that.
    """
    numbers = [1.5, 0.1, 1e300, 2.0**-44, 5e-324]
    payloads = [head + struct.pack(order, number) + tail for number in numbers]
    wanted = [repr(number) for number in numbers]
    assert printed(DOUBLES, tmp_path, payloads, message_type, PYTHONMALLOC="debug") == wanted


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory can be limited on Linux only")
def test_a_row_without_memory_is_left_out_and_can_be_tried_again(tmp_path: Path) -> None:
    count = 1 << 18
    payloads = [
        b"\x81\xa1a\x91\x80",
        b"\x81\xa1a\xdd" + count.to_bytes(4, "big") + b"\x80" * count,
        b"\x81\xa1a\x90",
    ]
    raised, rows, read, lengths, taken, texts, with_nulls = printed(WITHOUT_ROOM, tmp_path, payloads)
    assert (raised, rows, read) == ("MemoryError()", 1, 1)
    assert (lengths, taken) == ([1, count, 0], 3)
    assert texts == {
        "bookmark": [4, 0, 4, 0],
        "publisher": [1, 0, 1, 0],
        "topic": [9, 3, 3, 3],
        "message_type": [12, 4, 4, 4],
        "kind": [21, 7, 7, 7],
        "payload": [sum(map(len, payloads)), *map(len, payloads)],
    }
    assert with_nulls == ["bookmark", "publisher"]
