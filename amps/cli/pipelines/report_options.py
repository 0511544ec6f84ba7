"""What the reporting commands of `amps pipeline` share: options that choose journals, intervals, tables and JSON."""

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
    """Adds `first` and `last`: the range of the log."""
    command = option(
        "to", "last", metavar="END", help="Up to there; `)` behind it: without that message itself."
    )(command)  # type: ignore[assignment]
    return option(  # type: ignore[return-value]
        "from",
        "first",
        metavar="BEGIN",
        help="What comes after a bookmark or a time (YYYYmmddTHHMMSS, UTC); `[` before it: that message, too.",
    )(command)


def log_options(command: _Command) -> _Command:
    """Adds `directory`, `archive` and `instance`: one log."""
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
    """What a dry run tells."""
    for read in reads:
        files = f"{read.journals:,} journal{'' if read.journals == 1 else 's'}"
        of = printable(read.instance)
        click.echo(f"{read.directory}: would read {files} of {of}, {read.size_bytes:,} bytes")


def show_json(result: Any, **more: Any) -> None:
    """A dataclass of results as JSON; `more`: what its properties say."""
    click.echo(json.dumps({**dataclasses.asdict(result), **more}, indent=2))


def show_table(titles: Sequence[str], rows: Iterable[Sequence[str | int | float | None]]) -> None:
    """Columns as wide as they have to be; what is measured stands to the right."""
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
    """A text from a log as it can be shown: names may hold what terminals take for commands."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in text
    )
