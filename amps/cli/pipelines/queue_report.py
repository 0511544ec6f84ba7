"""`amps pipeline queue-report`: a report on the messages of queues."""

from pathlib import Path

import click

from amps.cli.options import HelpfulCommand, option
from amps.cli.pipelines.common import job_options, shown_progress, spark_session
from amps.cli.pipelines.report_options import (
    INTERVAL,
    json_option,
    log_options,
    printable,
    range_options,
    show_json,
    show_plan,
    show_table,
)


@click.command(
    "queue-report",
    cls=HelpfulCommand,
    example="amps pipeline queue-report ./amps-data/journal -output report.html -interval 1m",
)
@log_options
@option("queue", help="Only the queue of this name.")
@range_options
@option(
    "interval",
    "interval_us",
    type=INTERVAL,
    help="Interval of the depth: 1s, 1m, ... By default one that makes a readable plot.",
)
@option(
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with plots to this HTML file, which has no external resources.",
)
@json_option
@job_options
def queue_report(
    directory: Path,
    archive: Path | None,
    instance: str | None,
    queue: str | None,
    first: str | None,
    last: str | None,
    interval_us: int | None,
    output: Path | None,
    as_json: bool,
    master: str,
    dry_run: bool,
) -> None:
    """Show for each queue its depth over time, how long messages stayed, what expired, and who acknowledged how many.

    The log has no record of deliveries, ended leases and cancels, so redeliveries are known only when a message has
    left the queue.
    The range limits the output; the log is read from its beginning, because depth depends on all earlier records.
    An existing output is replaced.

    A percentile is exact to a ten-thousandth of the messages. The duration of a message whose journal is no longer in
    the log is not known: it is in no percentile, and counted separately.
    """
    from amps.spark.pipelines.queue_report import QueueReportOptions, run
    from amps.spark.pipelines.queue_report_page import (
        SUMMARY_TITLES,
        queue_report_page,
        summary_row,
    )
    from amps.spark.pipelines.report_output import check_output, write_output
    from amps.spark.pipelines.report_source import Journals, planned_read

    if output is not None:
        check_output(output)
    journals = Journals(directory, archive, instance, None, first, last)
    planned_read(journals)  # reports an invalid range before Spark starts
    if dry_run:
        show_plan(planned_read(Journals(directory, archive, instance, None, None, last)))
        return
    with spark_session(master, "amps-queue-report") as spark, shown_progress() as progress:
        report = run(spark, QueueReportOptions(journals, queue, interval_us), progress)
    if output is not None:
        write_output(output, queue_report_page(report))
    if as_json:
        show_json(report)
        return
    if report.queues:
        show_table(SUMMARY_TITLES, (summary_row(figures) for figures in report.queues))
    else:
        click.echo("there are no records of queues in this part of the log")
    for figures in report.queues:
        for note in figures.notes:
            click.echo(f"{printable(figures.queue)}: {note}")
    for note in report.notes:
        click.echo(note)
