"""The examples of the expression reference, through compiler, scanner and machine.

These are its table of examples (section 13), row by row, and its numbered behaviours of filters on JSON (section 15).
The reference evaluator must agree with every row it supports.
"""

import math

import pytest

from amps._core.values.fields import MessageContext
from amps.expressions import ExpressionError, compile_expression
from tests.support import reference_values
from tests.support.expression_examples import (
    ANY,
    APPROXIMATE,
    BAD_FILTERS,
    FILTERS,
    REFUSED,
    ROWS,
    Expected,
    F,
    T,
)
from tests.support.expressions import delivers, evaluate
from tests.support.reference_expressions import Evaluator
from tests.support.reference_values import same

OTHER_MESSAGE_TYPES = [104, 105, 106, 107, 108, 117]  # nvfix, fix, xml and binary
UNKNOWN_TO_REFERENCE = [100, 101, 102, 103]  # STRPTIME, and functions of the message's headers


def test_expressions_section_13_no_row_is_left_out() -> None:
    here = [row for row, *_ in ROWS]
    assert sorted({*here, *REFUSED, *APPROXIMATE, *OTHER_MESSAGE_TYPES}) == list(range(1, 118))
    assert not set(OTHER_MESSAGE_TYPES) & {*here, *REFUSED, *APPROXIMATE}


@pytest.mark.parametrize(
    ("row", "message", "text", "expected"), [pytest.param(*row, id=f"{row[0]} {row[2]}") for row in ROWS]
)
def test_expressions_section_13(row: int, message: bytes, text: str, expected: Expected) -> None:
    context = MessageContext()
    context.set("topic_name", b"orders")
    context.set("message_size", len(message))
    found = evaluate(text, message, context)
    assert same(found, expected), found
    assert delivers(text, message, context) == (expected in (True, 3, 43, -3, 1420202100.0))
    if row not in UNKNOWN_TO_REFERENCE:
        reference = Evaluator(message).evaluate(compile_expression(text).syntax)
        assert same(reference, expected), reference


@pytest.mark.parametrize("row", REFUSED)
def test_expressions_section_13_refused(row: int) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(REFUSED[row])


@pytest.mark.parametrize("row", APPROXIMATE)
def test_expressions_section_13_approximate(row: int) -> None:
    text, expected = APPROXIMATE[row]
    found = evaluate(text)
    assert isinstance(found, float)
    assert found == pytest.approx(expected, abs=1)
    assert Evaluator(ANY).evaluate(compile_expression(text).syntax) == pytest.approx(found)


@pytest.mark.parametrize(
    ("item", "text", "delivered", "kept_back"),
    [pytest.param(*case, id=f"{case[0]} {case[1]}") for case in FILTERS],
)
def test_expressions_section_15(item: int, text: str, delivered: list[bytes], kept_back: list[bytes]) -> None:
    expression = compile_expression(text)
    for expected, messages in ((True, delivered), (False, kept_back)):
        for message in messages:
            assert delivers(expression, message) == expected, message
            if item not in (46, 47):  # the reference reads whole messages only
                assert Evaluator(message).matches(expression.syntax) == expected, message


@pytest.mark.parametrize(("item", "text"), BAD_FILTERS)
def test_expressions_section_15_refused(item: int, text: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        compile_expression(text)
    assert 0 <= raised.value.position <= len(text)
    assert raised.value.reason


def test_expressions_43_the_last_of_repeated_keys_without_early_termination() -> None:
    message = b'{"code":1,"d":"x","code":2}'
    assert delivers("/code = 2", message, early_termination=False)
    assert not delivers("/code = 1", message, early_termination=False)


def test_expressions_44_unsigned_integers() -> None:
    assert same(evaluate("/a", b'{"a":18446744073709551615}'), 18446744073709551615)


def test_expressions_47_everything_is_parsed_without_early_termination() -> None:
    assert not delivers("/id = 1", b'{"id":1,"x":2} trailing', early_termination=False)


# Results of the reference evaluator that the machine does not check in these tests.


def test_reference_reads_json() -> None:
    message = reference_values.parse_json(rb'{"a":"\u00e9\ud83d\ude00","b":[[1,2],[3.50]],"c":{},"a":2}')
    assert reference_values.values_at(message, [b"a"]) == ["é😀".encode()]
    numbers = reference_values.values_at(message, [b"b"])
    assert [reference_values.to_text(number) for number in numbers] == [b"1", b"2", b"3.50"]
    assert reference_values.values_at(message, [b"c"]) == []
    assert reference_values.parse_json(b'{"a":"\xff\xc3"}') == {b"a": b"\xff\xc3"}
    with pytest.raises(ValueError, match="no JSON"):
        reference_values.parse_json(b'{"a":NaN}')


# The examples in the sections themselves.

ARRAYS = b'{"d":[4,8,"yak",15],"o":[16,23,8],"e":[]}'
NESTED = b'{"o":{"arr":["p","q"],"c":{"A":"x","L":[{"k":"k1","v":1},{"k":"k2","v":2}]}}}'


@pytest.mark.parametrize(
    ("message", "text", "expected"),
    [
        (ANY, "1 / 5", 0),  # 4.1
        (ANY, "1.0 / 5", 0.2),
        (ANY, "7 % 0", math.nan),
        (ANY, "NULL / 0", None),  # 14.6
        (ANY, "9223372036854775807 * 4", 9223372036854775807 * 4.0),
        (ANY, "18446744073709551610", 18446744073709551610),  # 2.2
        (ANY, "2e3", 2000.0),
        (ANY, "31.4e-1 + 6.022E23 > 0", T),
        (ANY, "'\\q' = 'q' AND '\\'' = \"'\"", T),
        (b'{"other":[33,34],"p":1.50}', "/other[1] LIKE '4'", T),  # 4.2
        (b'{"other":[33,34],"p":1.50}', "CONCAT(/p, '|', /p + 0, '|', TRUE_VALUE())", b"1.50|1.5|1"),
        (ANY, "10 < '' OR 10 > '' OR '' = ''", F),  # 5
        (ANY, "NULL AND 1 = 2", None),
        (ANY, "NULL OR 1 = 1", None),
        (ANY, "1 = 2 OR NULL", None),
        (ANY, "2 = 2.0", T),  # 6.1
        (ANY, "'2.000' <> '2.0'", T),
        (ANY, "10 < '2'", F),
        (ANY, "10 < 'Crank'", T),
        (b'{"21964":42,"14":2,"6":3}', "/21964 IN (/14*5, /6*/14, 1000)", F),
        (b'{"21964":6,"14":2,"6":3}', "/21964 IN (/14*5, /6*/14, 1000)", T),
        (NESTED, "/o/arr[0] = 'p' AND /o/c/A = 'x' AND /o/c/L/k[1] = 'k2'", T),  # 9
        (NESTED, "ARRAY_SUM(/o/c/L/v)", 3),
        (NESTED, "/o IS NULL OR /o/c IS NULL OR /o/c/L IS NULL", F),
        (NESTED, "COALESCE(/o, /o/c, /o/c/L, 'none')", b"none"),
        (ARRAYS, "/d = 4 AND /d = 'yak'", T),
        (ARRAYS, "/d != 'yak'", T),
        (ARRAYS, "/d = 99", F),
        (ARRAYS, "/d LIKE 'y'", T),
        (ARRAYS, "/o > 20", T),
        (ARRAYS, "/o > 30", F),
        (ARRAYS, "/d > 1000", T),
        (ARRAYS, "/d[0] = 4 AND /d[2] = \"yak\" AND /d[1] != 4 AND /o[1] LIKE '3'", T),
        (ARRAYS, "/d = /o AND /d != /o", T),
        (ARRAYS, "8 IN (/o)", T),
        (ARRAYS, "/d IN (9, 15)", T),
        (ARRAYS, "/d NOT IN ('yak','gnu') OR NOT /d IN ('yak','gnu')", F),
        (ARRAYS, "NOT (/d = 'yak')", F),
        (ARRAYS, "/e IS NULL", T),
        (ARRAYS, "/d + 1 = 5 AND UPPER(/d) = '4'", T),
        (b'{"a":5}', "/a[0] = 5 AND /a[1] IS NULL", T),
        (b'{"a":[null,null],"b":[null,1]}', "/a IS NULL AND /b IS NOT NULL", T),
        (b'{"a":[[1,2],[3]]}', "ARRAY_COUNT(/a) = 3 AND /a[2] = 3", T),
        (b'{"d":[4,8]}', "/d BETWEEN 5 AND 7", T),
        (b'{"a":"abc"}', "INSTR(/nope, 'x') = 0 AND STREQUAL_I(/a, /nope) = 0", T),  # 10.2
        (ANY, "CONCAT('x', '-', 7)", b"x-7"),  # 10.3
        (ANY, "CONCAT('a', NULL, 'b')", b"ab"),
        (ANY, "CONCAT(NULL, '')", None),
        (ANY, "SUBSTR('fandango', 5)", b"ango"),
        (ANY, "SUBSTR('fandango', -3, 2)", b"ng"),
        (ANY, "SUBSTR('fandango', 0, 3)", b"fan"),
        (ANY, "SUBSTR('fandango', 9)", None),
        (ANY, "SUBSTR('fandango', 1, 0)", None),
        (ANY, "REPLACE('a.b.c', '.', '')", b"abc"),
        (ANY, "REGEXP_MATCH('abc', 'x')", None),
        (ANY, "ROUND(2.5) = 3 AND ROUND(-2.5) = -3", T),  # 10.6
        (ANY, "GREATEST(1, NULL, 'x')", b"x"),
        (ANY, "LEAST(3, NULL, 2.5)", 2.5),
        (ANY, "SQRT(-1)", math.nan),
        (ANY, "ABS(-5)", 5),
        (ANY, "ABS('x')", math.nan),
        (ANY, "GEO_DISTANCE(91, 0, 0, 0)", math.nan),  # 10.7
        (ANY, "CRC32('abc')", 3384066120),  # 10.8
        (ANY, "CRC64('123456789')", 0x995DC9BBDF1939FA),
        (b'{"code":65}', "CHAR_VALUE(/code)", b"A"),  # 10.10
        (ANY, "CHAR_VALUE(256)", None),
        (b'{"a":1,"b":0}', "IF(/b, 'yes', 'no')", b"no"),  # 5
        (b'{"a":1}', "IF(/b, 'yes', 'no')", b"no"),
    ],
)
def test_expressions_examples_of_the_sections(message: bytes, text: str, expected: Expected) -> None:
    found = evaluate(text, message)
    assert same(found, expected), found
    reference = Evaluator(message).evaluate(compile_expression(text).syntax)
    assert same(reference, expected), reference
