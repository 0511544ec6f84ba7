"""Journals to Parquet, partitioned by topic and date, and which journals are safe to remove then.

    result = archive.run(spark, ArchiveOptions(Path("journal"), Path("parquet")), Silent())

- Every record of a journal becomes a row with the columns of `spark.read.format("amps")`, of whatever kind it is;
  columns `topic` and `date` (UTC) are in the names of directories (`archive_layout`).
- Full journals are archived, once. With `current` also the one in use, as far as it is durable; the next run goes on
  behind that. What is in is told by a manifest (`archive_manifest`): a run that dies leaves nothing that the next one
  does not finish or remove.
- Before a journal is in, its files are read again and compared with it, every column of every row (`archive_tasks`).
  What differs is a `Problem` that names the journal and the position, and the journal is not in. Damaged journals are
  problems too; others are archived all the same.
- A journal is safe to remove if it is full, in, and its files are there. Nothing is removed here: removing is the
  business of the server, which knows what of it is still needed (`amps-action-do-remove-journal`), from the oldest on.

The journals and the archive must lie in file systems that the driver and all executors see under the same paths. Work
goes in groups of journals, each of which is in before the next one is begun.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from amps._core.frames import LogDamaged
from amps.journal.listing import JournalEntry, list_journals
from amps.spark.options import SPLIT_BYTES, ReadOptions, read_options
from amps.spark.pipelines.archive_manifest import Archive, ArchivedJournal, ArchivedPart
from amps.spark.pipelines.archive_tasks import (
    CompareTask,
    Problem,
    StagedPart,
    WriteTask,
    compare_part,
    write_part,
)
from amps.spark.pipelines.job import PipelineError, Progress
from amps.spark.pipelines.tasks import TaskCounts, run_tasks
from amps.spark.planning import Split, instance_of, make_plan
from amps.spark.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS_PER_CORE = 4
"""In a group of journals, about."""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """What is to be archived, and where to."""

    journals: Path
    """The JournalDirectory."""
    parquet: Path
    """The archive's directory; made if it is not there."""
    archive: Path | None = None
    """The JournalArchiveDirectory, if there is one."""
    instance: str | None = None
    """Its name, if the directory holds journals of several."""
    current: bool = False
    """Also the journal in use, as far as it is durable."""
    again: frozenset[int] = frozenset()
    """Journals that are to be archived again, though they are in."""
    verify: bool = False
    """Compare all that is in: with the journals that are there, or else with the checksums of the manifest."""
    split_bytes: int = SPLIT_BYTES
    """About how many bytes of a journal are one part: what a task holds in memory."""


@dataclass(frozen=True, slots=True)
class JournalPlan:
    """A journal that is to be archived."""

    entry: JournalEntry
    first_position: int
    """Log position before which all is in."""
    known: ArchivedJournal | None
    """What is in of it, and stays."""
    replaced: ArchivedJournal | None
    """What is in of it, and goes."""

    @property
    def number(self) -> int:
        """Its number."""
        return self.entry.number

    @property
    def size_bytes(self) -> int:
        """How much of it is still to be read, at most; not compressed."""
        return self.entry.end_position - self.first_position


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What a run would do."""

    instance: str
    journals: tuple[JournalEntry, ...]
    """All that are there, oldest first; the last one is in use."""
    archived: dict[int, ArchivedJournal]
    """What is in already, by number."""
    todo: tuple[JournalPlan, ...]
    lost: tuple[int, ...]
    """Numbers between those that are in or there, of journals that are neither."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What a run has done, and found."""

    instance: str
    done: tuple[ArchivedJournal, ...]
    """The journals of which something has come in, with all that is in of them."""
    rows: int
    """That have come in."""
    problems: tuple[Problem, ...]
    safe: tuple[JournalEntry, ...]
    """Journals that are safe to remove now, oldest first."""
    removable: tuple[JournalEntry, ...] = field(default=())
    """Those of them that are older than all that are not: a server removes from the oldest on."""
    following: JournalEntry | None = None
    """The oldest journal behind the removable ones, which must stay."""


def plan(options: ArchiveOptions) -> ArchivePlan:
    """What a run would do; changes nothing, and needs no Spark. Raises PipelineError."""
    with _told():
        return _plan(options, Archive(options.parquet))


def run(spark: "SparkSession", options: ArchiveOptions, progress: Progress) -> ArchiveResult:
    """Archive what is not in yet. Raises PipelineError for what keeps it from being done at all."""
    with _told():
        archive = Archive(options.parquet)
        instance = _plan(options, archive).instance
        with archive.working(instance):
            work = _Work(spark, options, progress, archive, _plan(options, archive))
            work.archive_all()
            if options.verify:
                work.verify_all()
            return work.result()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What reading journals and writing files raises, as PipelineError."""
    try:
        yield
    except LogDamaged as damage:
        raise PipelineError(f"{damage}; amps journal verify tells more") from damage
    except (OSError, ValueError) as error:
        raise PipelineError(str(error)) from error


def _read_options(options: ArchiveOptions) -> ReadOptions:
    given = {"path": str(options.journals), "split_bytes": str(options.split_bytes)}
    if options.archive is not None:
        given["archive"] = str(options.archive)
    if options.instance is not None:
        given["instance"] = options.instance
    return read_options(given)


def _plan(options: ArchiveOptions, archive: Archive) -> ArchivePlan:
    read = _read_options(options)
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
    archived = archive.journals()
    todo = []
    for entry in journals:
        planned = _plan_of(entry, archived.get(entry.number), options, archive)
        if planned is not None:
            todo.append(planned)
    absent = sorted(options.again - {entry.number for entry in journals if entry.full})
    if absent:
        raise PipelineError(
            f"journal {absent[0]} cannot be archived again: it is not among the full journals in {read.path}"
        )
    numbers = [entry.number for entry in journals]
    lost: tuple[int, ...] = ()
    if archived and numbers:
        lost = tuple(range(max(archived) + 1, numbers[0]))
    return ArchivePlan(instance, journals, archived, tuple(todo), lost)


def _plan_of(
    entry: JournalEntry, known: ArchivedJournal | None, options: ArchiveOptions, archive: Archive
) -> JournalPlan | None:
    header = entry.header
    if known is not None:
        ours = (known.start_position, known.size_bytes, known.first_txid)
        if ours != (header.start_position, header.size, header.first_txid):
            raise PipelineError(
                f"journal {entry.number} in {archive.directory} is of another log than {entry.place.path}: "
                "was the log begun anew? Give each log a directory of its own"
            )
        if entry.number in options.again and entry.full:
            return JournalPlan(entry, header.start_position, None, known)
        if known.full:
            return None
    if not entry.full and not options.current:
        return None
    first = header.start_position if known is None else known.next_position
    return JournalPlan(entry, first, known, None)


class _Work:
    """One run."""

    def __init__(
        self,
        spark: "SparkSession",
        options: ArchiveOptions,
        progress: Progress,
        archive: Archive,
        planned: ArchivePlan,
    ) -> None:
        self._spark = spark
        self._options = options
        self._read_options = _read_options(options)
        self._progress = progress
        self._archive = archive
        self._plan = planned
        self._archived = dict(planned.archived)
        self._problems: list[Problem] = []
        self._done: list[ArchivedJournal] = []
        self._rows = 0

    def archive_all(self) -> None:
        if self._plan.lost:
            first, last = self._plan.lost[0], self._plan.lost[-1]
            self._progress.say(f"journals {first} to {last} were removed before they were archived")
        for number, group in enumerate(groups := list(self._groups())):
            counted = f" (group {number + 1} of {len(groups)})" if len(groups) > 1 else ""
            self._archive_group(group, counted)

    def verify_all(self) -> None:
        """Compare what was in before this run."""
        done = {entry.number for entry in self._done}
        entries = [entry for number, entry in self._archived.items() if number not in done]
        here = {entry.number for entry in self._plan.journals}
        pairs = [
            (entry, part, {file.path: self._archive.directory / file.path for file in part.files})
            for entry in entries
            for part in entry.parts
        ]
        total = sum(part.end_offset - part.first_offset for _, part, _ in pairs)
        self._progress.stage("comparing what is in the archive", total)
        with TaskCounts(self._spark, self._progress) as counts:
            tasks = [
                CompareTask(
                    number=entry.number,
                    part=part,
                    places=places,
                    split=self._split_of(entry, part) if entry.number in here else None,
                    selection=self._selection_of(entry, part),
                    address=counts.address,
                )
                for entry, part, places in pairs
            ]
            self._problems += filter(None, run_tasks(self._spark, compare_part, tasks))

    def result(self) -> ArchiveResult:
        wrong = {problem.number for problem in self._problems}
        safe = []
        for journal in self._plan.journals:
            entry = self._archived.get(journal.number)
            if entry is None or not entry.full or journal.number in wrong:
                continue
            problem = self._missing_file(entry)
            if problem is None:
                safe.append(journal)
            else:
                self._problems.append(problem)
        removable = 0
        while removable < len(safe) and safe[removable] is self._plan.journals[removable]:
            removable += 1
        return ArchiveResult(
            instance=self._plan.instance,
            done=tuple(self._done),
            rows=self._rows,
            problems=tuple(sorted(self._problems, key=lambda problem: problem.number)),
            safe=tuple(safe),
            removable=tuple(safe[:removable]),
            following=self._plan.journals[removable] if removable < len(self._plan.journals) else None,
        )

    def _missing_file(self, entry: ArchivedJournal) -> Problem | None:
        """Whether all files are there, as large as they were."""
        for file in entry.files:
            path = self._archive.directory / file.path
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                return Problem(entry.number, f"{path} is missing", file.first_position)
            if size != file.size_bytes:
                text = f"{path} has {size} bytes, and was written with {file.size_bytes}"
                return Problem(entry.number, text, file.first_position)
        return None

    def _groups(self) -> Iterator[list[JournalPlan]]:
        """The journals that are to be archived, in groups."""
        parallel = int(self._spark.sparkContext.defaultParallelism)
        size_max = PARTS_PER_CORE * parallel * self._options.split_bytes
        group: list[JournalPlan] = []
        size = 0
        for planned in self._plan.todo:
            if group and size + planned.size_bytes > size_max:
                yield group
                group, size = [], 0
            group.append(planned)
            size += planned.size_bytes
        if group:
            yield group

    def _archive_group(self, group: list[JournalPlan], counted: str) -> None:
        splits = self._splits(group)
        total = sum(split.byte_count for split, _, _ in splits)
        self._progress.stage(f"writing{counted}", total)
        with TaskCounts(self._spark, self._progress) as counts:
            tasks = [
                WriteTask(split, selection, part, self._archive.staging, counts.address)
                for split, selection, part in splits
            ]
            written = run_tasks(self._spark, write_part, tasks)
        wrong = self._note(problem for problem in written if isinstance(problem, Problem))
        entries: dict[int, ArchivedJournal] = {}
        places: dict[int, dict[str, Path]] = {}
        for planned in group:
            if planned.number not in wrong:
                staged = [
                    part
                    for part, (split, _, _) in zip(written, splits, strict=True)
                    if isinstance(part, StagedPart) and split.number == planned.number
                ]
                entries[planned.number] = self._entry(planned, staged)
                places[planned.number] = {path: at for part in staged for path, at in part.staged.items()}
        self._progress.stage(f"comparing{counted}", total)
        with TaskCounts(self._spark, self._progress) as counts:
            comparing = [
                CompareTask(
                    number=number,
                    part=part,
                    places=places[number],
                    split=self._split_of(entry, part),
                    selection=self._selection_of(entry, part),
                    address=counts.address,
                )
                for number, entry in entries.items()
                for part in _new_parts(entry, places[number])
            ]
            wrong |= self._note(filter(None, run_tasks(self._spark, compare_part, comparing)))
        for planned in group:
            if planned.number not in wrong:
                self._commit(planned, entries[planned.number], places[planned.number])

    def _note(self, problems: Iterable[Problem]) -> set[int]:
        """The journals that have one."""
        found = list(problems)
        self._problems += found
        return {problem.number for problem in found}

    def _splits(self, group: list[JournalPlan]) -> list[tuple[Split, Selection, int]]:
        """What is to be written: (split, rows of it, number of the part)."""
        wanted = {planned.number: planned for planned in group}
        whole = Selection().with_positions(group[0].first_position, group[-1].entry.end_position)
        found = []
        next_part: dict[int, int] = {}
        for split in make_plan(self._read_options, whole).splits:
            planned = wanted.get(split.number)
            if planned is None:
                continue
            start = planned.entry.header.start_position
            if start + split.ranges[-1][1] <= planned.first_position:
                continue
            first_part = 0 if planned.known is None else len(planned.known.parts)
            part = next_part.get(split.number, first_part)
            next_part[split.number] = part + 1
            found.append((split, Selection().with_positions(planned.first_position), part))
        return found

    def _entry(self, planned: JournalPlan, staged: list[StagedPart]) -> ArchivedJournal:
        """What will be in of a journal."""
        entry = planned.entry
        start = entry.header.start_position
        parts = [part.part for part in staged]
        next_position = entry.end_position
        if not entry.full:
            # The last record that was read is the last that counts: where a file in use ends may be torn.
            parts = [part for part in parts if part.rows]
            ends = [max(file.last_position for file in part.files) + 1 for part in parts]
            parts = [
                dataclasses.replace(part, end_offset=min(part.end_offset, end - start))
                for part, end in zip(parts, ends, strict=True)
            ]
            next_position = max([planned.first_position, *ends])
        before = () if planned.known is None else planned.known.parts
        return ArchivedJournal(
            instance=self._plan.instance,
            number=entry.number,
            start_position=start,
            size_bytes=entry.header.size,
            first_txid=entry.header.first_txid,
            full=entry.full,
            next_position=next_position,
            parts=(*before, *parts),
        )

    def _commit(self, planned: JournalPlan, entry: ArchivedJournal, places: dict[str, Path]) -> None:
        before = planned.known.rows if planned.known is not None else 0
        if not entry.full and entry.rows == before:
            return  # nothing has come in since
        replaced = planned.replaced.files if planned.replaced is not None else ()
        self._archive.commit(entry, places, tuple(file.path for file in replaced))
        self._archived[entry.number] = entry
        self._done.append(entry)
        self._rows += entry.rows - before

    def _split_of(self, entry: ArchivedJournal, part: ArchivedPart) -> Split:
        """What of a journal a part was made of."""
        read = self._read_options
        return Split(
            directory=read.path,
            archive=read.archive,
            instance=entry.instance,
            number=entry.number,
            ranges=((part.first_offset, part.end_offset),),
            last_topic_offset=part.last_topic_offset,
            topics=(),
            to_end=part.end_offset == entry.size_bytes,
            is_newest=False,
            durable_offset=0,
        )

    @staticmethod
    def _selection_of(entry: ArchivedJournal, part: ArchivedPart) -> Selection:
        """The rows of what a part was made of."""
        return Selection().with_positions(part.first_position, entry.next_position)


def _new_parts(entry: ArchivedJournal, places: dict[str, Path]) -> list[ArchivedPart]:
    """Those of which the files are still in the staging directory."""
    return [part for part in entry.parts if all(file.path in places for file in part.files)]
