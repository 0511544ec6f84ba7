"""Checking journals without a server: every checksum of every file, and that the files belong together.

It only reads. A journal to which a running server is writing may end in a record that is half written at the moment;
check it again, or stop the server first. A server may also compress, move or remove files meanwhile. A file that is no
longer at its place is searched at the later places, and skipped if it was removed.

Several threads read, each a journal of its own, because one processor computes the checksums of several gigabytes per
second, and a device with a queue delivers more than that. The threads only report the content of a file. Whether it is
correct is decided afterwards, in the order of the journals. A thread holds one mapped file, or for a compressed journal
a cache of decompressed content.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.journal.reader import LogDamaged, LogFile
from amps._core.journal.writer import ScanResult, scan_file
from amps.journal.files import JournalHeader, read_header, seek_table_remedy
from amps.journal.names import JournalPlace, find_journals, reading_places, watermark_path
from amps.journal.watermark import read_watermark

Progress = Callable[[int], None]


@dataclass(slots=True)
class FileReport:
    """The result for one journal. `problems` is empty if the file is sound; `note` is a remark that is no problem."""

    path: Path
    records: int = 0
    bytes_used: int = 0
    note: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Reading:
    """The content of one file. failure: the reason why it could not be read to its end."""

    path: Path
    header: JournalHeader | None = None
    scan: ScanResult | None = None  # None for a spare journal
    failure: str = ""


class _Stopped(Exception):
    """The caller has stopped the verification."""


def bytes_to_verify(directory: Path, archive: Path | None, name: str) -> int:
    """The number of bytes of content that `verify_instance` will report as progress, as far as it is known now."""
    total = 0
    for places in find_journals(directory, archive, name).values():
        for place in places:
            try:
                total += read_header(place.path).size
            except (OSError, LogDamaged):
                continue
    return total


def verify_instance(
    directory: Path,
    name: str,
    progress: Progress = lambda size: None,
    archive: Path | None = None,
    jobs: int = 1,
) -> Iterator[FileReport]:
    """Check all journals of one instance, oldest first, `jobs` of them at a time.

    `progress` is called in the caller's thread with the size of each finished part in bytes. Raises OSError if a
    directory cannot be listed.
    """
    found = find_journals(directory, archive, name)
    judge = _Judge(name, read_watermark(watermark_path(directory, name)), _newest_in_use(found))
    passed: queue.SimpleQueue[int] = queue.SimpleQueue()
    stopping = threading.Event()

    def note(size: int) -> None:
        if stopping.is_set():
            raise _Stopped
        passed.put(size)

    def read(number: int) -> list[_Reading]:
        return _read(directory, archive, name, number, note)

    def wake(_done: Future[list[_Reading]]) -> None:
        passed.put(0)

    pool = ThreadPoolExecutor(jobs, "verify")
    try:
        waiting = [(number, pool.submit(read, number)) for number in found]
        for _, future in waiting:
            future.add_done_callback(wake)
        for number, future in waiting:
            while not future.done():
                progress(passed.get())
            yield from judge.reports(number, future.result())
        while not passed.empty():
            progress(passed.get())
    finally:
        stopping.set()
        pool.shutdown(cancel_futures=True)


def _newest_in_use(found: dict[int, list[JournalPlace]]) -> int:
    """Number of the newest journal in use, which need not have an end-of-file record; later journals are spares."""
    for number in sorted(found, reverse=True):
        try:
            if read_header(found[number][0].path).in_use:
                return number
        except (OSError, LogDamaged):
            continue
    return 0


def _read(
    directory: Path, archive: Path | None, name: str, number: int, progress: Progress
) -> list[_Reading]:
    """Read a journal at all places where it exists."""
    readings = []
    for prefix, suffix in reading_places(directory, archive, name):
        reading = _Reading(Path(f"{prefix}{number:010d}{suffix}"))
        try:
            _read_file(reading, progress)
        except FileNotFoundError:
            continue  # it is not at this place, or was just removed or moved to a later place
        except LogDamaged as damage:
            remedy = seek_table_remedy(damage)
            reading.failure = damage.problem + (f"; {remedy}" if remedy else "")
        except OSError as problem:
            reading.failure = f"it cannot be read: {problem.strerror}"
        readings.append(reading)
    return readings


def _read_file(reading: _Reading, progress: Progress) -> None:
    """Read one file into `reading`. Raises OSError, LogDamaged."""
    reading.header = header = read_header(reading.path)
    done = 0

    def passed(offset: int) -> None:
        nonlocal done
        progress(offset - done)
        done = offset

    if header.in_use:
        reading.scan = scan_file(LogFile(str(reading.path)), header.start_position, None, passed)
    passed(header.size)


class _Judge:
    """Reports the problems of journals in their order, and keeps the state that the check of the next journal needs."""

    def __init__(self, name: str, watermark: int, newest: int) -> None:
        self._name = name
        self._watermark = watermark
        self._newest = newest
        self._before: int | None = None
        self._expected_start: int | None = None

    def reports(self, number: int, readings: list[_Reading]) -> Iterator[FileReport]:
        """The reports on a journal, one for each place where it exists."""
        next_start: int | None = None
        for reading in readings:
            report = FileReport(reading.path)
            if self._before is not None and number > self._before + 1:
                report.problems.append(f"journal {self._before + 1:010d} before it is missing")
            next_start = self._judge(report, number, reading)
            self._before = number
            yield report
        if readings:
            self._expected_start = next_start

    def _judge(self, report: FileReport, number: int, reading: _Reading) -> int | None:
        """Fill the report. Returns the log position at which the next journal must start, None if unknown."""
        header, scan = reading.header, reading.scan
        if header is not None and not header.in_use:
            report.note = "spare, not used yet"
            return None
        if header is not None:
            self._judge_header(report, number, header)
        if reading.failure:
            report.problems.append(reading.failure)
        if header is None or scan is None:
            return None
        report.records = scan.record_count
        report.bytes_used = scan.end_offset
        if not scan.finished:
            durable = max(self._watermark, scan.durable_position) - header.start_position
            self._judge_end(report, scan, durable, header.size, number == self._newest)
        return header.start_position + header.size

    def _judge_header(self, report: FileReport, number: int, header: JournalHeader) -> None:
        if header.number != number or header.instance_name != self._name:
            report.problems.append(
                f"its header says journal {header.number} of instance {header.instance_name!r}"
            )
        if self._expected_start is not None and header.start_position != self._expected_start:
            report.problems.append(
                f"it starts at log position {header.start_position} instead of {self._expected_start}"
            )

    @staticmethod
    def _judge_end(report: FileReport, scan: ScanResult, durable: int, size: int, newest: bool) -> None:
        """Judge a journal without an end-of-file record. durable: file offset before which messages are promised."""
        offset = scan.end_offset
        if durable > offset:
            report.problems.append(
                f"damaged at offset {offset}: acknowledged messages up to offset {min(durable, size)} must follow"
            )
        elif not newest:
            report.problems.append(
                f"damaged at offset {offset}: later journals exist, but this one has no end"
            )
        elif scan.damaged:
            report.note = f"in use; its last batch, from offset {offset}, was never acknowledged and is torn"
        else:
            report.note = "in use"
