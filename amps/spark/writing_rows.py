"""Conversion of Arrow batches to the messages to publish, one per row.

A message has a topic, a body, and optional header fields. The body is either a column, unchanged, or a JSON
object of several columns. JSON follows Spark's `to_json`: fields that are null are left out, binary is Base64, decimals
are numbers with all their digits, dates and timestamps are ISO 8601, the latter in UTC with `Z` (timestamps without a
time zone have no `Z`). NaN and infinities, which JSON cannot represent, are null.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import repeat
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from amps.spark.writing_errors import WriteError
from amps.spark.writing_options import ColumnPlan

_JSON_OPTIONS = orjson.OPT_UTC_Z

Convert = Callable[[Any], Any]
"""Converts a value that is not null to a value for `orjson`."""


class MessageRow(NamedTuple):
    """The message to publish for one row."""

    topic: str
    body: bytes
    expiration: int | None
    correlation_id: str | None
    sow_key: str | None
    delta: bool = False
    """Whether the message changes a record: it is published by `delta_publish`."""


def message_rows(
    batches: Iterable[pa.RecordBatch], plan: ColumnPlan, topic: str | None
) -> Iterator[MessageRow]:
    """Yield the messages of a partition, in order. Raises WriteError with the number, from 0, of an invalid row."""
    before = 0
    for batch in batches:
        bodies = _payloads(batch, plan, before) if not plan.body else _objects(batch, plan)
        topics: Iterable[str] = repeat(topic) if topic is not None else _topics(batch, plan, before)
        yield from map(
            MessageRow,
            topics,
            bodies,
            _optional(batch, plan.expiration),
            _optional(batch, plan.correlation_id),
            _optional(batch, plan.sow_key),
        )
        before += batch.num_rows


def _optional(batch: pa.RecordBatch, place: int) -> Iterable[Any]:
    return repeat(None) if place < 0 else batch.column(place).to_pylist()


def _topics(batch: pa.RecordBatch, plan: ColumnPlan, before: int) -> list[str]:
    topics: list[str] = batch.column(plan.topic).to_pylist()
    for at, topic in enumerate(topics):
        if not topic:
            raise WriteError(f"row {before + at} of the partition has no topic")
    return topics


def _payloads(batch: pa.RecordBatch, plan: ColumnPlan, before: int) -> list[bytes]:
    column = batch.column(plan.payload)
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    payloads: list[bytes] = column.to_pylist()
    if column.null_count:
        at = before + payloads.index(None)  # type: ignore[arg-type]
        raise WriteError(f"row {at} of the partition has no payload: it is null")
    return payloads


def _objects(batch: pa.RecordBatch, plan: ColumnPlan) -> Iterator[bytes]:
    names = [batch.schema.field(place).name for place in plan.body]
    columns = [_column(batch.column(place)) for place in plan.body]
    nulls = any(batch.column(place).null_count for place in plan.body)
    for values in zip(*columns, strict=True):
        if nulls:
            fields = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        else:
            fields = dict(zip(names, values, strict=True))
        yield orjson.dumps(fields, option=_JSON_OPTIONS)


def _column(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    convert = _converter(column.type)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Convert | None:
    """Return the conversion of values of a type for JSON; None = unchanged."""
    types = pa.types
    if types.is_decimal(kind):
        return _decimal
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _base64
    if types.is_timestamp(kind) and kind.tz is not None:
        return _in_utc
    if types.is_struct(kind):
        return _struct_converter(kind)
    if types.is_map(kind):
        return _map_converter(kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_converter(kind)
    return None


def _decimal(value: Decimal) -> orjson.Fragment:
    return orjson.Fragment(f"{value:f}".encode())


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _list_converter(kind: pa.DataType) -> Convert | None:
    inner = _converter(kind.value_type)
    if inner is None:
        return None
    return lambda values: [None if value is None else inner(value) for value in values]


def _struct_converter(kind: pa.DataType) -> Convert:
    converters = {field.name: _converter(field.type) for field in kind}

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        fields = {}
        for name, part in value.items():
            if part is not None:
                inner = converters[name]
                fields[name] = part if inner is None else inner(part)
        return fields

    return convert


def _map_converter(kind: pa.DataType) -> Convert:
    inner = _converter(kind.item_type)

    def convert(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        return {str(key): item if inner is None or item is None else inner(item) for key, item in pairs}

    return convert
