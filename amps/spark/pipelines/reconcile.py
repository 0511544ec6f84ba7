"""Comparing the logs of two instances, A and B: messages that are missing, different or reordered in one of them.

A message is identified by its bookmark (publisher id and sequence), which is the same on every instance
(transaction_log.md §4). A message that was published without a sequence has a bookmark of the instance's own
(transaction_log.md §4.3). It is identified by client, topic, message type and content and, among equal messages, by
its turn. Such a message can be missing or reordered, but never different.

Messages are compared (`publish`, `delta_publish`); acknowledgements and other records belong to one log only. Times and
log positions always differ and are not compared. A publisher's message that both logs have is *reordered*
if another message of the publisher is before it in A and after it in B. The order of different publishers may differ
(transaction_log.md §1, 6).

Scaling: payloads are hashed (SHA-256) where they are read, and are not sent anywhere. Both logs are combined and
grouped by message in one shuffle. A window per publisher iterates over its messages in the order of A, with one number
as state, and finds reordered messages. Spark spills data that does not fit into memory. The driver receives sums,
the publishers with most differences and a few examples.
"""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amps._core.values.value import publisher_id
from amps.spark.pipelines.job import PipelineError, Progress
from amps.spark.pipelines.report_output import check_output, output_failed
from amps.spark.pipelines.report_source import MESSAGE_KINDS, Journals, planned_read, records, shuffling
from amps.spark.pipelines.tasks import is_of_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

PUBLISHERS_MAX = 100
EXAMPLES_MAX = 20
FORMATS = {".parquet": "parquet", ".json": "json"}
COLUMNS = ("position", "timestamp", "bookmark", "publisher", "topic", "message_type", "payload")
_DECIMAL_ID = "^[0-9]{1,20}$"
_SPARK_NAMES = ("_SUCCESS", "._SUCCESS.crc")


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """The logs to compare, and the output directory for the differences, which Spark writes."""

    a: Journals
    b: Journals
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class PublisherDifferences:
    """The differences of one publisher, or of all publishers together."""

    publisher: str
    """The name of the publisher if a log has it, else its id."""
    messages_a: int
    messages_b: int
    missing_in_a: int
    missing_in_b: int
    different: int
    reordered: int
    repeated_in_a: int
    """The number of messages with the bookmark of an earlier one."""
    repeated_in_b: int
    unnumbered_a: int
    """The number of messages that were published without a sequence."""
    unnumbered_b: int

    @property
    def differences(self) -> int:
        """The total number of differences; a message may count both as different and as reordered."""
        return (
            self.missing_in_a
            + self.missing_in_b
            + self.different
            + self.reordered
            + self.repeated_in_a
            + self.repeated_in_b
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. Values that an instance does not have are None."""

    publisher: str
    difference: str
    topic: str
    bookmark_a: str | None
    bookmark_b: str | None
    position_a: int | None
    position_b: int | None


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of a comparison."""

    total: PublisherDifferences
    publisher_count: int
    publishers: tuple[PublisherDifferences, ...]
    """The publishers in descending order of differences, PUBLISHERS_MAX at most."""
    examples: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether the logs have the same messages, each publisher's in the same order."""
        return self.total.differences == 0


def output_format(path: Path) -> str:
    """Return the format of an output, by its name. Raises PipelineError."""
    if path.suffix not in FORMATS:
        raise PipelineError(
            f"the output {path} must end in one of {', '.join(FORMATS)}: its name determines the format"
        )
    return FORMATS[path.suffix]


def check_differences_output(path: Path) -> None:
    """Check that differences can be written to this path. Raises PipelineError."""
    output_format(path)
    check_output(path)
    _check_replaceable(path)


def run(spark: "SparkSession", options: ReconcileOptions, progress: Progress) -> Reconciliation:
    """Compare two logs. Raises PipelineError, and Spark's exceptions for journals that cannot be read."""
    if options.output is not None:
        check_differences_output(options.output)
    both = (options.a, options.b)
    size_bytes = sum(planned_read(journals, MESSAGE_KINDS).size_bytes for journals in both)
    with shuffling(spark, size_bytes):
        a, b = (records(spark, journals, COLUMNS, MESSAGE_KINDS) for journals in both)
        return compare(a, b, progress, options.output)


def compare(a: "DataFrame", b: "DataFrame", progress: Progress, output: Path | None = None) -> Reconciliation:
    """Compare two data frames with the columns COLUMNS. Raises PipelineError."""
    from pyspark import StorageLevel

    messages = _compared(a, b).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        progress.stage("reading both logs")
        publishers = _publishers(messages).persist(StorageLevel.MEMORY_AND_DISK)
        count = publishers.count()
        progress.stage("adding up")
        found = _found(publishers, messages, count)
        if output is not None:
            progress.stage(f"writing {output}")
            _write(_differences(messages, publishers), output)
        publishers.unpersist()
        return found
    finally:
        messages.unpersist()


# --- one log ---------------------------------------------------------------------------------------------------


def _own_id(names: str) -> "Column":
    """Return the publisher ids of the client names in a column, as decimal numbers."""
    import pandas
    from pyspark.sql import functions as f

    @f.pandas_udf("string")  # type: ignore[attr-defined, call-overload, untyped-decorator, unused-ignore]
    def own_ids(names: pandas.Series) -> pandas.Series:
        return names.map({name: str(publisher_id(name)) for name in names.unique()})

    column: Column = own_ids(names)
    return column


def _side(log: "DataFrame", is_a: bool) -> "DataFrame":
    """Return one log as rows of the compared values. `content` is null for messages with a publisher's sequence,
    `number` for the others.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    shown = f.coalesce("publisher", f.lit("0"))
    read = log.select(
        "position",
        f.unix_micros("timestamp").alias("us"),
        "bookmark",
        shown.alias("shown"),
        f.split("bookmark", r"\|")[0].alias("id"),
        f.split("bookmark", r"\|")[1].alias("number"),
        "topic",
        "message_type",
        f.sha2("payload", 256).alias("digest"),
    )
    # A publisher is shown by name, or by id if its name is not known. The bookmark has the id of the publisher if the
    # publisher gave the sequence, and another one if the server did (transaction_log.md §4.3).
    named = read.withColumn("own", _own_id("shown"))
    numbered = f.coalesce((f.col("id") == f.col("shown")) | (f.col("id") == f.col("own")), f.lit(False))
    is_id = f.col("shown").rlike(_DECIMAL_ID)
    content = f.sha2(f.concat_ws("\n", f.hex("topic"), f.hex("message_type"), "digest"), 256)
    known = named.select(
        f.lit(is_a).alias("is_a"),
        f.when(numbered, f.col("id"))
        .when(is_id, f.col("shown"))
        .otherwise(f.col("own"))
        .alias("publisher_id"),
        f.when(~is_id, f.col("shown")).alias("name"),
        f.when(numbered, f.col("number")).alias("number"),
        f.when(~numbered, content).alias("content"),
        "position",
        "us",
        "bookmark",
        "topic",
        "message_type",
        "digest",
    )
    alike = Window.partitionBy("publisher_id", "content").orderBy("position")
    with_number = known.where("content is null").withColumn("occurrence", f.lit(1))
    without = known.where("content is not null").withColumn("occurrence", f.row_number().over(alike))
    return with_number.unionByName(without)


# --- both --------------------------------------------------------------------------------------------------------


def _compared(a: "DataFrame", b: "DataFrame") -> "DataFrame":
    """Return a row per message: the number of copies in each log, the first copy in each, and if it is reordered."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def first(here: "Column") -> "Column":
        return f.min(f.when(here, f.struct("position", "us", "bookmark", "topic", "message_type", "digest")))

    in_a = f.col("is_a")
    grouped = (
        _side(a, True)
        .unionByName(_side(b, False))
        .groupBy("publisher_id", "number", "content", "occurrence")
        .agg(
            f.count_if(in_a).alias("copies_a"),
            f.count_if(~in_a).alias("copies_b"),
            first(in_a).alias("a"),
            first(~in_a).alias("b"),
            f.max("name").alias("name"),
        )
        .withColumn("in_both", f.expr("copies_a > 0 and copies_b > 0"))
    )
    earlier = (
        Window.partitionBy("publisher_id", "in_both")
        .orderBy("a.position")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        grouped.withColumn("last_before", f.max("b.position").over(earlier))
        .withColumn("reordered", f.expr("in_both and coalesce(last_before > b.position, false)"))
        .withColumn(
            "different",
            f.expr(
                "in_both and not (a.topic <=> b.topic and a.message_type <=> b.message_type "
                "and a.digest <=> b.digest)"
            ),
        )
        .drop("last_before", "occurrence")
    )


def _publishers(messages: "DataFrame") -> "DataFrame":
    """Return a row per publisher, with the numbers of PublisherDifferences."""
    from pyspark.sql import functions as f

    sums = {
        "messages_a": "sum(copies_a)",
        "messages_b": "sum(copies_b)",
        "missing_in_a": "count_if(copies_a = 0)",
        "missing_in_b": "count_if(copies_b = 0)",
        "different": "count_if(different)",
        "reordered": "count_if(reordered)",
        "repeated_in_a": "sum(greatest(copies_a - 1, 0))",
        "repeated_in_b": "sum(greatest(copies_b - 1, 0))",
        "unnumbered_a": "sum(if(content is null, 0, copies_a))",
        "unnumbered_b": "sum(if(content is null, 0, copies_b))",
    }
    return messages.groupBy("publisher_id").agg(
        f.max("name").alias("name"), *(f.expr(text).alias(name) for name, text in sums.items())
    )


def _found(publishers: "DataFrame", messages: "DataFrame", count: int) -> Reconciliation:
    from pyspark.sql import functions as f

    names = [name for name in PublisherDifferences.__slots__ if name != "publisher"]
    differing = "missing_in_a + missing_in_b + different + reordered + repeated_in_a + repeated_in_b"
    total = publishers.agg(*(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names)).first()
    assert total is not None
    most = publishers.orderBy(f.expr(differing).desc(), f.desc("messages_a"), "publisher_id")
    examples = _differences(messages, publishers).orderBy(
        f.coalesce("position_a", "position_b"), "difference"
    )
    return Reconciliation(
        _publisher("", total, names),
        count,
        tuple(
            _publisher(row["name"] or row["publisher_id"], row, names)
            for row in most.limit(PUBLISHERS_MAX).collect()
        ),
        tuple(
            Difference(*(row[name] for name in Difference.__slots__))
            for row in examples.limit(EXAMPLES_MAX).collect()
        ),
    )


def _publisher(publisher: str, row: "Row", names: list[str]) -> PublisherDifferences:
    return PublisherDifferences(publisher, *(int(row[name]) for name in names))


def _differences(messages: "DataFrame", publishers: "DataFrame") -> "DataFrame":
    """Return a row per difference. A name that only one log has is shown for both."""
    from pyspark.sql import functions as f

    whats = {
        "missing_in_a": "copies_a = 0",
        "missing_in_b": "copies_b = 0",
        "different": "different",
        "reordered": "reordered",
        "repeated_in_a": "copies_a > 1",
        "repeated_in_b": "copies_b > 1",
    }
    found = f.array_compact(f.array(*(f.when(f.expr(test), f.lit(what)) for what, test in whats.items())))
    names = publishers.select("publisher_id", "name")
    each = messages.drop("name").select("*", f.explode(found).alias("difference"))
    return each.join(names, "publisher_id").select(
        f.coalesce("name", "publisher_id").alias("publisher"),
        "publisher_id",
        f.isnull("content").alias("numbered"),
        "difference",
        f.coalesce("a.topic", "b.topic").alias("topic"),
        f.coalesce("a.message_type", "b.message_type").alias("message_type"),
        *(
            f.col(f"{side}.{name}").alias(f"{name}_{side}")
            for name in ("bookmark", "position", "topic", "digest")
            for side in ("a", "b")
        ),
        *(f.timestamp_micros(f"{side}.us").alias(f"time_{side}") for side in ("a", "b")),
        "copies_a",
        "copies_b",
    )


# --- writing -----------------------------------------------------------------------------------------------------


def _write(differences: "DataFrame", output: Path) -> None:
    """Write the differences; replace the output of an earlier run. Raises PipelineError."""
    _check_replaceable(output)
    try:
        if output.exists():
            shutil.rmtree(output)
        differences.write.format(output_format(output)).save(output.absolute().as_uri())
    except OSError as error:
        raise output_failed(output, error) from error
    except Exception as error:
        full = os.strerror(errno.ENOSPC)
        if not is_of_spark(error) or full not in str(error):
            raise
        raise output_failed(output, OSError(errno.ENOSPC, full)) from error


def _check_replaceable(output: Path) -> None:
    """Check that an existing output was written by Spark and may be replaced. Raises PipelineError."""
    if not output.exists():
        return
    others = (
        [output]
        if not output.is_dir()
        else [
            entry
            for entry in output.iterdir()
            if entry.name not in _SPARK_NAMES and not entry.name.startswith(("part-", ".part-"))
        ]
    )
    if others:
        raise PipelineError(
            f"{output} exists and is no output of this command ({others[0].name}): choose another name, or remove it"
        )
