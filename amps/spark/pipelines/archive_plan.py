"""The plan of archiving: which journals exist, which are archived, and which are missing.

Planning changes nothing and does not need Spark; a dry run shows the plan. Journals are numbered from 0 on, and the
oldest are removed first. So each journal up to the newest has a known state: it is in the journal directory or the
JournalArchiveDirectory, in the archive, or removed on purpose (`amps.journal.removals`). A journal in none of these
states is *nowhere*. It may lie in a directory that was not given, and a server that removes a later journal
would remove it, too. So no journal after it is reported as safe.
"""

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from amps._core.journal.reader import LogDamaged
from amps.journal.listing import JournalEntry, list_journals
from amps.journal.removals import first_kept
from amps.spark.options import SPLIT_BYTES, ReadOptions, read_options
from amps.spark.pipelines.archive_manifest import Archive, ArchivedJournal, failure_of
from amps.spark.pipelines.job import PipelineError
from amps.spark.planning import instance_of


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The options of an archive run."""

    journals: Path
    """The JournalDirectory."""
    parquet: Path
    """The archive's directory; created if it does not exist."""
    archive: Path | None = None
    """The JournalArchiveDirectory, if there is one."""
    instance: str | None = None
    """The instance, if the directory contains journals of several instances."""
    current: bool = False
    """Archive also the journal in use, up to its durable position."""
    again: frozenset[int] = frozenset()
    """Numbers of archived journals to archive again."""
    verify: bool = False
    """Compare all archived rows with the journals that exist, and the files of other journals with their checksums.
    Without it, only checksums are compared, and not those of journals that are known to be removed."""
    split_bytes: int = SPLIT_BYTES
    """Approximate size of a part in bytes of the journal: a task holds one part in memory."""


@dataclass(frozen=True, slots=True)
class JournalPlan:
    """A journal to archive."""

    entry: JournalEntry
    first_position: int
    """Log position before which all rows are archived."""
    known: ArchivedJournal | None
    """The archived parts of it that stay."""
    replaced: tuple[str, ...] = ()
    """Archived files of it that are removed."""

    @property
    def number(self) -> int:
        """Its number."""
        return self.entry.number

    @property
    def size_bytes(self) -> int:
        """Maximum number of uncompressed bytes still to read."""
        return self.entry.end_position - self.first_position


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The plan of a run."""

    instance: str
    journals: tuple[JournalEntry, ...]
    """All journals that exist, oldest first; the last one is in use."""
    archived: dict[int, ArchivedJournal]
    """The archived journals, by number."""
    todo: tuple[JournalPlan, ...]
    first_kept: int
    """Number before which all journals were removed on purpose."""
    lost: tuple[int, ...]
    """Numbers of journals that were removed on purpose and not archived, although older ones are archived."""
    nowhere: tuple[int, ...]
    """Numbers of journals before the newest that do not exist, are not archived, and are not known to be removed."""
    nowhere_text: str
    """One sentence with the problem of these journals and the remedy; empty if there are none."""


def plan(options: ArchiveOptions) -> ArchivePlan:
    """Return the plan of a run. Changes nothing and does not need Spark. Raises PipelineError."""
    with told_failures(options):
        return make_plan(options, Archive(options.parquet))


@contextlib.contextmanager
def told_failures(options: ArchiveOptions) -> Iterator[None]:
    """Convert the exceptions of reading journals and writing files to PipelineError."""
    try:
        yield
    except LogDamaged as damage:
        raise PipelineError(f"{damage}; run 'amps journal verify'") from damage
    except OSError as error:
        raise PipelineError(failure_of(error, options.parquet)) from error
    except ValueError as error:
        raise PipelineError(str(error)) from error


def journal_options(options: ArchiveOptions) -> ReadOptions:
    """Return the options for reading the journals."""
    given = {"path": str(options.journals), "split_bytes": str(options.split_bytes)}
    if options.archive is not None:
        given["archive"] = str(options.archive)
    if options.instance is not None:
        given["instance"] = options.instance
    return read_options(given)


def make_plan(options: ArchiveOptions, archive: Archive) -> ArchivePlan:
    """Return the plan for an archive. Raises PipelineError, LogDamaged, ValueError, OSError."""
    read = journal_options(options)
    for directory in filter(None, (read.path, read.archive)):
        if archive.directory.resolve().is_relative_to(directory.resolve()):
            raise PipelineError(
                f"{archive.directory} lies in a directory of journals, {directory}: choose another"
            )
    instance = instance_of(read)
    if instance is None:
        named = "" if options.instance is None else f" of instance {options.instance!r}"
        raise PipelineError(f"there are no journals{named} in {read.path}: is it the JournalDirectory?")
    known_instance = archive.instance()
    if known_instance not in (None, instance):
        raise PipelineError(
            f"{archive.directory} holds journals of instance {known_instance!r}, not of {instance!r}: "
            "give each instance a directory of its own"
        )
    journals = tuple(list_journals(read.path, read.archive, instance))
    archived = archive.journals(options.again)
    todo = []
    for entry in journals:
        planned = _plan_of(entry, archived.get(entry.number), options, archive)
        if planned is not None:
            todo.append(planned)
    there = {entry.number for entry in journals if entry.full or options.current}
    if absent := sorted(options.again - there):
        raise PipelineError(
            f"journal {absent[0]} cannot be archived again: it is not among the full journals in {_places(read)} (the "
            "one in use takes -current, too)"
        )
    numbers = [entry.number for entry in journals]
    whole = {number for number, entry in archived.items() if entry.full}.union(numbers)
    kept = first_kept(read.path, instance)
    older = range(numbers[-1]) if numbers else range(0)
    nowhere = tuple(number for number in older[kept:] if number not in whole)
    holes = [number for before, after in pairwise(numbers) for number in range(before + 1, after)]
    if holes and todo:
        raise PipelineError(
            f"{_named(holes)} not in {_places(read)}, and later journals are: put back what is missing, or give the "
            "JournalArchiveDirectory (-archive DIR)"
        )
    text = _nowhere_text(nowhere, instance, numbers[0], read, archive) if nowhere else ""
    begin = min(archived, default=kept)
    lost = tuple(number for number in older[begin:kept] if number not in whole)
    return ArchivePlan(instance, journals, archived, tuple(todo), kept, lost, nowhere, text)


def _nowhere_text(
    nowhere: tuple[int, ...], instance: str, first_there: int, read: ReadOptions, archive: Archive
) -> str:
    text = (
        f"{_named(nowhere)} not in {_places(read)}, not as a whole in the archive {archive.directory}, and not known "
        "to be removed: give the JournalArchiveDirectory (-archive DIR), or the right one, for a server that removes a "
        "later journal removes all older ones, too"
    )
    if nowhere[-1] < first_there:
        text += (
            f"; if they were removed on purpose, 'amps journal remove {shlex.quote(str(read.path))} -name "
            f"{shlex.quote(instance)} -up-to {nowhere[-1]}' records it while no server runs"
        )
    return text


def _named(numbers: Sequence[int]) -> str:
    """Return `journal 3 is` or `journals 0 to 2, 7 are`; the numbers are in ascending order."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    told = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges)
    return f"journals {told} are" if len(numbers) > 1 else f"journal {told} is"


def _places(read: ReadOptions) -> str:
    return str(read.path) if read.archive is None else f"{read.path} or {read.archive}"


def _plan_of(
    entry: JournalEntry, known: ArchivedJournal | None, options: ArchiveOptions, archive: Archive
) -> JournalPlan | None:
    header = entry.header
    if known is not None:
        ours = (known.start_position, known.size_bytes, known.first_txid)
        if ours != (header.start_position, header.size, header.first_txid):
            raise PipelineError(
                f"journal {entry.number} in {archive.directory} is of another log than {entry.place.path}: "
                "was a new log begun? Give each log a directory of its own"
            )
    if not entry.full and not options.current:
        return None
    if entry.number in options.again:
        owned = archive.files_of(header.instance_name, entry.number)
        return JournalPlan(entry, header.start_position, None, owned)
    if known is not None and known.full:
        return None
    first = header.start_position if known is None else known.next_position
    return JournalPlan(entry, first, known)
