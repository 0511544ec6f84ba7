"""Filter pushdown: conditions of a query that the read applies itself.

Spark passes filters from 4.1 on; a row must satisfy all of them. Supported filters are tested exactly while reading, so
Spark does not test them again. A condition on a column that may be null is left to Spark.

Pushdown is off by default (option `pushdown`, and Spark's setting `spark.sql.python.filterPushdown.enabled`), because
Spark stores the pushed filters with a DataFrame. As of 4.3.0 a later query over the same DataFrame without conditions,
or another branch of the same query, is answered with the filters of the first query, and lacks rows.
With pushdown, create a separate DataFrame for each query. The options of a read narrow it without this restriction.
"""

import datetime
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from amps._core.columns.columns import ALL_KINDS
from amps.spark.selection import NameTest, Selection, bits_of_kinds

NEVER_MISSING = frozenset({"position", "timestamp", "kind", "payload"})
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_TEXT_OPERATIONS = {"StringStartsWith": "starts", "StringEndsWith": "ends", "StringContains": "contains"}


def push(selection: Selection, filters: list[Any]) -> tuple[Selection, Iterator[Any]]:
    """Return the narrower selection, and the filters that Spark must apply itself."""
    left = []
    for condition in filters:
        narrower = _narrowed(selection, condition)
        if narrower is None:
            left.append(condition)
        else:
            selection = narrower
    return selection, iter(left)


def _narrowed(selection: Selection, condition: Any) -> Selection | None:
    """Return the narrower selection; None: not supported. Filter classes are tested by name: older Sparks lack some."""
    negated = type(condition).__name__ == "Not"
    if negated:
        condition = condition.child
    operation = type(condition).__name__
    if len(condition.attribute) != 1:
        return None
    column = condition.attribute[0]
    if operation == "IsNotNull":
        return selection if column in NEVER_MISSING and not negated else None
    values = _values(operation, condition)
    if values is None:
        return None
    if column in ("topic", "message_type", "kind"):
        return _named(selection, column, operation, values, negated)
    if negated or operation == "In":
        return None
    if column == "position":
        return _positioned(selection, operation, values[0])
    if column == "timestamp":
        return _timed(selection, operation, values[0])
    return None


def _values(operation: str, condition: Any) -> tuple[Any, ...] | None:
    """Return the values of a condition; None if one is NULL, or if there are none."""
    if operation in ("IsNull", "IsNotNull") or not hasattr(condition, "value"):
        return None
    values = tuple(condition.value) if operation == "In" else (condition.value,)
    return None if any(value is None for value in values) else values


def _named(
    selection: Selection, column: str, operation: str, values: tuple[Any, ...], negated: bool
) -> Selection | None:
    if not all(isinstance(value, str) for value in values) or (negated and operation == "EqualNullSafe"):
        return None
    if operation in ("EqualTo", "EqualNullSafe", "In"):
        name_operation = "in"
    elif operation in _TEXT_OPERATIONS:
        name_operation = _TEXT_OPERATIONS[operation]
    else:
        return None
    test = NameTest(name_operation, values, negated)
    if column == "topic":
        return replace(selection, topic_tests=(*selection.topic_tests, test))
    if column == "message_type":
        return replace(selection, message_type_tests=(*selection.message_type_tests, test))
    if name_operation != "in":
        return None
    bits = bits_of_kinds(set(values))
    return selection.with_kinds(ALL_KINDS & ~bits if negated else bits)


def _positioned(selection: Selection, operation: str, value: Any) -> Selection | None:
    if not isinstance(value, int):
        return None
    match operation:
        case "EqualTo" | "EqualNullSafe":
            return selection.with_positions(value, value + 1)
        case "GreaterThan":
            return selection.with_positions(first=value + 1)
        case "GreaterThanOrEqual":
            return selection.with_positions(first=value)
        case "LessThan":
            return selection.with_positions(end=value)
        case "LessThanOrEqual":
            return selection.with_positions(end=value + 1)
    return None


def _timed(selection: Selection, operation: str, value: Any) -> Selection | None:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    time_us = (value - _EPOCH) // _MICROSECOND
    match operation:
        case "EqualTo" | "EqualNullSafe":
            return selection.with_times(time_us, time_us)
        case "GreaterThan":
            return selection.with_times(time_us + 1)
        case "GreaterThanOrEqual":
            return selection.with_times(time_us)
        case "LessThan":
            return selection.with_times(0, time_us - 1)
        case "LessThanOrEqual":
            return selection.with_times(0, time_us)
    return None
