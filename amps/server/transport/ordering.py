"""The order of what a query shows (`orderby`; protocol.md §9.4, sow.md §6 and D8): its text, and sorting in steps.

Ascending means NULL first, then NaN, numbers, and texts by their bytes; booleans count as 0 and 1, objects as NULL, an
array as its first element; `TEXT` takes numbers as the texts that they are written as. Where all fields are equal the
transaction id decides, so that pages fit together.

Sorting must neither hold the worker up nor take any amount of memory. Records are sorted in runs, which are merged
while they are sent; of a page near the beginning only as many are kept as it may need. HELD_BYTES_MAX bounds the rest.
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
"""Of the text, which is parsed at once."""
HELD_BYTES_MAX = 64 << 20
"""What one query holds at most; what is larger is refused."""
ROW_BYTES = 400
"""What a held record takes besides its message."""
RUN_ROWS = 1024
"""So many records are sorted at once: that takes about a millisecond."""
PAGE_ROWS_MAX = 4096
"""Pages that end within so many records hold only these."""
TEXT_BYTES_MAX = 1024
"""Of longer texts, as much is compared."""

_ITEM = re.compile(r"(\S+)(?:\s+(ASC|DESC))?(\s+TEXT)?", re.IGNORECASE)
_COMPLEMENT = bytes(range(255, -1, -1))
_NULL, _NAN, _NUMBER, _TEXT = range(4)


class Row(NamedTuple):
    """A record that a query shows. `queue`: its number. `timestamp_ns`: since 1970."""

    queue: int
    txid: int
    timestamp_ns: int
    correlation_id: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class OrderField:
    """One field that a query is ordered by."""

    path: Path
    descending: bool = False
    as_text: bool = False


class ResultTooLarge(Exception):
    """More matches than can be put in order."""


def parse_order(text: str) -> tuple[OrderField, ...]:
    """What the header `orderby` says; without fields if it says nothing. Raises CommandFailure."""
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
    """What a value is compared by: its kind, and within the kind."""
    if isinstance(value, bytes) and value:
        # No such text begins with another one, so that turning its bits turns the order.
        return _TEXT, value[:TEXT_BYTES_MAX].replace(b"\0", b"\0\1") + b"\0\0"
    if isinstance(value, int | float):
        return (_NUMBER, value) if value == value else (_NAN, 0)
    return _NULL, 0


def _descending(value: object) -> tuple[int, Any]:
    kind, within = _ascending(value)
    return -kind, within.translate(_COMPLEMENT) if kind == _TEXT else -within


class Ordering:
    """Puts records of one message type in order."""

    def __init__(self, fields: Sequence[OrderField], extractor: Extractor, rows_max: int) -> None:
        """`rows_max`: of all, so many are needed from the beginning."""
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
        """Take records. Raises ResultTooLarge."""
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
        """What a record is compared by, and the record: two are never compared by more than the number of the queue."""
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
            key += _descending(value) if field.descending else _ascending(value)
        return (*key, row.txid, row.queue, row)

    def _sort(self) -> None:
        """Sort what has come."""
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
        """All have come."""
        if self._waiting:
            self._sort()
        self._merged = islice(heapq.merge(*self._runs), self._rows_max)
        self._runs = []

    def take(self, rows_max: int, bytes_max: int) -> list[Row]:
        """The next ones in the order, about as many; none: that were all."""
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
