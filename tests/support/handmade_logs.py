"""A log of several journals made byte by byte, with topics, times and kinds of records that the test chooses."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from amps._core.journal.reader import build_file_header
from tests.support.journals import topic_payload
from tests.support.records import KIND_END_OF_FILE, KIND_TOPIC, RecordParts, padded

INSTANCE = "made"
FIRST_TXID = 1
SECOND_NS = 10**9
BEGIN_NS = 1_790_000_000 * SECOND_NS
"""2026-09-21T14:13:20Z"""

Topic = tuple[bytes, bytes]
"""Name and message type."""


def write_log(
    directory: Path, topics: Sequence[Topic], files: Sequence[Sequence[RecordParts]], size: int = 1 << 20
) -> list[RecordParts]:
    """Write journals with these records, each numbered and placed; the last journal is in use.

    `topic_id` of a record is the index of its topic. Return the records as they were written, except the records of
    topics.
    """
    directory.mkdir(exist_ok=True)
    written: list[RecordParts] = []
    for number, parts in enumerate(files):
        start = number * size
        data = bytearray(build_file_header(number, size, start, FIRST_TXID + number, 1, 2, INSTANCE, True))
        named = [
            RecordParts(topic_payload(name, kind, topic_hash=place), kind=KIND_TOPIC, topic_id=place)
            for place, (name, kind) in enumerate(topics)
        ]
        ends = [RecordParts(kind=KIND_END_OF_FILE)] if number < len(files) - 1 else []
        for record in [*named, *parts, *ends]:
            placed = replace(record, position=start + len(data))
            data += padded(placed.to_bytes(sealed=True))
            if record.kind not in (KIND_TOPIC, KIND_END_OF_FILE):
                written.append(placed)
        assert len(data) <= size
        (directory / f"{INSTANCE}.{number:010d}.journal").write_bytes(bytes(data).ljust(size, b"\0"))
    return written


def messages(
    count: int, topics: int = 1, begin: int = 0, step_ns: int = SECOND_NS, publisher_id: int = 5
) -> list[RecordParts]:
    """Publishes that alternate between topics, at intervals of `step_ns`, numbered from `begin` + 1."""
    return [
        RecordParts(
            b'{"n":%d}' % number,
            topic_id=number % topics,
            publisher_id=publisher_id,
            sequence=number + 1,
            txid=number + 1,
            timestamp_ns=BEGIN_NS + number * step_ns,
        )
        for number in range(begin, begin + count)
    ]
