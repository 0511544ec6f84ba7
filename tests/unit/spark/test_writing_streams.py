"""Rows, as PySpark 4.0 passes them to the tasks of a stream, put back into Arrow batches."""

import json
from datetime import datetime

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from pyspark.sql import Row
from pyspark.sql import types as sql

from amps.spark.writing_options import plan_write
from amps.spark.writing_rows import message_rows
from amps.spark.writing_streams import ROWS_PER_BATCH, batches_of

OPTIONS = {"uri": "tcp://localhost:9007/amps/json", "topic": "t"}


def test_rows_are_gathered_into_batches_in_order() -> None:
    schema = sql.StructType([sql.StructField("n", sql.LongType())])
    count = 2 * ROWS_PER_BATCH + 7
    batches = list(batches_of((Row(n=n) for n in range(count)), schema))
    assert [batch.num_rows for batch in batches] == [ROWS_PER_BATCH, ROWS_PER_BATCH, 7]
    _, columns = plan_write(OPTIONS, schema, streaming=True)
    assert [row.body for row in message_rows(batches, columns, "t")] == [
        b'{"n":%d}' % n for n in range(count)
    ]


def test_no_rows_are_no_batches() -> None:
    assert list(batches_of(iter([]), sql.StructType([sql.StructField("n", sql.LongType())]))) == []


def test_values_are_unchanged() -> None:
    inner = sql.StructType([sql.StructField("x", sql.LongType()), sql.StructField("b", sql.BinaryType())])
    schema = sql.StructType(
        [
            sql.StructField("at", sql.TimestampType()),
            sql.StructField("st", inner),
            sql.StructField("m", sql.MapType(sql.StringType(), sql.LongType())),
            sql.StructField("a", sql.ArrayType(sql.StringType())),
        ]
    )
    moment = datetime(2026, 1, 2, 3, 4, 5)  # Rows contain local time
    rows = [
        Row(at=moment, st=Row(x=1, b=bytearray(b"\x00")), m={"k": 2}, a=["s", None]),
        Row(at=None, st=None, m=None, a=None),
    ]
    _, columns = plan_write(OPTIONS, schema, streaming=True)
    full, empty = message_rows(batches_of(iter(rows), schema), columns, "t")
    fields = json.loads(full.body)
    assert datetime.fromisoformat(fields.pop("at")) == moment.astimezone()
    assert fields == {"st": {"x": 1, "b": "AA=="}, "m": {"k": 2}, "a": ["s", None]}
    assert empty.body == b"{}"
