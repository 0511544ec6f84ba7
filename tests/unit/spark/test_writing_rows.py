"""The messages published for the rows of an Arrow batch."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa

from amps.spark.writing_errors import WriteError
from amps.spark.writing_options import ColumnPlan
from amps.spark.writing_rows import MessageRow, message_rows


def plan(**places: Any) -> ColumnPlan:
    nothing: dict[str, Any] = dict.fromkeys(
        ("payload", "topic", "expiration", "correlation_id", "sow_key"), -1
    )
    return ColumnPlan(**{**nothing, "body": (), **places})


def bodies(**columns: Any) -> list[bytes]:
    batch = pa.record_batch(columns)
    rows = message_rows([batch], plan(body=tuple(range(len(columns)))), "t")
    return [row.body for row in rows]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_a_payload_is_published_unchanged(kind: Any) -> None:
    batch = pa.record_batch({"payload": pa.array(["é".encode(), b""]).cast(kind)})
    assert list(message_rows([batch], plan(payload=0), "t")) == [
        MessageRow("t", "é".encode(), None, None, None),
        MessageRow("t", b"", None, None, None),
    ]


def test_header_columns() -> None:
    batch = pa.record_batch(
        {"e": [5, None], "payload": ["a", "b"], "k": ["K", None], "t": ["x", "y"], "c": [None, "C"]}
    )
    rows = message_rows([batch], plan(payload=1, expiration=0, sow_key=2, topic=3, correlation_id=4), None)
    assert list(rows) == [MessageRow("x", b"a", 5, None, "K"), MessageRow("y", b"b", None, "C", None)]


@pytest.mark.parametrize(
    ("column", "message"), [("payload", "row 3 .*no payload"), ("topic", "row 3 .*no topic")]
)
def test_a_null_is_reported_with_its_row(column: str, message: str) -> None:
    good = {"payload": ["a", "b"], "topic": ["t", "t"]}
    batches = [pa.record_batch(good), pa.record_batch({**good, column: pa.array(["a", None])})]
    with pytest.raises(WriteError, match=message):
        list(message_rows(batches, plan(payload=0, topic=1), None))


def test_an_empty_topic_is_refused() -> None:
    batch = pa.record_batch({"payload": ["a"], "topic": [""]})
    with pytest.raises(WriteError, match="row 0 of the partition has no topic"):
        list(message_rows([batch], plan(payload=0, topic=1), None))


def test_columns_become_an_object_in_their_order() -> None:
    assert bodies(b=[1, 2], a=["x", 'y"\n']) == [b'{"b":1,"a":"x"}', b'{"b":2,"a":"y\\"\\n"}']


def test_nulls_are_left_out() -> None:
    assert bodies(a=[1, None], b=[None, "x"]) == [b'{"a":1}', b'{"b":"x"}']


IN_ROME = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([2**63 - 1], pa.int64(), "9223372036854775807"),
        ([True], pa.bool_(), "true"),
        ([1.5], pa.float64(), "1.5"),
        ([float("nan")], pa.float64(), "null"),
        ([Decimal("12345678901234567890.1200")], pa.decimal128(38, 4), "12345678901234567890.1200"),
        ([Decimal("1E+3")], pa.decimal128(10, 0), "1000"),
        ([b"\x00\xff"], pa.binary(), '"AP8="'),
        ([date(2026, 1, 2)], pa.date32(), '"2026-01-02"'),
        (
            [datetime(2026, 1, 2, 3, 4, 5, 6, UTC)],
            pa.timestamp("us", "Europe/Rome"),
            '"2026-01-02T03:04:05.000006Z"',
        ),
        ([datetime(2026, 1, 2, 3, 4, 5)], pa.timestamp("us"), '"2026-01-02T03:04:05"'),
        ([[1, None, 2]], pa.list_(pa.int32()), "[1,null,2]"),
        ([[b"\xff", None]], pa.list_(pa.binary()), '["/w==",null]'),
        (
            [{"x": Decimal("1.0"), "y": None}],
            pa.struct({"x": pa.decimal128(3, 1), "y": pa.string()}),
            '{"x":1.0}',
        ),
        ([[("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int64()), '{"k":1,"l":null}'),
        ([[(7, b"\xff")]], pa.map_(pa.int64(), pa.binary()), '{"7":"/w=="}'),
        (
            [[[("k", [{"d": Decimal(2)}])]]],
            pa.list_(pa.map_(pa.string(), pa.list_(pa.struct({"d": pa.decimal128(3, 0)})))),
            '[{"k":[{"d":2}]}]',
        ),
    ],
)
def test_values_as_json(values: list[Any], kind: Any, text: str) -> None:
    (body,) = bodies(a=pa.array(values, type=kind))
    assert body.decode() == f'{{"a":{text}}}'
    json.loads(body)
