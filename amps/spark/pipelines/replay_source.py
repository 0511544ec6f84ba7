"""The source of a replay: the Parquet files of an archive, or journals, in pieces in the order of the log.

A piece is a part of a journal and the most that a task holds in memory. Its rows are in the order of the log, and so
are the pieces. So a task that iterates over them gets the records in their order, without sorting the whole log.

From an archive only the files in its manifest are read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amps.journal.bookmark_text import format_bookmark
from amps.spark.options import Message, ReadOptions, read_options
from amps.spark.pipelines.archive_manifest import Archive, ArchivedFile
from amps.spark.pipelines.job import PipelineError
from amps.spark.planning import Split, instance_of, make_plan
from amps.spark.reading import Request, SplitReader
from amps.spark.selection import Selection

COLUMNS = ("position", "timestamp", "topic", "message_type", "kind", "expiration", "payload")
BATCH_ROWS = 16384


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows: of a part of a journal, or of the files made from such a part."""

    selection: Selection
    split: Split | None = None
    files: tuple[Path, ...] = ()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with `COLUMNS`. Raises LogDamaged, OSError."""
        if self.split is not None:
            return SplitReader(self.split, Request(self.selection, COLUMNS, None, False)).batches()
        return self._of_files()

    def _of_files(self) -> Iterator[pa.RecordBatch]:
        tables = [pq.ParquetFile(path).read(columns=list(COLUMNS)).select(COLUMNS) for path in self.files]
        together = pa.concat_tables(tables)
        if len(tables) > 1:
            together = together.sort_by("position")
        yield from together.filter(_wanted(together, self.selection)).to_batches(BATCH_ROWS)


def _wanted(rows: pa.Table, selection: Selection) -> pa.ChunkedArray:
    positions, times = rows["position"], rows["timestamp"].cast(pa.int64())
    after = pc.and_(
        pc.greater_equal(positions, pa.scalar(_signed(selection.first_position), pa.int64())),
        pc.greater_equal(times, pa.scalar(_signed(selection.first_time_us), pa.int64())),
    )
    before = pc.and_(
        pc.less(positions, pa.scalar(_signed(selection.end_position), pa.int64())),
        pc.less_equal(times, pa.scalar(_signed(selection.last_time_us), pa.int64())),
    )
    return pc.and_(after, before)


def _signed(number: int) -> int:
    return min(number, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a replay."""

    pieces: tuple[Piece, ...]
    rows_max: int | None
    """The maximum number of rows; None if it is not known before reading."""
    size_bytes: int
    """The approximate number of bytes to read."""
    span_us: tuple[int, int] | None
    """The earliest and the latest time that a row may have; None if they are not known before reading."""


def open_source(
    path: Path,
    *,
    topic: str | None = None,
    first: str | None = None,
    last: str | None = None,
    archive: Path | None = None,
    instance: str | None = None,
    split_bytes: int | None = None,
) -> Source:
    """Open an archive or a journal directory. Raises PipelineError, ValueError, LogDamaged, OSError.

    topic, first, last: like the options `topic`, `from` and `to` of `amps.spark.options`.
    """
    given = {
        "path": str(path),
        "topic": topic,
        "from": first,
        "to": last,
        "archive": None if archive is None else str(archive),
        "instance": instance,
        "split_bytes": None if split_bytes is None else str(split_bytes),
    }
    options = read_options({name: value for name, value in given.items() if value is not None})
    archived = Archive(options.path)
    known = archived.instance()
    if known is None:
        return _of_journals(options)
    if instance not in (None, known) or archive is not None:
        raise PipelineError(
            f"{options.path} is an archive of instance {known!r}: leave out the options for journals (archive, name)"
        )
    return _of_archive(options, archived)


def _of_journals(options: ReadOptions) -> Source:
    if instance_of(options) is None:
        raise PipelineError(
            f"there are neither journals nor an archive of them in {options.path}: give a JournalDirectory, or an "
            "archive of amps pipeline archive"
        )
    plan = make_plan(options, options.selection)
    pieces = tuple(Piece(plan.selection, split=split) for split in plan.splits)
    return Source(pieces, None, sum(split.byte_count for split in plan.splits), None)


def _of_archive(options: ReadOptions, archive: Archive) -> Source:
    selection = options.selection
    parts = [part for journal in archive.journals().values() for part in journal.parts]
    files = [file for part in parts for file in part.files]
    if options.first_message is not None:
        position = _position_of(archive, files, options.first_message, "from")
        selection = selection.with_positions(position + (not options.first_message.included))
    if options.last_message is not None:
        position = _position_of(archive, files, options.last_message, "to")
        selection = selection.with_positions(end=position + options.last_message.included)
    pieces = []
    wanted: list[ArchivedFile] = []
    for part in parts:
        chosen = [file for file in part.files if _may_hold(file, selection)]
        wanted += chosen
        if chosen:
            places = tuple(archive.directory / file.path for file in chosen)
            pieces.append(Piece(selection, files=places))
    span = None
    if wanted:
        times = min(file.first_time_us for file in wanted), max(file.last_time_us for file in wanted)
        span = max(times[0], selection.first_time_us), min(times[1], selection.last_time_us)
    return Source(
        tuple(pieces), sum(file.rows for file in wanted), sum(file.size_bytes for file in wanted), span
    )


def _may_hold(file: ArchivedFile, selection: Selection) -> bool:
    """Whether the selection may match rows of a file."""
    topic = b"" if file.topic is None else file.topic.encode(errors="surrogateescape")
    return (
        selection.wants_topic(topic, b"")
        and file.last_position >= selection.first_position
        and file.first_position < selection.end_position
        and file.last_time_us >= selection.first_time_us
        and file.first_time_us <= selection.last_time_us
    )


def _position_of(archive: Archive, files: list[ArchivedFile], message: Message, option: str) -> int:
    """Return the log position of a message. Raises PipelineError if it is not in the archive."""
    bookmark = format_bookmark(message.publisher_id, message.sequence)
    for file in files:
        parquet = pq.ParquetFile(archive.directory / file.path)
        place = parquet.schema_arrow.get_field_index("sequence")
        for number in range(parquet.num_row_groups):
            known = parquet.metadata.row_group(number).column(place).statistics
            if known is not None and known.has_min_max and not known.min <= message.sequence <= known.max:
                continue
            rows = parquet.read_row_group(number, columns=["position", "bookmark"])
            found = rows.filter(pc.equal(rows["bookmark"], bookmark))["position"]
            if len(found):
                return int(found[0].as_py())
    raise PipelineError(
        f"the message that the option {option!r} names, {bookmark}, is not in the archive {archive.directory}"
    )
