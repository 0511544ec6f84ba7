"""Payload fields as Arrow columns: each format against its Python reader, and malformed messages as rows of nulls."""

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: columns are Arrow's")

from amps._core.columns.columns import MESSAGE_TYPES, FieldColumns
from amps.client.payloads.bson import encode_bson
from amps.spark.payload_schema import parse_ddl
from tests.support.field_rows import one, rows_of

ALPHABET = "aZ09 \"\\/{}[]:,-+.'\x00\x01\n\t\x7fé€\u2028😀"
INTEGER_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.sampled_from(
    ["a", "b", "c", "price", "price_of_all", "Ünïcode", "", "with space", 'qu"ote', "back\\slash"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(ALPHABET, max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=8)
types = st.recursive(
    st.sampled_from(["boolean", "byte", "short", "int", "long", "double", "string"]),
    lambda inner: (
        st.tuples(st.just("array"), inner)
        | st.tuples(
            st.just("struct"),
            st.dictionaries(names, inner, max_size=4).map(lambda members: tuple(members.items())),
        )
    ),
    max_leaves=6,
)
schemas = st.dictionaries(names, types, min_size=1, max_size=6).map(lambda fields: tuple(fields.items()))


class Misfit(Exception):
    """A value that does not fit its type."""


def as_type(value: Any, of: Any, *, texts: bool) -> Any:
    """The value that a type gives by the rules, in plain Python. texts: containers have a text."""
    if value is None:
        return None
    match of:
        case ("array", element):
            if not isinstance(value, list):
                raise Misfit
            return [as_type(item, element, texts=texts) for item in value]
        case ("struct", members):
            if not isinstance(value, dict):
                raise Misfit
            return row_of(value, members, texts=texts)
        case "boolean" if isinstance(value, bool):
            return value
        case "double" if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case "double" if value in ("NaN", "Infinity", "-Infinity", "+Infinity", "+INF", "-INF"):
            return float(value)
        case "byte" | "short" | "int" | "long" if isinstance(value, int) and not isinstance(value, bool):
            if not -(2 ** (INTEGER_BITS[of] - 1)) <= value < 2 ** (INTEGER_BITS[of] - 1):
                raise Misfit
            return value
        case "string" if isinstance(value, str):
            return value
        case "string" if texts or not isinstance(value, list | dict):
            return json.dumps(value)
    raise Misfit


def row_of(value: dict[str, Any], members: Any, *, texts: bool) -> dict[str, Any]:
    row = {}
    for name, of in members:
        try:
            row[name] = as_type(value.get(name), of, texts=texts)
        except Misfit:
            row[name] = None
    return row


@given(st.lists(objects, max_size=5), schemas, st.booleans())
@unhurried
def test_json_is_read_as_python_reads_it(messages: list[dict[str, Any]], fields: Any, spread: bool) -> None:
    spread = spread and "string" not in repr(fields)  # containers requested as text are unchanged
    payloads = [json.dumps(message, indent=1 if spread else None).encode() for message in messages]
    assert rows_of("json", fields, *payloads) == [row_of(message, fields, texts=True) for message in messages]


@given(st.lists(objects, max_size=5), schemas)
@unhurried
def test_msgpack_is_read_as_python_reads_it(messages: list[dict[str, Any]], fields: Any) -> None:
    payloads = [msgpack.packb(message) for message in messages]
    assert rows_of("msgpack", fields, *payloads) == [
        row_of(message, fields, texts=False) for message in messages
    ]


def test_texts_of_special_doubles_are_read_as_doubles_again() -> None:
    """Spark writes the same texts. BSON and MessagePack have such doubles; JSON has them only in Python's notation."""
    values = [math.inf, -math.inf, math.nan, 1.5, 1e300]
    texts = ["Infinity", "-Infinity", "NaN", "1.5", "1e+300"]
    fields = (("values", ("array", "string")),)
    for message_type, encode in (("msgpack", msgpack.packb), ("bson", encode_bson)):
        assert rows_of(message_type, fields, encode({"values": values})) == [{"values": texts}]
    again = rows_of("msgpack", (("values", ("array", "double")),), msgpack.packb({"values": texts[:3]}))
    assert again[0]["values"][:2] == values[:2]
    assert math.isnan(again[0]["values"][2])


@given(st.lists(objects, max_size=5), schemas)
@unhurried
def test_bson_is_read_as_python_reads_it(messages: list[dict[str, Any]], fields: Any) -> None:
    payloads = [encode_bson(message) for message in messages]
    assert rows_of("bson", fields, *payloads) == [
        row_of(message, fields, texts=False) for message in messages
    ]


@given(st.sampled_from(MESSAGE_TYPES), schemas, st.lists(st.binary(max_size=80), max_size=6))
@unhurried
def test_malformed_messages_make_rows_and_no_exception(
    message_type: str, fields: Any, payloads: list[bytes]
) -> None:
    assert len(rows_of(message_type, fields, *payloads)) == len(payloads)


@given(st.sampled_from(["json", "msgpack", "bson"]), objects, schemas, st.data())
@unhurried
def test_damaged_messages_leave_their_neighbours_alone(
    message_type: str, message: dict[str, Any], fields: Any, data: st.DataObject
) -> None:
    encode = {"json": lambda value: json.dumps(value).encode(), "msgpack": msgpack.packb, "bson": encode_bson}
    whole = encode[message_type](message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[cut] ^= data.draw(st.integers(1, 255))
    rows = rows_of(message_type, fields, whole, whole[:cut], bytes(damaged), whole)
    assert rows[0] == rows[3] == rows_of(message_type, fields, whole)[0]
    assert rows[1] == {name: None for name, _ in fields}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "other"]), st.integers(-300, 300)), max_size=8))
@unhurried
def test_nvfix_values_of_a_repeated_tag_are_an_array_or_the_last(pairs: list[tuple[str, int]]) -> None:
    payload = "".join(f"{tag}={value}\x01" for tag, value in pairs).encode()
    of_a = [value for tag, value in pairs if tag == "a"]
    of_b = [value for tag, value in pairs if tag == "b"]
    first, second = rows_of("nvfix", "a array<int>, b int", payload, b"a=1\x01b=2\x01")
    assert first == {"a": of_a or None, "b": of_b[-1] if of_b else None}
    assert second == {"a": [1], "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{a:1}', "{'a':1}", '{"a" 1}', '{"a":1 "b":2}',
        '{"a":01}', '{"a":1.}', '{"a":.5}', '{"a":+1}', '{"a":tru}', '{"a":nul}', '{"a":"x}', r'{"a":"\x"}',
        r'{"a":"\u12g4"}', '{"a":[1,]}', '{"a":[1}', '{"b":[1}}', '{"b":01}', r'{"b":"\x"}', '{"b":{"c":}}',
        '{"b":{"c":1,}}', '{"b":{,}}', '{"b":[,]}', '{"b":{"c"}}', '{"b":{1:2}}', '{"b":[[1}]}', '{"b":[1 2]}',
        '{"b":' + "[" * 2000 + "]" * 2000 + "}", '[{"a":1}]', "1",
        '"a"', "null", "garbage", " ", '{"a":--1}', '{"a":1,,"b":2}',
    ],
)  # fmt: skip
def test_malformed_json_is_a_counted_row_of_nulls(text: str) -> None:
    columns = FieldColumns("json", parse_ddl("a long, s struct<b: int>, tags array<int>"))
    good = b'{"a":1,"s":{"b":2},"tags":[3]}'
    bad = (
        text.encode().replace(b'"a"', b'"s":{"b":1},"tags":[1,2],"a"', 1)
        if text.startswith('{"a"')
        else text.encode()
    )
    for payload in (good, bad, good):
        columns.add_payload(payload)
    assert columns.malformed == 1
    wanted = {"a": 1, "s": {"b": 2}, "tags": [3]}
    assert columns.finish().to_pylist() == [wanted, {"a": None, "s": None, "tags": None}, wanted]
    assert columns.malformed == 1


def test_empty_payload_is_a_row_of_nulls_and_not_malformed() -> None:
    columns = FieldColumns("json", parse_ddl("a long"))
    columns.add_payload(b"")
    assert columns.malformed == 0
    assert columns.finish().to_pylist() == [{"a": None}]


def test_last_value_of_a_repeated_name_counts() -> None:
    assert one("json", "long", b'{"a":1,"a":2}') == 2
    assert one("json", "string", b'{"a":"long text","a":"x"}') == "x"
    assert one("json", "array<string>", b'{"a":["p","q"],"a":["r"]}') == ["r"]
    assert one("json", "struct<b: int, c: int>", b'{"a":{"b":1},"a":{"c":2}}') == {"b": None, "c": 2}
    assert one("msgpack", "long", b"\x82\xa1a\x01\xa1a\x02") == 2
    assert one("nvfix", "long", b"a=1\x01a=2\x01") == 2


def test_bytes_behind_a_json_object_are_ignored() -> None:
    assert one("json", "long", b'{"a":1} {"a":2') == 1


def test_unwanted_values_are_skipped_whatever_they_contain() -> None:
    inner = r'[{}, [], {"x": [NaN, -Infinity, {"y": "}]\""}], "z": null}, true, false, -1.5e3, [[[]]]]'
    assert one("json", "string", b'{"b":%s,"a":%s}' % (inner.encode(), inner.encode())) == inner
    deep = b"[" * 1000 + b"]" * 1000
    assert one("json", "long", b'{"b":%s,"a":1}' % deep) == 1


def test_names_with_escapes_are_found() -> None:
    assert one("json", "long", rb'{"\u0061":1}') == 1


def test_text_that_is_not_utf_8_fits_bytes_only() -> None:
    assert one("json", "string", b'{"a":"\xff"}') is None
    assert one("nvfix", "string", b"a=\xff\x01") is None
    assert one("nvfix", "binary", b"a=\xff\x01") == b"\xff"
    assert one("msgpack", "string", msgpack.packb({"a": b"\xff"})) is None


@given(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12),
    st.integers(0, 12),
)
@unhurried
def test_decimals_are_rounded_half_up(number: Decimal, scale: int) -> None:
    wanted = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    fits = len(wanted.as_tuple().digits) <= 20 or wanted == 0
    text = f"{number:f}".encode()
    for payload, message_type in ((b'{"a":%s}' % text, "json"), (b"a=%s\x01" % text, "nvfix")):
        assert one(message_type, f"decimal(20,{scale})", payload) == (wanted if fits else None)


@given(st.datetimes(timezones=st.timezones()))
@unhurried
def test_iso_texts_are_moments(moment: datetime) -> None:
    offset = moment.utcoffset() or timedelta()
    if offset % timedelta(minutes=1) or abs(offset) > timedelta(hours=18):
        return
    try:
        wanted = moment.astimezone(UTC)
    except OverflowError:
        return
    payload = json.dumps({"a": moment.isoformat(), "b": moment.date().isoformat()}).encode()
    assert rows_of("json", "a timestamp, b date", payload) == [{"a": wanted, "b": moment.date()}]


@given(st.binary(), st.booleans())
@unhurried
def test_base64_is_binary(data: bytes, broken_up: bool) -> None:
    text = (base64.encodebytes if broken_up else base64.b64encode)(data).decode()
    assert one("json", "binary", json.dumps({"a": text}).encode()) == data


@given(st.text(st.sampled_from("0123456789-+:.TZ UTCGMTe"), max_size=30))
@unhurried
def test_any_text_may_be_read_as_any_type(text: str) -> None:
    """Only the absence of exceptions is checked, since Arrow has dates that Python cannot represent."""
    for of in ("date", "timestamp", "decimal(10,3)", "binary", "double", "boolean"):
        for payload, message_type in (
            (json.dumps({"a": text}).encode(), "json"),
            (f"a={text}\x01".encode(), "nvfix"),
        ):
            columns = FieldColumns(message_type, parse_ddl(f"a {of}"))
            columns.add_payload(payload)
            columns.finish().validate(full=True)


def test_batches_grow_and_begin_again() -> None:
    columns = FieldColumns("json", parse_ddl("n long, t string, e array<int>, f boolean"))
    for batch in range(3):
        rows = [
            {"n": None if n % 7 == 0 else n, "t": "x" * (n % 50), "e": list(range(n % 4)), "f": n % 3 == 0}
            for n in range(batch, 3000 + batch)
        ]
        for row in rows:
            columns.add_payload(json.dumps(row).encode())
        assert columns.rows == len(rows)
        made = columns.finish()
        made.validate(full=True)
        assert made.to_pylist() == rows
        assert made.null_count == 0
        assert columns.rows == 0
    assert columns.finish().to_pylist() == []


def test_types_without_columns_are_errors() -> None:
    with pytest.raises(ValueError, match="messages of type xml"):
        FieldColumns("xml", [("a", "long")])
    for wrong in ("bigint", "array", ("long",), ("decimal", 39, 0), ("decimal", 2, 3)):
        with pytest.raises(ValueError, match="no type of a column"):
            FieldColumns("json", [("a", wrong)])
    with pytest.raises(ValueError, match="twice"):
        FieldColumns("json", [("a", "long"), ("a", "int")])
    deep: Any = "long"
    for _ in range(200):
        deep = ("array", deep)
    with pytest.raises(ValueError, match="deeper"):
        FieldColumns("json", [("a", deep)])
