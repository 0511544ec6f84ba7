"""Scanning a damaged file: no exception, no record that was never written, no damage overlooked."""

import errno
import os
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import (
    FILE_HEADER_SIZE,
    VERSION_READ_MIN,
    LogCursor,
    LogDamaged,
    LogFile,
    build_file_header,
    read_file_header,
)
from amps._core.journal.writer import ScanResult, scan_file
from amps._core.values.value import publisher_id
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import KIND_TOPIC, RecordParts, padded

FILE_BYTES = 65536
START = 3 * FILE_BYTES


@cache
def original() -> tuple[bytes, list[tuple[int, int]]]:
    """A file in use that is half full, and the (begin, end) of its records, without padding."""
    with tempfile.TemporaryDirectory() as directory:
        feeder = Feeder(Path(directory), FILE_BYTES)
        chance = random.Random(4)
        for sequence in range(1, 120):
            topic = f"topic-{chance.randrange(6)}"
            parts = RecordParts(
                payload=chance.randbytes(chance.randrange(400)), publisher_id=publisher_id("p0")
            )
            feeder.push(Feed(0, sequence, topic, parts))
            if sequence % 7 == 0:
                feeder.turn(sequence, max(0, feeder.journal.position - 1000))
        feeder.turn(999, 0)
        image = feeder.journal_storage.path(0).read_bytes()
        end = feeder.journal.position
    places = []
    offset = FILE_HEADER_SIZE
    while offset < end:
        length = int.from_bytes(image[offset : offset + 4], "little")
        places.append((offset, offset + length))
        offset += (length + 7) // 8 * 8
    assert offset == end
    return image, places


def check(image: bytes, found: ScanResult) -> None:
    """Check that the result of scanning a damaged copy is permitted."""
    written, places = original()
    begins = [begin for begin, _ in places]
    ends = [(end + 7) // 8 * 8 for _, end in places]
    assert not found.finished
    assert found.end_offset in (FILE_HEADER_SIZE, *ends)
    count = ends.index(found.end_offset) + 1 if found.end_offset in ends else 0
    assert found.record_count == count
    for begin, end in places[:count]:
        assert image[begin:end] == written[begin:end], "a record that was not written"
    if count < len(places):
        begin, end = places[count]
        assert image[begin:end] != written[begin:end], "an intact record was not recognised"
    assert found.damaged == any(image[found.end_offset :])
    assert found.valid_after == 0 or found.valid_after in begins


@st.composite
def damages(draw: st.DrawFn) -> bytes:
    """The file with one to four kinds of damage."""
    image = bytearray(original()[0])
    end = original()[1][-1][1]
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(FILE_HEADER_SIZE, end + 500))
        length = draw(st.sampled_from([1, 8, 100, 512, 4096, FILE_BYTES]))
        stop = min(begin + length, FILE_BYTES)
        kind = draw(st.sampled_from(["flip", "zero", "noise", "shift", "copy"]))
        if kind == "flip":
            image[begin] ^= 1 << draw(st.integers(0, 7))
        elif kind == "zero":
            image[begin:stop] = bytes(stop - begin)
        elif kind == "noise":
            image[begin:stop] = random.Random(begin).randbytes(stop - begin)
        elif kind == "shift":
            image[begin:] = bytes(8) + image[begin:-8]
        else:
            source = draw(st.integers(FILE_HEADER_SIZE, end))
            part = image[source : source + stop - begin]
            image[begin : begin + len(part)] = part
    return bytes(image[:FILE_BYTES])


@settings(max_examples=400, deadline=None)
@given(damages())
def test_scan_of_arbitrary_damage(image: bytes) -> None:
    check(image, scan_file(image, 0))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.integers(0, 1 << 62))
def test_scan_of_arbitrary_bytes(rubbish: bytes, start: int) -> None:
    image = (bytes(FILE_HEADER_SIZE) + rubbish).ljust(2 * FILE_HEADER_SIZE, b"\0")
    found = scan_file(image, start)
    assert found.record_count == 0
    assert found.end_offset == FILE_HEADER_SIZE
    assert found.damaged == any(rubbish)


@pytest.mark.parametrize("cut", range(0, 700, 13))
def test_scan_of_a_torn_tail(cut: int) -> None:
    """The last write was cut off that many bytes before its end."""
    written, places = original()
    end = places[-1][1]
    image = written[: end - cut] + bytes(FILE_BYTES - end + cut)
    found = scan_file(image, 0)
    check(image, found)
    assert found.last_bookmark[1] <= 119


MIB = 1 << 20


@pytest.mark.parametrize("size", [3 * MIB, 3 * MIB - 100])
@pytest.mark.parametrize("at", [None, 8, 13, 5000, "page", 2 * MIB - 1, 2 * MIB, 3 * MIB - 101])
def test_scan_of_a_large_file_finds_the_first_byte_behind_the_records(
    tmp_path: Path, size: int, at: int | Literal["page"] | None
) -> None:
    """The zeros of a preallocated journal are read in another way than its records."""
    written, places = original()
    end = places[-1][1]
    path = tmp_path / "journal"
    header = build_file_header(0, size, 0, 1, 0, 0, "inst", True)
    image = bytearray(header + written[FILE_HEADER_SIZE:end]).ljust(size, b"\0")
    if at == "page":
        at = (end + 4095) // 4096 * 4096
    if at is not None:
        image[at if at > end else end + at] = 7
    path.write_bytes(image)
    seen: list[int] = []
    found = scan_file(LogFile(str(path), 0), 0, None, seen.append)
    assert found.end_offset == (end + 7) // 8 * 8
    assert found.record_count == len(places)
    assert found.damaged == (at is not None)
    assert found.valid_after == 0
    assert seen[-1:] == [size] or found.damaged


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_zeros_that_cannot_be_read_past_the_page_cache_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    """Some file systems take the flag and refuse the read. A start must not fail there."""
    written, places = original()
    end = places[-1][1]
    size = 3 * MIB
    path = tmp_path / "journal"
    header = build_file_header(0, size, 0, 1, 0, 0, "inst", True)
    image = bytearray(header + written[FILE_HEADER_SIZE:end]).ljust(size, b"\0")
    image[-1] = 7
    path.write_bytes(image)
    calls: list[int] = []
    preadv = os.preadv

    def read(descriptor: int, buffers: list[bytearray], offset: int) -> int:
        calls.append(offset)
        if len(calls) > reads:
            raise OSError(errno.EINVAL, "Invalid argument")
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", read)
    found = scan_file(LogFile(str(path), 0), 0, None, None)
    assert len(calls) == reads + 1
    assert found.damaged
    assert found.record_count == len(places)
    assert found.end_offset == (end + 7) // 8 * 8


def test_scan_damage_in_the_middle_reveals_later_records() -> None:
    """The highest watermark counts even if it is in a record beyond the damage."""
    written, places = original()
    image = bytearray(written)
    image[places[10][0] + 85] ^= 1
    found = scan_file(bytes(image), 0)
    assert found.damaged
    assert found.record_count == 10
    assert found.valid_after == places[11][0]
    assert found.durable_position == scan_file(written, 0).durable_position > found.end_offset


def test_scan_accepts_no_record_from_elsewhere() -> None:
    """The same bytes at another log position are no records: contents of an older file in a new one."""
    written, _ = original()
    assert scan_file(written, 0).record_count > 100
    moved = scan_file(written, START)
    assert moved.record_count == 0
    assert moved.damaged
    assert moved.valid_after == 0


def topic_record(topic_id: int, payload: bytes) -> bytes:
    parts = RecordParts(
        payload=payload, kind=KIND_TOPIC, topic_id=topic_id, txid=1, position=FILE_HEADER_SIZE
    )
    return bytes(FILE_HEADER_SIZE) + padded(parts.to_bytes(sealed=True)) + bytes(800)


@pytest.mark.parametrize(
    ("topic_id", "payload"),
    [
        (0xFFFFFFFF, bytes(16) + (4).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"jsont"),
        (1, bytes(16) + (4).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"jsont"),
        (0, b""),
        (0, bytes(16) + (400).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"jsont"),
        (0, bytes(16) + b"\xff" * 8 + b"jsont"),
    ],
)
def test_scan_a_malformed_topic_record_is_damage(topic_id: int, payload: bytes) -> None:
    """This holds for any checksum: the record would name an impossible topic, or take unbounded memory."""
    found = scan_file(topic_record(topic_id, payload), 0)
    assert found.record_count == 0
    assert found.damaged


@settings(max_examples=100, deadline=None)
@given(damages())
def test_scan_a_verifying_reader_agrees(image: bytes) -> None:
    """The reader returns the messages before the first damage and then raises an error with the same place."""
    found = scan_file(image, 0)
    end = original()[1][-1][1]
    with tempfile.TemporaryDirectory() as directory:
        feeder = Feeder(Path(directory), FILE_BYTES)
        storage = feeder.journal_storage
        storage.path(0).write_bytes(image)
        cursor = LogCursor(directory_of(storage), 0, 0, True)
        if found.end_offset >= end:
            read_all(cursor, end)
            assert cursor.position >= end
        else:
            with pytest.raises(LogDamaged) as caught:
                read_all(cursor, end)
            assert caught.value.offset == found.end_offset


# File headers


def test_header_is_read_as_it_was_built() -> None:
    page = build_file_header(7, 1 << 30, 5 << 30, 123, 456, 789, "ünst", True)
    assert len(page) == FILE_HEADER_SIZE
    assert read_file_header(page, "p") == (7, 1 << 30, 5 << 30, 123, "ünst", True)
    assert read_file_header(bytes(FILE_HEADER_SIZE), "p") is None
    with pytest.raises(ValueError, match="longer"):
        build_file_header(0, 0, 0, 0, 0, 0, "x" * 511, False)


def test_header_any_changed_bit_is_noticed() -> None:
    page = build_file_header(7, 1 << 30, 5 << 30, 123, 456, 789, "inst", True)
    for offset in range(584):
        for bit in range(8):
            image = bytearray(page)
            image[offset] ^= 1 << bit
            if offset == 8 and image[offset] == VERSION_READ_MIN:
                continue  # a file of the version before, which is read alike
            with pytest.raises(LogDamaged):
                read_file_header(bytes(image), "p")
    with pytest.raises(LogDamaged, match="shorter"):
        read_file_header(page[:4095], "p")
