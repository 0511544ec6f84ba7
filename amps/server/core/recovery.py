"""Bringing a journal directory back: what is there, where it ends, who published what.

Called once, before anything is accepted. The newest file in use is scanned whole and its index built; of the
older ones only header and index are read (an index that is missing or damaged is rebuilt by scanning its journal).

Torn or damaged? After a crash of the machine the last batch may be written in part; it was never acknowledged, so
it is cut off, with a log line. But what was acknowledged must be there. Two witnesses tell how far that is: the
watermark file, and the watermark that every record carries. If intact records end before that point, the file is
damaged: recovery refuses, naming file, offset and the tool to run (transaction_log.md §12, §20 items 33, 34).
"""

import contextlib
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.bookmark_index import IndexBuilder, IndexDamaged, IndexReader
from amps._core.log_reader import FILE_HEADER_SIZE, LogDamaged, ScanResult, read_file_header, scan_file
from amps.server.core.flusher import read_watermark
from amps.server.core.journal_files import sync_directory, write_whole
from amps.server.journal_names import NEW_SUFFIX, index_path, journal_numbers, journal_path, watermark_path

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
    last_bookmark: tuple[int, int] = (0, 0)


def recover(
    directory: Path,
    instance_name: str,
    make_index: Callable[[FileInfo], IndexBuilder],
    report: Report,
) -> Recovered:
    """Recover. `make_index` gives the builder for the index of the file in use. Raises RecoveryRefused."""
    for leftover in directory.glob(f"{instance_name}.*{NEW_SUFFIX}"):
        # A preallocation that was cut off: never used.
        leftover.unlink()
    numbers = journal_numbers(directory, instance_name)
    if not numbers:
        if read_watermark(watermark_path(directory, instance_name)):
            report("1D-0007", f"there are no journals in {directory} although there were some; the log begins anew")
        return Recovered()
    for number, expected in zip(numbers, range(numbers[0], numbers[0] + len(numbers)), strict=True):
        if number != expected:
            raise RecoveryRefused(
                f"journal {journal_path(directory, instance_name, expected)} is missing while later ones exist; "
                "put it back: its messages are part of the log"
            )
    headers = {number: _header(directory, instance_name, number, report) for number in numbers}
    used = [headers[number] for number in numbers if headers[number] is not None]
    result = Recovered(first_number=numbers[0], spares={n for n in numbers if headers[n] is None})
    if not used:
        _check_watermark(directory, instance_name, 0)
        return result
    files = [info for info in used if info is not None]
    _check_chain(directory, instance_name, files, numbers)
    for info in files[:-1]:
        _add_older(directory, instance_name, info, result, report)
    _add_active(directory, instance_name, files[-1], make_index, result, report)
    return result


def _header(directory: Path, instance_name: str, number: int, report: Report) -> FileInfo | None:
    """The header of a journal; None = a spare that was never used."""
    path = journal_path(directory, instance_name, number)
    with path.open("rb") as file:
        page = file.read(FILE_HEADER_SIZE)
    size = path.stat().st_size
    try:
        header = read_file_header(page, str(path))
    except LogDamaged as damage:
        if _is_torn_spare(path, directory, instance_name):
            report("1D-0006", f"{path}: the header of an unused journal was torn; it is made anew")
            path.unlink()
            return None
        raise RecoveryRefused(f"{damage}; {REPAIR_HINT}") from damage
    if header is None:
        return None
    file_number, file_size, start, first_txid, name, in_use = header
    if name != instance_name:
        raise RecoveryRefused(f"{path} belongs to instance {name!r}; move it away")
    if file_number != number:
        raise RecoveryRefused(f"{path} says that it is journal {file_number}; give it back its name")
    if file_size != size:
        raise RecoveryRefused(f"{path}: damaged at offset {size}: {size} bytes instead of {file_size}; {REPAIR_HINT}")
    return FileInfo(number, file_size, start, first_txid) if in_use else None


def _is_torn_spare(path: Path, directory: Path, instance_name: str) -> bool:
    """A file that was being brought into use when the machine stopped: a torn header, and nothing durable in it."""
    with path.open("rb") as file:
        file.seek(FILE_HEADER_SIZE)
        if any(file.read(FILE_HEADER_SIZE)):
            return False
    numbers = journal_numbers(directory, instance_name)
    return path == journal_path(directory, instance_name, numbers[-1]) and len(numbers) > 1


def _check_chain(directory: Path, instance_name: str, files: list[FileInfo], numbers: list[int]) -> None:
    if files[0].number != numbers[0]:
        raise RecoveryRefused(
            f"journal {journal_path(directory, instance_name, numbers[0])} was never used although a later one is: "
            f"it was replaced; {REPAIR_HINT}"
        )
    for before, after in zip(files, files[1:], strict=False):
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


def _add_older(directory: Path, instance_name: str, info: FileInfo, result: Recovered, report: Report) -> None:
    """Take publishers and ends of a full journal from its index, rebuilt if need be."""
    path = index_path(directory, instance_name, info.number)
    reader: IndexReader | None = None
    try:
        candidate = IndexReader(path.read_bytes(), True)
        if candidate.file_number != info.number or candidate.start_position != info.start_position:
            raise IndexDamaged("it belongs to another journal")
        reader = candidate
    except FileNotFoundError:
        report("1D-0004", f"{path} is missing; scanning the journal to rebuild it")
    except (IndexDamaged, OSError) as problem:
        report("1D-0004", f"{path} cannot be used ({problem}); scanning the journal to rebuild it")
    if reader is None:
        data = rebuild_index(journal_path(directory, instance_name, info.number), info)
        unfinished = path.with_suffix(".index.new")
        with contextlib.suppress(OSError):
            unfinished.write_bytes(data)
            unfinished.rename(path)
        reader = IndexReader(data, True)
    for row in reader.publishers():
        result.publishers[int(row["publisher_id"])] = int(row["last_sequence"])
    result.last_txid = max(result.last_txid, reader.last_txid)


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
    if found.damaged:
        cut = _cut_tail(path, found, info.size)
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
    result.last_bookmark = found.last_bookmark


def _cut_tail(path: Path, found: ScanResult, size: int) -> int:
    """Overwrite everything after the last intact record with zeros and sync. Returns the bytes that were not zero."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        with mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
            last = size
            while last > found.end_offset and not any(view[max(found.end_offset, last - 65536) : last]):
                last = max(found.end_offset, last - 65536)
        zeros = memoryview(bytes(1 << 20))
        for offset in range(found.end_offset, last, 1 << 20):
            write_whole(descriptor, zeros[: last - offset], offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(path.parent)
    return int(last - found.end_offset)
