"""Single values as columns of each type, by format.

The values of JSON are those of `from_json` in Spark 4.3 (session in UTC), except where a comment gives Spark's result.
"""

import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: columns are Arrow's")

from amps._core.columns.columns import FieldColumns
from amps.client.payloads.bson import encode_bson
from amps.spark.payload_schema import parse_ddl
from tests.support.field_rows import one, rows_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("of", "value", "expected"),
    [
        ("string", '"text"', "text"),
        ("string", '""', ""),
        ("string", r'"\u00e9\n\"\\\/\ud83d\ude00"', 'é\n"\\/😀'),
        ("string", r'"\ud800x"', "?x"),
        ("string", r'"\udc00\ud800\u0041"', "??A"),
        ("string", "1.50", "1.50"),  # Spark: 1.5
        ("string", "1E5", "1E5"),  # Spark: 100000.0
        ("string", "true", "true"),
        ("string", '{"b": [1, 2]}', '{"b": [1, 2]}'),  # Spark: without the blanks
        ("string", "[1 ,2]", "[1 ,2]"),  # Spark: without the blank
        ("string", "null", None),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "9223372036854775808", None),
        ("long", "1.0", None),
        ("long", "1e3", None),
        ("long", '"1"', None),
        ("long", "true", None),
        ("byte", "127", 127),
        ("byte", "-129", None),
        ("byte", "200", None),  # Spark: -56
        ("short", "32768", None),
        ("int", "2147483648", None),
        ("double", "1", 1.0),
        ("double", "-0", 0.0),
        ("double", "-0.0", -0.0),
        ("double", "0.30000000000000004", 0.30000000000000004),
        ("double", "1e999", math.inf),
        ("double", "-Infinity", -math.inf),
        ("double", '"Infinity"', math.inf),
        ("double", '"-INF"', -math.inf),
        ("double", '"1.5"', None),
        ("float", "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("boolean", "1", None),
        ("boolean", '"true"', None),
        ("decimal(10,2)", "1.005", Decimal("1.01")),
        ("decimal(10,2)", "-1.005", Decimal("-1.01")),
        ("decimal(10,2)", "1.0049", Decimal("1.00")),
        ("decimal(10,2)", "12345678.99", Decimal("12345678.99")),
        ("decimal(10,2)", "123456789", None),
        ("decimal(4,2)", "99.995", None),
        ("decimal(10,2)", "1e3", Decimal("1000.00")),
        ("decimal(10,2)", "5e-3", Decimal("0.01")),
        ("decimal(10,2)", "4e-3", Decimal("0.00")),
        ("decimal(10,2)", '"1,234.5"', Decimal("1234.50")),
        ("decimal(10,2)", '"x"', None),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(38,0)", "1" + "0" * 38, None),
        ("binary", '"AAEC/w=="', b"\0\1\2\xff"),
        ("binary", '"AA AE"', b"\0\0\4"),  # Spark: null
        ("binary", '"AAE"', None),
        ("binary", '"*"', None),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("date", '"2023-02-29"', None),
        ("date", '"2024-2-9"', date(2024, 2, 9)),
        ("date", '"2024-05"', date(2024, 5, 1)),
        ("date", '"2024"', date(2024, 1, 1)),
        ("date", '"2024-05-06T07:08:09"', date(2024, 5, 6)),
        ("date", '"2024-05-06x"', None),
        ("date", "19000", None),
        ("timestamp", '"2024-05-06T07:08:09.1234567Z"', datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)),
        ("timestamp", '"2024-05-06 07:08:09+02:00"', datetime(2024, 5, 6, 5, 8, 9, tzinfo=UTC)),
        ("timestamp", '"2024-05-06T07:08:09-0130"', datetime(2024, 5, 6, 8, 38, 9, tzinfo=UTC)),
        ("timestamp", '"2024-05-06 7:8:9"', datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("timestamp", '"2024-05-06T07:08Z"', datetime(2024, 5, 6, 7, 8, tzinfo=UTC)),  # Spark: null
        ("timestamp", '"2024-05-06"', datetime(2024, 5, 6, tzinfo=UTC)),
        ("timestamp", '"1969-12-31T23:59:59.5Z"', EPOCH - timedelta(milliseconds=500)),
        ("timestamp", '"2024-05-06T24:00:00Z"', None),
        ("timestamp", '"2024-05-06T07:08:09+19:00"', None),
        ("timestamp", '"2024-05T07:08:09"', None),
        ("timestamp", '"20240506"', None),
        ("timestamp", '"yesterday"', None),
        ("timestamp", "1700000000", EPOCH + timedelta(seconds=1700000000)),
        (
            "timestamp",
            "1700000000.25",
            EPOCH + timedelta(seconds=1700000000, milliseconds=250),
        ),  # Spark: null
        ("timestamp", "9223372036854775807", None),  # Spark: 1969-12-31T23:59:59Z
        ("array<long>", "[]", []),
        ("array<long>", "[1, null, 3]", [1, None, 3]),
        ("array<long>", '[1, "x", 3]', None),
        ("array<long>", "1", None),
        ("array<array<string>>", '[["x"], [], null]', [["x"], [], None]),
        ("array<struct<b: int>>", '[{"b": 1}, {}, {"b": "x"}]', [{"b": 1}, {"b": None}, {"b": None}]),
        ("struct<b: int, c: string>", '{"c": "x"}', {"b": None, "c": "x"}),
        ("struct<b: int>", "{}", {"b": None}),
        ("struct<b: int>", "[1]", None),
    ],
)
def test_json_value_as_a_type(of: str, value: str, expected: Any) -> None:
    made = one("json", of, b'{"a":%s}' % value.encode())
    assert made == expected
    if isinstance(expected, float):
        assert math.copysign(1, made) == math.copysign(1, expected)


@pytest.mark.parametrize(
    ("of", "text", "expected"),
    [
        ("long", "42", 42),
        ("long", "+42", 42),
        ("long", "42.0", None),
        ("long", " 42", None),
        ("long", "", None),
        ("string", "", None),
        ("string", "1.50", "1.50"),
        ("double", "1.50", 1.5),
        ("double", ".5", 0.5),
        ("double", "x", None),
        ("decimal(8,3)", "1.50", Decimal("1.500")),
        ("boolean", "Y", True),
        ("boolean", "N", False),
        ("boolean", "TRUE", True),
        ("boolean", "0", False),
        ("boolean", "yes", None),
        ("date", "20240506", date(2024, 5, 6)),
        ("date", "20241306", None),
        ("date", "2024-05-06", date(2024, 5, 6)),
        ("timestamp", "20240506-07:08:09.123", datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)),
        ("timestamp", "20240506", datetime(2024, 5, 6, tzinfo=UTC)),
        ("timestamp", "2024-05-06T07:08:09Z", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("timestamp", "1700000000", EPOCH + timedelta(seconds=1700000000)),
        ("timestamp", "1700000000.5", EPOCH + timedelta(seconds=1700000000, milliseconds=500)),
        ("array<long>", "42", [42]),
        ("array<long>", "x", None),
        ("struct<b: int>", "1", None),
    ],
)
def test_nvfix_value_as_a_type(of: str, text: str, expected: Any) -> None:
    assert one("nvfix", of, f"a={text}\x01".encode()) == expected


def test_fix_has_numbers_for_tags_and_its_own_separator() -> None:
    assert rows_of("fix", "`35` string, `44` double", b"35=D|44=1.5|", field_separator=124) == [
        {"35": "D", "44": 1.5}
    ]
    assert rows_of("fix", "a long", b"a=1\x01") == [{"a": None}]
    assert rows_of("nvfix", "a long", b"a=1\x01oops\x01", b"=1\x01", b"a=2") == [
        {"a": None},
        {"a": None},
        {"a": 2},
    ]


def test_nvfix_array_with_a_misfit_leaves_the_next_row_alone() -> None:
    rows = rows_of(
        "nvfix", "a array<long>", b"a=1\x01a=x\x01a=3\x01", b"a=4\x01", b"b=5\x01", b"a=1\x01a=\x01"
    )
    assert [row["a"] for row in rows] == [None, [4], None, [1, None]]


@pytest.mark.parametrize(
    ("of", "value", "expected"),
    [
        ("binary", b"\0\xff", b"\0\xff"),
        ("binary", "text", b"text"),
        ("string", b"text", "text"),
        ("string", 1.0, "1.0"),
        ("string", True, "true"),
        ("string", [1], None),
        ("long", 2**63, None),
        ("long", 1.0, None),
        ("decimal(20,0)", 2**64 - 1, Decimal(2**64 - 1)),
        ("decimal(6,3)", 2.5, Decimal("2.500")),
        ("double", 2**64 - 1, float(2**64 - 1)),
        ("timestamp", msgpack.Timestamp(1, 123456789), EPOCH + timedelta(seconds=1, microseconds=123456)),
        ("timestamp", msgpack.Timestamp(1700000000), EPOCH + timedelta(seconds=1700000000)),
        ("timestamp", msgpack.Timestamp(-1, 0), EPOCH - timedelta(seconds=1)),
        ("date", msgpack.Timestamp(-1, 0), date(1969, 12, 31)),
        ("timestamp", "2024-05-06T07:08:09Z", datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("timestamp", msgpack.ExtType(5, b"1234"), None),
    ],
)  # fmt: skip
def test_msgpack_value_as_a_type(of: str, value: Any, expected: Any) -> None:
    assert one("msgpack", of, msgpack.packb({"a": value})) == expected


def test_msgpack_integer_keys_are_known_by_their_digits() -> None:
    assert rows_of("msgpack", "`-7` string", msgpack.packb({-7: "x", None: 1})) == [{"-7": "x"}]


def test_messages_with_trailing_bytes_are_malformed() -> None:
    for message_type, payload in (("msgpack", msgpack.packb({"a": 1})), ("bson", encode_bson({"a": 1}))):
        columns = FieldColumns(message_type, parse_ddl("a long"))
        columns.add_payload(payload + b"\0")
        columns.add_payload(payload)
        assert columns.malformed == 1
        assert columns.finish().to_pylist() == [{"a": None}, {"a": 1}]


def bson_of(kind: int, content: bytes) -> bytes:
    element = bytes([kind]) + b"a\0" + content
    return struct.pack("<i", len(element) + 5) + element + b"\0"


def test_bson_types_of_its_own() -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)
    assert one("bson", "timestamp", encode_bson({"a": moment})) == moment
    assert one("bson", "date", encode_bson({"a": moment})) == moment.date()
    assert one("bson", "long", encode_bson({"a": moment})) == (moment - EPOCH) // timedelta(milliseconds=1)
    assert one("bson", "binary", encode_bson({"a": b"\0\xff"})) == b"\0\xff"
    assert one("bson", "string", bson_of(0x07, bytes(range(12)))) == bytes(range(12)).hex()
    assert one("bson", "binary", bson_of(0x07, bytes(range(12)))) == bytes(range(12))
    one_and_a_half = struct.pack("<QQ", 15, (6176 - 1) << 49)
    assert one("bson", "decimal(5,2)", bson_of(0x13, one_and_a_half)) == Decimal("1.50")
    assert one("bson", "double", bson_of(0x13, one_and_a_half)) == 1.5
    assert one("bson", "string", bson_of(0x13, one_and_a_half)) == "1.5"
    assert one("bson", "array<int>", encode_bson({"a": [1, None, 2]})) == [1, None, 2]
    assert one("bson", "array<int>", encode_bson({"a": [1, "x", 2]})) is None
