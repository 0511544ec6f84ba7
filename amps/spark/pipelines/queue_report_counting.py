"""Counting the rows of a queue report (`queue_report`) per queue, and combining the counts.

The depth of a queue is computed from events: a message enters (+1), a message leaves (-1). Spark adds them up per
interval. Within an interval it adds them in the order of the log, which gives the maximum depth. The driver
adds up the intervals. All events before the range form one interval before the first.
"""

import functools
import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amps.spark.pipelines.job import Progress
from amps.spark.pipelines.queue_report_results import (
    ACKNOWLEDGED,
    ANSWERED,
    EXPIRED,
    REASONS,
    WAYS,
    ConsumerShare,
    Durations,
    Interval,
    QueueFigures,
)
from amps.spark.pipelines.queue_report_rules import EntryRule
from amps.spark.pipelines.report_intervals import DURATION_EDGES_US

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

QUEUES_MAX = 100
CONSUMERS_MAX = 50
Key = tuple[str, str]
_KEY = ("queue", "message_type")
_BEFORE = -1
_PERCENTILE_ACCURACY = 10_000


@dataclass(frozen=True, slots=True)
class Range:
    """The range whose events are shown."""

    first_position: int
    first_us: int

    def holds(self, position: "Column", us: "Column") -> "Column":
        """Return whether an event is in the range; null if there is no event."""
        return (position >= self.first_position) & (us >= self.first_us)


def count_queues(
    messages: "DataFrame",
    selected: Range,
    times: tuple[int, int, int] | None,
    rules: Iterable[EntryRule],
    early: Mapping[Key, int],
    progress: Progress,
) -> list[QueueFigures]:
    """Return the figures of the queues with most messages, QUEUES_MAX at most, in descending order of messages.

    `times`: the first and the last event of the range, and the interval; None: there are no events. `early`:
    deferred acknowledgements, which were recorded before their messages.
    """
    from pyspark.sql import functions as f

    entered = f.coalesce(selected.holds(f.col("position"), f.col("entered_us")), f.lit(False))
    left = f.coalesce(selected.holds(f.col("left_position"), f.col("left_us")), f.lit(False))
    progress.stage("counting messages")
    totals = _rows(
        messages.groupBy(*_KEY)
        .agg(
            f.count("*").alias("messages"),
            f.count_if(entered).alias("entered"),
            f.count_if(f.isnull("entered_us") & left).alias("untimed"),
            f.sum(f.when(f.col("times_left") > 1, f.col("times_left") - 1).otherwise(0)).alias("again"),
            f.sum(f.when(left & (f.col("deliveries") > 1), f.col("deliveries") - 1).otherwise(0)).alias(
                "redelivered"
            ),
            f.min(f.when(f.isnull("left_us"), f.col("entered_us"))).alias("oldest"),
        )
        .orderBy(f.desc("messages"), *_KEY)
        .limit(QUEUES_MAX)
    )
    by_key = {(rule.queue, rule.message_type): rule for rule in rules}
    keys = list(totals) + [key for key in by_key if key not in totals][: QUEUES_MAX - len(totals)]
    of_queues = messages
    if len(totals) == QUEUES_MAX:
        of_queues = messages.where(f.col("queue").isin([queue for queue, _ in totals]))
    gone = of_queues.where(left)
    ways = _lists(
        gone.groupBy(*_KEY, "way", f.when(f.col("way") == EXPIRED, f.col("reasons")).alias("why")).count()
    )
    progress.stage("measuring times")
    durations = _durations(gone.where("entered_us is not null and way is not null"))
    progress.stage("counting consumers")
    consumers = _lists(_consumers(gone.where(f.col("way") == ACKNOWLEDGED)))
    progress.stage("following depth")
    sums, peaks = _depth(of_queues, selected, times)
    return [
        _figures(
            key,
            totals.get(key),
            ways[key],
            durations[key],
            consumers[key],
            _Line(sums[key], peaks[key], times),
            _notes(by_key.get(key), totals.get(key), early.get(key, 0)),
        )
        for key in keys
    ]


def _rows(frame: "DataFrame") -> "dict[Key, Row]":
    return {(row["queue"], row["message_type"]): row for row in frame.collect()}


def _lists(frame: "DataFrame") -> "defaultdict[Key, list[Row]]":
    found: defaultdict[Key, list[Row]] = defaultdict(list)
    for row in frame.collect():
        found[row["queue"], row["message_type"]].append(row)
    return found


# --- times and consumers -----------------------------------------------------------------------------------------


def _durations(gone: "DataFrame") -> dict[Key, dict[str, Durations]]:
    from pyspark.sql import functions as f

    edges = (f.when(f.col("us") >= edge, 1).otherwise(0) for edge in DURATION_EDGES_US)
    timed = gone.select(*_KEY, "way", _duration().alias("us")).withColumn(
        "bar", functools.reduce(operator.add, edges)
    )
    histograms: dict[tuple[Key, str], list[int]] = defaultdict(lambda: [0] * (len(DURATION_EDGES_US) + 1))
    for key, rows in _lists(timed.groupBy(*_KEY, "way", "bar").count()).items():
        for row in rows:
            histograms[key, row["way"]][row["bar"]] = row["count"]
    found: dict[Key, dict[str, Durations]] = defaultdict(dict)
    measured = timed.groupBy(*_KEY, "way").agg(
        f.count("*").alias("messages"),
        f.avg("us").alias("mean"),
        f.percentile_approx("us", [0.5, 0.9, 0.99], _PERCENTILE_ACCURACY).alias("percentiles"),
        f.max("us").alias("longest"),
    )
    for key, rows in _lists(measured).items():
        for row in rows:
            p50, p90, p99 = row["percentiles"]
            histogram = tuple(histograms[key, row["way"]])
            found[key][row["way"]] = Durations(
                row["messages"], row["mean"], p50, p90, p99, row["longest"], histogram
            )
    return found


def _duration() -> "Column":
    """Return the time a message was in the queue; null if the time of its entry is not known."""
    from pyspark.sql import functions as f

    # No negative duration if the clock was set back. (`greatest` alone ignores nulls.)
    return f.when(
        f.col("entered_us").isNotNull(), f.greatest(f.col("left_us") - f.col("entered_us"), f.lit(0))
    )


def _consumers(acknowledged: "DataFrame") -> "DataFrame":
    """Return a row per consumer, CONSUMERS_MAX per queue at most, with the number of consumers of the queue."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_queue = Window.partitionBy(*_KEY)
    return (
        acknowledged.groupBy(*_KEY, "consumer")
        .agg(
            f.count("*").alias("acknowledged"),
            f.count_if(f.isnull("entered_us")).alias("untimed"),
            f.percentile_approx(_duration(), [0.5, 0.99], _PERCENTILE_ACCURACY).alias("percentiles"),
        )
        .withColumn("consumers", f.count("*").over(of_queue))
        .withColumn("rank", f.row_number().over(of_queue.orderBy(f.desc("acknowledged"), "consumer")))
        .where(f.col("rank") <= CONSUMERS_MAX)
        .orderBy("rank")
    )


# --- depth -------------------------------------------------------------------------------------------------------

_Numbers = dict[Key, dict[int, Any]]


def _depth(
    messages: "DataFrame", selected: Range, times: tuple[int, int, int] | None
) -> tuple[_Numbers, _Numbers]:
    """Return the changes in each interval, by its number: sums, and the maximum rise of depth over its start."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    first_us, _, interval_us = times or (0, 0, 1)
    # Messages older than the log count as having entered before it.
    entering = messages.select(
        *_KEY,
        f.col("position").alias("place"),
        f.coalesce("entered_us", f.lit(-1)).alias("us"),
        f.lit(1).alias("change"),
        f.lit(None).cast("string").alias("way"),
    )
    leaving = messages.where("left_us is not null").select(
        *_KEY,
        f.col("left_position").alias("place"),
        f.col("left_us").alias("us"),
        f.lit(-1).alias("change"),
        "way",
    )
    begin = f.col("us") - f.pmod("us", f.lit(interval_us))
    number = ((begin - first_us // interval_us * interval_us) / interval_us).cast("long")
    is_shown = selected.holds(f.col("place"), f.col("us")) & (f.col("us") >= 0)
    if times is None:
        is_shown = f.lit(False)
    events = entering.unionByName(leaving).withColumn("number", f.when(is_shown, number).otherwise(_BEFORE))
    added = events.groupBy(*_KEY, "number").agg(
        f.count_if(f.col("change") > 0).alias("entered"),
        f.count_if(f.col("change") < 0).alias("left"),
        f.count_if(f.col("way") == EXPIRED).alias("expired"),
    )
    # If a message enters and leaves at the same place, it enters first.
    in_order = Window.partitionBy(*_KEY, "number").orderBy("place", f.desc("change"))
    steps = events.where(f.col("number") != _BEFORE).withColumn(
        "step", f.sum("change").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    )
    peaks = steps.groupBy(*_KEY, "number").agg(f.max("step").alias("rise"))
    return _numbered(added), _numbered(peaks)


def _numbered(frame: "DataFrame") -> _Numbers:
    found: _Numbers = defaultdict(dict)
    for key, rows in _lists(frame).items():
        found[key] = {row["number"]: row for row in rows}
    return found


class _Line:
    """The depth of one queue, from interval to interval."""

    def __init__(
        self, sums: Mapping[int, Any], peaks: Mapping[int, Any], times: tuple[int, int, int] | None
    ) -> None:
        before = sums.get(_BEFORE)
        self.depth_before = 0 if before is None else before["entered"] - before["left"]
        depth = self.depth_max = self.depth_before
        intervals: list[Interval] = []
        first_us, last_us, interval_us = times or (0, -1, 1)
        begin = first_us // interval_us
        for number in range(last_us // interval_us - begin + 1):
            entered, left, expired = _sums_of(sums.get(number))
            rise = peaks[number]["rise"] if number in peaks else 0
            highest = depth + max(0, rise)
            depth += entered - left
            intervals.append(Interval((begin + number) * interval_us, entered, left, expired, depth, highest))
            self.depth_max = max(self.depth_max, highest)
        self.depth = depth
        self.intervals = tuple(intervals)


def _sums_of(row: Any) -> tuple[int, int, int]:
    return (0, 0, 0) if row is None else (row["entered"], row["left"], row["expired"])


# --- together ----------------------------------------------------------------------------------------------------


def _figures(
    key: Key,
    total: "Row | None",
    ways: "list[Row]",
    durations: Mapping[str, Durations],
    consumers: "list[Row]",
    line: _Line,
    notes: tuple[str, ...],
) -> QueueFigures:
    left: dict[str, int] = defaultdict(int)
    expired: dict[str, int] = defaultdict(int)
    for row in ways:
        if row["way"] is not None:
            left[row["way"]] += row["count"]
        for bit, reason in REASONS.items():
            if row["why"] is not None and row["why"] & bit:
                expired[reason] += row["count"]
    acknowledged = left.get(ACKNOWLEDGED, 0)
    return QueueFigures(
        queue=key[0],
        message_type=key[1],
        entered=0 if total is None else total["entered"],
        left={way: left[way] for way in WAYS if way in left},
        expired={reason: expired[reason] for reason in REASONS.values() if reason in expired},
        untimed=0 if total is None else total["untimed"],
        redeliveries=0 if total is None else total["redelivered"],
        depth_before=line.depth_before,
        depth=line.depth,
        depth_max=line.depth_max,
        oldest_us=None if total is None else total["oldest"],
        durations={way: durations[way] for way in WAYS if way in durations},
        consumer_count=consumers[0]["consumers"] if consumers else 0,
        consumers=tuple(
            ConsumerShare(
                row["consumer"] or "unknown",
                row["acknowledged"],
                row["acknowledged"] / acknowledged,
                row["untimed"],
                *(row["percentiles"] or (None, None)),
            )
            for row in consumers
        ),
        intervals=line.intervals,
        notes=notes,
    )


def _notes(rule: EntryRule | None, total: "Row | None", early: int) -> tuple[str, ...]:
    """Return the notes on a queue: facts that the log does not have, and messages that no figure counts."""
    notes = []
    if rule is None:
        notes.append(
            "The entry rule of this queue is not known (queues.ack does not have it), so only messages that have left "
            "it later count as entered."
        )
    elif rule.filter is not None:
        notes.append(
            "This queue has a filter, and the log does not record which messages matched it, so only messages that "
            "have left the queue later count as entered."
        )
    if total is not None and total["untimed"]:
        notes.append(
            f"Messages whose journals are no longer in the log: {total['untimed']:,}; they count as having entered "
            "the queue before, and their durations are not known."
        )
    if total is not None and total["again"]:
        notes.append(
            f"Messages that left again, after the queue had been recreated: {total['again']:,}; only the first time "
            "counts."
        )
    if early:
        notes.append(
            f"Acknowledgements recorded before their messages: {early:,}; those that applied to a later message "
            f"count as {WAYS[ANSWERED]}."
        )
    return tuple(notes)
