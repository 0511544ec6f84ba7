"""Archiving journals as Parquet, partitioned by topic and date, and finding the journals that are safe to remove.

    result = archive.run(spark, ArchiveOptions(Path("journal"), Path("parquet")), Silent())

- Every record of a journal, of any kind, becomes a row with the columns of `spark.read.format("amps")`. The columns
  `topic_key` and `date` (UTC) are in the names of directories (`archive_layout`).
- Full journals are archived once. With `current`, the journal in use is archived too, up to its durable position; the
  next run continues there. A manifest lists the archived journals (`archive_manifest`). The next run finishes or
  removes everything that a run which died has left.
- Before a journal counts as archived, its files are read again and compared with it, every column of every row
  (`archive_tasks`). A difference is a `Problem` with the journal and the position, and the journal does not count as
  archived. A damaged journal is a problem, too; other journals are archived all the same.
- A journal is safe to remove under these conditions: it is full and archived, and its files have their checksums. Each
  older journal is in its directory, archived, or known to be removed (`archive_plan`). Readers see no files that belong
  to no journal. For this check, each run reads the files of each journal that is not known to be removed; it reads the
  journal itself again only with `verify`.
- This job removes nothing. The server removes journals, the oldest first, because it knows which of them are still
  needed (`amps-action-do-remove-journal`).

The journals and the archive must lie in file systems that the driver and all executors see under the same paths.
Journals are archived in groups; a group is committed before the next one begins.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amps.journal.listing import JournalEntry
from amps.spark import planning
from amps.spark.pipelines.archive_manifest import Archive, ArchivedJournal, ArchivedPart
from amps.spark.pipelines.archive_plan import (
    ArchiveOptions,
    ArchivePlan,
    JournalPlan,
    journal_options,
    make_plan,
    told_failures,
)
from amps.spark.pipelines.archive_tasks import (
    CompareTask,
    Problem,
    StagedPart,
    WriteTask,
    compare_part,
    write_part,
)
from amps.spark.pipelines.job import Progress
from amps.spark.pipelines.tasks import TaskCounts, run_tasks
from amps.spark.planning import Split
from amps.spark.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS_PER_CORE = 4
"""The approximate number of parts in a group of journals, for each core."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of a run."""

    instance: str
    done: tuple[ArchivedJournal, ...]
    """The journals to which this run has added rows, each with all of its archived parts."""
    rows: int
    """The number of rows that this run has archived."""
    problems: tuple[Problem, ...]
    nowhere_text: str
    """The message about journals whose place is not known, from `ArchivePlan`."""
    strays: tuple[Path, ...]
    """Files that readers see and that belong to no journal of the archive. If there are any, no journal is safe."""
    safe: tuple[JournalEntry, ...]
    """Journals that are safe to remove now, oldest first."""
    removable: tuple[JournalEntry, ...]
    """The safe journals that are older than each unsafe one: a server removes the oldest first."""

    @property
    def sound(self) -> bool:
        """Whether the run found no problem."""
        return not self.problems and not self.nowhere_text and not self.strays


def run(spark: "SparkSession", options: ArchiveOptions, progress: Progress) -> ArchiveResult:
    """Archive the journals that are not archived yet. Raises PipelineError if the job cannot be done at all."""
    with told_failures(options):
        archive = Archive(options.parquet)
        instance = make_plan(options, archive).instance
        with archive.working(instance, options.again):
            work = _Work(spark, options, progress, archive, make_plan(options, archive))
            work.archive_all()
            work.check_all()
            return work.result()


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
        self._read_options = journal_options(options)
        self._progress = progress
        self._archive = archive
        self._plan = planned
        self._archived = dict(planned.archived)
        self._problems: list[Problem] = []
        self._done: list[ArchivedJournal] = []
        self._compared: set[tuple[int, int]] = set()  # numbers of journals and parts
        self._rows = 0

    def archive_all(self) -> None:
        if self._plan.lost:
            first, last = self._plan.lost[0], self._plan.lost[-1]
            self._progress.say(f"journals {first} to {last} were removed before they were archived")
        for number, group in enumerate(groups := list(self._groups())):
            counted = f" (group {number + 1} of {len(groups)})" if len(groups) > 1 else ""
            self._archive_group(group, counted)

    def check_all(self) -> None:
        """Check what earlier runs archived: with `verify` compare it, else check files of journals not removed."""
        here = {entry.number for entry in self._plan.journals}
        tasks = []
        for entry in self._archived.values():
            may_be_there = entry.number in here or entry.number >= self._plan.first_kept
            if not self._options.verify and not (entry.full and may_be_there):
                continue
            tasks += [
                CompareTask(
                    number=entry.number,
                    part=part,
                    places={file.path: self._archive.directory / file.path for file in part.files},
                    split=self._split_of(entry, part)
                    if self._options.verify and entry.number in here
                    else None,
                    selection=self._selection_of(entry, part),
                )
                for part in entry.parts
                if (entry.number, part.number) not in self._compared
            ]
        self._problems += self._compare("checking the archive", tasks)

    def result(self) -> ArchiveResult:
        journals, archived = self._plan.journals, self._archived
        numbers = {journal.number for journal in journals}
        wrong = {problem.number for problem in self._problems}
        full = {number for number, entry in archived.items() if entry.full}
        strays = self._archive.strays(archived.values())
        # A journal that was removed on purpose does not block others, whatever the state of its files.
        holding = {number for number in wrong if number in numbers or number >= self._plan.first_kept}
        holding |= (numbers - full) | set(self._plan.nowhere)
        safe: list[JournalEntry] = []
        if not strays:
            end = min(self._plan.nowhere, default=max(numbers, default=0) + 1)
            safe = [entry for entry in journals if entry.number in full - wrong and entry.number < end]
        return ArchiveResult(
            instance=self._plan.instance,
            done=tuple(self._done),
            rows=self._rows,
            problems=tuple(sorted(self._problems, key=lambda problem: problem.number)),
            nowhere_text=self._plan.nowhere_text,
            strays=strays,
            safe=tuple(safe),
            removable=tuple(entry for entry in safe if entry.number < min(holding, default=entry.number + 1)),
        )

    def _compare(self, title: str, tasks: list[CompareTask]) -> list[Problem]:
        """Run comparing tasks and return the problems they found."""
        if not tasks:
            return []
        self._progress.stage(title, sum(task.part.end_offset - task.part.first_offset for task in tasks))
        with TaskCounts(self._spark, self._progress) as counts:
            addressed = [dataclasses.replace(task, address=counts.address) for task in tasks]
            return [problem for problem in run_tasks(self._spark, compare_part, addressed) if problem]

    def _groups(self) -> Iterator[list[JournalPlan]]:
        """Yield the journals to archive, in groups."""
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
        comparing = [
            CompareTask(
                number=number,
                part=part,
                places=places[number],
                split=self._split_of(entry, part),
                selection=self._selection_of(entry, part),
            )
            for number, entry in entries.items()
            for part in _new_parts(entry, places[number])
        ]
        self._compared |= {(task.number, task.part.number) for task in comparing}
        wrong |= self._note(self._compare(f"comparing{counted}", comparing))
        for planned in group:
            if planned.number not in wrong:
                self._commit(planned, entries[planned.number], places[planned.number])

    def _note(self, problems: Iterable[Problem]) -> set[int]:
        """Record problems; return the numbers of the journals that have one."""
        found = list(problems)
        self._problems += found
        return {problem.number for problem in found}

    def _splits(self, group: list[JournalPlan]) -> list[tuple[Split, Selection, int]]:
        """Return the parts to write: (split, selection of its rows, number of the part)."""
        wanted = {planned.number: planned for planned in group}
        whole = Selection().with_positions(group[0].first_position, group[-1].entry.end_position)
        found = []
        next_part: dict[int, int] = {}
        for split in planning.make_plan(self._read_options, whole).splits:
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
        """Return the manifest entry of a journal with its new parts."""
        entry = planned.entry
        start = entry.header.start_position
        parts = [part.part for part in staged]
        next_position = entry.end_position
        if not entry.full:
            # The part ends with the last record that was read: the end of a file in use may be torn.
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
            return  # no new rows
        self._archive.commit(entry, places, planned.replaced)
        self._archived[entry.number] = entry
        self._done.append(entry)
        self._rows += entry.rows - before

    def _split_of(self, entry: ArchivedJournal, part: ArchivedPart) -> Split:
        """Return the range of a journal that a part contains."""
        read = self._read_options
        return Split(
            directory=read.path,
            archive=read.archive,
            instance=entry.instance,
            number=entry.number,
            ranges=((part.first_offset, part.end_offset),),
            last_topic_offset=part.last_topic_offset,
            last_name_offset=part.last_name_offset,
            topics=(),
            to_end=part.end_offset == entry.size_bytes,
            is_newest=False,
            durable_offset=0,
        )

    @staticmethod
    def _selection_of(entry: ArchivedJournal, part: ArchivedPart) -> Selection:
        """Return the selection of a part's rows in its range."""
        return Selection().with_positions(part.first_position, entry.next_position)


def _new_parts(entry: ArchivedJournal, places: dict[str, Path]) -> list[ArchivedPart]:
    """Return the parts whose files are still in the staging directory."""
    return [part for part in entry.parts if all(file.path in places for file in part.files)]
