"""Checking journals without a server: every checksum of every file, and that the files belong together.

Reads only. A journal that a running server is writing to may end in a record that is half written just now; check it
again, or stop the server first. A server may also compress, move or remove files meanwhile: what is gone when its turn
comes is looked for again, and passed over if it was removed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.frames import LogDamaged
from amps._core.log_reader import LogFile
from amps._core.log_scan import scan_file
from amps.journal.files import read_header
from amps.journal.names import JournalPlace, find_journals, watermark_path
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


def bytes_to_verify(directory: Path, archive: Path | None, name: str) -> int:
    """How much `verify_instance` will report as progress, as far as can be told now: bytes of content."""
    total = 0
    for places in find_journals(directory, archive, name).values():
        for place in places:
            try:
                total += read_header(place.path).size
            except (OSError, LogDamaged):
                continue
    return total


def verify_instance(
    directory: Path, name: str, progress: Progress = lambda size: None, archive: Path | None = None
) -> Iterator[FileReport]:
    """Check all journals of one instance, oldest first. `progress` is told of each part that is done, in bytes."""
    found = find_journals(directory, archive, name)
    expected_start: int | None = None
    watermark = read_watermark(watermark_path(directory, name))
    before: int | None = None
    newest = _newest_in_use(found)
    for number in found:
        places = find_journals(directory, archive, name).get(number, [])
        for place in places:
            report = FileReport(place.path)
            if before is not None and number > before + 1:
                report.problems.append(f"journal {before + 1:010d} before it is missing")
            try:
                start = _verify_file(
                    report, name, number, expected_start, watermark, number == newest, progress
                )
            except FileNotFoundError:
                continue  # removed, or moved to a later place just now
            except LogDamaged as damage:
                report.problems.append(f"damaged at offset {damage.offset}: {damage.detail}")
                start = None
            before = number
            yield report
        if places:
            expected_start = start


def _newest_in_use(found: dict[int, list[JournalPlace]]) -> int:
    """Number of the journal that may end before its end; those after it are spares."""
    for number in sorted(found, reverse=True):
        try:
            if read_header(found[number][0].path).in_use:
                return number
        except (OSError, LogDamaged):
            continue
    return 0


def _verify_file(
    report: FileReport,
    name: str,
    number: int,
    expected_start: int | None,
    watermark: int,
    newest: bool,
    progress: Progress,
) -> int | None:
    """Fill the report; returns the log position at which the next journal must start, None if unknown.

    Raises FileNotFoundError, LogDamaged.
    """
    header = read_header(report.path)
    if not header.in_use:
        report.note = "spare, not used yet"
        progress(header.size)
        return None
    if header.number != number or header.instance_name != name:
        report.problems.append(
            f"its header says journal {header.number} of instance {header.instance_name!r}"
        )
    if expected_start is not None and header.start_position != expected_start:
        report.problems.append(
            f"it starts at log position {header.start_position} instead of {expected_start}"
        )
    size, start = header.size, header.start_position
    done = 0

    def passed(offset: int) -> None:
        nonlocal done
        progress(offset - done)
        done = offset

    found = scan_file(LogFile(str(report.path)), start, None, passed)
    progress(size - done)
    report.records = found.record_count
    report.bytes_used = found.end_offset
    durable = max(watermark, found.durable_position) - start
    if found.finished:
        return start + size
    if durable > found.end_offset or not newest:
        report.problems.append(
            f"damaged at offset {found.end_offset}: acknowledged messages up to offset {min(durable, size)} must follow"
            if durable > found.end_offset
            else f"damaged at offset {found.end_offset}: later journals exist, but this one has no end"
        )
    elif found.damaged:
        report.note = (
            f"in use; its last batch, from offset {found.end_offset}, was never acknowledged and is torn"
        )
    else:
        report.note = "in use"
    return start + size
