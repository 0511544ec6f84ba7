"""Cursors that read only pages in memory, and unreadable files: an exception instead of a signal."""

import os
from pathlib import Path

import pytest

from amps._core.journal.reader import RECORD_HEADER_SIZE, LogCursor, LogDamaged, LogFile, LogUnreadable
from amps._core.journal.search import read
from amps._core.journal.writer import check_records, scan_file
from tests.support.feed import Feed, Feeder, directory_of
from tests.support.records import RecordParts

FILE_BYTES = 32 << 20
SMALL_BYTES = 1000
LARGE_BYTES = 9 << 20
"""A record of this size is checked in three parts."""
PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class Log:
    """Ten small messages, a large one, ten small ones, in one file."""

    def __init__(self, directory: Path) -> None:
        feeder = Feeder(directory, FILE_BYTES)
        for number in range(21):
            payload = bytes(range(250)) * ((LARGE_BYTES if number == 10 else SMALL_BYTES) // 250)
            feeder.push(Feed(0, number + 1, "t", RecordParts(payload=payload)))
            feeder.turn(1000 + number, 0)
        self.directory = directory_of(feeder.journal_storage)
        self.end = feeder.journal.position
        cursor = self.cursor()
        self.path = Path(str(cursor.file.path))
        self.places = []
        while (record := cursor.step(self.end)) is not None:
            self.places.append((record.position - cursor.file.start_position, record.length))

    def cursor(self) -> LogCursor:
        return LogCursor(self.directory, 0, 0, True)

    def cut_off(self, size: int) -> None:
        os.truncate(self.path, size)

    def change_byte(self, offset: int) -> None:
        with self.path.open("r+b") as file:
            byte = os.pread(file.fileno(), 1, offset)
            os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), offset)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_a_cursor_stops_before_a_record_that_is_not_wholly_allowed(log: Log) -> None:
    """The cursor gives the number of bytes it needs, and continues from the same place when allowed."""
    cursor = log.cursor()
    offset, length = log.places[3]
    cursor.allow(offset + length - 1)
    sequences = []
    while (record := cursor.step(log.end)) is not None:
        sequences.append(record.sequence)
    assert sequences == [1, 2, 3]
    assert (cursor.waits, cursor.needed) == (True, length)
    cursor.allow(offset + length + RECORD_HEADER_SIZE - 1)
    assert not cursor.waits
    assert [r.sequence for r in iter(lambda: cursor.step(log.end), None) if r is not None] == [4]
    assert (cursor.waits, cursor.needed) == (True, RECORD_HEADER_SIZE)


def test_a_cursor_reads_nothing_outside_its_window(log: Log) -> None:
    """The file is cut off behind the window, so an access there would kill the process."""
    offset, _ = log.places[15]
    cursor = log.cursor()
    log.cut_off(offset // PAGE_BYTES * PAGE_BYTES)
    cursor.allow(cursor.file.readable_bytes())
    for _ in range(100):
        if cursor.step(log.end) is None and cursor.position - cursor.file.start_position > log.places[10][0]:
            break
    assert cursor.waits
    assert log.places[11][0] <= cursor.position - cursor.file.start_position <= offset


def test_a_long_record_is_checked_in_parts(log: Log) -> None:
    """A cursor with a window checks in parts, so that other work is done in between; the checksum is the same."""
    cursor = log.cursor()
    cursor.allow(FILE_BYTES)
    for _ in range(10):
        assert cursor.step(log.end) is not None
    assert [cursor.step(log.end) for _ in range(2)] == [None, None]
    assert (cursor.waits, cursor.needed) == (True, log.places[10][1])
    record = cursor.step(log.end)
    assert record is not None
    assert (record.sequence, record.length) == (11, log.places[10][1])


@pytest.mark.parametrize("place", [100, LARGE_BYTES // 2, LARGE_BYTES - 1000])
def test_damage_in_any_part_of_a_long_record_is_found(log: Log, place: int) -> None:
    log.change_byte(log.places[10][0] + place)
    cursor = log.cursor()
    cursor.allow(FILE_BYTES)
    assert [cursor.step(log.end) is None for _ in range(12)] == [False] * 10 + [True] * 2
    with pytest.raises(LogDamaged, match="checksum"):
        cursor.step(log.end)
    assert cursor.position - cursor.file.start_position == log.places[10][0]


def test_a_cursor_that_fetches_reads_everything(log: Log) -> None:
    cursor = log.cursor()
    cursor.fetch()
    assert len(list(iter(lambda: cursor.step(log.end), None))) == 21
    assert not cursor.waits


def test_reading_a_file_that_was_cut_off_is_an_error(log: Log) -> None:
    """For read-ahead threads, scans of `amps journal verify` and of recovery, lookups, and cursors that fetch."""
    file = LogFile(str(log.path))
    end = log.places[15][0] // PAGE_BYTES * PAGE_BYTES + 100
    cursor = log.cursor()
    cursor.fetch()
    log.cut_off(end)
    assert file.readable_bytes() == end
    file.need(0, end)
    read(file, 0, end)
    for reading in (
        lambda: read(file, end - 50, 51),
        lambda: read(file, 0, FILE_BYTES),
        lambda: file.read(end, 1),
        lambda: scan_file(file, 0),
        lambda: check_records(file, PAGE_BYTES, FILE_BYTES),
        lambda: file.learn_topics_before(end, lambda topic, kind: topic, 1),
        lambda: list(iter(lambda: cursor.step(log.end), None)),
    ):
        with pytest.raises(LogUnreadable, match="the file ends here") as raised:
            reading()
        assert raised.value.offset == end


def test_bytes_behind_the_end_of_the_file_are_not_needed(log: Log) -> None:
    file = LogFile(str(log.path))
    for offset, length in ((FILE_BYTES + 1, 0), (FILE_BYTES, 1), (0, FILE_BYTES + 1)):
        with pytest.raises(LogDamaged, match="reaches beyond the end of the file"):
            file.need(offset, length)
    file.need(FILE_BYTES, 0)
