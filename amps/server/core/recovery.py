"""Recovering a journal directory: which journals there are, where the log ends, and the publishers' last sequences.

Called once, before any client is accepted. The newest file in use is scanned completely and its index built. Of the
older ones only header and index are read (older.py), whether they are in the journal directory or in the archive,
plain or compressed.

Torn or damaged? After a crash of the machine the last batch may be written in part. It was never acknowledged, so it
is cut off, with a log line. But acknowledged records must be there. Two sources tell how far that is: the watermark
file, and the watermark that every record carries. If intact records end before that point, the file is damaged:
recovery refuses, naming file, offset and the tool to run (transaction_log.md §12, §20 items 33, 34).

Only the newest journal can be torn, because its predecessor is synced to its end before it comes into use. The only
header that can be torn is that of a file just coming into use, which has only zeros behind the header.

The records of a transaction count together: a group that is not whole is cut off from its transaction record on. The
checks above then tell whether that is a torn end or damage.

Recovered records count as durable at once, so recovery puts them on the device before it returns. A sync is not enough
for that: after a failed sync, a process may have left pages that are correct in memory, missing on the device, and
marked clean by the kernel. Records behind the durable watermark are therefore written once more, and then synced.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.journal.reader import FILE_HEADER_SIZE, LogDamaged, LogFile, LogOfOtherVersion
from amps._core.journal.writer import IndexBuilder, ScanResult, scan_file
from amps.journal.clients_ack import ClientsAck, summary_of
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader, read_header, seek_table_remedy
from amps.journal.listing import JournalEntry
from amps.journal.names import (
    JournalPlace,
    clients_ack_path,
    find_journals,
    index_places,
    topic_index_places,
    unfinished_files,
    watermark_path,
)
from amps.journal.removals import first_kept, forget_removals
from amps.journal.watermark import WATERMARK_FORMAT, read_watermark
from amps.server.core.older import (
    REPAIR_HINT,
    OlderJournals,
    RecoveryRefused,
    usable_clients_ack,
)
from amps.server.eventlog import Report

MIB = 1 << 20
ZEROS = bytes(MIB)


@dataclass
class Recovered:
    """The result of recovery. `active` is None for an empty log; then the first file to use is `first_number`."""

    first_number: int = 0
    spares: set[int] = field(default_factory=set)
    active: JournalHeader | None = None
    position: int = 0  # log position after the last intact record
    finished: bool = False  # the active file ended with an end-of-file record
    topics: list[tuple[str, str]] = field(default_factory=list)  # by topic id of the active file
    name_ids: set[int] = field(default_factory=set)  # that the active file has name records for
    publishers: dict[int, int] = field(default_factory=dict)  # publisher id -> highest sequence
    refused: dict[int, list[int]] = field(default_factory=dict)
    """The first sequences of the refused transactions, by publisher id."""
    last_refused_offset: int = 0  # file offset of the last of their records in the active file
    last_txid: int = 0
    last_timestamp_ns: int = 0
    journals: list[JournalEntry] = field(default_factory=list)  # the full ones before the active one
    # The last sequences of the publishers in these journals.
    clients: ClientsAck = field(default_factory=ClientsAck, compare=False)


def recover(
    directory: Path,
    instance_name: str,
    make_index: Callable[[JournalHeader], IndexBuilder],
    report: Report,
    disk: Disk,
    archive: Path | None = None,
    forget_before_ns: int = 0,
) -> Recovered:
    """Recover a log. `make_index` makes the builder for the index of the file in use. Raises RecoveryRefused, OSError.

    `forget_before_ns`: publishers without messages since then are treated as new (InactiveClientAckExpiration).
    """
    directories = [directory] if archive is None else [directory, archive]
    for path in directories:
        for unfinished in unfinished_files(path, instance_name):
            disk.unlink(unfinished)
        # A process may have been killed between renaming a file and syncing its directory.
        disk.sync_directory(path)
    found = find_journals(directory, archive, instance_name)
    if not found:
        _begin_anew(disk, directory, instance_name, report)
        return Recovered()
    _discard_damaged_spares(disk, directory, instance_name, found, report)
    numbers = list(found)
    for number, expected in zip(numbers, itertools.count(numbers[0])):
        if number != expected:
            raise RecoveryRefused(
                f"journal {instance_name}.{expected:010d}.journal is missing in "
                f"{' and '.join(map(str, directories))} while later ones exist; put it back: its messages are part "
                "of the log"
            )
    _tell_of_missing(directory, archive, instance_name, numbers[0], report)
    journals = {number: _only_place(disk, places, report) for number, places in found.items()}
    headers: dict[int, JournalHeader | None] = {}
    torn: dict[int, LogDamaged] = {}
    for number, place in journals.items():
        try:
            headers[number] = _header(instance_name, place)
        except LogDamaged as damage:
            torn[number] = damage
    files = [info for info in headers.values() if info is not None]
    if torn:
        _discard_torn(disk, directory, instance_name, torn, files, journals, report)
    result = Recovered(numbers[0], {number for number in journals if headers[number] is None})
    if not files:
        _check_watermark(directory, instance_name, 0)
        _forget_publishers(disk, directory, instance_name)
        return result
    _check_chain(files, journals)
    active = journals[files[-1].number]
    if active.archived or active.compressed:
        raise RecoveryRefused(
            f"{active.path} is the newest journal and must be uncompressed in {directory}: put it back (zstd -d "
            "restores a compressed one), or put the later ones back"
        )
    index, refused = _add_active(
        disk, directory, instance_name, active, files[-1], make_index, result, report
    )
    older = OlderJournals(disk, directory, archive, instance_name, report)
    # After an end-of-file record the log continues in the next file, at the end of this one.
    end = files[-1].start_position + files[-1].size if result.finished else result.position
    older.clients = usable_clients_ack(directory, instance_name, files, end, report) or ClientsAck()
    for info in files[:-1]:
        older.add(info, journals[info.number])
    result.journals = older.entries
    result.clients = older.clients
    result.last_txid = max(result.last_txid, older.last_txid)
    result.last_timestamp_ns = max(result.last_timestamp_ns, older.last_timestamp_ns)
    everybody = ClientsAck(
        rows=result.clients.rows,
        names=result.clients.names,
        refused={id_: list(firsts) for id_, firsts in result.clients.refused.items()},
    )
    everybody.take(summary_of(index.publishers_seen()))
    everybody.take_refused(refused)
    dropped = everybody.forget_before(forget_before_ns)
    if dropped:
        report("1D-0015", count=dropped)
        result.clients.forget_before(forget_before_ns)
    result.publishers = everybody.last_sequences()
    result.refused = everybody.refused
    _remove_indexes_before(disk, directory, archive, instance_name, numbers[0])
    return result


def _tell_of_missing(
    directory: Path, archive: Path | None, instance_name: str, first_number: int, report: Report
) -> None:
    """Report missing oldest journals. The log is usable without them, but their removal may be a mistake."""
    expected = first_kept(directory, instance_name)
    if first_number <= expected:
        return
    report(
        "1D-0021",
        first=f"{first_number:010d}",
        missing_from=f"{expected:010d}",
        missing_to=f"{first_number - 1:010d}",
        directory=directory,
        archive=archive,
        instance=instance_name,
        up_to=first_number - 1,
    )


def _only_place(disk: Disk, places: list[JournalPlace], report: Report) -> JournalPlace:
    """The place of a journal that is used. A crash during a move leaves two complete copies: one is removed."""
    first = places[0]
    for surplus in places[1:]:
        try:
            same = read_header(first.path) == read_header(surplus.path)
        except LogOfOtherVersion as other:
            raise RecoveryRefused(str(other)) from other
        except LogDamaged:
            same = False
        if not same:
            raise RecoveryRefused(
                f"{first.path} and {surplus.path} cannot both be journal {first.number}; move one of them away"
            )
        report("1D-0014", path=surplus.path, other=first.path)
        disk.unlink(surplus.path)
        disk.sync_directory(surplus.path.parent)
    return first


def _remove_indexes_before(
    disk: Disk, directory: Path, archive: Path | None, instance_name: str, first_number: int
) -> None:
    """Remove indexes that a crash left when their journals were being removed."""
    number = first_number - 1
    while number >= 0:
        left = [
            path
            for places in (index_places, topic_index_places)
            for path in places(directory, archive, instance_name, number)
            if path.exists()
        ]
        if not left:
            return
        for path in left:
            disk.unlink(path)
        number -= 1


def _begin_anew(disk: Disk, directory: Path, instance_name: str, report: Report) -> None:
    """Begin a new log without journals: they were removed, or there were none. Earlier watermarks are void."""
    _forget_publishers(disk, directory, instance_name)
    forget_removals(disk, directory, instance_name)
    path = watermark_path(directory, instance_name)
    if read_watermark(path):
        report("1D-0007", directory=directory)
        descriptor = disk.open(path, os.O_RDWR)
        try:
            disk.write(descriptor, memoryview(bytes(WATERMARK_FORMAT.size)), 0)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)


def _forget_publishers(disk: Disk, directory: Path, instance_name: str) -> None:
    """Remove `clients.ack` before a log begins anew: it must never be taken for the new log's."""
    path = clients_ack_path(directory, instance_name)
    if path.exists():
        disk.unlink(path)
        disk.sync_directory(directory)


def _header(instance_name: str, place: JournalPlace) -> JournalHeader | None:
    """The header of a journal; None = a spare that was never used. Raises LogDamaged, RecoveryRefused."""
    path = place.path
    try:
        header = read_header(path)
    except LogOfOtherVersion as other:
        raise RecoveryRefused(str(other)) from other
    except LogDamaged as damage:
        if damage.offset or place.compressed or place.archived:
            raise RecoveryRefused(f"{damage}; {seek_table_remedy(damage) or REPAIR_HINT}") from damage
        raise
    if header.instance_name != instance_name:
        raise RecoveryRefused(f"{path} belongs to instance {header.instance_name!r}; move it away")
    if header.number != place.number:
        raise RecoveryRefused(f"{path} contains journal {header.number}; restore its name")
    if not header.in_use and (place.compressed or place.archived):
        raise RecoveryRefused(f"{path} holds a journal that was never used; remove it")
    return header if header.in_use else None


def _discard_damaged_spares(
    disk: Disk,
    directory: Path,
    instance_name: str,
    found: dict[int, list[JournalPlace]],
    report: Report,
) -> None:
    """Remove spares behind an intact one that are damaged or behind a gap, and all spares that follow these.

    Journals come into use in the order of their numbers, so that none behind an unused one contains messages. The
    server makes them again. A file that seems to contain messages is left, so that the start is refused.
    """
    whole: set[int] = set()
    spares: list[int] = []
    for number, places in reversed(found.items()):
        path = places[0].path
        if len(places) > 1 or places[0].compressed or places[0].archived:
            break
        try:
            header = read_header(path)
        except LogDamaged as damage:
            if isinstance(damage, LogOfOtherVersion) or not _is_empty_behind_header(path):
                break
        else:
            if header.in_use or header.number != number or header.instance_name != instance_name:
                break
            whole.add(number)
        spares.append(number)
    if not whole:
        return
    expected = min(whole)
    while expected in whole:
        expected += 1
    for number in spares:
        if number < expected:
            return
        path = found.pop(number)[0].path
        report("1D-0022", path=path)
        # From the last one on, so that a crash leaves no additional gap.
        disk.unlink(path)
        disk.sync_directory(directory)


def _discard_torn(
    disk: Disk,
    directory: Path,
    instance_name: str,
    torn: dict[int, LogDamaged],
    files: list[JournalHeader],
    journals: dict[int, JournalPlace],
    report: Report,
) -> None:
    """Remove a file that was being brought into use when the machine stopped. Raises RecoveryRefused.

    Such a file comes right after those in use and contains only zeros behind its torn header. Any other case is damage.
    """
    number, damage = min(torn.items())
    path = journals[number].path
    next_number = files[-1].number + 1 if files else min(journals)
    whole_size = path.stat().st_size > FILE_HEADER_SIZE
    if len(torn) > 1 or number != next_number or not whole_size or not _is_empty_behind_header(path):
        raise RecoveryRefused(f"{damage}; {REPAIR_HINT}") from damage
    _check_watermark(directory, instance_name, files[-1].start_position + files[-1].size if files else 0)
    report("1D-0006", path=path)
    # From the last spare on, so that a crash leaves no gap in the numbers.
    for spare in sorted((n for n in journals if n >= number), reverse=True):
        disk.unlink(journals[spare].path)
        disk.sync_directory(directory)
        del journals[spare]


def _is_empty_behind_header(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        return _end_of_data(file.fileno(), FILE_HEADER_SIZE, size) == FILE_HEADER_SIZE


def _end_of_data(descriptor: int, begin: int, end: int) -> int:
    """Offset after the last byte of a part of a file that is not zero; `begin` if there is none."""
    while end > begin:
        first = max(begin, end - MIB)
        data = os.pread(descriptor, end - first, first)
        if data != ZEROS[: len(data)]:
            return first + len(data.rstrip(b"\0"))
        end = first
    return begin


def _check_chain(files: list[JournalHeader], journals: dict[int, JournalPlace]) -> None:
    first = min(journals)
    if files[0].number != first:
        raise RecoveryRefused(
            f"journal {journals[first].path} was never used although a later one is: it was replaced; {REPAIR_HINT}"
        )
    for before, after in itertools.pairwise(files):
        if after.number != before.number + 1 or after.start_position != before.start_position + before.size:
            raise RecoveryRefused(
                f"{journals[after.number].path} starts at log position {after.start_position}, its predecessor ends "
                f"at {before.start_position + before.size}: one of them was replaced; {REPAIR_HINT}"
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


def _add_active(
    disk: Disk,
    directory: Path,
    instance_name: str,
    place: JournalPlace,
    info: JournalHeader,
    make_index: Callable[[JournalHeader], IndexBuilder],
    result: Recovered,
    report: Report,
) -> tuple[IndexBuilder, list[tuple[int, int, int]]]:
    """Scan the newest journal, decide about its tail, and note the end of the log. Return the journal's index and its
    refused transactions.
    """
    path = place.path
    index = make_index(info)
    found = scan_file(LogFile(str(path), info.number), info.start_position, index)
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
        report("1D-0005", path=path, offset=found.end_offset, cut=cut)
    result.active = info
    result.position = end
    result.finished = found.finished
    result.last_refused_offset = found.last_refused_offset
    result.topics = found.topics
    result.name_ids = found.name_ids
    result.last_txid = max(result.last_txid, found.last_txid, info.first_txid)
    result.last_timestamp_ns = max(result.last_timestamp_ns, index.last_timestamp_ns)
    return index, found.refused


def _make_durable(disk: Disk, path: Path, found: ScanResult, durable_offset: int) -> int:
    """Put everything up to the last intact record on the device, and zeros over the rest behind a damaged one.

    Everything before `durable_offset` is on the device already. Returns how many bytes were cut off.
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
