"""The output formats of received messages (`-output`, `-format`).

A printer turns messages into the bytes to write. Printers of lines write each message at once. The table collects the
first rows until no message waits, or it has enough of them, to choose the widths of its columns.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import click

from amps.cli.bodies import Number, fields_of, header_of, json_line, printable, text_of
from amps.cli.layouts import Layout, body
from amps.client import Message

OUTPUTS = ("raw", "json", "pretty", "table")
TABLE_COLUMNS_WITHOUT_TERMINAL = 120
TABLE_COLUMNS_MIN = 20
CELL_MAX = 40
"""Widest column, in characters of a terminal. Wider values end with an ellipsis."""
CELL_MIN = 6
ROWS_FIRST = 50
"""Rows that are collected at most before the widths are chosen."""
BODY = "data"
"""The column with the text of a body that has no fields."""
TOPIC = "topic"
GAP = "  "
MORE = "…"


class Printer(Protocol):
    """Turns messages into output. `timestamp`, `bookmark`: whether it shows these header fields."""

    timestamp: bool
    bookmark: bool

    def add(self, message: Message) -> bytes:
        """The bytes to write for a message, if any yet."""

    def flush(self) -> bytes:
        """The bytes held back: called when no more messages wait, and at the end."""


class Lines:
    """Writes each message by itself, followed by a newline."""

    def __init__(
        self, show: Callable[[Message], bytes], *, timestamp: bool = False, bookmark: bool = False
    ) -> None:
        self._show = show
        self.timestamp = timestamp
        self.bookmark = bookmark

    def add(self, message: Message) -> bytes:
        return self._show(message) + b"\n"

    def flush(self) -> bytes:
        return b""


class Table:
    """Writes messages as the rows of a table: fields are columns.

    `columns`: fields to show, in this order; None: all fields, in the order of the messages, as far as `width`
    characters have room for them. A field that is new in a later message becomes a column, with a new heading, if there
    is room. A row ends with an ellipsis if the message has fields that are not shown.
    """

    timestamp = False
    bookmark = False

    def __init__(self, message_type: str, topic: str, width: int, columns: tuple[str, ...] | None) -> None:
        self._message_type = message_type
        self._topic = topic
        self._width = max(width, TABLE_COLUMNS_MIN)
        self._chosen = columns
        self._widths: dict[str, int] = {}
        self._waiting: list[dict[str, str]] | None = []

    def add(self, message: Message) -> bytes:
        row = self._row(message)
        if self._waiting is not None:
            self._waiting.append(row)
            return self.flush() if len(self._waiting) >= ROWS_FIRST else b""
        added = self._chosen is None and self._add_columns([row])
        return _encoded(([self._heading()] if added else []) + [self._line(row)])

    def flush(self) -> bytes:
        rows = self._waiting
        if not rows:
            return b""
        self._waiting = None
        self._add_columns(rows)
        return _encoded([self._heading(), *map(self._line, rows)])

    def _row(self, message: Message) -> dict[str, str]:
        fields = fields_of(message, self._message_type)
        if fields is None:
            fields = {BODY: message.data.decode("utf-8", "backslashreplace")}
        if self._chosen is not None:
            fields = {name: field_at(fields, name, message) for name in self._chosen}
        row = {_cell(name): _cell(value) for name, value in fields.items()}
        if message.topic != self._topic and self._chosen is None:
            row = {TOPIC: _cell(message.topic), **row}
        return row

    def _add_columns(self, rows: list[dict[str, str]]) -> bool:
        """Add the columns that rows have and the table has not, as far as there is room. True if there are any."""
        from rich.cells import cell_len  # only tables need it

        names = {name: None for row in rows for name in row if name not in self._widths}
        left = self._width - sum(width + len(GAP) for width in self._widths.values()) - len(MORE)
        added = False
        for name in names:
            wanted = min(CELL_MAX, max(cell_len(name), *(cell_len(row.get(name, "")) for row in rows)))
            width = min(max(wanted, 1), left - len(GAP))
            if width < min(wanted, CELL_MIN):
                break
            self._widths[name] = width
            left -= width + len(GAP)
            added = True
        return added

    def _heading(self) -> str:
        return self._line({name: name for name in self._widths})

    def _line(self, row: Mapping[str, str]) -> str:
        cells = [_fitted(row.get(name, ""), width) for name, width in self._widths.items()]
        if not row.keys() <= self._widths.keys():
            cells.append(MORE)
        return GAP.join(cells).rstrip()


def field_at(fields: Mapping[str, Any], name: str, message: Message) -> object:
    """The value of a chosen column: a field, `/a/b` for one inside another, or `{topic}` for the header."""
    if name[:1] == "{" and name[-1:] == "}":
        return header_of(message).get(name[1:-1], "")
    value: Any = fields
    if name in fields:
        return fields[name]
    for part in name.strip("/").split("/"):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return value


def _cell(value: object) -> str:
    """A value in one line."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = value if isinstance(value, str) else _compact(value)
    if text.isprintable():
        return text
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _compact(value: object) -> str:
    """A nested value as JSON, its numbers as they are written."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_compact(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def _fitted(text: str, width: int) -> str:
    """Text with exactly this width on a terminal."""
    if text.isascii():
        return f"{text:{width}}" if len(text) <= width else text[: width - 1] + MORE
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + MORE


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def _pretty(message_type: str, colours: bool) -> Callable[[Message], bytes]:
    def show(message: Message) -> bytes:
        header = header_of(message)
        topic = printable(str(header.pop("topic", "")))
        rest = "  ".join(f"{name} {printable(str(value))}" for name, value in header.items())
        heading = f"\x1b[1m{topic}\x1b[0m  \x1b[2m{rest}\x1b[0m" if colours else f"{topic}  {rest}"
        text = re.sub("^", "  ", printable(text_of(message, message_type)), flags=re.MULTILINE)
        return f"{heading}\n{text}".encode("utf-8", "backslashreplace")

    return show


def make_printer(
    output: str | None, layout: Layout | None, columns: tuple[str, ...] | None, message_type: str, topic: str
) -> Printer:
    """The printer for these options. Raises UsageError for options that exclude each other."""
    if layout is not None and output is not None:
        raise click.UsageError("-format and -output exclude each other: leave one of them out")
    if columns is not None and output != "table":
        raise click.UsageError("-columns are the columns of a table: add -output table")
    if layout is not None:
        return Lines(layout, timestamp="timestamp" in layout.names, bookmark="bookmark" in layout.names)
    if output == "json":
        return Lines(lambda message: json_line(message, message_type), timestamp=True, bookmark=True)
    if output == "pretty":
        colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        return Lines(_pretty(message_type, colours), timestamp=True, bookmark=True)
    if output == "table":
        size = shutil.get_terminal_size((TABLE_COLUMNS_WITHOUT_TERMINAL, 24))
        return Table(message_type, topic, size.columns, columns)
    return Lines(body)
