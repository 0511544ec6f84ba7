"""The shared parts of all utilities: failures, output, and the display of progress."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from amps.cli.failures import describe, drop_output, flush_output, tell, tell_system_error, write_whole
from amps.cli.options import HelpfulCommand
from amps.version import VERSION

SETTINGS = {"help_option_names": ["-h", "--help", "-help"], "max_content_width": 110}
Begin = Callable[[str, int], Callable[[int], object]]
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")


class UtilityCommand(HelpfulCommand):
    """A command that reports a fault of a file in one line, and ends quietly when its output pipe is closed."""

    failure_status = 1

    def invoke(self, ctx: click.Context) -> Any:
        # Imported here: `--help` and other commands do not need it.
        from amps._core.journal.reader import LogDamaged

        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Otherwise Python would report the error again when it flushes at exit.
            drop_output()
            ctx.exit(self.failure_status)
        except LogDamaged as error:
            flush_output()
            tell(describe(error))
            ctx.exit(self.failure_status)
        except OSError as error:
            tell_system_error(error)
            ctx.exit(self.failure_status)
        return result


def fail(context: click.Context, text: str) -> NoReturn:
    """Print an error and end with status 1."""
    sys.stdout.flush()
    click.echo(f"error: {text}", err=True)
    context.exit(1)


def writer() -> Callable[[bytes], object]:
    """Return a function that writes bytes to standard output; on a terminal, control characters are escaped."""
    sys.stdout.flush()
    if not sys.stdout.isatty():
        return write_whole
    return lambda data: write_whole(_CONTROL.sub(lambda control: b"\\x%02x" % control[0][0], data))


version_option = click.version_option(VERSION, "--version", message="%(prog)s %(version)s")


@contextlib.contextmanager
def reading_progress(path: Path, description: str = "reading") -> Iterator[Callable[[int], object] | None]:
    """Show how far a file was read; yield the function to call with the position.

    Yields None without a terminal, or if standard output is a terminal, too.
    """
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
    """Show several kinds of work on a terminal. The yielded function begins one and returns its update function."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:

        def begin(description: str, total: int) -> Callable[[int], object]:
            task = progress.add_task(description, total=total)
            return lambda done: progress.update(task, completed=done)

        yield begin
