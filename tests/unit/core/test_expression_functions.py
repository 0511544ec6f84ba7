"""Every function of expressions.md §10, with its limits."""

from __future__ import annotations

import datetime
import math
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.expressions.functions import FUNCTIONS, PATTERN_FUNCTIONS
from amps._core.values.fields import FACT_NAMES, MessageContext
from tests.support.machine import Code, call

if TYPE_CHECKING:
    from amps._core.values.value import Scalar

NAN = math.nan


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-12)
    return type(left) is type(right) and left == right


CASES: list[tuple[str, tuple[Scalar, ...], Scalar]] = [
    # §10.2
    ("INSTR", (b"ACME", b"ME"), 3),
    ("INSTR", (b"ACME", b"me"), 0),
    ("INSTR", (b"abc", b"b"), 2),
    ("INSTR", (b"abc", b"z"), 0),
    ("INSTR", (b"ab", b"abc"), 0),
    ("INSTR", (1234, 3), 3),
    ("INSTR", (None, b"x"), 0),
    ("INSTR", (b"x", None), 0),
    ("INSTR_I", (b"ACME", b"me"), 3),
    ("INSTR_I", (b"abc", b"B"), 2),
    ("INSTR_I", (b"ab", b"x"), 0),
    ("INSTR_I", (None, None), 0),
    ("STREQUAL_I", (b"ACME", b"acme"), 1),
    ("STREQUAL_I", (b"ACME", b"acm"), 0),
    ("STREQUAL_I", (None, None), 0),
    ("STREQUAL_I", (b"\xc9", b"\xe9"), 0),
    ("STREQUAL_I", (b"[", b"{"), 0),
    ("STREQUAL", (b"a", b"a"), 1),
    ("STREQUAL", (b"a", b"A"), 0),
    ("STREQUAL", (7, b"7"), 1),
    # §10.3
    ("CONCAT", (b"x", b"-", 7), b"x-7"),
    ("CONCAT", (b"x", None, 1.5), b"x1.5"),
    ("CONCAT", (None, None), None),
    ("CONCAT", (True, -(2**63)), b"1-9223372036854775808"),
    ("UPPER", (b"aZ{\xe9",), b"AZ{\xe9"),
    ("LOWER", (b"aZ[\xc9",), b"az[\xc9"),
    ("UPPER", (None,), None),
    ("UPPER", (1.5,), b"1.5"),
    ("REPLACE", (b"ACME", b"C", b"K"), b"AKME"),
    ("REPLACE", (b"aaa", b"aa", b"b"), b"ba"),
    ("REPLACE", (b"aaa", b"a", b"bb"), b"bbbbbb"),
    ("REPLACE", (b"abc", b"x", b"y"), b"abc"),
    ("REPLACE", (b"aaa", b"a", None), None),
    ("REPLACE", (b"abc", b"b", None), b"ac"),
    ("REPLACE", (None, b"b", b"c"), None),
    ("REPLACE", (b"abc", None, b"c"), None),
    ("SUBSTR", (b"fandango", 5), b"ango"),
    ("SUBSTR", (b"ACME", 2), b"CME"),
    ("SUBSTR", (b"ACME", 2, 2), b"CM"),
    ("SUBSTR", (b"ACME", 2, 100), b"CME"),
    ("SUBSTR", (b"keyboard", 4), b"board"),
    ("SUBSTR", (b"ACME", 0), b"ACME"),
    ("SUBSTR", (b"ACME", -2), b"ME"),
    ("SUBSTR", (b"ACME", -2, 1), b"M"),
    ("SUBSTR", (b"ACME", -9), b"ACME"),
    ("SUBSTR", (b"ACME", 5), None),
    ("SUBSTR", (b"ACME", 1, 0), None),
    ("SUBSTR", (b"ACME", 1, -1), None),
    ("SUBSTR", (b"ACME", b"x"), None),
    ("SUBSTR", (b"ACME", None), None),
    ("SUBSTR", (b"ACME", 1e300), None),
    ("SUBSTR", (b"ACME", -(2**63), 2**64 - 1), b"ACME"),
    ("REVERSE", (b"ango",), b"ogna"),
    ("REVERSE", (None,), None),
    ("LENGTH", ("é".encode(),), 2),
    ("LENGTH", (None,), None),
    ("LENGTH", (-12,), 3),
    ("LEFT", (b"ACME", 2), b"AC"),
    ("LEFT", (b"ACME", 9), b"ACME"),
    ("LEFT", (b"ACME", 0), None),
    ("LEFT", (b"ACME", -1), None),
    ("RIGHT", (b"ACME", 2), b"ME"),
    ("RIGHT", (b"ACME", 9), b"ACME"),
    ("RIGHT", (b"ACME", 0), None),
    ("RIGHT", (b"ACME", -1), None),
    ("TRIM", (b" \t\r\n\v\fa b ",), b"a b"),
    ("LTRIM", (b" a ",), b"a "),
    ("RTRIM", (b" a ",), b" a"),
    ("TRIM", (b"   ",), None),
    # §10.6
    ("ABS", (-5,), 5),
    ("ABS", (-(2**63),), 2**63),
    ("ABS", (-1.5,), 1.5),
    ("ABS", (b"-7",), 7),
    ("ABS", (b"x",), NAN),
    ("ABS", (None,), None),
    ("CEILING", (1.2,), 2),
    ("CEILING", (-1.2,), -1),
    ("CEILING", (7,), 7),
    ("CEILING", (1e300,), 1e300),
    ("CEILING", (NAN,), NAN),
    ("FLOOR", (1.8,), 1),
    ("FLOOR", (-1.2,), -2),
    ("FLOOR", (2.0**63,), 2**63),
    ("ROUND", (2.5,), 3),
    ("ROUND", (-2.5,), -3),
    ("ROUND", (2.4,), 2),
    ("ROUND", (1.25, 1), 1.3),
    ("ROUND", (-1.25, 1), -1.3),
    ("ROUND", (1250, -2), 1300),
    ("ROUND", (-1250, -2), -1300),
    ("ROUND", (1249, -2), 1200),
    ("ROUND", (1250.0, -2), 1300.0),
    ("ROUND", (5.5, -308), 0.0),
    ("ROUND", (5.5, -309), 0.0),
    ("ROUND", (5.5, -400), 0.0),
    ("ROUND", (5.5, 309), 5.5),
    ("TRUNC", (1.5e308, -308), 1e308),
    ("ROUND", (7, 3), 7),
    ("ROUND", (7, -400), 0),
    ("ROUND", (2**63 - 1, -18), 9 * 10**18),
    ("ROUND", (2**64 - 1, -19), 2e19),
    ("ROUND", (1.5, 300), 1.5),
    ("ROUND", (1e300, 300), 1e300),
    ("ROUND", (NAN,), NAN),
    ("ROUND", (1.5, b"x"), NAN),
    ("TRUNC", (1.9,), 1),
    ("TRUNC", (-1.9,), -1),
    ("TRUNC", (1.29, 1), 1.2),
    ("TRUNC", (1299, -2), 1200),
    ("SIGN", (-3,), -1),
    ("SIGN", (0.0,), 0),
    ("SIGN", (2**64 - 1,), 1),
    ("SIGN", (b"x",), NAN),
    ("EXP", (1,), math.e),
    ("EXP", (1000,), NAN),
    ("LN", (math.e,), 1.0),
    ("LN", (0,), NAN),
    ("LN", (-1,), NAN),
    ("LOG2", (8,), 3.0),
    ("LOG10", (1000,), 3.0),
    ("POWER", (2, 10), 1024.0),
    ("POWER", (-8, 0.5), NAN),
    ("POWER", (0, -1), NAN),
    ("SQRT", (9,), 3.0),
    ("SQRT", (-1,), NAN),
    ("GREATEST", (1, None, 3, 2), 3),
    ("GREATEST", (1, b"x", 3), b"x"),
    ("GREATEST", (b"5", 3), b"5"),
    ("GREATEST", (2, 2.0), 2),
    ("GREATEST", (None,), None),
    ("GREATEST", (NAN, 1), 1),
    ("GREATEST", (NAN, NAN), NAN),
    ("LEAST", (2, None, b"x", 1.5), 1.5),
    ("LEAST", (b"b", b"a"), b"a"),
    ("WIDTH_BUCKET", (5, 0, 10, 5), 3),
    ("WIDTH_BUCKET", (-1, 0, 10, 5), 0),
    ("WIDTH_BUCKET", (0, 0, 10, 5), 1),
    ("WIDTH_BUCKET", (10, 0, 10, 5), 6),
    ("WIDTH_BUCKET", (5, 10, 0, 5), 3),
    ("WIDTH_BUCKET", (11, 10, 0, 5), 0),
    ("WIDTH_BUCKET", (0, 10, 0, 5), 6),
    ("WIDTH_BUCKET", (5, 1, 1, 5), NAN),
    ("WIDTH_BUCKET", (5, 0, 10, 0), NAN),
    ("WIDTH_BUCKET", (5, 0, 10, None), None),
    ("DEGREES", (math.pi,), 180.0),
    ("RADIANS", (180,), math.pi),
    ("ACOS", (1,), 0.0),
    ("ACOS", (2,), NAN),
    ("ASIN", (1,), math.pi / 2),
    ("ATAN", (1,), math.pi / 4),
    ("COS", (0,), 1.0),
    ("SIN", (1,), math.sin(1)),
    ("TAN", (1,), math.tan(1)),
    ("COT", (1,), 1 / math.tan(1)),
    ("COT", (0,), NAN),
    ("SINH", (1,), math.sinh(1)),
    ("COSH", (1,), math.cosh(1)),
    ("COSH", (1e4,), NAN),
    ("TANH", (1,), math.tanh(1)),
    # §10.7
    ("GEO_DISTANCE", (0, 0, 0, 0), 0.0),
    ("GEO_DISTANCE", (0, 0, 0, 1), math.radians(1) * 6_371_000),
    ("GEO_DISTANCE", (90, 0, -90, 0), math.pi * 6_371_000),
    ("GEO_DISTANCE", (0, -90, 0, 90), math.pi * 6_371_000),
    ("GEO_DISTANCE", (0, None, 0, 1), None),
    ("GEO_DISTANCE", (90.1, 0, 0, 0), NAN),
    ("GEO_DISTANCE", (0, 0, 0, -180.5), NAN),
    ("GEO_DISTANCE", (0, b"x", 0, 0), NAN),
    # §10.8
    ("CRC32", (b"123456789",), 486108540),
    ("CRC32", (b"abc",), 3384066120),
    ("CRC32", (123456789,), 486108540),
    ("CRC32", (None,), None),
    ("CRC64", (b"123456789",), 0x995DC9BBDF1939FA),
    # §10.10
    ("COALESCE", (None, b"", b"x", 1), b"x"),
    ("COALESCE", (None, 0), 0),
    ("COALESCE", (None,), None),
    ("TRUE_VALUE", (), True),
    ("FALSE_VALUE", (), False),
    ("NAN_VALUE", (), NAN),
    ("CHAR_VALUE", (65,), b"A"),
    ("CHAR_VALUE", (0,), b"\0"),
    ("CHAR_VALUE", (255,), b"\xff"),
    ("CHAR_VALUE", (256,), None),
    ("CHAR_VALUE", (-1,), None),
    ("CHAR_VALUE", (b"x",), None),
    ("CHAR_VALUE", (None,), None),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CASES, ids=range(len(CASES)))
def test_a_function_of_constants(name: str, arguments: tuple[Scalar, ...], expected: Scalar) -> None:
    assert same(call(name, *arguments), expected), (name, arguments, call(name, *arguments))


@given(
    st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=3), st.text("abc", min_size=1, max_size=4)
)
def test_replace_is_that_of_python(text: str, part: str, replacement: str) -> None:
    made = call("REPLACE", text.encode(), part.encode(), replacement.encode())
    assert made == (text.replace(part, replacement).encode() or None)


@given(st.integers(-(2**63), 2**64 - 1), st.integers(1, 18), st.booleans())
def test_integers_are_rounded_exactly(number: int, digits: int, truncate: bool) -> None:
    unit = 10**digits
    rest = abs(number) % unit
    magnitude = abs(number) - rest + (unit if not truncate and rest * 2 >= unit else 0)
    expected = -magnitude if number < 0 else magnitude
    made = call("TRUNC" if truncate else "ROUND", number, -digits)
    assert made == (expected if -(2**63) <= expected < 2**64 else float(expected))


# §10.4


@pytest.mark.parametrize(
    ("format", "moment", "expected"),
    [
        (b"%Y-%m-%d", 0, b"1970-01-01"),
        (b"%Y-%m-%d %H:%M:%S", 1420202100.0, b"2015-01-02 12:35:00"),
        (b"%H:%M:%S.%f", 1.5, b"00:00:01.500000"),
        (b"%S.%03f", 1.9996, b"01.999"),
        (b"%f", 0.0000016, b"000002"),
        (b"%Y %f", -0.25, b"1969 750000"),
        (b"%s", 1420202100.7, b"1420202100"),
        (b"%z %Z", 0, b"+0000 UTC"),
        (b"%a %b %d %j %p", 0, b"Thu Jan 01 001 AM"),
        (b"%%", 0, b"%"),
        (b"a%", 0, b"a%"),
        (b"x\0%d", 0, b"x\x0001"),
        (b"%d" + b"x" * 126, 0, b"01" + b"x" * 126),
        (b"%d" + b"x" * 127, 0, None),
        (b"%Y", b"x", None),
        (b"%Y", NAN, None),
        (b"%Y", 1e300, None),
        (b"%Y", -1e300, None),
        (b"%999999d", 0, None),
        (b"%Y", None, None),
        (None, 0, None),
        (b"%Y", 253402300799, b"9999"),
    ],
)
def test_strftime(format: Scalar, moment: Scalar, expected: Scalar) -> None:
    assert call("STRFTIME", format, moment) == expected


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        (b"2015-01-02 12:35:00", b"%Y-%m-%d %H:%M:%S", 1420202100.0),
        (b"2015-01-02T12:35:00.125", b"%Y-%m-%dT%H:%M:%S.%03f", 1420202100.125),
        (b"2015-01-02 12:35:00.000001", b"%F %T.%f", 1420202100.000001),
        (b"12:35:00.5", b"%H:%M:%S.%f", 45300.5),
        (b"02/Jan/2015:14:35:00 +0200", b"%d/%b/%Y:%H:%M:%S %z", 1420202100.0),
        (b"2015-01-02 12:35:00 Z", b"%F %T %z", 1420202100.0),
        (b"2015-01-02 12:05:00 -00:30", b"%F %T %z", 1420202100.0),
        (b"1420202100", b"%s", 1420202100.0),
        (b"-5", b"%s", -5.0),
        (b"12:05 AM", b"%I:%M %p", 300.0),
        (b"12:05 pm", b"%I:%M %p", 43500.0),
        (b"pm 1", b"%p %I", 46800.0),
        (b"Friday, January 2 2015", b"%A, %B %e %Y", 1420156800.0),
        (b"Fri Jan  2 12:35:00 2015", b"%c", 1420202100.0),
        (b"01/02/15", b"%D", 1420156800.0),
        (b"69", b"%y", -31536000.0),
        (b"68", b"%y", 3092601600.0),
        (b"2015 002", b"%Y %j", 1420156800.0),
        (b"2015 366", b"%Y %j", None),
        (b"2016-02-29", b"%F", 1456704000.0),
        (b"2015-02-29", b"%F", None),
        (b"2100-02-29", b"%F", None),
        (b"2015-04-31", b"%F", None),
        (b"2015-13-01", b"%F", None),
        (b"2015-01-02x", b"%F", None),
        (b"2015-01", b"%F", None),
        (b"x", b"%Y", None),
        (b"12:60", b"%H:%M", None),
        (b"24:00", b"%H:%M", None),
        (b"100%", b"100%%", 0.0),
        (b"x", b"%Q", None),
        (b"5", b"%", None),
        (None, b"%Y", None),
        (20150102, b"%Y%m%d", 1420156800.0),
    ],
)
def test_strptime(text: Scalar, format: Scalar, expected: Scalar) -> None:
    assert call("STRPTIME", text, format) == expected


@given(st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)))
def test_times_become_text_and_are_parsed_back(moment: datetime.datetime) -> None:
    seconds = moment.replace(microsecond=0, tzinfo=datetime.UTC).timestamp()
    text = call("STRFTIME", b"%m/%d %H:%M:%S %Y", seconds)
    assert text == f"{moment:%m/%d %H:%M:%S} {moment.year}".encode()
    padded = f"{moment:%m/%d %H:%M:%S} {moment.year:04}".encode()
    assert call("STRPTIME", padded, b"%m/%d %H:%M:%S %Y") == seconds


def test_the_time_now() -> None:
    before = time.time()
    made = call("UNIX_TIMESTAMP")
    assert isinstance(made, float)
    assert before - 0.001 <= made <= time.time() + 0.001


# §10.5


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        ("ARRAY_COUNT", b"[3,9,27]", 3),
        ("ARRAY_COUNT", b"[1,null,2]", 3),
        ("ARRAY_COUNT", b"[[1,2],[3]]", 3),
        ("ARRAY_COUNT", b"5", 1),
        ("ARRAY_COUNT", b"[]", 0),
        ("ARRAY_COUNT", b"null", 0),
        ("ARRAY_MAX", b"[3,27,9]", 27),
        ("ARRAY_MIN", b"[9,3,27]", 3),
        ("ARRAY_MAX", b'[3,"x",9]', b"x"),
        ("ARRAY_MIN", b'[null,3,"x"]', 3),
        ("ARRAY_MAX", b"[null,null]", None),
        ("ARRAY_MAX", b"[]", None),
        ("ARRAY_SUM", b"[1,null,2]", 3),
        ("ARRAY_SUM", b"[3,9.5]", 12.5),
        ("ARRAY_SUM", b'[1,"2"]', 3),
        ("ARRAY_SUM", b'[1,"x"]', NAN),
        ("ARRAY_SUM", b"[]", None),
        ("ARRAY_SUM", b"[null,null]", None),
        ("ARRAY_SUM", b"7", 7),
    ],
)
def test_arrays(name: str, array: bytes, expected: Scalar) -> None:
    """expressions.md §13 rows 66 to 68; §15 item 31."""
    made = Code().field(b"a").call(name, 1).evaluate(b'{"a":' + array + b"}")
    assert same(made, expected)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (b'["x",null,"z"]', b"x,?,z"),
        (b"[1,1.50,true]", b"1,1.50,1"),
        (b'"x"', b"x"),
        (b"[]", None),
        (b"null", None),
        (b'["",""]', b"?,?"),
    ],
)
def test_arrays_as_text(array: bytes, expected: Scalar) -> None:
    """expressions.md §13 row 69; §15 item 31."""
    code = Code().field(b"a").const(b",", b"?").call("ARRAY_TO_STRING", 3)
    assert code.evaluate(b'{"a":' + array + b"}") == expected


def test_arrays_of_constants_and_missing_texts() -> None:
    assert call("ARRAY_COUNT", 5) == 1
    assert call("ARRAY_COUNT", None) == 0
    assert call("ARRAY_TO_STRING", 5, b",", b"?") == b"5"
    code = Code().field(b"a").const(None, None).call("ARRAY_TO_STRING", 3)
    assert code.evaluate(b'{"a":["x",null,"z"]}') == b"xz"
    code = Code().field(b"a").field(b"d").field(b"d").call("ARRAY_TO_STRING", 3)
    assert code.evaluate(b'{"a":["x",null,"z"],"d":["-","+"]}') == b"x---z"


def test_other_functions_take_the_first_element_and_no_container() -> None:
    """expressions.md §13 row 62; §15 item 27."""
    message = b'{"a":["hot","new"],"o":{"k":1},"d":[1,50]}'
    assert Code().field(b"a").call("UPPER", 1).evaluate(message) == b"HOT"
    assert Code().field(b"d").const(9).call("COALESCE", 2).evaluate(message) == 1
    assert Code().field(b"o").const(9).call("COALESCE", 2).evaluate(message) == 9
    assert Code().field(b"o").call("UPPER", 1).evaluate(message) is None
    assert Code().field(b"none").const(9).call("COALESCE", 2).evaluate(message) == 9


# §§10.9, 10.10


@pytest.mark.parametrize("name", FACT_NAMES)
def test_facts_of_the_message(name: str) -> None:
    context = MessageContext(b"inst", b"group")
    instance = {"amps_instance_name": b"inst", "amps_instance_group": b"group"}
    assert call(name.upper(), context=context) == instance.get(name)
    context.set(name, b"told")
    assert call(name.upper(), context=context) == b"told"
    context.set(name, 12.5)
    assert call(name.upper(), context=context) == 12.5
    assert call(name.upper()) is None


def test_facts_are_forgotten_but_for_the_instance() -> None:
    context = MessageContext(b"inst", b"group")
    context.set("topic_name", b"orders")
    context.clear()
    assert call("TOPIC_NAME", context=context) is None
    assert call("AMPS_INSTANCE_NAME", context=context) == b"inst"
    assert call("AMPS_GROUP_NAME", context=context) == b"group"


def test_a_delivery_is_updated_now() -> None:
    context = MessageContext()
    context.live = True
    made = call("LAST_UPDATED", context=context)
    assert isinstance(made, float)
    assert abs(made - time.time()) < 60
    context.set("last_updated", 5.0)
    assert call("LAST_UPDATED", context=context) == 5.0


def test_the_table_of_functions() -> None:
    """§10.1: the functions that are not deterministic; §10.12: aggregates, which cannot be called."""
    assert {name for name, info in FUNCTIONS.items() if not info.deterministic} == {
        "UNIX_TIMESTAMP",
        "LAST_READ",
    }
    aggregates = {name for name, info in FUNCTIONS.items() if info.aggregate}
    assert aggregates == {
        *("SUM", "AVG", "ANY", "COUNT", "COUNT_DISTINCT", "GROUP_CONCAT", "MIN", "MAX"),
        *("STDDEV_POP", "STDDEV_SAMP", "UNIQUE"),
    }
    for name, info in FUNCTIONS.items():
        arguments = [None] * info.minimum
        if info.aggregate or name in PATTERN_FUNCTIONS:
            with pytest.raises(ValueError, match="no such function"):
                call(name, *arguments)
            continue
        call(name, *arguments)
        for count in (info.minimum - 1, (info.maximum or 4095) + 1):
            if count >= 0:
                with pytest.raises(ValueError, match="no such function"):
                    call(name, *([None] * count))


def test_text_made_for_a_message_is_bounded() -> None:
    code = Code().const(b"x" * 1_000_000, b"x", b"y" * 1_000_000).call("REPLACE", 3)
    with pytest.raises(MemoryError, match="bytes"):
        code.evaluate()
    code = Code().field(b"a").const(b"y" * 1_000_000).pattern("REGEXP_REPLACE", b"[x]")
    with pytest.raises(MemoryError, match="bytes"):
        code.evaluate(b'{"a":"' + b"x" * 1_000_000 + b'"}')
