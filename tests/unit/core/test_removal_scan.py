"""Finding removals from queues in the log, and records that are no removals."""

import struct
from pathlib import Path

import pytest

from amps._core.journal.reader import LogCursor, LogDamaged, LogDirectory, build_file_header
from amps._core.journal.search import ENTRY_BYTES, RemovalScan
from tests.support.records import KIND_TOPIC, SOURCE, RecordParts, element, padded

ACKNOWLEDGEMENT, EXPIRY = 4, 5
ACKNOWLEDGED, EXPIRED, DELIVERED, DELAYED = 0, 2, 4, 6
ELSEWHERE = 32
GONE = 2**64 - 1
FILE_BYTES = 1 << 16
START = 4096


def removals(action: int, *entries: tuple[int, int]) -> bytes:
    """The payload of a removal record; entries are (log position, reasons)."""
    rows = (struct.pack("<QQQII", 7, 8, position, 0, reasons) for position, reasons in entries)
    return struct.pack("<IIQQII", action, len(entries), 0, 0, 0, 0) + b"".join(rows)


def topic(number: int, name: str) -> RecordParts:
    payload = struct.pack("<QQII", 0, 0, 4, len(name)) + b"json" + name.encode()
    return RecordParts(payload, KIND_TOPIC, number)


def log_of(path: Path, *records: RecordParts) -> tuple[RemovalScan, list[int], int]:
    """A log: its reader, the positions of its records and its end. Q is watched, Other is not."""
    header = build_file_header(0, FILE_BYTES, 0, 1, 0, 0, "n", True)
    data, positions = bytearray(header), []
    for record in (topic(0, "Q"), topic(1, "Other"), *records):
        positions.append(len(data))
        at = RecordParts(**{**vars(record), "position": len(data)})
        data += padded(at.to_bytes(sealed=True))
    end = len(data)
    (path / "n.0000000000.journal").write_bytes(data.ljust(FILE_BYTES, b"\0"))
    directory = LogDirectory(f"{path}/n.", ".journal", lambda name, _: name if name == "Q" else None)
    return RemovalScan(LogCursor(directory, 0, 0, True)), positions[2:], end


def test_an_entry_has_the_documented_length() -> None:
    assert ENTRY_BYTES == 32


def test_removals_from_a_watched_queue(tmp_path: Path) -> None:
    """Messages that expired, were expired by a client, or were acknowledged; entries keep their places."""
    records = [
        RecordParts(b"x", 1, 0),
        RecordParts(removals(EXPIRED, (1, 1), (2, 12)), EXPIRY, 0),
        RecordParts(removals(EXPIRED, (3, 1)), EXPIRY, 1),
        RecordParts(removals(ACKNOWLEDGED, (0, 0), (4, 0)), ACKNOWLEDGEMENT, 0),
        RecordParts(removals(EXPIRED, (5, 2)), ACKNOWLEDGEMENT, 0),
    ]
    scan, positions, end = log_of(tmp_path, *records)
    assert scan.next(end, 1 << 20) == (positions[1], "Q", True, [(1, 1), (2, 12)])
    assert scan.position == positions[2]
    assert scan.next(end, 1 << 20) == (positions[3], "Q", False, [(0, 0), (4, 0)])
    assert scan.next(end, 1 << 20) == (positions[4], "Q", True, [(5, 2)])
    assert scan.next(end, 1 << 20) is None
    assert scan.position == end


def test_records_that_are_no_removals(tmp_path: Path) -> None:
    """queues.md §22, D-16, D-30: at-most-once messages, which leave when they are sent, and barriers. Messages that are
    cancelled with a delay (queue_guarantees.md §2) have not left.
    """
    scan, _, end = log_of(
        tmp_path,
        RecordParts(removals(DELIVERED, (1, 0)), ACKNOWLEDGEMENT, 0),
        RecordParts(removals(DELIVERED, (1, 16)), ACKNOWLEDGEMENT, 0),
        RecordParts(removals(DELAYED, (1, 0)), ACKNOWLEDGEMENT, 0),
    )
    assert scan.next(end, 1 << 20) is None


def test_it_stops_at_the_limit_and_after_a_number_of_bytes(tmp_path: Path) -> None:
    filler = [RecordParts(b"x" * 1000, 1, 0) for _ in range(10)]
    scan, positions, end = log_of(tmp_path, *filler, RecordParts(removals(EXPIRED, (1, 1)), EXPIRY, 0))
    assert scan.next(positions[3], 1 << 20) is None
    assert scan.position == positions[3]
    steps = 0
    while (found := scan.next(end, 2000)) is False:
        steps += 1
    assert steps > 1
    assert found == (positions[10], "Q", True, [(1, 1)])


@pytest.mark.parametrize("payload", [b"", b"x" * 31, removals(EXPIRED, (1, 1))[:-1]])
def test_a_malformed_record(tmp_path: Path, payload: bytes) -> None:
    scan, _, end = log_of(tmp_path, RecordParts(payload, EXPIRY, 0))
    with pytest.raises(LogDamaged, match="do not add up"):
        scan.next(end, 1 << 20)


def test_removals_from_a_queue_that_spans_instances(tmp_path: Path) -> None:
    """queues.md D-19, D-30: expiry counts where the message is owned, forced expiry where it was commanded, and an
    acknowledgement on each instance that had the message.
    """
    source = element(SOURCE, 5, 6)
    records = [
        RecordParts(removals(EXPIRED, (1, 1 | ELSEWHERE)), EXPIRY, 0),
        RecordParts(removals(EXPIRED, (2, 1 | ELSEWHERE), (3, 1)), EXPIRY, 0),
        RecordParts(removals(EXPIRED, (4, 4)), EXPIRY, 0, extension=source),
        RecordParts(removals(EXPIRED, (5, 2)), ACKNOWLEDGEMENT, 0, extension=source),
        RecordParts(removals(ACKNOWLEDGED, (GONE, 0), (6, 0)), ACKNOWLEDGEMENT, 0, extension=source),
        RecordParts(removals(ACKNOWLEDGED, (GONE, 0)), ACKNOWLEDGEMENT, 0, extension=source),
    ]
    scan, positions, end = log_of(tmp_path, *records)
    assert scan.next(end, 1 << 20) == (positions[1], "Q", True, [(3, 1)])
    assert scan.next(end, 1 << 20) == (positions[4], "Q", False, [(6, 0)])
    assert scan.next(end, 1 << 20) is None
