"""`amps journal`: examine and manage the files of a transaction log.

The commands list and verify work beside a running server. The others change files only while no server runs: they
hold the directory's lock, and otherwise fail and refer to the server's own actions.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amps.cli.options import HelpfulCommand, HelpfulGroup

if TYPE_CHECKING:
    from amps.journal.listing import JournalEntry

_Command = TypeVar("_Command", bound=Callable[..., Any])
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group(cls=HelpfulGroup, example="amps journal list ./amps-data/journal")
def journal() -> None:
    """Examine and manage the files of a transaction log."""


def _directories(command: _Command) -> _Command:
    command = click.option(
        "-archive", "--archive", type=_DIRECTORY, help="The JournalArchiveDirectory, if there is one."
    )(command)
    return click.argument("directory", type=_DIRECTORY)(command)


def _choice(command: _Command) -> _Command:
    command = click.option(
        "-age", "--age", help="Journals not written to for that long, and all older ones: 12h, 7d, ..."
    )(command)
    command = click.option(
        "-up-to", "--up-to", type=click.IntRange(min=0), help="That journal and all older ones, by number."
    )(command)
    return click.option("-name", "--name", help="The instance, if the directory holds journals of several.")(
        command
    )


class _Failure(click.ClickException):
    """A failure, shown in one line like all failures of commands."""

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)


def _fail(text: str) -> click.ClickException:
    return _Failure(text)


@journal.command("list", cls=HelpfulCommand, example="amps journal list ./amps-data/journal")
@_directories
def list_(directory: Path, archive: Path | None) -> None:
    """Show the journals, oldest first: number, where it lies, size, and the times of its messages."""
    from amps._core.journal.reader import LogDamaged
    from amps.journal.listing import list_journals, read_times

    for name in _names(directory, archive):
        try:
            entries = list_journals(directory, archive, name)
            for entry in entries:
                if not entry.min_timestamp_ns:
                    read_times(entry)
        except (LogDamaged, OSError) as problem:
            raise _fail(str(problem)) from None
        click.echo(f"{name}: {_counted(len(entries), 'journal')}")
        for entry in entries:
            form = ["archived"] * entry.place.archived + ["compressed"] * entry.place.compressed
            state = ", ".join(["full" if entry.full else "current", *form])
            times = f"{_utc(entry.min_timestamp_ns)} to {_utc(entry.max_timestamp_ns)}"
            click.echo(f"  {entry.number:010d}  {entry.size_bytes:>15,} bytes  {times}  {state}")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _utc(timestamp_ns: int) -> str:
    if not timestamp_ns:
        return "-"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(timestamp_ns // 10**9))


def _names(directory: Path, archive: Path | None) -> list[str]:
    from amps.journal.names import JOURNAL_SUFFIX, instance_names

    names = instance_names(directory, archive)
    if not names:
        raise _fail(f"there are no journals (*{JOURNAL_SUFFIX}) in {directory}")
    return names


@journal.command("verify", cls=HelpfulCommand, example="amps journal verify ./amps-data/journal")
@_directories
@click.option(
    "-jobs",
    "--jobs",
    type=click.IntRange(min=1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="one per processor",
    help="How many journals to read at a time; 1 for a disk that has to seek.",
)
@click.pass_context
def verify(context: click.Context, directory: Path, archive: Path | None, jobs: int) -> None:
    """Read every record of every journal, compressed ones too, and say where one is damaged.

    Changes nothing. Exit status 1 if anything is damaged or missing.
    """
    from amps.journal.verify import bytes_to_verify, verify_instance

    names = _names(directory, archive)
    files = records = problems = 0
    total_bytes = sum(bytes_to_verify(directory, archive, name) for name in names)
    with _Bar("reading", total_bytes) as bar:
        for name in names:
            for report in verify_instance(directory, name, bar.advance, archive, jobs):
                files += 1
                records += report.records
                problems += len(report.problems)
                note = f" ({report.note})" if report.note else ""
                lines = report.problems or [f"sound, {report.records:,} records{note}"]
                for line in lines:
                    click.echo(f"{report.path}: {line}")
    click.echo(f"{_counted(files, 'file')}, {_counted(records, 'record')}, {_counted(problems, 'problem')}")
    if problems:
        context.exit(1)


class _Bar:
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, what: str, total_bytes: int) -> None:
        # Only these commands need it; the import here keeps other commands fast.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task(what, total=total_bytes)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def advance(self, size_bytes: int) -> None:
        """Advance the bar by `size_bytes`."""
        self._progress.advance(self._task, size_bytes)

    def run(self, steps: Iterator[int]) -> None:
        """Run a piece of work to its end."""
        for size_bytes in steps:
            self.advance(size_bytes)


@journal.command(
    "archive",
    cls=HelpfulCommand,
    example="amps journal archive ./journal -archive /slow/journal -age 7d",
)
@_directories
@_choice
def archive(
    directory: Path, archive: Path | None, age: str | None, up_to: int | None, name: str | None
) -> None:
    """Move full journals to the archive directory, while no server runs on them."""
    from amps.journal.disk import Disk
    from amps.journal.moving import archive_journal

    if archive is None:
        raise _fail("give -archive with the destination: the JournalArchiveDirectory of the configuration")

    def work(entry: "JournalEntry", instance_name: str) -> Iterator[int] | None:
        if entry.place.archived:
            return None
        return archive_journal(Disk(), instance_name, entry.place, archive)

    _manage("archived", directory, archive, age, up_to, name, work, 2)


@journal.command("compress", cls=HelpfulCommand, example="amps journal compress ./journal -age 1d")
@_directories
@_choice
def compress(
    directory: Path, archive: Path | None, age: str | None, up_to: int | None, name: str | None
) -> None:
    """Compress full journals where they lie, while no server runs on them; `zstd -d` would restore them."""
    from amps.journal.compression import PASSES, compress_journal
    from amps.journal.disk import Disk
    from amps.journal.names import compressed_path

    def work(entry: "JournalEntry", instance_name: str) -> Iterator[int] | None:
        if entry.place.compressed:
            return None
        path = entry.place.path
        return compress_journal(Disk(), path, compressed_path(path.parent, instance_name, entry.number))

    _manage("compressed", directory, archive, age, up_to, name, work, PASSES)


@journal.command("remove", cls=HelpfulCommand, example="amps journal remove ./journal -age 30d")
@_directories
@_choice
def remove(
    directory: Path, archive: Path | None, age: str | None, up_to: int | None, name: str | None
) -> None:
    """Remove the oldest full journals, while no server runs on them. Their messages are deleted permanently.

    With -up-to it also records that journals which no longer exist were removed on purpose.
    """
    from amps.journal.disk import Disk
    from amps.journal.moving import remove_journal

    def work(entry: "JournalEntry", instance_name: str) -> Iterator[int] | None:
        remove_journal(Disk(), directory, archive, instance_name, entry.number)
        return iter(())

    _manage("removed", directory, archive, age, up_to, name, work, 0)


def _manage(
    done: str,
    directory: Path,
    archive: Path | None,
    age: str | None,
    up_to: int | None,
    name: str | None,
    work: Callable[["JournalEntry", str], Iterator[int] | None],
    passes: int,
) -> None:
    """Apply an operation to the chosen journals, oldest first, holding the directory's lock.

    `passes`: how often the operation reads a file.
    """
    from amps._core.journal.reader import LogDamaged
    from amps.server.core.lock import DirectoryInUse, lock_directory

    names = _names(directory, archive)
    if name is None and len(names) > 1:
        raise _fail(f"there are journals of {', '.join(names)}; choose an instance with -name")
    instance_name = name or names[0]
    if instance_name not in names:
        raise _fail(
            f"there are no journals of {instance_name!r} in {directory}; there are {', '.join(names)}"
        )
    try:
        lock = lock_directory(directory, instance_name, lambda record_id, /, **values: None)
    except DirectoryInUse as problem:
        raise _fail(
            f"a server runs on these journals ({problem.holder}): use its actions to manage them, or stop it first"
        ) from None
    except OSError as problem:
        raise _fail(f"{directory} cannot be locked: {problem}") from None
    try:
        chosen = _chosen(directory, archive, instance_name, age, up_to)
        if done == "removed" and chosen:
            _write_publishers(directory, archive, instance_name)
        elif done == "removed" and up_to is not None:
            _note_removal(directory, instance_name, up_to)
        with _Bar(done, passes * sum(entry.header.size for entry in chosen)) as bar:
            count = 0
            for entry in chosen:
                steps = work(entry, instance_name)
                if steps is not None:
                    bar.run(steps)
                    count += 1
                    click.echo(f"{entry.place.path}: {done}")
        click.echo(f"{_counted(count, 'journal')} {done}")
    except (OSError, LogDamaged, ValueError) as problem:
        raise _fail(f"{problem}; the journal stays as it is") from None
    finally:
        lock.release()


def _chosen(
    directory: Path, archive: Path | None, instance_name: str, age: str | None, up_to: int | None
) -> "list[JournalEntry]":
    from amps.config.units import read_interval
    from amps.journal.listing import list_journals, oldest_of_age, oldest_up_to

    if (age is None) == (up_to is None):
        raise _fail("choose the journals with either -age or -up-to")
    entries = list_journals(directory, archive, instance_name)
    full = [entry for entry in entries if entry.full]
    if up_to is not None:
        return oldest_up_to(full, up_to, entries[-1].number if entries else 0)
    assert age is not None
    return oldest_of_age(full, time.time_ns(), read_interval(age))


def _write_publishers(directory: Path, archive: Path | None, instance_name: str) -> None:
    """Write the last sequences of publishers before journals are removed. Raises OSError, LogDamaged."""
    from amps.server.core.offline import write_publishers

    write_publishers(directory, archive, instance_name)


def _note_removal(directory: Path, instance_name: str, number: int) -> None:
    """Record that this journal and all older ones were removed on purpose. Raises OSError."""
    from amps.journal.disk import Disk
    from amps.journal.removals import note_removal

    if not note_removal(Disk(), directory, instance_name, number):
        raise OSError(f"nothing can be written in {directory}")
