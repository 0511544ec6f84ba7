"""The shared parts of the reporting commands of `amps pipeline`: options for journals, intervals, tables and JSON."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amps.cli.options import option

if TYPE_CHECKING:
    from amps.spark.pipelines.report_source import PlannedRead

_Command = TypeVar("_Command", bound=Callable[..., Any])
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_US_PER_S = 1_000_000
_INTERVAL_US_MIN = 1000


class Interval(click.ParamType[int]):
    """An interval, as microseconds."""

    name = "interval"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        from amps.config.units import read_interval

        try:
            interval_us = round(read_interval(value) * _US_PER_S)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if interval_us < _INTERVAL_US_MIN:
            self.fail(f"{value!r} is shorter than 1ms", param, ctx)
        return interval_us


INTERVAL = Interval()


def range_options(command: _Command) -> _Command:
    """Add `first` and `last`: the range of the log."""
    command = option(
        "to", "last", metavar="END", help="End of the range, included; with `)` after it, excluded."
    )(command)  # type: ignore[assignment]
    return option(  # type: ignore[return-value]
        "from",
        "first",
        metavar="BEGIN",
        help="Start of the range, excluded: a bookmark or a time (YYYYmmddTHHMMSS, UTC); with `[` before it, included.",
    )(command)


def log_options(command: _Command) -> _Command:
    """Add `directory`, `archive` and `instance`: one log."""
    command = option("archive", type=DIRECTORY, help="The JournalArchiveDirectory, if there is one.")(command)  # type: ignore[assignment]
    command = option(
        "name",
        "instance",
        metavar="INSTANCE",
        help="The instance, if the directory holds journals of several.",
    )(command)  # type: ignore[assignment]
    return click.argument("directory", metavar="JOURNAL_DIRECTORY", type=DIRECTORY)(command)


def json_option(command: _Command) -> _Command:
    """Adds `as_json`."""
    return option("json", "as_json", is_flag=True, help="Write JSON to standard output, not a table.")(
        command
    )  # type: ignore[return-value]


def show_plan(*reads: "PlannedRead") -> None:
    """Show the result of a dry run."""
    for read in reads:
        files = f"{read.journals:,} journal{'' if read.journals == 1 else 's'}"
        of = printable(read.instance)
        click.echo(f"{read.directory}: would read {files} of {of}, {read.size_bytes:,} bytes")


def show_json(result: Any, **more: Any) -> None:
    """Write a dataclass of results as JSON; `more`: values of its properties."""
    click.echo(json.dumps({**dataclasses.asdict(result), **more}, indent=2))


def show_table(titles: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]) -> None:
    """Print a table; columns have the width of their content, and numbers are aligned right."""
    lines = [tuple(titles), *(tuple(_cell(cell) for cell in row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(titles))]
    for line in lines:
        cells = [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def _cell(cell: str | int | float | None) -> str:
    match cell:
        case None:
            return "-"
        case int():
            return f"{cell:,}"
        case float():
            return f"{cell:,.1f}"
        case _:
            return printable(cell)


def printable(text: str) -> str:
    """Return a text from a log without control characters: names may contain commands for terminals."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in text
    )
