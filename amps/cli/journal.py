"""`amps journal`: examine the files of a transaction log, without a server."""

from pathlib import Path

import click

from amps.cli.options import HelpfulCommand


@click.group()
def journal() -> None:
    """Examine the files of a transaction log."""


@journal.command("verify", cls=HelpfulCommand, example="amps journal verify ./amps-data/journal")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_context
def verify(context: click.Context, directory: Path) -> None:
    """Read every record of every journal in a directory and say where one is damaged.

    Changes nothing. Exit status 1 if anything is damaged or missing.
    """
    # Only this command needs these; the others do not wait for them to be loaded.
    from rich.console import Console
    from rich.progress import Progress

    from amps.journal.names import JOURNAL_SUFFIX
    from amps.journal.verify import instance_names, verify_instance

    names = instance_names(directory)
    if not names:
        click.echo(f"error: there are no journals (*{JOURNAL_SUFFIX}) in {directory}", err=True)
        context.exit(1)
    files = records = problems = 0
    total_bytes = sum(path.stat().st_size for path in directory.glob(f"*{JOURNAL_SUFFIX}"))
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=total_bytes)
        for name in names:
            for report in verify_instance(directory, name, lambda size: progress.advance(task, size)):
                files += 1
                records += report.records
                problems += len(report.problems)
                note = f" ({report.note})" if report.note else ""
                lines = report.problems or [f"sound, {report.records:,} records{note}"]
                for line in lines:
                    click.echo(f"{report.path}: {line}")
    click.echo(f"{files} files, {records:,} records, {problems} problems")
    if problems:
        context.exit(1)
