"""A report on queues from the log: depth, times, expiries, and the number of acknowledgements of each consumer.

The log has a record of every message that left a queue (docs/queues.md), with the log position of the message. It also
has the messages, on the underlying topics of the queue. One join on the position makes a row per queue and message of
both: when it was recorded, when and how it left, and which client acknowledged it. The rows are cached, on disk if
memory is too small, and counted in several ways; only counts are sent to the driver.

No record tells which messages have entered a queue and not left it. They are known if `queues.ack` has the entry rules
of the queue and the queue has no filter (`queue_report_rules`). Otherwise the queue's depth includes only messages that
have left it later.

The whole log up to the end of the range is read, because the depth of a queue depends on all earlier records. The range
limits only the output.
"""

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from amps.spark.pipelines import queue_report_counting
from amps.spark.pipelines.job import Progress
from amps.spark.pipelines.queue_report_counting import Range, count_queues
from amps.spark.pipelines.queue_report_entries import (
    LEFT_SCHEMA,
    PUBLISHED_SCHEMA,
    RECORD_COLUMNS,
    left,
    published,
)
from amps.spark.pipelines.queue_report_results import (
    ACKNOWLEDGED,
    ANSWERED,
    BARRIER,
    DELIVERED,
    EXPIRED,
    QueueReport,
)
from amps.spark.pipelines.queue_report_rules import EntryRule, read_rules
from amps.spark.pipelines.report_intervals import check_interval, chosen_interval_us
from amps.spark.pipelines.report_source import (
    MESSAGE_KINDS,
    QUEUE_KINDS,
    Journals,
    planned_read,
    records,
    shuffling,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

INTERVALS_CHOSEN = 240
INTERVALS_MAX = 5000
NOTES = (
    "Deliveries, ended leases and cancels are not counted. Delayed messages count in the depth. The number of "
    "redeliveries of a message is known only after it has left, as the server has counted it since its start. Times "
    "begin when a message was recorded, not when it was delivered.",
    "A consumer is the client that acknowledged a message; the log does not record to which client an at-most-once "
    "queue delivered it.",
    "Dead letters are counted as expired messages; messages that actions published about them have other topics.",
)


@dataclass(frozen=True, slots=True)
class QueueReportOptions:
    """The options of a report. `journals.topic` is not used: a queue is chosen by its name."""

    journals: Journals
    queue: str | None = None
    interval_us: int | None = None
    """Length of an interval; None: a length that makes a readable plot."""


def run(spark: "SparkSession", options: QueueReportOptions, progress: Progress) -> QueueReport:
    """Make the report. Raises PipelineError, and Spark's exceptions for journals that cannot be read."""
    journals = options.journals
    read = planned_read(journals)
    rules, problem = read_rules(journals.directory, read.instance)
    if options.queue is not None:
        rules = tuple(rule for rule in rules if rule.queue == options.queue)
    selected = Range(read.selection.first_position, read.selection.first_time_us)
    whole = Journals(journals.directory, journals.archive, journals.instance, None, None, journals.last)
    with shuffling(spark, planned_read(whole).size_bytes):
        report = _report(spark, options, whole, selected, rules, read.instance, progress)
    notes = [*NOTES, *([problem] if problem else [])]
    if len(report.queues) == queue_report_counting.QUEUES_MAX:
        notes.append(
            f"Only the {len(report.queues)} queues with most messages are shown; others can be chosen by name."
        )
    return replace(report, notes=tuple(notes))


def _report(
    spark: "SparkSession",
    options: QueueReportOptions,
    whole: Journals,
    selected: Range,
    rules: tuple[EntryRule, ...],
    instance: str,
    progress: Progress,
) -> QueueReport:
    """Make the report without the general notes."""
    from pyspark import StorageLevel

    gone = _left(spark, whole, options.queue).persist(StorageLevel.MEMORY_AND_DISK)
    messages = _messages(spark, whole, gone, rules).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        progress.stage("reading the records of queues")
        early = {
            (row["queue"], row["message_type"]): row["count"]
            for row in gone.where("position = 0").groupBy("queue", "message_type").count().collect()
        }
        progress.stage("finding the messages")
        ends = _ends(messages, selected)
        if ends is None:
            figures = count_queues(messages, selected, None, rules, early, progress)
            return QueueReport(instance, None, None, None, tuple(figures), ())
        interval_us = options.interval_us
        if interval_us is None:
            interval_us = chosen_interval_us(*ends, INTERVALS_CHOSEN)
        check_interval(*ends, interval_us, INTERVALS_MAX)
        figures = count_queues(messages, selected, (*ends, interval_us), rules, early, progress)
        return QueueReport(instance, *ends, interval_us, tuple(figures), ())
    finally:
        messages.unpersist()
        gone.unpersist()


def _ends(messages: "DataFrame", selected: Range) -> tuple[int, int] | None:
    """Return the times of the first and the last entry or exit of a message in the range; None: there are none."""
    from pyspark.sql import functions as f

    times = messages.agg(
        *(
            function(f.when(selected.holds(f.col(position), f.col(time)), f.col(time))).alias(
                f"{name}_{time}"
            )
            for position, time in (("position", "entered_us"), ("left_position", "left_us"))
            for name, function in (("min", f.min), ("max", f.max))
        )
    ).first()
    known = [time for time in times or () if time is not None]
    return (min(known), max(known)) if known else None


def _left(spark: "SparkSession", journals: Journals, queue: str | None) -> "DataFrame":
    """Return a row per message that left a queue (LEFT_SCHEMA)."""
    from pyspark.sql import functions as f

    found = records(spark, journals, RECORD_COLUMNS, QUEUE_KINDS)
    if queue is not None:
        found = found.where(f.col("topic") == f.lit(queue))
    return found.select(
        *(name for name in RECORD_COLUMNS if name != "timestamp"), f.unix_micros("timestamp").alias("us")
    ).mapInArrow(left, LEFT_SCHEMA)


def _messages(
    spark: "SparkSession", journals: Journals, gone: "DataFrame", rules: tuple[EntryRule, ...]
) -> "DataFrame":
    """Return a row per queue and message: queue, message_type, position, entered_us (null: its journal is no longer in
    the log), left_position, left_us, way, reasons, deliveries, consumer (null: it is still in the queue), and how often
    it left.
    """
    from pyspark.sql import functions as f

    names = ("left_position", "left_us", "action", "reasons", "deliveries", "consumer")
    gone_fields = (f.col(f"first.{name}").alias(name) for name in names)
    first = f.min(f.struct(*names))
    leaving = (
        gone.where("position > 0")
        .groupBy("queue", "message_type", "position")
        .agg(f.count("*").alias("times_left"), first.alias("first"))
        .groupBy("position")
        .agg(f.collect_list(f.struct("queue", "message_type", "times_left", *gone_fields)).alias("leaving"))
    )
    wanted = tuple(rule for rule in rules if rule.filter is None)
    columns = ("position", "timestamp", "topic", "message_type")
    entering = (
        records(spark, journals, columns, MESSAGE_KINDS)
        .select("position", "topic", "message_type", f.unix_micros("timestamp").alias("us"))
        .mapInArrow(functools.partial(published, wanted), PUBLISHED_SCHEMA)
    )
    together = entering.join(leaving, "position", "full_outer")
    left_type = together.schema["leaving"].dataType
    nothing = f.array().cast(left_type)
    left_queues = f.coalesce("leaving", nothing)
    every = f.concat(left_queues, _staying(wanted, left_queues).cast(left_type)) if wanted else left_queues
    return together.select("position", "entered_us", f.explode(every).alias("one")).select(
        "one.queue",
        "one.message_type",
        "position",
        "entered_us",
        "one.left_position",
        "one.left_us",
        _way(f.col("one.action"), f.col("one.reasons")).alias("way"),
        "one.reasons",
        "one.deliveries",
        "one.consumer",
        "one.times_left",
    )


def _staying(wanted: tuple[EntryRule, ...], leaving: "Column") -> "Column":
    """Return the queues that a message has entered and not left, as an array like `leaving`."""
    from pyspark.sql import functions as f

    rules = f.array(
        *(
            f.struct(
                f.lit(rule.queue).alias("queue"),
                f.lit(rule.message_type).alias("message_type"),
                f.lit(rule.position).cast("long").alias("start"),
            )
            for rule in wanted
        )
    )

    def has_left(rule: "Column") -> "Column":
        return f.exists(
            leaving,
            lambda one: (one["queue"] == rule["queue"]) & (one["message_type"] == rule["message_type"]),
        )

    taking = f.transform(
        f.coalesce("queues", f.array().cast("array<int>")), lambda number: f.get(rules, number)
    )
    staying = f.filter(taking, lambda rule: (f.col("position") >= rule["start"]) & ~has_left(rule))
    return f.transform(
        staying,
        lambda rule: f.struct(
            rule["queue"].alias("queue"),
            rule["message_type"].alias("message_type"),
            f.lit(0).cast("long").alias("times_left"),
            f.lit(None).cast("long").alias("left_position"),
            f.lit(None).cast("long").alias("left_us"),
            f.lit(None).cast("int").alias("action"),
            f.lit(None).cast("int").alias("reasons"),
            f.lit(None).cast("int").alias("deliveries"),
            f.lit(None).cast("string").alias("consumer"),
        ),
    )


def _way(action: "Column", reasons: "Column") -> "Column":
    """Return how a message left; null: it has not left."""
    from pyspark.sql import functions as f

    return (
        f.when(action == 0, f.lit(ACKNOWLEDGED))
        .when(action == 2, f.lit(EXPIRED))
        .when((action == 4) & (reasons.bitwiseAND(16) != 0), f.lit(BARRIER))
        .when(action == 4, f.lit(DELIVERED))
        .when(action == 5, f.lit(ANSWERED))
    )
