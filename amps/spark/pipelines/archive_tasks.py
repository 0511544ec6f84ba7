"""The tasks of an archive: they write the rows of a part of a journal, and compare the written rows with the journal.

A part is at most about `split_bytes` of a journal, and its rows fit into memory. They never pass the JVM: compiled code
converts records to Arrow columns, and these are written as Parquet files, one per topic and day.

A comparison reads the journal again, reads the files from their places, and compares every column of every row:
positions first, then each column. The day of a row is given by the directory of its file, which must be the directory
of its topic. A file can also be checked alone, by its checksum in the manifest. Then the journal is not read.

Damage of a journal and differences are results (`Problem`), not exceptions, so that they do not stop other journals.
"""

import hashlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amps._core.journal.reader import LogDamaged
from amps.spark.pipelines.archive_layout import day_of, days_of, file_path, topic_directory
from amps.spark.pipelines.archive_manifest import ArchivedFile, ArchivedPart, failure_of
from amps.spark.pipelines.job import PipelineError
from amps.spark.pipelines.tasks import Address, Teller
from amps.spark.planning import Split
from amps.spark.reading import JOURNAL_TYPES, Request, SplitReader
from amps.spark.selection import Selection

COMPRESSION = "zstd"
DAY_US = 86_400_000_000
FILE_SCHEMA = pa.schema(JOURNAL_TYPES.items())
DAY = "day"


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a journal is not safe in the archive, or is not archived."""

    number: int
    """The journal."""
    text: str
    position: int | None = None
    """Log position of the first affected row."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A part to write."""

    split: Split
    selection: Selection
    part: int
    staging: Path
    address: Address | None = None
    """Address of the counter for bytes of journals."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part that was written, and the staged places of its files, by their future paths in the archive."""

    part: ArchivedPart
    staged: dict[str, Path]


@dataclass(frozen=True, slots=True)
class CompareTask:
    """A part to compare with its journal; without a split, only its checksums are checked."""

    number: int
    part: ArchivedPart
    places: dict[str, Path]
    """The places of the files, by their paths in the archive."""
    split: Split | None
    selection: Selection
    address: Address | None = None


def read_rows(split: Split, selection: Selection) -> pa.Table:
    """Return all rows of a split, in the order of the log. Raises LogDamaged, OSError."""
    request = Request(
        selection=selection,
        columns=tuple(JOURNAL_TYPES),
        data_fields=None,
        skips_damage=False,
    )
    return pa.Table.from_batches(SplitReader(split, request).batches(), schema=pa.schema(JOURNAL_TYPES.items()))


# Writing


def write_part(task: WriteTask) -> StagedPart | Problem:
    """Write the rows of a part as files in the staging directory, synced to the device."""
    split = task.split
    try:
        with Teller(task.address) as teller:
            table = read_rows(split, task.selection)
            staged = _write(table, task)
            teller.advance(split.byte_count)
    except LogDamaged as damage:
        return Problem(split.number, f"{damage}; run 'amps journal verify'")
    except OSError as error:
        raise PipelineError(failure_of(error, task.staging)) from None
    return staged


def _write(table: pa.Table, task: WriteTask) -> StagedPart:
    split = task.split
    directory = task.staging / uuid.uuid4().hex  # each attempt of the task has its own
    directory.mkdir(parents=True)
    files = []
    staged: dict[str, Path] = {}
    for place, (topic, date, rows) in enumerate(_by_topic_and_day(table)):
        path = file_path(split.instance, split.number, task.part, topic, date)
        content = pa.BufferOutputStream()
        pq.write_table(rows, content, compression=COMPRESSION)
        data = content.getvalue()
        staged[path] = directory / f"{place}.parquet"
        _write_file(staged[path], memoryview(data))
        positions = rows["position"]
        times = _numbers(rows["timestamp"])
        files.append(
            ArchivedFile(
                path=path,
                topic=topic,
                date=date,
                rows=rows.num_rows,
                size_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                first_position=positions[0].as_py(),
                last_position=positions[-1].as_py(),
                first_time_us=int(times.min()),
                last_time_us=int(times.max()),
            )
        )
    bookmarks = table["bookmark"].drop_null()
    kinds = {entry["values"]: entry["counts"] for entry in pc.value_counts(table["kind"]).to_pylist()}
    part = ArchivedPart(
        number=task.part,
        first_offset=split.ranges[0][0],
        end_offset=split.ranges[-1][1],
        last_topic_offset=split.last_topic_offset,
        last_name_offset=split.last_name_offset,
        first_position=task.selection.first_position,
        rows=table.num_rows,
        kinds=kinds,
        message_types=tuple(sorted(pc.unique(table["message_type"]).drop_null().to_pylist())),
        first_bookmark=bookmarks[0].as_py() if len(bookmarks) else None,
        last_bookmark=bookmarks[-1].as_py() if len(bookmarks) else None,
        files=tuple(files),
    )
    return StagedPart(part, staged)


def _write_file(path: Path, data: memoryview) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())


def _numbers(column: pa.ChunkedArray) -> numpy.ndarray:
    numbers: numpy.ndarray = column.cast(pa.int64()).to_numpy()
    return numbers


def _by_topic_and_day(table: pa.Table) -> Iterator[tuple[str | None, str, pa.Table]]:
    """Yield the rows of each topic and day, in the order of the log."""
    if not table.num_rows:
        return
    # As bytes: topic names need not be valid UTF-8.
    topics = pa.chunked_array([chunk.cast(pa.binary()) for chunk in table["topic"].chunks], pa.binary())
    encoded = topics.combine_chunks().dictionary_encode(null_encoding="encode")
    names = encoded.dictionary.to_pylist()
    days = _numbers(table["timestamp"]) // DAY_US
    keys = days * len(names) + encoded.indices.to_numpy()
    order = numpy.argsort(keys, kind="stable")
    cuts = numpy.flatnonzero(numpy.diff(keys[order])) + 1
    for rows in numpy.split(order, cuts):
        first, last = int(rows[0]), int(rows[-1])
        name = names[int(keys[first]) % len(names)]
        topic = None if name is None else name.decode(errors="surrogateescape")
        together = last - first + 1 == len(rows)
        found = table.slice(first, len(rows)) if together else table.take(pa.array(rows))
        yield topic, day_of(int(days[first])), found


# Comparing


def compare_part(task: CompareTask) -> Problem | None:
    """Compare the files of a part with the journal; return None if they are equal."""
    with Teller(task.address) as teller:
        problem = _compare(task)
        teller.advance(task.part.end_offset - task.part.first_offset)
    return problem


def _compare(task: CompareTask) -> Problem | None:
    if task.split is None:
        return next(filter(None, (_changed(task, file) for file in task.part.files)), None)
    wrong: Problem | None = None
    tables = []
    for file in task.part.files:
        table = _read_file(task, file)
        if isinstance(table, Problem):
            return table
        text, rows = table
        if text and wrong is None:
            wrong = Problem(task.number, text, file.first_position)
        tables.append(rows)
    try:
        journal = read_rows(task.split, task.selection)
    except LogDamaged as damage:
        return Problem(task.number, f"{damage}; run 'amps journal verify'")
    days = pa.array(_numbers(journal["timestamp"]) // DAY_US)
    journal = journal.append_column(DAY, days)
    archived = pa.concat_tables([journal.slice(0, 0), *tables]).sort_by("position")
    difference = first_difference(journal, archived)
    if difference is not None:
        position, text = difference
        return Problem(task.number, f"the Parquet files differ from it: {text}", position)
    return wrong


def _changed(task: CompareTask, file: ArchivedFile) -> Problem | None:
    """Check a file; return None if its size, its checksum and its directory are right."""
    place = task.places[file.path]
    text = _misplaced(place, file)
    if not text:
        try:
            size = place.stat().st_size
            if size != file.size_bytes:
                text = f"{place} has {size} bytes instead of {file.size_bytes}"
            else:
                with place.open("rb") as content:
                    if hashlib.file_digest(content, "sha256").hexdigest() != file.sha256:
                        text = f"the content of {place} differs from its checksum"
        except FileNotFoundError:
            text = f"{place} is missing"
        except OSError as error:
            text = f"{place} cannot be read: {error}"
    return Problem(task.number, text, file.first_position) if text else None


def _misplaced(place: Path, file: ArchivedFile) -> str:
    """Return a message if a file's entry does not belong to the directory of its topic and day, else an empty text."""
    expected = f"{topic_directory(file.topic)}/date={file.date}"
    if file.path.rpartition("/")[0] == expected:
        return ""
    return f"{place} is not in the directory of its topic and day, {expected}"


def _read_file(task: CompareTask, file: ArchivedFile) -> tuple[str, pa.Table] | Problem:
    """Return a problem that does not depend on the rows (empty: none), and the file's rows with the day."""
    place = task.places[file.path]
    if text := _misplaced(place, file):
        return Problem(task.number, text, file.first_position)
    try:
        data = place.read_bytes()
        rows = pq.ParquetFile(pa.BufferReader(data)).read()
    except (OSError, pa.ArrowException) as error:
        text = f"{place} cannot be read: {' '.join(str(error).split())}"
        return Problem(task.number, text, file.first_position)
    if not rows.schema.equals(FILE_SCHEMA):
        text = f"{place} does not have the columns of an archive"
        return Problem(task.number, text, file.first_position)
    text = ""
    topic = None if file.topic is None else file.topic.encode(errors="surrogateescape")
    if pc.unique(rows["topic"].cast(pa.binary())).to_pylist() != [topic]:
        text = f"{place} is not in the directory of its topic"
    elif hashlib.sha256(data).hexdigest() != file.sha256:
        text = f"the content of {place} differs from its checksum"
    days = pa.repeat(pa.scalar(days_of(file.date), pa.int64()), rows.num_rows)
    return text, rows.append_column(DAY, days)


def first_difference(journal: pa.Table, archived: pa.Table) -> tuple[int, str] | None:
    """Return position and description of the first difference; None if the tables are equal. Both are in log order."""
    ours, theirs = _numbers(journal["position"]), _numbers(archived["position"])
    if not numpy.array_equal(ours, theirs):
        return _position_difference(ours, theirs)
    found: tuple[int, str] | None = None
    for name in journal.schema.names:
        if journal[name].equals(archived[name]):
            continue
        row = _first_row(journal[name], archived[name])
        if found is None or int(ours[row]) < found[0]:
            found = int(ours[row]), f"column {name!r} differs"
    return found


def _position_difference(ours: numpy.ndarray, theirs: numpy.ndarray) -> tuple[int, str]:
    length = min(len(ours), len(theirs))
    unlike = numpy.flatnonzero(ours[:length] != theirs[:length])
    at = int(unlike[0]) if len(unlike) else length
    mine = int(ours[at]) if at < len(ours) else None
    other = int(theirs[at]) if at < len(theirs) else None
    if other is None or (mine is not None and mine < other):
        assert mine is not None
        return mine, "the row is missing"
    if at and int(theirs[at - 1]) == other:
        return other, "the row is there twice"
    return other, "there is no such row in the journal"


def _first_row(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> int:
    """Return the index of the first row that differs, found by bisection."""
    first, end = 0, len(ours)
    while end - first > 1:
        middle = (first + end) // 2
        length = middle - first
        if ours.slice(first, length).equals(theirs.slice(first, length)):
            first = middle
        else:
            end = middle
    return first
