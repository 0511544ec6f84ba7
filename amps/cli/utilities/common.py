"""What all utilities share: how they fail, how they write, how they show that they are at work."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from amps.cli.options import HelpfulCommand
from amps.version import VERSION

SETTINGS = {"help_option_names": ["-h", "--help", "-help"], "max_content_width": 110}
Begin = Callable[[str, int], Callable[[int], object]]
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")


class UtilityCommand(HelpfulCommand):
    """A command that says in one line what is wrong with a file, and ends quietly when nobody reads on."""

    failure_status = 1

    def invoke(self, ctx: click.Context) -> Any:
        # Not for `--help` nor for those that import this module and run another command.
        from amps._core.journal.reader import LogDamaged

        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python would complain once more when it flushes at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(self.failure_status)
        except (LogDamaged, OSError) as error:
            with contextlib.suppress(BrokenPipeError):
                sys.stdout.flush()
            tell_error(error)
            ctx.exit(self.failure_status)
        return result


def fail(context: click.Context, text: str) -> NoReturn:
    """Say what is wrong and end with status 1."""
    sys.stdout.flush()
    click.echo(f"error: {text}", err=True)
    context.exit(1)


def tell_error(error: Exception) -> None:
    """One line on standard error."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        click.echo(f"error: {place}{error.strerror or error}", err=True)
    else:
        click.echo(f"error: {error}", err=True)


def writer() -> Callable[[bytes], object]:
    """Writes bytes to standard output as they are; for a terminal, characters that would control it are escaped."""
    sys.stdout.flush()
    write = sys.stdout.buffer.write
    if not sys.stdout.isatty():
        return write
    return lambda data: write(_CONTROL.sub(lambda control: b"\\x%02x" % control[0][0], data))


version_option = click.version_option(VERSION, "--version", message="%(prog)s %(version)s")


@contextlib.contextmanager
def reading_progress(path: Path, description: str = "reading") -> Iterator[Callable[[int], object] | None]:
    """Shows how far a file was read, unless what is found appears on the same terminal. Gives what is to be told."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    total = path.stat().st_size if path.is_file() else None
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{description} {path.name}", total=total)
        yield lambda position: progress.update(task, completed=position)


@contextlib.contextmanager
def bytes_progress() -> Iterator[Begin]:
    """Shows work of several kinds on a terminal: what is given begins one, and gives what is to be told of it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:

        def begin(description: str, total: int) -> Callable[[int], object]:
            task = progress.add_task(description, total=total)
            return lambda done: progress.update(task, completed=done)

        yield begin
