"""Options and columns of a write: refusals on the driver, and their texts."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import types as sql

from amps.spark.writing_errors import WriteOptionError
from amps.spark.writing_numbers import MAX_RUN
from amps.spark.writing_options import ColumnPlan, WriteOptions, parse_options, plan_columns, plan_write

URI = "tcp://localhost:9007/amps/json"


def options(**changes: str) -> dict[str, str]:
    return {"uri": URI, "topic": "t", **changes}


def schema(**columns: sql.DataType) -> sql.StructType:
    return sql.StructType([sql.StructField(name, kind) for name, kind in columns.items()])


def parsed(**changes: str) -> WriteOptions:
    return parse_options(options(**changes), streaming=False)


def test_defaults() -> None:
    found = parsed()
    assert (found.uri, found.topic, found.client_name, found.verify) == (URI, "t", "spark", "all")
    assert (found.run_number, found.allow_unrecorded, found.timeout_s) == (None, False, 60.0)
    assert found.unacknowledged_bytes == 32 * 2**20


def test_a_batch_without_run_id_differs_each_time() -> None:
    assert parsed().batch_numbering(0) != parsed().batch_numbering(0)


def test_a_batch_with_run_id_is_the_same_each_time() -> None:
    first, second = (parsed(client_name="a", run_id="x").batch_numbering(3) for _ in range(2))
    assert first == second
    assert (first.publisher, first.run) == ("a/run=x/3", 0)


def test_a_run_number_determines_the_numbers_and_not_the_publisher() -> None:
    numbering = parsed(client_name="a", run_number="7").batch_numbering(3)
    assert (numbering.publisher, numbering.run) == ("a/number/3", 7)


def test_a_stream_is_identified_by_its_query() -> None:
    numbering = parsed(client_name="a").stream_numbering("q", 9, 1)
    assert (numbering.publisher, numbering.run) == ("a/query=q/1", 9)


def test_option_names_are_accepted_in_any_case() -> None:
    assert parse_options({"URI": URI, "Topic": "t", "Client_Name": "n"}, streaming=False).client_name == "n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client": "x"}, "unknown option 'client'; known: client_name, "),
        ({"path": "x"}, "not to a path"),
        ({"topic": ""}, "option topic is empty"),
        ({"client_name": "a/b"}, "option client_name must be printable text without"),
        ({"client_name": ""}, "option client_name must be"),
        ({"client_name": "a", "run_id": "[x]"}, "option run_id must be"),
        ({"run_id": "x"}, "need a client_name"),
        ({"run_number": "1"}, "need a client_name"),
        ({"client_name": "a", "run_id": "x", "run_number": "1"}, "not both"),
        ({"client_name": "a", "run_number": "-1"}, "option run_number must be a whole number"),
        ({"client_name": "a", "run_number": str(MAX_RUN + 1)}, "option run_number must be a whole number"),
        ({"verify": "some"}, "option verify must be one of all, last, none: 'some'"),
        ({"unrecorded": "yes"}, "option unrecorded must be one of refuse, allow"),
        ({"timeout_s": "soon"}, "option timeout_s must be a positive number"),
        ({"timeout_s": "0"}, "option timeout_s must be a positive number"),
        ({"timeout_s": "nan"}, "option timeout_s must be a positive number"),
        ({"max_unacknowledged": "32 apples"}, "must be a size like 32MB"),
        ({"max_unacknowledged": "1KB"}, "must be at least 65536 bytes"),
        ({"uri": "localhost"}, "option uri: .*is no connection string"),
        ({"uri": ""}, "no uri"),
        ({"message_type": "nvfix"}, "option message_type is 'nvfix', the URI has 'json'"),
    ],
)
def test_invalid_options(changes: dict[str, str], message: str) -> None:
    with pytest.raises(WriteOptionError, match=message):
        parsed(**changes)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(WriteOptionError) as raised:
        parsed(uri="tcp://ana:secret@localhost:x/amps/json")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["run_id", "run_number"])
def test_a_stream_accepts_no_run(name: str) -> None:
    with pytest.raises(WriteOptionError, match="is for batches"):
        parse_options(options(client_name="a", **{name: "1"}), streaming=True)


def test_spark_adds_options_to_a_streams() -> None:
    parse_options(options(checkpointLocation="/x", queryName="q"), streaming=True)


@pytest.mark.parametrize(
    ("given", "size"), [("65536", 2**16), ("64kb", 2**16), ("2MB", 2**21), ("1GB", 2**30)]
)
def test_sizes(given: str, size: int) -> None:
    assert parsed(max_unacknowledged=given).unacknowledged_bytes == size


# Message types

NO_TYPE = "tcp://localhost:9007/amps?tcp_nodelay=true"
PAYLOAD = schema(payload=sql.BinaryType())
FIELDS = schema(a=sql.LongType())


@pytest.mark.parametrize(
    ("uri", "changes", "columns", "complete"),
    [
        (NO_TYPE, {}, FIELDS, "tcp://localhost:9007/amps/json?tcp_nodelay=true"),
        (NO_TYPE, {}, PAYLOAD, NO_TYPE),
        (NO_TYPE, {"message_type": "fix"}, PAYLOAD, "tcp://localhost:9007/amps/fix?tcp_nodelay=true"),
        ("tcp://localhost:9007/amps/", {"message_type": "fix"}, PAYLOAD, "tcp://localhost:9007/amps/fix"),
        (URI, {"message_type": "json"}, FIELDS, URI),
    ],
)
def test_the_message_type_is_entered_in_the_uri(
    uri: str, changes: dict[str, str], columns: sql.StructType, complete: str
) -> None:
    assert plan_write(options(uri=uri, **changes), columns, streaming=False)[0].uri == complete


def test_columns_become_json_only() -> None:
    with pytest.raises(WriteOptionError, match="columns become JSON, but the message type is 'fix'"):
        plan_write(options(uri="tcp://localhost:9007/amps/fix"), FIELDS, streaming=False)


# Columns


def planned(columns: sql.StructType, **changes: Any) -> ColumnPlan:
    found = {**options(), **changes}
    return plan_columns(
        columns, parse_options({k: v for k, v in found.items() if v is not None}, streaming=False)
    )


def test_a_payload_and_its_header() -> None:
    columns = schema(
        sow_key=sql.StringType(),
        Payload=sql.StringType(),
        expiration=sql.IntegerType(),
        correlation_id=sql.StringType(),
        topic=sql.StringType(),
    )
    assert planned(columns, topic=None) == ColumnPlan(
        payload=1, topic=4, expiration=2, correlation_id=3, sow_key=0, body=()
    )


def test_all_other_columns_are_the_body() -> None:
    columns = schema(a=sql.LongType(), topic=sql.StringType(), b=sql.StringType())
    assert planned(columns, topic=None).body == (0, 2)


NESTED = sql.StructType([sql.StructField("x", sql.ArrayType(sql.CalendarIntervalType()))])


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        (schema(payload=sql.LongType()), "t", "column 'payload' must be binary or string, not bigint"),
        (schema(payload=sql.StringType(), x=sql.LongType()), "t", "there is no place for 'x'"),
        (schema(payload=sql.StringType(), topic=sql.StringType()), "t", "not both"),
        (schema(payload=sql.StringType()), None, "no topic"),
        (schema(a=sql.LongType(), topic=sql.LongType()), None, "column 'topic' must be string"),
        (
            schema(a=sql.LongType(), expiration=sql.TimestampType()),
            "t",
            "a whole number of seconds, not timestamp",
        ),
        (schema(a=sql.LongType(), sow_key=sql.BinaryType()), "t", "column 'sow_key' must be string"),
        (schema(topic=sql.StringType()), None, "no column to publish"),
        (schema(payload=sql.StringType(), PAYLOAD=sql.StringType()), "t", "two columns 'payload'"),
        (schema(a=NESTED), "t", r"column 'a.x\[\]' cannot become JSON: it is interval"),
        (
            schema(a=sql.MapType(sql.DoubleType(), sql.LongType())),
            "t",
            "keys of a map must be strings or whole numbers, not double",
        ),
    ],
)
def test_columns_that_cannot_be_written(columns: sql.StructType, topic: str | None, message: str) -> None:
    with pytest.raises(WriteOptionError, match=message):
        planned(columns, topic=topic)
