"""Facts about full journals that need no reading of messages, for listings and for management by age."""

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
    """The time of the last write to the file; compressing and archiving keep it."""

    @property
    def number(self) -> int:
        """The number of the journal."""
        return self.header.number

    @property
    def end_position(self) -> int:
        """Log position at which the next journal starts."""
        return self.header.start_position + self.header.size

    def moved(self, place: JournalPlace) -> None:
        """Set the place to which the journal was moved. Raises OSError."""
        self.size_bytes = place.path.stat().st_size
        self.place = place


def make_entry(header: JournalHeader, place: JournalPlace, index: IndexReader | None) -> JournalEntry:
    """The entry of a full journal."""
    first, last = (0, 0) if index is None else (index.first_timestamp_ns, index.last_timestamp_ns)
    try:
        status = place.path.stat()
    except OSError:  # the file is gone; without a known age it counts as new
        return JournalEntry(header, place, True, first, last, header.size, time.time_ns())
    return JournalEntry(header, place, True, first, last, status.st_size, status.st_mtime_ns)


def list_journals(directory: Path, archive: Path | None, instance_name: str) -> list[JournalEntry]:
    """The journals of an instance without spares. The last one is the newest, the journal in use.

    It works beside a running server: journals moved meanwhile are found, removed ones are omitted. Raises OSError,
    LogDamaged.
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
                    break  # a spare whose header was torn by a crash
                raise
    if entries:
        entries[-1].full = False
    return entries


def read_times(entry: JournalEntry) -> None:
    """Find the times of a journal without an index, such as the journal in use, by reading it as far as possible."""
    header = entry.header
    index = IndexBuilder(None, header.number, header.start_position, header.size)
    # A server may move or remove the file meanwhile. For a damaged journal, the times before the damage are found.
    with contextlib.suppress(OSError, LogDamaged):
        scan_file(open_journal(entry.place.path), header.start_position, index)
    found = IndexReader(index.to_bytes(), True)
    entry.min_timestamp_ns, entry.max_timestamp_ns = found.first_timestamp_ns, found.last_timestamp_ns


def read_index(
    directory: Path, archive: Path | None, instance_name: str, header: JournalHeader
) -> IndexReader | None:
    """The index of a journal; None if there is no intact one."""
    for path in index_places(directory, archive, instance_name, header.number):
        try:
            reader = IndexReader(path.read_bytes(), True)
        except (OSError, IndexDamaged):
            continue
        if reader.start_position == header.start_position:
            return reader
    return None


def oldest_of_age(full: list[JournalEntry], now_ns: int, age_s: float) -> list[JournalEntry]:
    """The full journals, oldest first, that were not written to for `age_s`, up to the first younger one."""
    young = next((n for n, entry in enumerate(full) if now_ns - entry.modified_ns < age_s * 1e9), len(full))
    return full[:young]


def oldest_up_to(full: list[JournalEntry], number: int, current: int) -> list[JournalEntry]:
    """The full journals, oldest first, up to that number. The list is empty if that journal has been removed.

    current: number of the journal in use. Raises ValueError for that journal and later ones.
    """
    if number >= current:
        raise ValueError(f"{number} is not the number of a full journal")
    return [entry for entry in full if entry.number <= number]
