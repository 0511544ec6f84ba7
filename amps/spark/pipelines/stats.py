"""Statistics of a log: number, rate and size of messages, payload bytes, and number of publishers.

One pass reads the journals and produces a narrow row per message (time, key, publisher, size). The rows are cached, on
disk if memory is too small, and counted in several ways. Only counts are sent to the driver: one row per interval and
key, `ROWS_MAX` at most, and the `KEYS_MAX` keys with most messages.

Messages (`publish`, `delta_publish`) and the bytes of their payloads are counted; by kind, all records of the log.
Percentiles are by the nearest rank, and exact: a log has few different sizes, and only their counts are held.
A mean rate is over the whole seconds from the first message to the last; the one of an interval is over all of it. A
peak is the busiest second, or the busiest interval if intervals are not whole seconds.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from amps.spark.pipelines.job import PipelineError, Progress
from amps.spark.pipelines.report_intervals import US_PER_S, duration
from amps.spark.pipelines.report_source import MESSAGE_KINDS, Journals, planned_read, records, shuffling

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

By = Literal["topic", "publisher", "kind"]
ROWS_MAX = 100_000
KEYS_MAX = 1000


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """The options of a count."""

    journals: Journals
    interval_us: int = 60 * US_PER_S
    by: By | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a set of messages, which is not empty."""

    messages: int
    payload_bytes: int
    publishers: int
    first_us: int
    last_us: int
    messages_per_s: float
    bytes_per_s: float
    peak_messages_per_s: float
    peak_bytes_per_s: float
    mean_bytes: float
    p50_bytes: int
    p99_bytes: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """The figures of the messages with one key: a topic, a publisher or a kind; None: messages without a key."""

    key: str | None
    figures: Figures


@dataclass(frozen=True, slots=True)
class IntervalFigures:
    """The figures of the messages of one interval, and of one key if they are counted by a key."""

    begin_us: int
    key: str | None
    figures: Figures


@dataclass(frozen=True, slots=True)
class Stats:
    """The result of a count."""

    interval_us: int
    by: By | None
    total: Figures | None
    """The figures of all messages; None: there are no messages."""
    key_count: int
    keys: tuple[KeyFigures, ...]
    """The keys in descending order of messages, KEYS_MAX at most; empty if messages are not counted by a key."""
    intervals: tuple[IntervalFigures, ...]
    """The intervals in order of time, then by number of messages; intervals without messages are left out."""


def kinds_counted(by: By | None) -> tuple[str, ...]:
    """Return the kinds of records to count; empty: all."""
    return () if by == "kind" else MESSAGE_KINDS


def run(spark: "SparkSession", options: StatsOptions, progress: Progress) -> Stats:
    """Count the log. Raises PipelineError, and Spark's exceptions for journals that cannot be read."""
    from pyspark import StorageLevel

    read = planned_read(options.journals, kinds_counted(options.by))
    with shuffling(spark, read.size_bytes):
        messages = _messages(spark, options).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return _count(messages, options, progress)
        finally:
            messages.unpersist()


def _messages(spark: "SparkSession", options: StatsOptions) -> "DataFrame":
    from pyspark.sql import functions as f

    columns = {"timestamp", "publisher", "payload"} | ({options.by} if options.by else set())
    key = f.col(options.by) if options.by else f.lit(None).cast("string")
    # Each second lies within one interval, so that a peak belongs to one interval.
    unit_us = _unit_us(options.interval_us)
    time = f.unix_micros("timestamp")
    return records(spark, options.journals, sorted(columns), kinds_counted(options.by)).select(
        key.alias("key"),
        "publisher",
        time.alias("us"),
        (time - f.pmod(time, f.lit(options.interval_us))).alias("begin"),
        (time - f.pmod(time, f.lit(unit_us))).alias("unit"),
        f.octet_length("payload").cast("long").alias("size"),
    )


def _unit_us(interval_us: int) -> int:
    """Return the length of the unit over which peaks are taken."""
    return interval_us if interval_us % US_PER_S else US_PER_S


def _count(messages: "DataFrame", options: StatsOptions, progress: Progress) -> Stats:
    from pyspark.sql import functions as f

    unit_us = _unit_us(options.interval_us)
    progress.stage("reading the journals")
    total = messages.agg(*_sums()).first()
    assert total is not None
    if not total["messages"]:
        return Stats(options.interval_us, options.by, None, 0, (), ())
    progress.stage("counting by interval")
    units = messages.groupBy("key", "begin", "unit").agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes")
    )
    # A table of many intervals is of no use, and the driver has no room for all of them.
    found = messages.groupBy("begin", "key").agg(*_sums()).limit(ROWS_MAX + 1).collect()
    if len(found) > ROWS_MAX:
        raise PipelineError(
            f"intervals of {duration(options.interval_us)} make more than {ROWS_MAX:,} rows: take longer ones, a "
            "shorter range, or one topic"
        )
    peaks = _by(_peaks(units, "begin", "key"), "begin", "key")
    intervals = [
        IntervalFigures(
            row["begin"],
            row["key"],
            _figures(row, peaks[row["begin"], row["key"]], unit_us, options.interval_us),
        )
        for row in found
    ]
    intervals.sort(key=lambda interval: (interval.begin_us, -interval.figures.messages, interval.key or ""))
    keys: tuple[KeyFigures, ...] = ()
    key_count = 0
    if options.by is not None:
        progress.stage(f"counting by {options.by}")
        key_count = messages.select("key").distinct().count()
        keys = _keys(messages, units, unit_us)
    (peak,) = _peaks(units)
    return Stats(
        options.interval_us, options.by, _figures(total, peak, unit_us), key_count, keys, tuple(intervals)
    )


def _keys(messages: "DataFrame", units: "DataFrame", unit_us: int) -> tuple[KeyFigures, ...]:
    from pyspark.sql import functions as f

    found = messages.groupBy("key").agg(*_sums()).orderBy(f.desc("messages"), "key").limit(KEYS_MAX).collect()
    known = units.where(
        f.col("key").isNull() | f.col("key").isin([row["key"] for row in found if row["key"] is not None])
    )
    peaks = _by(_peaks(known, "key"), "key")
    return tuple(KeyFigures(row["key"], _figures(row, peaks[row["key"],], unit_us)) for row in found)


def _sums() -> "list[Column]":
    from pyspark.sql import functions as f

    return [
        f.count("*").alias("messages"),
        f.sum("size").alias("bytes"),
        f.count_distinct("publisher").alias("publishers"),
        f.min("us").alias("first"),
        f.max("us").alias("last"),
        f.expr("percentile_disc(0.5) within group (order by size)").alias("p50"),
        f.expr("percentile_disc(0.99) within group (order by size)").alias("p99"),
        f.max("size").alias("largest"),
    ]


def _peaks(units: "DataFrame", *keys: str) -> "list[Row]":
    """Return the maximum of messages and bytes in one unit, by keys."""
    from pyspark.sql import functions as f

    together = units.groupBy(*keys, "unit").agg(
        f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes")
    )
    peaks: list[Row] = (
        together.groupBy(*keys)
        .agg(f.max("messages").alias("messages"), f.max("bytes").alias("bytes"))
        .collect()
    )
    return peaks


def _by(rows: "list[Row]", *keys: str) -> "dict[tuple[Any, ...], Row]":
    return {tuple(row[key] for key in keys): row for row in rows}


def _figures(row: "Row", peak: "Row", unit_us: int, interval_us: int | None = None) -> Figures:
    """Return the figures of a row. Mean rates are over `interval_us`; None: all units from first to last message."""
    over_us = interval_us or (row["last"] // unit_us - row["first"] // unit_us + 1) * unit_us
    return Figures(
        messages=row["messages"],
        payload_bytes=row["bytes"],
        publishers=row["publishers"],
        first_us=row["first"],
        last_us=row["last"],
        messages_per_s=row["messages"] * US_PER_S / over_us,
        bytes_per_s=row["bytes"] * US_PER_S / over_us,
        peak_messages_per_s=peak["messages"] * US_PER_S / unit_us,
        peak_bytes_per_s=peak["bytes"] * US_PER_S / unit_us,
        mean_bytes=row["bytes"] / row["messages"],
        p50_bytes=int(row["p50"]),
        p99_bytes=int(row["p99"]),
        max_bytes=row["largest"],
    )
