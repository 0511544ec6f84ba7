"""Which journals a report reads, and what of them: as a data frame, and as the list of what would be read.

A report only looks. It reads the columns and kinds that it needs, in the range that it was asked for, and leaves it to
`amps.spark.planning` to pass over what cannot be wanted. The same planning answers a dry run, without Spark.
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
"""What clients have published. All other kinds are the instance's own bookkeeping."""
QUEUE_KINDS = ("queue_acknowledgement", "queue_expiry")
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_PARTITION_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Journals:
    """The log of one instance, or a part of it; fields mean what options of a read do (`amps.spark.options`)."""

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
    """What a read takes."""

    directory: Path
    instance: str
    journals: int
    size_bytes: int
    selection: Selection
    """The range, bookmarks as log positions."""


def planned_read(journals: Journals, kinds: Iterable[str] = ()) -> PlannedRead:
    """What would be read. Raises PipelineError."""
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
    """The records as a data frame of these columns alone; of all kinds if none is named."""
    from amps.spark.source import SCHEMA

    schema = ", ".join(f"{name} {SCHEMA[name].simpleString()}" for name in columns)
    return spark.read.format("amps").schema(schema).options(**_options(journals, kinds)).load()


@contextmanager
def shuffling(spark: "SparkSession", size_bytes: int) -> Iterator[None]:
    """While a job counts what so many bytes of log hold, data is shuffled into as many parts as that is worth.

    Spark's own number, 200, makes a small log wait for thousands of tasks, and the parts of a large one spill.
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
