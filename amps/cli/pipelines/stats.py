"""`amps pipeline stats`: number, rate and size of a log's messages, and their publishers."""

import csv
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amps.cli.options import HelpfulCommand, option
from amps.cli.pipelines.common import job_options, shown_progress, spark_session
from amps.cli.pipelines.report_options import (
    INTERVAL,
    json_option,
    log_options,
    range_options,
    show_json,
    show_plan,
    show_table,
)

if TYPE_CHECKING:
    from amps.spark.pipelines.stats import By, Figures, Stats

ROWS_SHOWN = 60
_TITLES = (
    "messages",
    "payload bytes",
    "publishers",
    "msg/s",
    "peak msg/s",
    "bytes/s",
    "mean",
    "p50",
    "p99",
    "max",
)


@click.command(
    "stats",
    cls=HelpfulCommand,
    example="amps pipeline stats ./amps-data/journal -interval 1m -by topic -csv stats.csv",
)
@log_options
@option("topic", help="Only this topic; an expression if it has regex characters.")
@range_options
@option(
    "interval",
    "interval_us",
    type=INTERVAL,
    default="1m",
    show_default=True,
    help="Interval of the counts: 1s, 1m, ...",
)
@option("by", type=click.Choice(["topic", "publisher", "kind"]), help="Count each of them separately.")
@option(
    "csv",
    "csv_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a row per interval to this file.",
)
@json_option
@job_options
def stats(
    directory: Path,
    archive: Path | None,
    instance: str | None,
    topic: str | None,
    first: str | None,
    last: str | None,
    interval_us: int,
    by: "By | None",
    csv_path: Path | None,
    as_json: bool,
    master: str,
    dry_run: bool,
) -> None:
    """Count messages, payload bytes, rates, sizes and publishers, in total and by interval.

    Only messages of clients are counted; by kind, all records of the log. A peak is the busiest second,
    or the busiest interval if intervals are not whole seconds. Intervals without messages are left out. A message at
    the edge of two intervals belongs to the later one. Expired messages are counted, because the log has them.

    Sizes are those of payloads, in bytes: p99 is the smallest size that at least 99% of the messages do not exceed
    (nearest rank, exact), p50 the same of half of them.
    """
    from amps.spark.pipelines.report_output import check_output, write_output
    from amps.spark.pipelines.report_source import Journals, planned_read
    from amps.spark.pipelines.stats import StatsOptions, kinds_counted, run

    if csv_path is not None:
        check_output(csv_path)
    options = StatsOptions(Journals(directory, archive, instance, topic, first, last), interval_us, by)
    read = planned_read(options.journals, kinds_counted(by))
    if dry_run:
        show_plan(read)
        return
    with spark_session(master, "amps-stats") as spark, shown_progress() as progress:
        found = run(spark, options, progress)
    if csv_path is not None:
        write_output(csv_path, _csv_text(found))
    if as_json:
        show_json(found)
    else:
        _show(found)


def _show(found: "Stats") -> None:
    from amps.spark.pipelines.report_intervals import moment

    if found.total is None:
        click.echo("there are no messages in this part of the log")
        return
    click.echo(f"{moment(found.total.first_us)} to {moment(found.total.last_us)}")
    shown = found.keys[:ROWS_SHOWN]
    rows = [("all", found.total), *((key.key or "-", key.figures) for key in shown)]
    show_table((found.by or "", *_TITLES), ((name, *_cells(figures)) for name, figures in rows))
    if found.key_count > len(shown):
        click.echo(f"... and {found.key_count - len(shown):,} more")
    click.echo("")
    intervals = found.intervals[:ROWS_SHOWN]
    show_table(
        (f"from{'' if found.by is None else ', ' + found.by}", *_TITLES),
        (
            (
                moment(interval.begin_us) + ("" if found.by is None else f"  {interval.key or '-'}"),
                *_cells(interval.figures),
            )
            for interval in intervals
        ),
    )
    if len(found.intervals) > len(intervals):
        click.echo(f"... and {len(found.intervals) - len(intervals):,} more: see -csv and -json")


def _cells(figures: "Figures") -> tuple[int | float, ...]:
    return (
        figures.messages,
        figures.payload_bytes,
        figures.publishers,
        figures.messages_per_s,
        figures.peak_messages_per_s,
        figures.bytes_per_s,
        figures.mean_bytes,
        figures.p50_bytes,
        figures.p99_bytes,
        figures.max_bytes,
    )


def _csv_text(found: "Stats") -> str:
    """Return a CSV text with a row per interval and key."""
    from amps.spark.pipelines.report_intervals import moment
    from amps.spark.pipelines.stats import Figures

    names = [field.name for field in dataclasses.fields(Figures) if field.name not in ("first_us", "last_us")]

    def rows() -> Iterator[list[object]]:
        yield ["from", *([] if found.by is None else [found.by]), *names]
        for interval in found.intervals:
            key = [] if found.by is None else [interval.key]
            yield [
                moment(interval.begin_us),
                *key,
                *(getattr(interval.figures, name) for name in names),
            ]

    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows())
    return text.getvalue()
