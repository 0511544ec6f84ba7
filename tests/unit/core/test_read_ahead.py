"""Detecting pages of a journal that are not in memory, and reading them in other threads."""

import queue
import time
from collections.abc import Callable
from pathlib import Path

from amps._core.journal.reader import LogCursor, LogFile
from amps._core.journal.search import WINDOW_BYTES_MAX, read, resident_bytes, resident_range
from amps.server.shared.read_ahead import ReadAhead
from tests.support.feed import Feed, Feeder, directory_of
from tests.support.page_cache import forget
from tests.support.records import RecordParts

FILE_BYTES = 4 << 20
PAYLOAD = bytes(1000)


def journal(directory: Path, messages: int) -> tuple[LogCursor, int]:
    feeder = Feeder(directory, FILE_BYTES)
    for number in range(messages):
        feeder.push(Feed(0, number + 1, "t", RecordParts(payload=PAYLOAD)))
        feeder.turn(1000 + number, 0)
    return LogCursor(directory_of(feeder.journal_storage), 0, 0, True), feeder.journal.position


def test_pages_just_written_are_in_memory(tmp_path: Path) -> None:
    """The result is bounded by the limit, the window and the end of the file."""
    cursor, end = journal(tmp_path, 500)
    begin = cursor.position
    assert resident_bytes(cursor, end, 1 << 20) == (end - begin, end - begin)
    assert resident_bytes(cursor, end, 100) == (100, 100)
    assert resident_bytes(cursor, begin, 1 << 20) == (0, 0)
    assert resident_bytes(cursor, 0, 1 << 20) == (0, 0)
    assert resident_range(cursor.file, FILE_BYTES - 10, 1 << 60, 1 << 20)[1] == 10
    assert resident_range(cursor.file, FILE_BYTES, 1 << 60, 1 << 20) == (0, 0)
    assert resident_range(cursor.file, 5000, 1 << 60, 1 << 40)[1] < WINDOW_BYTES_MAX


def test_evicted_pages_are_missing_until_they_are_read(tmp_path: Path) -> None:
    """On a file system in memory pages never leave, so none are missing."""
    cursor, end = journal(tmp_path, 3000)
    file = cursor.file
    offset = 2_000_000
    del cursor
    path = Path(str(file.path))
    del file
    forget(path)
    file = LogFile(str(path), 0)
    resident, wanted = resident_range(file, offset, end, 1 << 20)
    assert wanted == min(1 << 20, end - offset)
    if resident == wanted:
        return  # pages never leave memory here
    read(file, offset + resident, wanted - resident)
    assert resident_range(file, offset, end, 1 << 20) == (wanted, wanted)
    for wrong in ((FILE_BYTES + 1, 1), (0, FILE_BYTES + 1), (FILE_BYTES, 1)):
        read(file, *wrong)


def test_threads_read_and_report(tmp_path: Path) -> None:
    """All requests are answered, while the requesting thread goes on."""
    cursor, end = journal(tmp_path, 3000)
    forget(Path(str(cursor.file.path)))
    told: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
    ahead = ReadAhead(told.put)
    done = []
    for number in range(50):
        ahead.ask(cursor.file, number * 50_000, 50_000, lambda problem, number=number: done.append(number))  # type: ignore[misc]
    for _ in range(50):
        told.get(timeout=30)()
    assert sorted(done) == list(range(50))
    assert resident_range(cursor.file, 0, end, 1 << 20)[0] == 1 << 20


def test_threads_end_with_the_loop(tmp_path: Path) -> None:
    """A loop that has ended refuses the report, which causes no error."""
    cursor, _ = journal(tmp_path, 1)
    asked = []

    def refuse(action: Callable[[], object]) -> None:
        asked.append(action)
        raise RuntimeError("Event loop is closed")

    ahead = ReadAhead(refuse)
    ahead.ask(cursor.file, 0, 4096, lambda problem: None)
    until_s = time.monotonic() + 10
    while not asked and time.monotonic() < until_s:
        time.sleep(0.01)
    assert len(asked) == 1


def test_a_missing_page_is_read_without_its_neighbours(tmp_path: Path) -> None:
    """Replays request the pages that they need, while devices may be set to read megabytes for each page."""
    cursor, _ = journal(tmp_path, 10)
    path = str(cursor.file.path)
    flags: list[str] = []
    mapped = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if " " in line and "-" in line.split()[0]:
            mapped = line.endswith(path)
        elif mapped and line.startswith("VmFlags:"):
            flags += line.split()[1:]
    assert "rr" in flags
