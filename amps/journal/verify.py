"""Checking journals without a server: every checksum of every file, and that the files belong together.

Reads only. A journal that a running server is writing to may end in a record that is half written just now; check it
again, or stop the server first.
"""

import mmap
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.log_reader import FILE_HEADER_SIZE, LogDamaged, read_file_header, scan_file
from amps.journal.names import JOURNAL_SUFFIX, journal_numbers, journal_path, watermark_path
from amps.journal.watermark import read_watermark

Progress = Callable[[int], None]


@dataclass(slots=True)
class FileReport:
    """What was found in one journal. `problems` is empty if the file is sound; `note` explains what is no problem."""

    path: Path
    records: int = 0
    bytes_used: int = 0
    note: str = ""
    problems: list[str] = field(default_factory=list)


def instance_names(directory: Path) -> list[str]:
    """Names of the instances that have journals in a directory."""
    pattern = re.compile(r"(.+)\.\d{10}" + re.escape(JOURNAL_SUFFIX))
    found = (pattern.fullmatch(entry.name) for entry in directory.iterdir())
    return sorted({match[1] for match in found if match})


def verify_instance(
    directory: Path, name: str, progress: Progress = lambda size: None
) -> Iterator[FileReport]:
    """Check all journals of one instance, oldest first. `progress` is told the bytes of each file that is done."""
    numbers = journal_numbers(directory, name)
    expected_start: int | None = None
    watermark = read_watermark(watermark_path(directory, name))
    for index, number in enumerate(numbers):
        path = journal_path(directory, name, number)
        report = FileReport(path)
        if index and number != numbers[index - 1] + 1:
            report.problems.append(f"journal {numbers[index - 1] + 1:010d} before it is missing")
        expected_start = _verify_file(report, name, number, expected_start, watermark, number == numbers[-1])
        progress(path.stat().st_size)
        yield report


def _verify_file(
    report: FileReport, name: str, number: int, expected_start: int | None, watermark: int, newest: bool
) -> int | None:
    """Fill the report; returns the log position at which the next journal must start, None if unknown."""
    path = report.path
    size = path.stat().st_size
    if size < FILE_HEADER_SIZE:
        report.problems.append(f"damaged at offset {size}: shorter than its header")
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
        try:
            header = read_file_header(memory[:FILE_HEADER_SIZE], str(path))
        except LogDamaged as damage:
            report.problems.append(f"damaged at offset {damage.offset}: {damage.detail}")
            return None
        if header is None or not header[5]:
            report.note = "spare, not used yet"
            return None
        file_number, file_size, start, _, file_name, _ = header
        if file_number != number or file_name != name:
            report.problems.append(f"its header says journal {file_number} of instance {file_name!r}")
        if file_size != size:
            report.problems.append(f"it has {size} bytes, its header says {file_size}")
        if expected_start is not None and start != expected_start:
            report.problems.append(f"it starts at log position {start} instead of {expected_start}")
        found = scan_file(memory, start)
    report.records = found.record_count
    report.bytes_used = found.end_offset
    durable = max(watermark, found.durable_position) - start
    if found.finished:
        return start + size
    if durable > found.end_offset:
        report.problems.append(
            f"damaged at offset {found.end_offset}: acknowledged messages up to offset {min(durable, size)} must follow"
        )
    elif found.damaged:
        report.note = (
            f"in use; its last batch, from offset {found.end_offset}, was never acknowledged and is torn"
        )
    else:
        report.note = "in use"
    return start + size
