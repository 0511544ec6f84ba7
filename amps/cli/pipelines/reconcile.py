"""`amps pipeline reconcile`: check that two instances have the same messages."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from amps.cli.options import HelpfulCommand, option
from amps.cli.pipelines.common import job_options, shown_progress, spark_session
from amps.cli.pipelines.report_options import (
    DIRECTORY,
    json_option,
    printable,
    range_options,
    show_json,
    show_plan,
    show_table,
)

if TYPE_CHECKING:
    from amps.spark.pipelines.reconcile import PublisherDifferences, Reconciliation

DIFFERENT_STATUS = 2
ROWS_SHOWN = 20
_TITLES = (
    "publisher", "in A", "in B", "missing in A", "missing in B", "different", "reordered", "repeated in A",
    "repeated in B", "unnumbered in A", "unnumbered in B",
)  # fmt: skip


@click.command(
    "reconcile",
    cls=HelpfulCommand,
    example="amps pipeline reconcile ./london/journal ./paris/journal -output differences.parquet",
)
@click.argument("directory_a", type=DIRECTORY)
@click.argument("directory_b", type=DIRECTORY)
@option("archive-a", type=DIRECTORY, help="The JournalArchiveDirectory of A, if there is one.")
@option("archive-b", type=DIRECTORY, help="The JournalArchiveDirectory of B, if there is one.")
@option(
    "name-a",
    "instance_a",
    metavar="INSTANCE",
    help="The instance, if the directory A holds journals of several.",
)
@option(
    "name-b",
    "instance_b",
    metavar="INSTANCE",
    help="The instance, if the directory B holds journals of several.",
)
@option("topic", help="Only this topic; an expression if it has regex characters.")
@range_options
@option(
    "output",
    type=click.Path(path_type=Path),
    help="Write every difference to this directory, which ends in .parquet or .json; an older output is replaced.",
)
@json_option
@job_options
@click.pass_context
def reconcile(
    context: click.Context,
    directory_a: Path,
    directory_b: Path,
    archive_a: Path | None,
    archive_b: Path | None,
    instance_a: str | None,
    instance_b: str | None,
    topic: str | None,
    first: str | None,
    last: str | None,
    output: Path | None,
    as_json: bool,
    master: str,
    dry_run: bool,
) -> None:
    """Compare the messages of two logs, publisher by publisher. Exit status 2 if they differ.

    Messages are identified by publisher and sequence. A message that was published without a sequence has another
    number on every instance. It is identified by client, topic and content: it may be missing or reordered, but not
    different.

    A range applies to each log separately: the same message has another time in each, so near the ends of a range of
    times it may be in one of them only. A message that one instance has not received yet is missing in it.
    """
    from amps.spark.pipelines.reconcile import ReconcileOptions, check_differences_output, run
    from amps.spark.pipelines.report_source import MESSAGE_KINDS, Journals, planned_read

    a = Journals(directory_a, archive_a, instance_a, topic, first, last)
    b = Journals(directory_b, archive_b, instance_b, topic, first, last)
    if output is not None:
        check_differences_output(output)
    reads = [planned_read(journals, MESSAGE_KINDS) for journals in (a, b)]
    if dry_run:
        show_plan(*reads)
        return
    with spark_session(master, "amps-reconcile") as spark, shown_progress() as progress:
        found = run(spark, ReconcileOptions(a, b, output), progress)
    if as_json:
        show_json(found, same=found.same)
    else:
        _show(found, output)
    if not found.same:
        context.exit(DIFFERENT_STATUS)


def _show(found: "Reconciliation", output: Path | None) -> None:
    differing = [one for one in found.publishers if one.differences][:ROWS_SHOWN]
    rows: list[tuple[str | int, ...]] = [("all", *_cells(found.total))]
    rows += [(one.publisher, *_cells(one)) for one in differing]
    show_table(_TITLES, rows)
    click.echo("")
    if found.same:
        click.echo(f"the logs have the same messages, of {found.publisher_count:,} publishers")
        return
    for example in found.examples:
        bookmark = example.bookmark_a or example.bookmark_b or "no bookmark"
        places = ", ".join(
            f"position {position:,} in {log}"
            for log, position in (("A", example.position_a), ("B", example.position_b))
            if position is not None
        )
        what = example.difference.replace("_", " ").replace(" in a", " in A").replace(" in b", " in B")
        click.echo(
            f"{what}: {bookmark} of {printable(example.publisher)} on {printable(example.topic)}, {places}"
        )
    if found.total.differences > len(found.examples):
        click.echo(f"... and {found.total.differences - len(found.examples):,} more")
    click.echo(f"the logs differ: {found.total.differences:,} differences")
    if output is not None:
        click.echo(f"all of them are in {output}")


def _cells(of: "PublisherDifferences") -> tuple[int, ...]:
    return (
        of.messages_a,
        of.messages_b,
        of.missing_in_a,
        of.missing_in_b,
        of.different,
        of.reordered,
        of.repeated_in_a,
        of.repeated_in_b,
        of.unnumbered_a,
        of.unnumbered_b,
    )
