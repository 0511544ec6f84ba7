"""A compressed journal equals the journal, byte for byte and record for record, and any damage to it is noticed."""

import errno
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from amps._core.delivery.delivery import Group, JournalTailer, TopicRoutes
from amps._core.journal.reader import (
    FILE_HEADER_SIZE,
    FRAME_BYTES,
    FrameCache,
    FrameMap,
    LogCursor,
    LogDamaged,
    LogDirectory,
    LogFile,
    Record,
    seek_table,
)
from amps._core.journal.writer import scan_file
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicEntry, TopicTable
from amps.journal.compression import PASSES, compress_journal
from amps.journal.disk import Disk
from amps.journal.files import cursor_over, open_journal, read_header
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import RecordParts

FILE_BYTES = 1 << 20  # four frames


class Journals:
    """A log of three files in one directory: two full ones, each in both forms, and one in use."""

    def __init__(self, path: Path) -> None:
        feeder = Feeder(path, FILE_BYTES)
        chance = random.Random(1)
        number = 0
        while feeder.journal.number < 2:
            number += 1
            # Some messages are larger than a frame, many lie across the boundary of two.
            size = 400_000 if number % 150 == 0 else chance.randrange(6000)
            payload = chance.randbytes(size // 2) + bytes(size - size // 2)
            parts = RecordParts(payload=payload, publisher_id=publisher_id("p0"))
            feeder.push(Feed(0, number, f"topic-{number % 5}", parts))
            feeder.turn(1000, 0)
        self.storage = feeder.journal_storage
        self.end = feeder.journal.position
        self.plain = [self.storage.path(n) for n in range(2)]
        self.compressed = [path.with_suffix(".journal.gz") for path in self.plain]
        self.contents = [path.read_bytes() for path in self.plain]
        self.records = read_all(LogCursor(directory_of(self.storage), 0, 0, True), self.end)
        for source, target in zip(self.plain, self.compressed, strict=True):
            assert sum(compress_journal(Disk(), source, target)) == PASSES * FILE_BYTES

    def directory(self, cache: FrameCache) -> LogDirectory:
        prefix = self.storage.prefix
        return LogDirectory(
            prefix, ".journal", lambda topic, kind: (topic, kind), [(prefix, ".journal.gz")], cache
        )


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path)


def same(left: list[Record], right: list[Record]) -> bool:
    return [repr(record) for record in left] == [repr(record) for record in right]


def test_zstd_restores_a_compressed_journal(journals: Journals) -> None:
    for path, content in zip(journals.compressed, journals.contents, strict=True):
        restored = subprocess.run(["zstd", "-dc"], input=path.read_bytes(), capture_output=True, check=True)
        assert restored.stdout == content
        assert not path.with_suffix("").exists()
        assert read_header(path).size == len(content)


@pytest.mark.parametrize("cache_bytes", [0, FRAME_BYTES])
def test_names_are_found_across_frames(tmp_path: Path, cache_bytes: int) -> None:
    """docs/files.md: the name records of a journal form a chain, which leads here through all frames."""
    feeder = Feeder(tmp_path, FILE_BYTES, 8)
    for number in range(8):
        for sequence in range(1, 20):
            parts = RecordParts(payload=bytes(6000), publisher_id=publisher_id(f"p{number}"))
            feeder.push(Feed(number, sequence, "t", parts))
            feeder.turn(1000, 0)
    last_name_offset = feeder.journal.index.last_name_offset  # type: ignore[union-attr]
    feeder.sequencer.change_journal()
    plain = feeder.journal_storage.path(0)
    names = {publisher_id(f"p{number}"): b"p%d" % number for number in range(8)}
    compressed = plain.with_suffix(".journal.gz")
    list(compress_journal(Disk(), plain, compressed))
    assert not plain.exists()
    prefix = feeder.journal_storage.prefix
    directory = LogDirectory(
        prefix, ".journal", lambda topic, kind: topic, [(prefix, ".journal.gz")], FrameCache(cache_bytes)
    )
    file = LogCursor(directory, 0, 0, True).file
    assert last_name_offset > 3 * FRAME_BYTES
    assert file.names_before(last_name_offset) == names


@pytest.mark.parametrize("cache_bytes", [0, FRAME_BYTES, 1 << 30])
@pytest.mark.parametrize("verify", [True, False])
def test_a_log_reads_the_same_with_any_cache_size(journals: Journals, cache_bytes: int, verify: bool) -> None:
    cache = FrameCache(cache_bytes)
    cursor = LogCursor(journals.directory(cache), 0, 0, verify)
    assert same(read_all(cursor, journals.end), journals.records)


def test_readers_at_different_places_share_little_memory(journals: Journals) -> None:
    """transaction_log.md §2, CompressedJournalCacheMemoryLimit: frames of one cursor replace the other's."""
    cache = FrameCache(FRAME_BYTES)
    directory = journals.directory(cache)
    cursors = [LogCursor(directory, 0, 0, False) for _ in range(2)]
    taken: list[list[Record]] = [[], []]
    for _ in range(40):  # the second cursor is behind by a part of the journal
        taken[0].append(cursors[0].step(journals.end))  # type: ignore[arg-type]
    chance = random.Random(2)
    while len(taken[1]) < len(journals.records):
        which = chance.randrange(2)
        record = cursors[which].step(journals.end)
        if record is not None:
            taken[which].append(record)
        assert cache.resident_bytes <= 4 * FRAME_BYTES
    taken[0] += read_all(cursors[0], journals.end)
    assert same(taken[0], journals.records)
    assert same(taken[1], journals.records)


def test_tailers_in_turn_deliver_all_messages(journals: Journals) -> None:
    """A run uses the frames in memory at its beginning, not those from the end of the previous run."""
    topics = TopicTable(lambda topic, message_type: (True, False, None, None))
    cache = FrameCache(FRAME_BYTES)
    prefix = journals.storage.prefix
    directory = LogDirectory(prefix, ".journal", topics.entry, [(prefix, ".journal.gz")], cache)
    wanted = sum(len(record.payload) for record in journals.records)
    received = [bytearray(), bytearray()]

    class Sink:
        def __init__(self, into: bytearray) -> None:
            from amps._core.delivery.output import OutputBuffer

            self.output = OutputBuffer(lambda: None)
            self.into = into

        def routes(self, entry: TopicEntry, since: int, current: TopicRoutes | None) -> TopicRoutes:
            routes = TopicRoutes(entry, None)
            routes.add(self, self, self.output, b"s", 0)
            return routes

    sinks = [Sink(into) for into in received]
    tailers = [JournalTailer(LogCursor(directory, 0, 0, False), Group(sink.routes), 0, 0) for sink in sinks]
    done = [False, False]
    while not all(done):
        for which, size in ((0, 50_000), (1, 170_000)):
            done[which] = tailers[which].run(journals.end, size)
            for chunk in sinks[which].output.take():
                received[which] += bytes(chunk)
    assert received[0] == received[1]
    assert len(received[0]) > wanted
    at = 0
    for record in journals.records:
        at = received[0].find(record.payload, at)
        assert at >= 0
        at += len(record.payload)


def test_a_scan_gives_the_same_result_for_both_forms(journals: Journals) -> None:
    for path, content in zip(journals.compressed, journals.contents, strict=True):
        file = open_journal(path)
        packed, plain = scan_file(file, file.start_position), scan_file(content, file.start_position)
        for name in type(plain).__slots__:
            assert getattr(packed, name) == getattr(plain, name)
        assert packed.finished


@pytest.mark.parametrize("begin", [FILE_HEADER_SIZE, 100_001, FRAME_BYTES - 3, FILE_BYTES // 2])
def test_a_scan_gives_the_same_result_for_both_forms_when_they_are_damaged(
    journals: Journals, tmp_path: Path, begin: int
) -> None:
    """This includes the intact records beyond the damage."""
    content = bytearray(journals.contents[1])
    content[begin : begin + 9] = b"\0\0\0damage"
    path = tmp_path / "damaged.gz"
    frames = [
        zstandard.compress(bytes(content[offset : offset + FRAME_BYTES]))
        for offset in range(0, FILE_BYTES, FRAME_BYTES)
    ]
    path.write_bytes(b"".join(frames) + seek_table([len(frame) for frame in frames], FILE_BYTES))
    passed: list[int] = []
    file = open_journal(path)
    packed = scan_file(file, file.start_position, None, passed.append)
    plain = scan_file(content, file.start_position)
    for name in type(plain).__slots__:
        assert getattr(packed, name) == getattr(plain, name)
    assert packed.damaged
    assert packed.end_offset <= begin
    assert packed.valid_after == 0 or packed.valid_after > begin
    assert passed == sorted(passed)


def test_one_file_alone_can_be_read(journals: Journals) -> None:
    file = open_journal(journals.compressed[1])
    cursor = cursor_over(file, lambda topic, message_type: (topic, message_type))
    expected = [
        record for record in journals.records if 0 <= record.position - file.start_position < FILE_BYTES
    ]
    assert same(read_all(cursor, file.start_position + file.size), expected)


def test_memory_is_released_with_the_file(journals: Journals) -> None:
    cache = FrameCache(1 << 30)
    file = LogFile(str(journals.compressed[0]), 0, cache)
    assert file.read(0, FILE_BYTES) == journals.contents[0]
    assert cache.resident_bytes == FILE_BYTES
    del file
    assert cache.resident_bytes == 0


def test_a_view_of_a_large_message_outlives_the_frames(journals: Journals) -> None:
    cache = FrameCache(0)
    file = LogFile(str(journals.compressed[0]), 0, cache)
    view = file.memory_view(1000, FRAME_BYTES)
    file.read(3 * FRAME_BYTES, 100)
    assert view == journals.contents[0][1000 : 1000 + FRAME_BYTES]


def test_damage_anywhere_is_noticed(journals: Journals) -> None:
    path = journals.compressed[0]
    image = path.read_bytes()
    chance = random.Random(3)
    places = [*(chance.randrange(len(image)) for _ in range(60)), *range(len(image) - 60, len(image))]
    for place in places:
        changed = bytearray(image)
        changed[place] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(changed))
        try:
            content = open_journal(path).read(0, FILE_BYTES)
        except LogDamaged:
            continue
        assert content == journals.contents[0], f"a change at {place} went unseen"
    for length in (0, 3, 4, 100, len(image) // 2, len(image) - 1):
        path.write_bytes(image[:length])
        with pytest.raises(LogDamaged):
            open_journal(path)


@pytest.mark.parametrize(
    "table",
    [
        seek_table([5], 10_000)[:-9] + b"\xff\xff\xff\xff\x00\xb1\xea\x92\x8f",
        seek_table([1 << 31], 10_000),
        seek_table([5, 5], FRAME_BYTES + 100),
        seek_table([5], 100)[:8] + seek_table([5], 100)[16:],
        seek_table([0], 100),
    ],
)
def test_a_seek_table_is_verified(tmp_path: Path, table: bytes) -> None:
    path = tmp_path / "a.0000000000.journal.gz"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + table)
    with pytest.raises(LogDamaged):
        open_journal(path)


class FullDisk(Disk):
    """A disk with room for that many bytes."""

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self._room_bytes = room_bytes

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, data, offset, zeros)


@pytest.fixture
def original(journals: Journals) -> Iterator[Path]:
    """A journal that is not compressed, which must be unchanged afterwards."""
    journals.compressed[0].unlink()
    path, content = journals.plain[0], journals.contents[0]
    path.write_bytes(content)
    yield path
    assert not list(path.parent.glob("*.new"))
    assert not journals.compressed[0].exists()


def test_a_full_disk_leaves_the_original(journals: Journals, original: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        sum(compress_journal(FullDisk(100_000), original, journals.compressed[0]))
    assert original.read_bytes() == journals.contents[0]


def test_a_damaged_journal_is_not_compressed(journals: Journals, original: Path) -> None:
    content = bytearray(journals.contents[0])
    content[500_000] ^= 1
    original.write_bytes(bytes(content))
    with pytest.raises(LogDamaged) as caught:
        sum(compress_journal(Disk(), original, journals.compressed[0]))
    assert caught.value.offset <= 500_000
    assert original.read_bytes() == content


def test_a_journal_that_is_not_full_is_not_compressed(journals: Journals, original: Path) -> None:
    with pytest.raises(LogDamaged, match="nor the end of the journal"):
        sum(compress_journal(Disk(), journals.storage.path(2), journals.compressed[0]))


def test_a_compressed_file_that_was_written_wrongly_is_not_used(journals: Journals, original: Path) -> None:
    class Lying(Disk):
        def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
            changed = bytearray(data)
            changed[len(changed) // 2] ^= 4
            super().write(descriptor, memoryview(changed), offset, zeros)

    with pytest.raises(LogDamaged):
        sum(compress_journal(Lying(), original, journals.compressed[0]))
    assert original.read_bytes() == journals.contents[0]


def test_released_frames_leave_their_neighbours_alone(tmp_path: Path) -> None:
    """The content is shorter than a frame: the memory behind its mapping belongs to another file."""
    cache = FrameCache(3 * FRAME_BYTES)
    maps = []
    for number in range(12):
        stored = zstandard.compress(bytes([65 + number]) * 8192)
        path = tmp_path / f"{number}"
        path.write_bytes(stored + seek_table([len(stored)], 8192))
        maps.append(FrameMap(str(path), cache))
    for number in range(48):
        for near in (number, number + 1, number + 5, number + 7):
            maps[near % 12].read(0, 1)
        for letter, frames in enumerate(maps):
            assert frames.read(0, 8192) == bytes([65 + letter]) * 8192
