"""The spelling of options, and the format of help.

Every option with a long name is accepted with one dash or two (`-topic orders`, `--topic orders`,
`--topic=orders`): users of other command-line clients for the same servers type one dash. Help pages list
required options first and end with an example.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(name: str, parameter: str | None = None, *aliases: str, **attributes: Any) -> Decorator:
    """`click.option` for `-name` and `--name` (and aliases alike); `parameter` is the Python argument."""
    spellings = [dashes + word for word in (name, *aliases) for dashes in ("-", "--")]
    if parameter is not None:
        spellings.append(parameter)
    return click.option(*spellings, **attributes)


class HelpfulCommand(click.Command):
    """A command whose help shows required parameters, options and an example, in this order."""

    def __init__(self, *args: Any, example: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.example = example

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # the parser consumes `args`
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise self._no_such_option(error.option_name, given, ctx) from None

    def _no_such_option(self, found: str, given: list[str], ctx: click.Context) -> click.UsageError:
        """Return the error with the whole word: after one dash click takes the first letter for the option."""
        known = {spelling for parameter in self.get_params(ctx) for spelling in parameter.opts}
        words = [word.partition("=")[0] for word in given]
        meant = next((word for word in words if word.startswith(found) and word not in known), found)
        alike = {spelling for spelling in known if spelling.startswith("--") == meant.startswith("--")}
        return click.NoSuchOption(meant, possibilities=sorted(alike), ctx=ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        required: list[tuple[str, str]] = []
        optional: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or not isinstance(parameter, click.Option):
                continue
            names, text = record
            needed = parameter.required or getattr(parameter, "listed_as_required", False)
            (required if needed else optional).append((once_each(names), text))
        for title, rows in (("Required Parameters", required), ("Options", optional)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        write_example(formatter, self.example)


class HelpfulGroup(click.Group):
    """A group of commands whose help ends with an example."""

    def __init__(self, *args: Any, example: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.example = example

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        write_example(formatter, self.example)


def write_example(formatter: click.HelpFormatter, example: str) -> None:
    """Write the last section of a help page."""
    if example:
        with formatter.section("Example"):
            formatter.write_text(example)


def once_each(names: str) -> str:
    """Return `-topic, --topic TEXT` as `-topic TEXT`: help shows only one of the two spellings."""
    spelled: list[str] = []
    metavar = ""
    for part in names.split(", "):
        word, _, rest = part.partition(" ")
        metavar = rest or metavar
        bare = word.lstrip("-")
        if bare not in [known.lstrip("-") for known in spelled]:
            spelled.append(word)
    return f"{', '.join(spelled)} {metavar}".strip()


_NUMBER_MAX = 1e9
_UNIX_SECONDS = re.compile(r"[1-9]\d{9}(?:\.\d{1,9})?", re.ASCII)  # a shorter number may be a date
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SAMPLE_UNIX_S = 1_801_301_400


class PositiveNumber(click.ParamType[float]):
    """A positive decimal number, in a range that is usable as a time in seconds or as a rate per second."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            self.fail(f"{value!r} is no positive number", param, ctx)
        if not 1 / _NUMBER_MAX <= number <= _NUMBER_MAX:
            self.fail(f"{value!r} does not lie between {1 / _NUMBER_MAX:g} and {_NUMBER_MAX:g}", param, ctx)
        return number


POSITIVE_NUMBER = PositiveNumber()


class Delay(click.ParamType[float]):
    """The delay of a message in seconds, given as an interval such as 500ms."""

    name = "interval"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from amps.config.units import read_delay

        try:
            return read_delay(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DELAY = Delay()


class Moment(click.ParamType[datetime]):
    """A time: ISO 8601, in UTC if it has no zone, or UNIX seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        text = str(value).strip()
        try:
            if _UNIX_SECONDS.fullmatch(text):
                return datetime.fromtimestamp(float(text), UTC)
            if _ISO_DATE.match(text):
                moment = datetime.fromisoformat(text)
                return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        except ValueError:
            pass  # such as the 30th of February
        return self.fail(f"{text!r} is no time, such as 2027-01-31T09:30:00Z or {_SAMPLE_UNIX_S}", param, ctx)


MOMENT = Moment()
