"""Bringing a journal directory back: what is there, where it ends, who published what.

Called once, before anything is accepted. The newest file in use is scanned whole and its index built; of the
older ones only header and index are read (an index that is missing or damaged is rebuilt by scanning its journal).

Torn or damaged? After a crash of the machine the last batch may be written in part; it was never acknowledged, so
it is cut off, with a log line. But what was acknowledged must be there. Two witnesses tell how far that is: the
watermark file, and the watermark that every record carries. If intact records end before that point, the file is
damaged: recovery refuses, naming file, offset and the tool to run (transaction_log.md §12, §20 items 33, 34).

Only the newest journal can be torn, because its predecessor is synced to its end before it comes into use. And the
only header that can be torn is that of a file just coming into use, whose rest then is zeros.

What recovery hands over counts as durable at once, so it is on the device before recovery returns. To sync is not
enough for that: a process whose sync failed may have left pages that are right in memory, missing on the device and
taken for clean by the kernel. What nobody promised yet is therefore written once more, and then synced.
"""

import contextlib
import itertools
import mmap
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.bookmark_index import IndexBuilder, IndexDamaged, IndexReader
from amps._core.log_reader import (
    END_OF_FILE_KIND,
    FILE_HEADER_SIZE,
    LogDamaged,
    ScanResult,
    intact_record,
    read_file_header,
    scan_file,
)
from amps.journal.disk import Disk
from amps.journal.names import (
    NEW_INDEX_SUFFIX,
    NEW_SUFFIX,
    index_path,
    journal_numbers,
    journal_path,
    watermark_path,
)
from amps.journal.watermark import WATERMARK_FORMAT, read_watermark
from amps.server.core.journal_files import write_index

MIB = 1 << 20
ZEROS = bytes(MIB)
Report = Callable[[str, str], None]
REPAIR_HINT = "examine it with 'amps journal verify'; restore the file from a copy, or from another instance"


class RecoveryRefused(Exception):
    """The journal directory cannot be used as it is; the text says why and what to do."""


@dataclass(frozen=True)
class FileInfo:
    """Header of one journal in use."""

    number: int
    size: int
    start_position: int
    first_txid: int


@dataclass
class Recovered:
    """What recovery found. `active` is None for an empty log; then the first file to use is `first_number`."""

    first_number: int = 0
    spares: set[int] = field(default_factory=set)
    active: FileInfo | None = None
    position: int = 0  # log position after the last intact record
    finished: bool = False  # the active file ended with an end-of-file record
    topics: list[tuple[str, str]] = field(default_factory=list)  # by topic id of the active file
    publishers: dict[int, int] = field(default_factory=dict)  # publisher id -> highest sequence
    last_txid: int = 0
    last_timestamp_ns: int = 0


def recover(
    directory: Path,
    instance_name: str,
    make_index: Callable[[FileInfo], IndexBuilder],
    report: Report,
    disk: Disk,
) -> Recovered:
    """Recover. `make_index` gives the builder for the index of the file in use. Raises RecoveryRefused."""
    _remove_unfinished(disk, directory, instance_name)
    # A process that was killed after it gave a file its name may not have made the name durable.
    disk.sync_directory(directory)
    numbers = journal_numbers(directory, instance_name)
    if not numbers:
        _begin_anew(disk, directory, instance_name, report)
        return Recovered()
    for number, expected in zip(numbers, range(numbers[0], numbers[0] + len(numbers)), strict=True):
        if number != expected:
            raise RecoveryRefused(
                f"journal {journal_path(directory, instance_name, expected)} is missing while later ones exist; "
                "put it back: its messages are part of the log"
            )
    headers: dict[int, FileInfo | None] = {}
    torn: dict[int, LogDamaged] = {}
    for number in numbers:
        try:
            headers[number] = _header(directory, instance_name, number)
        except LogDamaged as damage:
            torn[number] = damage
    files = [info for info in headers.values() if info is not None]
    first_number = numbers[0]
    if torn:
        _discard_torn(disk, directory, instance_name, torn, files, numbers, report)
    result = Recovered(first_number=first_number, spares={n for n in numbers if headers[n] is None})
    if not files:
        _check_watermark(directory, instance_name, 0)
        return result
    _check_chain(directory, instance_name, files, numbers)
    for info in files[:-1]:
        _add_older(disk, directory, instance_name, info, result, report)
    _add_active(disk, directory, instance_name, files[-1], make_index, result, report)
    return result


def _remove_unfinished(disk: Disk, directory: Path, instance_name: str) -> None:
    """Remove what a crash left of journals and indexes that were being made: they were never used."""
    suffixes = "|".join(re.escape(suffix) for suffix in (NEW_SUFFIX, NEW_INDEX_SUFFIX))
    pattern = re.compile(rf"{re.escape(instance_name)}\.\d{{10}}(?:{suffixes})")
    for entry in sorted(directory.iterdir()):
        if pattern.fullmatch(entry.name):
            disk.unlink(entry)


def _begin_anew(disk: Disk, directory: Path, instance_name: str, report: Report) -> None:
    """No journals at all: somebody removed them, or there were none. What was promised before is void."""
    path = watermark_path(directory, instance_name)
    if read_watermark(path):
        report(
            "1D-0007", f"there are no journals in {directory} although there were some; the log begins anew"
        )
        descriptor = disk.open(path, os.O_RDWR)
        try:
            disk.write(descriptor, memoryview(bytes(WATERMARK_FORMAT.size)), 0)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)


def _header(directory: Path, instance_name: str, number: int) -> FileInfo | None:
    """The header of a journal; None = a spare that was never used. Raises LogDamaged, RecoveryRefused."""
    path = journal_path(directory, instance_name, number)
    with path.open("rb") as file:
        page = file.read(FILE_HEADER_SIZE)
    size = path.stat().st_size
    header = read_file_header(page, str(path))
    if header is None:
        raise LogDamaged(str(path), 0, "the file header holds nothing but zeros")
    file_number, file_size, start, first_txid, name, in_use = header
    if name != instance_name:
        raise RecoveryRefused(f"{path} belongs to instance {name!r}; move it away")
    if file_number != number:
        raise RecoveryRefused(f"{path} says that it is journal {file_number}; give it back its name")
    if file_size != size:
        raise RecoveryRefused(
            f"{path}: damaged at offset {size}: {size} bytes instead of {file_size}; {REPAIR_HINT}"
        )
    return FileInfo(number, file_size, start, first_txid) if in_use else None


def _discard_torn(
    disk: Disk,
    directory: Path,
    instance_name: str,
    torn: dict[int, LogDamaged],
    files: list[FileInfo],
    numbers: list[int],
    report: Report,
) -> None:
    """Remove a file that was being brought into use when the machine stopped. Raises RecoveryRefused.

    Such a file comes right after those in use and holds nothing behind its torn header; anything else is damage.
    """
    number, damage = min(torn.items())
    path = journal_path(directory, instance_name, number)
    next_number = files[-1].number + 1 if files else numbers[0]
    if len(torn) > 1 or number != next_number or not _is_empty_behind_header(path):
        raise RecoveryRefused(f"{damage}; {REPAIR_HINT}") from damage
    _check_watermark(directory, instance_name, files[-1].start_position + files[-1].size if files else 0)
    report("1D-0006", f"{path}: the header of an unused journal was torn; it is made anew")
    # From the last spare on, so that a crash leaves no gap in the numbers.
    for spare in sorted((n for n in numbers if n >= number), reverse=True):
        disk.unlink(journal_path(directory, instance_name, spare))
        disk.sync_directory(directory)
    del numbers[numbers.index(number) :]


def _is_empty_behind_header(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        return (
            size > FILE_HEADER_SIZE
            and _end_of_data(file.fileno(), FILE_HEADER_SIZE, size) == FILE_HEADER_SIZE
        )


def _end_of_data(descriptor: int, begin: int, end: int) -> int:
    """Offset after the last byte of a part of a file that is not zero; `begin` if there is none."""
    while end > begin:
        first = max(begin, end - MIB)
        data = os.pread(descriptor, end - first, first)
        if data != ZEROS[: len(data)]:
            return first + len(data.rstrip(b"\0"))
        end = first
    return begin


def _check_chain(directory: Path, instance_name: str, files: list[FileInfo], numbers: list[int]) -> None:
    if files[0].number != numbers[0]:
        raise RecoveryRefused(
            f"journal {journal_path(directory, instance_name, numbers[0])} was never used although a later one is: "
            f"it was replaced; {REPAIR_HINT}"
        )
    for before, after in itertools.pairwise(files):
        if after.number != before.number + 1 or after.start_position != before.start_position + before.size:
            raise RecoveryRefused(
                f"{journal_path(directory, instance_name, after.number)} starts at log position "
                f"{after.start_position}, its predecessor ends at {before.start_position + before.size}: "
                f"one of them was replaced; {REPAIR_HINT}"
            )


def _check_watermark(directory: Path, instance_name: str, position: int) -> int:
    watermark = read_watermark(watermark_path(directory, instance_name))
    if watermark > position:
        raise RecoveryRefused(
            f"the journals in {directory} end at log position {position}, but messages up to {watermark} were "
            f"acknowledged: files are missing or were replaced; put them back. If they were removed on purpose, "
            f"remove {watermark_path(directory, instance_name)} too"
        )
    return watermark


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)


def _add_older(
    disk: Disk, directory: Path, instance_name: str, info: FileInfo, result: Recovered, report: Report
) -> None:
    """Take publishers and ends of a full journal from its index, rebuilt if need be."""
    path = index_path(directory, instance_name, info.number)
    reader: IndexReader | None = None
    try:
        candidate = IndexReader(path.read_bytes(), True)
        _check_index(candidate, journal_path(directory, instance_name, info.number), info)
        reader = candidate
    except FileNotFoundError:
        report("1D-0004", f"{path} is missing; scanning the journal to rebuild it")
    except (IndexDamaged, OSError) as problem:
        report("1D-0004", f"{path} cannot be used ({problem}); scanning the journal to rebuild it")
    if reader is None:
        data = rebuild_index(journal_path(directory, instance_name, info.number), info)
        with contextlib.suppress(OSError):
            write_index(disk, path, data)
        reader = IndexReader(data, True)
    for row in reader.publishers():
        result.publishers[int(row["publisher_id"])] = int(row["last_sequence"])
    result.last_txid = max(result.last_txid, reader.last_txid)
    result.last_timestamp_ns = max(result.last_timestamp_ns, reader.last_timestamp_ns)


def _check_index(reader: IndexReader, path: Path, info: FileInfo) -> None:
    """Whether an index is that of this journal: it begins and ends where the journal does. Raises IndexDamaged."""
    if reader.file_number != info.number or reader.start_position != info.start_position:
        raise IndexDamaged("it belongs to another journal")
    with _map(path) as journal:
        first = intact_record(journal, info.start_position, FILE_HEADER_SIZE)
        # A journal may be full without a message, when the first one was too large for it.
        last = intact_record(journal, info.start_position, reader.end_offset or FILE_HEADER_SIZE)
    if (
        first is None
        or last is None
        or last[0] != END_OF_FILE_KIND
        or (reader.end_offset and first[1] != reader.first_txid)
    ):
        raise IndexDamaged("it does not fit the journal")


def rebuild_index(path: Path, info: FileInfo) -> bytes:
    """The index of a full journal, made by scanning it. Raises RecoveryRefused if the journal is damaged."""
    builder = IndexBuilder(None, info.number, info.start_position, info.size)
    found = scan_file(_map(path), info.start_position, builder)
    if not found.finished:
        raise RecoveryRefused(
            f"{path}: damaged at offset {found.end_offset}: no intact record there although later journals exist; "
            f"{REPAIR_HINT}"
        )
    return builder.to_bytes()


def _add_active(
    disk: Disk,
    directory: Path,
    instance_name: str,
    info: FileInfo,
    make_index: Callable[[FileInfo], IndexBuilder],
    result: Recovered,
    report: Report,
) -> None:
    """Scan the newest journal, decide about its tail, and note where to go on."""
    path = journal_path(directory, instance_name, info.number)
    index = make_index(info)
    found = scan_file(_map(path), info.start_position, index)
    end = info.start_position + found.end_offset
    # Records alone prove what was durable when they were written; the watermark file also knows the last batch.
    durable = max(found.durable_position, read_watermark(watermark_path(directory, instance_name)))
    if durable > end and not (found.finished and durable <= info.start_position + info.size):
        raise RecoveryRefused(
            f"{path}: damaged at offset {found.end_offset}: messages up to offset "
            f"{min(durable - info.start_position, info.size)} were acknowledged, but no intact record is there; "
            f"{REPAIR_HINT}"
        )
    cut = _make_durable(disk, path, found, max(durable - info.start_position, FILE_HEADER_SIZE))
    if found.damaged:
        report(
            "1D-0005",
            f"{path}: the last batch was torn and is cut off at offset {found.end_offset} ({cut} bytes that were "
            "never acknowledged)",
        )
    result.active = info
    result.position = end
    result.finished = found.finished
    result.topics = found.topics
    for publisher, (_, last, _) in index.publishers_seen().items():
        result.publishers[publisher] = last
    result.last_txid = max(result.last_txid, found.last_txid, info.first_txid)
    result.last_timestamp_ns = max(result.last_timestamp_ns, index.last_timestamp_ns)


def _make_durable(disk: Disk, path: Path, found: ScanResult, durable_offset: int) -> int:
    """Put everything up to the last intact record on the device, zeros over what follows a damaged one.

    Before `durable_offset` everything is there already. Returns how many bytes were cut off.
    """
    descriptor = disk.open(path, os.O_RDWR)
    try:
        size = os.fstat(descriptor).st_size
        last = _end_of_data(descriptor, found.end_offset, size) if found.damaged else found.end_offset
        for offset in range(found.end_offset, last, MIB):
            disk.write(descriptor, memoryview(ZEROS)[: last - offset], offset)
        disk.write(descriptor, memoryview(os.pread(descriptor, FILE_HEADER_SIZE, 0)), 0)
        for offset in range(durable_offset, found.end_offset, MIB):
            data = os.pread(descriptor, min(MIB, found.end_offset - offset), offset)
            disk.write(descriptor, memoryview(data), offset)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    return int(last - found.end_offset)
