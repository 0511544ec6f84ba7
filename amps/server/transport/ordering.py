"""The order of a query's results (`orderby`; protocol.md §9.4, sow.md §10 and D8): its text, and sorting in steps.

Ascending means NULL first, then NaN, numbers, and texts by their bytes. Booleans count as 0 and 1, objects as NULL, an
array as its first element. `TEXT` compares numbers as the texts that represent them. In queries of SOW topics, a text
that has the form of a number counts as one, unless `TEXT` is given (sow.md §25, 40). Records with equal fields are
ordered by transaction id, those of SOW topics by key, so that consecutive pages neither repeat nor omit records.

Sorting must not block the worker or take unlimited memory. Records are sorted in runs, which are merged while they are
sent. For a page near the beginning, only as many records are kept as the page may need. HELD_BYTES_MAX bounds the rest.
"""

import heapq
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from amps._core.values.fields import Extractor, FieldSet, FieldValues
from amps.expressions import ExpressionError
from amps.expressions.parser import parse_expression
from amps.expressions.syntax import Field, Path
from amps.server.transport.failures import CommandFailure
from amps.server.transport.options import split_options

FIELDS_MAX = 32
CHARACTERS_MAX = 4096
"""Limit of the text, which is parsed in a single step."""
HELD_BYTES_MAX = 64 << 20
"""Memory that one query may hold; a larger result is refused."""
ROW_BYTES = 400
"""Memory of a held record besides its message."""
RUN_ROWS = 1024
"""Number of records sorted at once, which takes about a millisecond."""
PAGE_ROWS_MAX = 4096
"""For a page that ends within so many records, only these records are held."""
TEXT_BYTES_MAX = 1024
"""Only this part of a text is compared."""

_ITEM = re.compile(r"(\S+)(?:\s+(ASC|DESC))?(\s+TEXT)?", re.IGNORECASE)
_NUMERIC = re.compile(rb"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?")
_COMPLEMENT = bytes(range(255, -1, -1))
_NULL, _NAN, _NUMBER, _TEXT = range(4)


class Row(NamedTuple):
    """A record of a query's result. `queue`: its number, or that of the topic among those of the query. `txid`: of a
    record of a SOW topic, its key. Times are UNIX times; `deliver_at_ns`: 0 = it had no delay. `key`: the text of a key
    that the publisher provided.
    """

    queue: int
    txid: int
    timestamp_ns: int
    correlation_id: bytes
    deliver_at_ns: int
    payload: bytes
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class OrderField:
    """One field that a query is ordered by."""

    path: Path
    descending: bool = False
    as_text: bool = False


class ResultTooLarge(Exception):
    """More matching records than can be sorted."""


def parse_order(text: str) -> tuple[OrderField, ...]:
    """Parse the header `orderby`. An empty text gives no fields. Raises CommandFailure."""
    fields = []
    if len(text) > CHARACTERS_MAX:
        raise CommandFailure("invalid orderby", f"longer than {CHARACTERS_MAX} characters")
    for item in split_options(text) if text.strip() else ():
        match = _ITEM.fullmatch(item)
        if match is None:
            raise CommandFailure("invalid orderby", f"{item[:100]!r} is no field with ASC, DESC or TEXT")
        try:
            field = parse_expression(match[1])
        except ExpressionError as error:
            raise CommandFailure("invalid orderby", str(error)) from error
        if not isinstance(field, Field) or field.element is not None or field.of is not None:
            raise CommandFailure("invalid orderby", f"{match[1][:100]!r} is no field")
        fields.append(OrderField(field.path, (match[2] or "").upper() == "DESC", match[3] is not None))
        if len(fields) > FIELDS_MAX:
            raise CommandFailure("invalid orderby", f"more than {FIELDS_MAX} fields")
    return tuple(fields)


def _ascending(value: object) -> tuple[int, Any]:
    """The sort key of a value: its kind, and the key within the kind."""
    if isinstance(value, bytes) and value:
        # No such key is a prefix of another one, so that inverting its bits inverts the order.
        return _TEXT, value[:TEXT_BYTES_MAX].replace(b"\0", b"\0\1") + b"\0\0"
    if isinstance(value, int | float):
        return (_NUMBER, value) if value == value else (_NAN, 0)
    return _NULL, 0


def _descending(value: object) -> tuple[int, Any]:
    kind, within = _ascending(value)
    return -kind, within.translate(_COMPLEMENT) if kind == _TEXT else -within


class Ordering:
    """Sorts records of one message type."""

    def __init__(
        self, fields: Sequence[OrderField], extractor: Extractor, rows_max: int, *, numeric_texts: bool = False
    ) -> None:
        """`rows_max`: how many records are needed, from the beginning of the order. `numeric_texts`: texts that have
        the form of a number count as one.
        """
        self._numeric_texts = numeric_texts
        self._fields = fields
        self._extractor = extractor
        self._wanted = FieldSet()
        self._slots = [self._wanted.add(field.path) for field in fields]
        self._values = FieldValues()
        self._rows_max = min(rows_max, sys.maxsize)
        self._is_short = rows_max <= PAGE_ROWS_MAX
        self._waiting: list[tuple[Any, ...]] = []
        self._runs: list[list[tuple[Any, ...]]] = []
        self._worst: tuple[Any, ...] | None = None
        self._held_bytes = 0
        self._merged: Iterator[tuple[Any, ...]] = iter(())

    def add(self, rows: Sequence[Row]) -> None:
        """Add records. Raises ResultTooLarge."""
        if not self._rows_max:
            return
        for row in rows:
            keyed = self._keyed(row)
            if self._worst is not None and keyed > self._worst:
                continue
            self._waiting.append(keyed)
            self._held_bytes += _held_bytes(keyed)
            if len(self._waiting) >= RUN_ROWS:
                self._sort()
        if self._held_bytes > HELD_BYTES_MAX and self._is_short:
            self._sort()
        if self._held_bytes > HELD_BYTES_MAX:
            raise ResultTooLarge

    def _keyed(self, row: Row) -> tuple[Any, ...]:
        """The sort key of a record, followed by the record. Keys differ at the latest in the queue's number."""
        values = self._values
        readable = True
        try:
            readable = self._extractor.read(row.payload, self._wanted, values)
        except MemoryError:
            readable = False
        key: list[Any] = []
        for field, slot in zip(self._fields, self._slots, strict=True):
            value: object = None
            if readable and field.as_text:
                value = values.text_of(slot)
            elif readable:
                value = next(iter(values.values_of(slot)), None)
                if self._numeric_texts and isinstance(value, bytes) and _NUMERIC.fullmatch(value):
                    value = float(value)
            key += _descending(value) if field.descending else _ascending(value)
        return (*key, row.txid, row.queue, row)

    def _sort(self) -> None:
        """Sort the records added since the last call."""
        run, self._waiting = self._waiting, []
        if not self._is_short:
            run.sort()
            self._runs.append(run)
            return
        best = self._runs.pop() if self._runs else []
        best += run
        best.sort()
        del best[self._rows_max :]
        self._runs.append(best)
        self._held_bytes = sum(map(_held_bytes, best))
        if len(best) == self._rows_max:
            self._worst = best[-1]

    def finish(self) -> None:
        """Prepare the output: all records have been added."""
        if self._waiting:
            self._sort()
        self._merged = islice(heapq.merge(*self._runs), self._rows_max)
        self._runs = []

    def take(self, rows_max: int, bytes_max: int) -> list[Row]:
        """The next records in the order, up to about the limits. An empty list: there are no more."""
        rows: list[Row] = []
        for keyed in islice(self._merged, rows_max):
            rows.append(keyed[-1])
            bytes_max -= len(rows[-1].payload)
            if bytes_max <= 0:
                break
        return rows


def _held_bytes(keyed: tuple[Any, ...]) -> int:
    row: Row = keyed[-1]
    texts = sum(len(part) for part in keyed[:-3] if isinstance(part, bytes))
    return ROW_BYTES + texts + len(row.correlation_id) + len(row.payload)
