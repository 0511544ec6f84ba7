"""The part of recovery for full journals: their indexes, and the last message of each publisher.

`clients.ack` contains the last sequence of each publisher up to a log position. Indexes of journals that it covers are
only checked by themselves (20 GB of log have 20 to 340 MB of indexes, whose checksums take some hundredths of a
second). Later indexes are compared with their journals too; without a usable file, all are. An index that is missing,
damaged or does not fit is made again by scanning the journal.
"""

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

from amps._core.journal.reader import END_OF_FILE_KIND, FILE_HEADER_SIZE, LogDamaged, LogFile
from amps._core.journal.writer import IndexBuilder, IndexDamaged, IndexReader, intact_record, scan_file
from amps.journal.clients_ack import ClientsAck, ClientsAckDamaged, read_clients_ack
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader, open_journal
from amps.journal.listing import JournalEntry, make_entry
from amps.journal.names import JournalPlace, clients_ack_path, index_path, index_places
from amps.server.core.journal_files import write_index
from amps.server.eventlog import Report

REPAIR_HINT = "examine it with 'amps journal verify'; restore the file from a copy, or from another instance"
PROGRESS_INTERVAL_S = 5.0


class RecoveryRefused(Exception):
    """The journal directory cannot be used as it is; the text has the reason and the remedy."""


def usable_clients_ack(
    directory: Path, instance_name: str, files: Sequence[JournalHeader], end_position: int, report: Report
) -> ClientsAck | None:
    """The contents of `clients.ack`, if it belongs to this log, which ends at `end_position`; else None."""
    path = clients_ack_path(directory, instance_name)
    try:
        ack = read_clients_ack(path)
    except FileNotFoundError:
        return None
    except (ClientsAckDamaged, OSError) as problem:
        report("1D-0012", path=path, reason=problem)
        return None
    same = {(info.number, info.start_position, info.first_txid) for info in files}
    if ack.journal_number >= files[0].number:
        fits = (ack.journal_number, ack.start_position, ack.first_txid) in same
    else:
        fits = ack.position <= files[0].start_position  # its journals were removed
    if not fits or ack.position > end_position:
        report("1D-0012", path=path, reason="it does not belong to these journals")
        return None
    return ack


class OlderJournals:
    """The full journals, added from the oldest on. `clients`: the last sequences and the refused transactions, up to
    the last journal added.
    """

    def __init__(
        self, disk: Disk, directory: Path, archive: Path | None, instance_name: str, report: Report
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._archive = archive
        self._instance_name = instance_name
        self._report = report
        self.clients = ClientsAck()
        self.entries: list[JournalEntry] = []
        self.last_txid = 0
        self.last_timestamp_ns = 0

    def add(self, info: JournalHeader, place: JournalPlace) -> None:
        """Read the log's end and, unless `clients` covers the journal, its publishers from its index and its refused
        transactions. Raises RecoveryRefused.
        """
        covered = info.start_position + info.size <= self.clients.position
        reader = self._index(info, place, covered)
        if not covered:
            self.clients.take(reader.publishers())
            self.clients.take_refused(_refused(reader, place))
        self.last_txid = max(self.last_txid, reader.last_txid)
        self.last_timestamp_ns = max(self.last_timestamp_ns, reader.last_timestamp_ns)
        self.entries.append(make_entry(info, place, reader))

    def _index(self, info: JournalHeader, place: JournalPlace, covered: bool) -> IndexReader:
        problem: Exception | None = None
        for path in index_places(self._directory, self._archive, self._instance_name, info.number):
            try:
                return _read_index(path, info, place, covered)
            except FileNotFoundError:
                continue
            except (IndexDamaged, LogDamaged, OSError) as error:
                problem = error
        path = index_path(place.path.parent, self._instance_name, info.number)
        self._report("1D-0004", path=path, reason=problem or "it is missing")
        data = self._rebuilt(info, place)
        try:
            write_index(self._disk, path, data)
        except OSError as error:
            self._report("2C-0004", path=path, reason=error)
        return IndexReader(data, True)

    def _rebuilt(self, info: JournalHeader, place: JournalPlace) -> bytes:
        """The index of a full journal, made by scanning it. Raises RecoveryRefused if the journal is damaged."""
        builder = IndexBuilder(None, info.number, info.start_position, info.size)
        said_s = time.monotonic()

        def progress(offset: int) -> None:
            nonlocal said_s
            if time.monotonic() - said_s >= PROGRESS_INTERVAL_S:
                said_s = time.monotonic()
                self._report("1D-0013", path=place.path, percent=100 * offset // info.size)

        try:
            found = scan_file(open_journal(place.path), info.start_position, builder, progress)
        except LogDamaged as damage:
            raise RecoveryRefused(f"{damage}; {REPAIR_HINT}") from damage
        if not found.finished:
            raise RecoveryRefused(
                f"{place.path}: damaged at offset {found.end_offset}: no intact record there although later journals "
                f"exist; {REPAIR_HINT}"
            )
        return builder.to_bytes()


def _read_index(path: Path, info: JournalHeader, place: JournalPlace, covered: bool) -> IndexReader:
    """Read the index of a journal. Raises OSError, IndexDamaged, LogDamaged."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise IndexDamaged("it is empty")
        memory = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    reader = IndexReader(memory, True)
    if reader.file_number != info.number or reader.start_position != info.start_position:
        raise IndexDamaged("it belongs to another journal")
    if not covered:
        _check_ends(reader, open_journal(place.path))
    return reader


def _refused(reader: IndexReader, place: JournalPlace) -> list[tuple[int, int, int]]:
    """The refused transactions of a full journal. Raises RecoveryRefused."""
    try:
        return open_journal(place.path).refused_transactions(reader.end_offset or FILE_HEADER_SIZE)
    except LogDamaged as damage:
        raise RecoveryRefused(f"{damage}; {REPAIR_HINT}") from damage


def _check_ends(reader: IndexReader, journal: LogFile) -> None:
    """Check that an index begins and ends where its journal does. Raises IndexDamaged, LogDamaged."""
    first = intact_record(journal, journal.start_position, FILE_HEADER_SIZE)
    # A journal may be full without a message, when the first one was too large for it.
    last = intact_record(journal, journal.start_position, reader.end_offset or FILE_HEADER_SIZE)
    if (
        first is None
        or last is None
        or last[0] != END_OF_FILE_KIND
        or (reader.end_offset and first[1] != reader.first_txid)
    ):
        raise IndexDamaged("it does not fit the journal")
