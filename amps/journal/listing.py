"""What there is to say about a full journal, without reading its messages: for listings and for managing by age."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from amps._core.journal.reader import LogDamaged
from amps._core.journal.writer import IndexBuilder, IndexDamaged, IndexReader, scan_file
from amps.journal.files import JournalHeader, open_journal, read_header
from amps.journal.names import JournalPlace, find_journals, index_places


@dataclass(slots=True)
class JournalEntry:
    """One journal. Times are those of its first and last record, 0 = none or unknown; `size_bytes` is on disk."""

    header: JournalHeader
    place: JournalPlace
    full: bool
    min_timestamp_ns: int
    max_timestamp_ns: int
    size_bytes: int
    modified_ns: int
    """When the file was last written; compressing and archiving keep that."""

    @property
    def number(self) -> int:
        """Its number."""
        return self.header.number

    @property
    def end_position(self) -> int:
        """Log position at which the next journal starts."""
        return self.header.start_position + self.header.size

    def moved(self, place: JournalPlace) -> None:
        """It lies there now. Raises OSError."""
        self.size_bytes = place.path.stat().st_size
        self.place = place


def make_entry(header: JournalHeader, place: JournalPlace, index: IndexReader | None) -> JournalEntry:
    """The entry of a full journal."""
    first, last = (0, 0) if index is None else (index.first_timestamp_ns, index.last_timestamp_ns)
    try:
        status = place.path.stat()
    except OSError:  # somebody has taken it away: of an unknown age is young
        return JournalEntry(header, place, True, first, last, header.size, time.time_ns())
    return JournalEntry(header, place, True, first, last, status.st_size, status.st_mtime_ns)


def list_journals(directory: Path, archive: Path | None, instance_name: str) -> list[JournalEntry]:
    """The journals in use, the newest last, which is the current one; spares are left out. Raises OSError, LogDamaged.

    Works beside a running server: what is moved meanwhile is found, what is removed is left out.
    """
    entries: list[JournalEntry] = []
    for number in find_journals(directory, archive, instance_name):
        for place in find_journals(directory, archive, instance_name).get(number, ()):
            try:
                header = read_header(place.path)
                if header.in_use:
                    index = read_index(directory, archive, instance_name, header)
                    entries.append(make_entry(header, place, index))
                break
            except FileNotFoundError:
                continue
            except LogDamaged as damage:
                if damage.offset == 0 and entries:
                    break  # a spare that a crash has torn
                raise
    if entries:
        entries[-1].full = False
    return entries


def read_times(entry: JournalEntry) -> None:
    """Find the times of a journal that has no index, such as the current one, by reading it; as far as it can be."""
    header = entry.header
    index = IndexBuilder(None, header.number, header.start_position, header.size)
    # A server may take it away meanwhile; of what is damaged there are the times before the damage.
    with contextlib.suppress(OSError, LogDamaged):
        scan_file(open_journal(entry.place.path), header.start_position, index)
    found = IndexReader(index.to_bytes(), True)
    entry.min_timestamp_ns, entry.max_timestamp_ns = found.first_timestamp_ns, found.last_timestamp_ns


def read_index(
    directory: Path, archive: Path | None, instance_name: str, header: JournalHeader
) -> IndexReader | None:
    """The index of a journal, if it has one that is whole."""
    for path in index_places(directory, archive, instance_name, header.number):
        try:
            reader = IndexReader(path.read_bytes(), True)
        except (OSError, IndexDamaged):
            continue
        if reader.start_position == header.start_position:
            return reader
    return None


def oldest_of_age(full: list[JournalEntry], now_ns: int, age_s: float) -> list[JournalEntry]:
    """Of full journals, oldest first, those not written to for `age_s`; none that comes after a younger one."""
    young = next((n for n, entry in enumerate(full) if now_ns - entry.modified_ns < age_s * 1e9), len(full))
    return full[:young]


def oldest_up_to(full: list[JournalEntry], number: int, current: int) -> list[JournalEntry]:
    """Of full journals, oldest first, that one and those before it. Raises ValueError if it is not full, or not there
    yet; one that was removed has none before it. `current`: number of the journal in use.
    """
    if number >= current:
        raise ValueError(f"{number} is not the number of a full journal")
    return [entry for entry in full if entry.number <= number]
