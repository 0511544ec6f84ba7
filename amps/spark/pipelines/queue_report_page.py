"""The page of a queue report: for each queue its figures, depth over time, durations of messages, and consumers."""

from collections.abc import Iterator
from itertools import groupby
from xml.etree.ElementTree import Element

from amps.spark.pipelines.queue_report_results import WAYS, Durations, QueueFigures, QueueReport
from amps.spark.pipelines.report_intervals import DURATION_EDGES_US, duration, moment
from amps.spark.pipelines.report_page import element, page, table
from amps.spark.pipelines.report_plots import Series, stacked_bars, time_plot

BARS_MAX = 120
SUMMARY_TITLES = (
    "queue",
    "entered",
    "left",
    "expired",
    "redelivered",
    "depth",
    "deepest",
    "p50",
    "p90",
    "p99",
    "longest",
)


def summary_row(figures: QueueFigures) -> tuple[str | int, ...]:
    """Return a queue as one row; times end with acknowledgements, or with deliveries of an at-most-once queue."""
    times = main_durations(figures)
    measured = [times.p50_us, times.p90_us, times.p99_us, times.max_us] if times is not None else [None] * 4
    return (
        shown_name(figures),
        figures.entered,
        figures.left_total,
        figures.left.get("expired", 0),
        figures.redeliveries,
        figures.depth,
        figures.depth_max,
        *("-" if us is None else duration(us) for us in measured),
    )


def shown_name(figures: QueueFigures) -> str:
    """Return the queue's name with its message type: queues of different types may have the same name."""
    return f"{figures.queue} ({figures.message_type})"


def main_durations(figures: QueueFigures) -> Durations | None:
    """Return the durations of the messages that consumers processed."""
    return figures.durations.get("acknowledged") or figures.durations.get("delivered")


def queue_report_page(report: QueueReport) -> str:
    """Return the report as an HTML file."""
    title = f"Queues of {report.instance}"
    if report.first_us is None or report.last_us is None or report.interval_us is None:
        period = "There are no records of queues in this part of the log."
    else:
        interval = duration(report.interval_us)
        period = f"{moment(report.first_us)} to {moment(report.last_us)}, in intervals of {interval}"
    content: list[Element] = [element("p", period)]
    if report.queues:
        content.append(table(SUMMARY_TITLES, (summary_row(figures) for figures in report.queues)))
        content.append(
            element("p", "Times run from the recording of a message to its acknowledgement.", class_="quiet")
        )
    for figures in report.queues:
        content += _queue(figures, report.interval_us)
    content.append(element("h2", "Limits of this report"))
    content.append(element("ul", *(element("li", note, class_="quiet") for note in report.notes)))
    return page(title, *content)


def _queue(figures: QueueFigures, interval_us: int | None) -> Iterator[Element]:
    yield element("h2", shown_name(figures))
    for note in figures.notes:
        yield element("p", note, class_="quiet")
    yield table(("messages", ""), _counts(figures))
    if figures.intervals and interval_us is not None:
        begins = [interval.begin_us for interval in figures.intervals]
        yield element("h3", "Depth")
        yield time_plot(
            begins,
            interval_us,
            [
                Series("deepest", "two", [interval.depth_max for interval in figures.intervals]),
                Series(
                    "at the end of the interval", "one", [interval.depth for interval in figures.intervals]
                ),
            ],
        )
        yield element("h3", "Messages that entered and left")
        yield time_plot(
            begins,
            interval_us,
            [
                Series("entered", "one", [interval.entered for interval in figures.intervals]),
                Series("left", "two", [interval.left for interval in figures.intervals]),
            ],
        )
        if any(interval.expired for interval in figures.intervals):
            yield element("h3", "Expired")
            yield _expired(figures)
    for way, times in figures.durations.items():
        yield element("h3", f"Time until {WAYS[way]}")
        yield table(
            ("messages", "mean", "p50", "p90", "p99", "longest"),
            [
                (
                    f"{times.count:,}",
                    *map(duration, (times.mean_us, times.p50_us, times.p90_us, times.p99_us, times.max_us)),
                )
            ],
        )
        yield _histogram(times)
    if figures.consumers:
        yield element("h3", _consumers_title(figures))
        yield table(
            ("consumer", "acknowledged", "share", "time not known", "p50", "p99"),
            (
                (
                    share.consumer,
                    share.acknowledged,
                    f"{share.share:.1%}",
                    share.untimed,
                    *("-" if us is None else duration(us) for us in (share.p50_us, share.p99_us)),
                )
                for share in figures.consumers
            ),
        )


def _counts(figures: QueueFigures) -> Iterator[tuple[str | int, ...]]:
    yield "in the queue before", figures.depth_before
    yield "entered", figures.entered
    for way, count in figures.left.items():
        yield WAYS[way], count
        if way == "expired":
            for reason, of_reason in figures.expired.items():
                yield f"expired: {reason}", of_reason
    if figures.untimed:
        yield "of these, without a journal in the log: time not known", figures.untimed
    yield "redeliveries before they left", figures.redeliveries
    yield "in the queue at the end", figures.depth
    if figures.oldest_us is not None:
        yield "the oldest of these was recorded", moment(figures.oldest_us)
    yield "deepest", figures.depth_max


def _consumers_title(figures: QueueFigures) -> str:
    shown = len(figures.consumers)
    if figures.consumer_count > shown:
        return f"The {shown} of {figures.consumer_count:,} consumers who acknowledged most"
    return "Consumers"


def _expired(figures: QueueFigures) -> Element:
    """Return the bars of expired messages; if there are too many intervals, a bar stands for several."""
    each = -(-len(figures.intervals) // BARS_MAX)
    numbered = enumerate(figures.intervals)
    groups = [[one for _, one in group] for _, group in groupby(numbered, lambda pair: pair[0] // each)]
    labels = [moment(group[0].begin_us)[11:] for group in groups]
    return stacked_bars(
        labels, [Series("expired", "two", [sum(one.expired for one in group) for group in groups])]
    )


def _histogram(times: Durations) -> Element:
    """Return the bars of a histogram from the first to the last that is not empty."""
    filled = [place for place, count in enumerate(times.histogram) if count]
    first, last = min(filled, default=0), max(filled, default=0)
    labels = [
        f"< {duration(DURATION_EDGES_US[0])}" if place == 0 else duration(DURATION_EDGES_US[place - 1])
        for place in range(first, last + 1)
    ]
    return stacked_bars(labels, [Series("messages", "one", times.histogram[first : last + 1])])
