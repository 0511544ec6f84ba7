"""The sparse index against a plain list: every bookmark is found, others are not, damage is noticed."""

import random
from bisect import bisect_right
from pathlib import Path

import pytest

from amps._core.journal.reader import FILE_HEADER_SIZE, LogCursor
from amps._core.journal.writer import (
    BLOCK_BYTES,
    IndexBuilder,
    IndexDamaged,
    IndexReader,
    index_bytes,
    scan_file,
)
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import RecordParts

FILE_BYTES = 24 * BLOCK_BYTES
PUBLISHERS = 90
"""More publishers than a block has entries for."""


class Indexed:
    """A file full of messages, and its index in both forms: closed, and of the file in use."""

    def __init__(self, directory: Path, seed: int) -> None:
        chance = random.Random(seed)
        feeder = Feeder(directory, FILE_BYTES, 1)
        last = dict.fromkeys(range(PUBLISHERS), 0)
        active = chance.sample(range(PUBLISHERS), chance.choice([1, 5, 40, PUBLISHERS]))
        # One session has one client name, so several publishers are simulated by the ids of the publish records.
        sequence = 0
        while feeder.journal.number == 0:
            if chance.random() < 0.01:
                active = chance.sample(range(PUBLISHERS), chance.choice([1, 5, 40, PUBLISHERS]))
            size = chance.choice([10, 100, 100, 3000, 150_000 if chance.random() < 0.02 else 500])
            sequence += chance.randrange(1, 4)
            publisher = chance.choice(active)
            last[publisher] = sequence
            parts = RecordParts(payload=b"x" * size, publisher_id=1000 + publisher)
            feeder.push(Feed(0, sequence, f"topic-{chance.randrange(20)}", parts))
            feeder.turn(sequence, 0)
        storage = feeder.journal_storage
        self.log = directory_of(storage)
        self.image = storage.path(0).read_bytes()
        self.records = [
            record
            for record in read_all(LogCursor(self.log, 0, 0, True), feeder.journal.position)
            if record.position < len(self.image)
        ]
        self.closed_bytes = storage.indexes[0]
        self.closed = IndexReader(self.closed_bytes, True)
        self.memory = bytearray(index_bytes(len(self.image)))
        self.builder = IndexBuilder(self.memory, 0, 0, len(self.image))
        self.scan = scan_file(self.image, 0, self.builder)
        self.active = IndexReader(self.memory, False)


@pytest.fixture(scope="module", params=range(4))
def indexed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    return Indexed(tmp_path_factory.mktemp("index"), request.param)


@pytest.fixture(params=["closed", "active"])
def reader(request: pytest.FixtureRequest, indexed: Indexed) -> IndexReader:
    found = indexed.closed if request.param == "closed" else indexed.active
    assert isinstance(found, IndexReader)
    return found


def test_index_finds_every_bookmark(indexed: Indexed, reader: IndexReader) -> None:
    """The bookmark is in one of the candidate blocks; there are several only if some block overflowed."""
    for record in indexed.records:
        assert reader.may_hold(record.publisher_id, record.sequence)
        blocks = reader.candidate_blocks(record.publisher_id, record.sequence)
        ranges = [reader.block_range(block) for block in blocks]
        assert any(first <= record.position and (record.position < end or end == 0) for first, end in ranges)


def test_index_reads_few_blocks_for_unknown_bookmarks(indexed: Indexed, reader: IndexReader) -> None:
    """An unknown publisher costs only the blocks that overflowed; a closed index rejects it without reading."""
    overflowing = reader.candidate_blocks(1, 5)
    assert len(overflowing) <= FILE_BYTES // BLOCK_BYTES
    known = {(record.publisher_id, record.sequence) for record in indexed.records}
    first = min(record.sequence for record in indexed.records)
    for sequence in range(first, first + 50):
        publisher = indexed.records[0].publisher_id
        if (publisher, sequence) not in known:
            blocks = reader.candidate_blocks(publisher, sequence)
            assert len(set(blocks) - set(overflowing)) <= 1
    if reader.closed:
        assert not reader.may_hold(1, 5)
        assert not reader.may_hold(indexed.records[0].publisher_id, indexed.records[-1].sequence + 1)


def test_index_overflow_was_tested(indexed: Indexed) -> None:
    """With some seeds there are blocks that overflow, so the tests above cover both cases."""
    crowded = {
        block
        for block in range(len(indexed.image) // BLOCK_BYTES)
        if len({r.publisher_id for r in indexed.records if r.position // BLOCK_BYTES == block}) > 32
    }
    assert bool(indexed.closed.candidate_blocks(1, 5)) == bool(crowded)


def test_index_blocks_are_those_of_the_file(indexed: Indexed, reader: IndexReader) -> None:
    """The block of an offset is the last one that begins before it, at a record."""
    firsts: dict[int, int] = {}
    offset = FILE_HEADER_SIZE
    while offset < reader.end_offset:
        firsts.setdefault(offset // BLOCK_BYTES, offset)
        offset += (int.from_bytes(indexed.image[offset : offset + 4], "little") + 7) // 8 * 8
    starts = sorted(firsts.values())
    for offset in [*starts, *(start + 1 for start in starts), reader.end_offset - 1]:
        place = bisect_right(starts, offset)
        end = starts[place] if place < len(starts) else 0
        assert reader.block_range(offset) == (starts[place - 1], end)


def test_index_ends_and_times(indexed: Indexed, reader: IndexReader) -> None:
    first, last = indexed.records[0], indexed.records[-1]
    assert reader.file_number == 0
    assert reader.start_position == 0
    assert reader.last_txid == last.txid
    assert reader.last_timestamp_ns == last.timestamp_ns
    assert reader.first_timestamp_ns <= first.timestamp_ns
    assert reader.first_txid <= first.txid
    assert reader.end_offset == last.position + (last.length + 7) // 8 * 8


def test_index_summary_of_publishers(indexed: Indexed) -> None:
    expected: dict[int, tuple[int, int, int]] = {}
    for record in indexed.records:
        first = expected.get(record.publisher_id, (record.sequence, 0, 0))[0]
        expected[record.publisher_id] = (first, record.sequence, record.timestamp_ns)
    assert indexed.builder.publishers_seen() == expected
    rows = indexed.closed.publishers()
    assert {int(row[0]): (int(row[1]), int(row[2]), int(row[3])) for row in rows} == expected


def test_index_rebuilt_by_a_scan_is_the_same(indexed: Indexed) -> None:
    assert indexed.scan.finished
    assert indexed.builder.to_bytes() == indexed.closed_bytes


def test_index_damage_is_noticed(indexed: Indexed) -> None:
    """Changed bits, truncation and arbitrary bytes of any length are noticed.

    Bytes behind the end are not part of the index.
    """
    content = indexed.closed_bytes
    chance = random.Random(9)
    offsets = {*range(128), *chance.sample(range(len(content)), 300), len(content) - 1}
    for offset in offsets:
        image = bytearray(content)
        image[offset] ^= 1 << chance.randrange(8)
        with pytest.raises(IndexDamaged):
            IndexReader(bytes(image), True)
    for length in [0, 1, 127, 128, 129, len(content) // 2, len(content) - 1]:
        with pytest.raises(IndexDamaged):
            IndexReader(content[:length], True)
        with pytest.raises(IndexDamaged):
            IndexReader(bytes(length), True)
    assert IndexReader(content + b"rest", True).end_offset == indexed.closed.end_offset


def test_index_of_the_file_in_use_grows_while_it_is_read(tmp_path: Path) -> None:
    """A reader that was opened earlier sees later entries."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    builder_memory = bytearray(index_bytes(FILE_BYTES))
    builder = IndexBuilder(builder_memory, 0, 0, FILE_BYTES)
    reader = IndexReader(builder_memory, False)
    assert reader.candidate_blocks(1000, 1) == []
    for sequence in range(1, 41):
        feeder.push(Feed(0, sequence, "a", RecordParts(payload=b"x" * 10_000, publisher_id=1000)))
    feeder.turn(1, 0)
    image = feeder.journal_storage.path(0).read_bytes()
    found = scan_file(image, 0, builder)
    assert reader.end_offset == found.end_offset
    assert all(reader.candidate_blocks(1000, sequence) for sequence in range(1, 41))
    assert reader.candidate_blocks(1000, 41) == []


def test_index_memory_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        IndexBuilder(bytearray(100), 0, 0, FILE_BYTES)
