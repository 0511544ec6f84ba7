"""The journals that a report reads: as a data frame, and as a plan for a dry run.

A report changes nothing. It reads the columns and kinds that it needs, in the requested range; `amps.spark.planning`
skips parts of journals without matching records. A dry run uses the same planning, without Spark.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amps._core.journal.reader import LogDamaged
from amps.spark.options import read_options
from amps.spark.pipelines.job import PipelineError
from amps.spark.planning import instance_of, make_plan
from amps.spark.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGE_KINDS = ("publish", "delta_publish")
"""The kinds of messages that clients published. The instance itself writes the other kinds."""
QUEUE_KINDS = ("queue_acknowledgement", "queue_expiry")
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_PARTITION_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Journals:
    """The log of one instance, or a part of it; the fields are like the options of a read (`amps.spark.options`)."""

    directory: Path
    archive: Path | None = None
    instance: str | None = None
    topic: str | None = None
    first: str | None = None
    """The option `from`."""
    last: str | None = None
    """The option `to`."""


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """The extent of a read."""

    directory: Path
    instance: str
    journals: int
    size_bytes: int
    selection: Selection
    """The selection, with bookmarks converted to log positions."""


def planned_read(journals: Journals, kinds: Iterable[str] = ()) -> PlannedRead:
    """Return the extent of a read. Raises PipelineError."""
    try:
        options = read_options(_options(journals, kinds))
        plan = make_plan(options, options.selection)
        instance = instance_of(options)
    except (ValueError, LogDamaged, OSError) as error:
        raise PipelineError(str(error)) from error
    if instance is None:
        of = "" if journals.instance is None else f" of {journals.instance!r}"
        raise PipelineError(f"there are no journals{of} in {journals.directory}: is it the JournalDirectory?")
    return PlannedRead(
        journals.directory,
        instance,
        len({split.number for split in plan.splits}),
        sum(split.byte_count for split in plan.splits),
        plan.selection,
    )


def records(
    spark: "SparkSession", journals: Journals, columns: Iterable[str], kinds: Iterable[str] = ()
) -> "DataFrame":
    """Return the records as a data frame of these columns; without `kinds`, records of all kinds."""
    from amps.spark.source import SCHEMA

    schema = ", ".join(f"{name} {SCHEMA[name].simpleString()}" for name in columns)
    return spark.read.format("amps").schema(schema).options(**_options(journals, kinds)).load()


@contextmanager
def shuffling(spark: "SparkSession", size_bytes: int) -> Iterator[None]:
    """Set the number of shuffle partitions to fit the size of the log while a job counts its records.

    With Spark's default, 200, a small log needs thousands of tasks, and the partitions of a large one spill.
    """
    before = spark.conf.get(_SHUFFLE_PARTITIONS)
    wanted = max(spark.sparkContext.defaultParallelism, -(-size_bytes // _PARTITION_BYTES))
    spark.conf.set(_SHUFFLE_PARTITIONS, wanted)
    try:
        yield
    finally:
        spark.conf.set(_SHUFFLE_PARTITIONS, str(before))


def _options(journals: Journals, kinds: Iterable[str]) -> dict[str, str]:
    given = {
        "path": str(journals.directory),
        "archive": journals.archive,
        "instance": journals.instance,
        "topic": journals.topic,
        "from": journals.first,
        "to": journals.last,
        "kind": ",".join(kinds) or None,
    }
    return {name: str(value) for name, value in given.items() if value is not None}
