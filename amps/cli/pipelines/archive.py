"""`amps pipeline archive`: archive journals as Parquet, and list the journals that are safe to remove."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amps.cli.options import HelpfulCommand, option
from amps.cli.pipelines.common import counted, job_options, shown_progress, spark_session

if TYPE_CHECKING:
    from amps.spark.pipelines.archive import ArchiveResult
    from amps.spark.pipelines.archive_plan import ArchiveOptions

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_NUMBER = click.IntRange(min=0)


@click.command(
    "archive", cls=HelpfulCommand, example="amps pipeline archive ./amps-data/journal /archive/desk-7"
)
@click.argument("journals", type=_DIRECTORY)
@click.argument("parquet", type=click.Path(file_okay=False, path_type=Path))
@option("archive", type=_DIRECTORY, help="The JournalArchiveDirectory, if there is one.")
@option("name", metavar="INSTANCE", help="The instance, if the directory holds journals of several.")
@option("current", is_flag=True, help="Archive also the journal in use, up to its durable position.")
@option(
    "again",
    multiple=True,
    type=_NUMBER,
    metavar="NUMBER",
    help="Archive this journal again and replace its files; can be given more than once.",
)
@option(
    "verify",
    is_flag=True,
    help="Compare all archived rows with the journals; if a journal no longer exists, check its files' checksums.",
)
@job_options
@click.pass_context
def archive(
    context: click.Context,
    journals: Path,
    parquet: Path,
    archive: Path | None,
    name: str | None,
    current: bool,
    again: tuple[int, ...],
    verify: bool,
    master: str,
    dry_run: bool,
) -> None:
    """Copy full journals to Parquet, by topic and date, and say which are safe to remove.

    JOURNALS is a JournalDirectory, PARQUET the archive's directory. Archived journals are not archived again. Every row
    is read back and compared before its journal counts as archived. Before a journal is reported as safe to remove, its
    Parquet files are checked by their checksums. Nothing is removed.

    Exit status 1 if a journal is damaged, if the archive differs from a journal or has files that do not belong there,
    or if the place of an older journal is not known.
    """
    from amps.spark.pipelines.archive import run
    from amps.spark.pipelines.archive_plan import ArchiveOptions

    options = ArchiveOptions(
        journals=journals,
        parquet=parquet,
        archive=archive,
        instance=name,
        current=current,
        again=frozenset(again),
        verify=verify,
    )
    if dry_run:
        if not _show_plan(options):
            context.exit(1)
        return
    with spark_session(master, "amps pipeline archive") as spark, shown_progress() as progress:
        result = run(spark, options, progress)
    _show_result(result, options)
    if not result.sound:
        context.exit(1)


def _show_plan(options: "ArchiveOptions") -> bool:
    """Show the plan; return whether the places of all journals are known."""
    from amps.spark.pipelines.archive_plan import plan

    planned = plan(options)
    numbers = {journal.number for journal in planned.todo}
    for journal in planned.todo:
        how = "again" if journal.replaced else "its rest" if journal.known and journal.known.rows else "all"
        click.echo(
            f"  {journal.number:010d}  {journal.size_bytes:>15,} bytes  {how}  {journal.entry.place.path}"
        )
    size = sum(journal.size_bytes for journal in planned.todo)
    done = sum(1 for entry in planned.archived.values() if entry.full and entry.number not in numbers)
    click.echo(
        f"to archive: {counted(len(planned.todo), 'journal')}, {size:,} bytes; {done:,} are already archived"
    )
    if planned.lost:
        click.echo(f"removed before they were archived: journals {planned.lost[0]} to {planned.lost[-1]}")
    if planned.nowhere_text:
        click.echo(f"error: {planned.nowhere_text}", err=True)
    return not planned.nowhere_text


def _show_result(result: "ArchiveResult", options: "ArchiveOptions") -> None:
    for journal in result.done:
        state = "archived" if journal.full else f"archived up to position {journal.next_position}"
        click.echo(
            f"  {journal.number:010d}  {journal.rows:>12,} rows  {journal.size_bytes:>15,} bytes  as "
            f"{journal.stored_bytes:>13,}  {state}"
        )
    click.echo(f"{counted(len(result.done), 'journal')} archived, {counted(result.rows, 'row')}")
    for problem in result.problems:
        place = "" if problem.position is None else f" at position {problem.position}"
        click.echo(f"error: journal {problem.number}{place}: {problem.text}", err=True)
    for path in result.strays:
        click.echo(
            f"error: {path} belongs to no journal of the archive, and readers would see its rows: remove it",
            err=True,
        )
    if result.nowhere_text:
        click.echo(f"error: {result.nowhere_text}", err=True)
    _show_safe(result, options)


def _show_safe(result: "ArchiveResult", options: "ArchiveOptions") -> None:
    if not result.safe:
        click.echo("safe to remove: none")
        return
    size = sum(journal.size_bytes for journal in result.safe)
    click.echo(f"safe to remove: {counted(len(result.safe), 'journal')}, {size:,} bytes")
    for journal in result.safe:
        click.echo(f"  {journal.number:010d}  {journal.place.path}")
    if not result.removable:
        click.echo(
            "none of them can be removed yet: a server removes the oldest first, and an older one is not safe"
        )
        return
    last = result.removable[-1]
    name = f"{result.instance}.{last.number:010d}.journal"
    directory = shlex.quote(str(options.journals))
    archive = f" -archive {shlex.quote(str(options.archive))}" if options.archive is not None else ""
    click.echo(
        f"To have journal {last.number} and all older ones removed: by the running server, with the action "
        "amps-action-do-remove-journal and an Age that they have, or from its administration interface "
        f"(GET /amps/administrator/transaction_log/journals/{name}/remove); "
        f"while no server runs: amps journal remove {directory}{archive} -name {shlex.quote(result.instance)} "
        f"-up-to {last.number}"
    )
