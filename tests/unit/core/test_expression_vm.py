"""The virtual machine on hand-written code: operators, the any-element rule, three-valued logic, malformed code."""

from __future__ import annotations

import itertools
import math
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.expressions.machine import OPCODES, Program
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues, searches_given_up
from amps._core.values.value import ConstantSet, compares
from tests.support.machine import Code, evaluate

if TYPE_CHECKING:
    from amps._core.values.value import Scalar

NAN = math.nan
MESSAGE = (
    b'{"d":[4,8,"yak",15],"o":[16,23,8],"e":[],"n":null,"s":"","x":{"k":1},"z":{},"nn":[null,null],"nl":[null,5],'
    b'"i":7,"t":"keyboard","f":2.50,"b":true,"c":"0042","esc":"a\\u0062c","q":[[1,2],[3]]}'
)


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or left == right
    return type(left) is type(right) and left == right


def name(text: str) -> tuple[bytes, ...]:
    return tuple(step.encode() for step in text.split("/"))


# Arithmetic: expressions.md §4.1, §13 rows 31 to 46.

INTEGERS = [0, 1, -1, 5, -5, 3, -3, 7, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]
DOUBLES = [0.0, 1.0, -1.5, 0.2, 1e308, -1e308, 2.0**63, NAN]
OPERANDS: list[Scalar] = [None, True, *INTEGERS, *DOUBLES, b"4", b"1.5", b"x", b"18446744073709551615"]


def as_number(value: Scalar) -> int | float | None:
    if isinstance(value, bytes):
        if value == b"x":
            return NAN
        return float(value) if b"." in value else int(value)
    return None if value is None else value + 0


def model_arithmetic(op: str, left: Scalar, right: Scalar) -> int | float | None:
    first, second = as_number(left), as_number(right)
    if first is None or second is None:
        return None
    if math.isnan(first) or math.isnan(second):
        return NAN
    if op in ("DIV", "MOD") and second == 0:
        return NAN
    if isinstance(first, int) and isinstance(second, int):
        quotient = (
            abs(first) // abs(second) * (-1 if (first < 0) != (second < 0) else 1)
            if op in ("DIV", "MOD")
            else 0
        )
        whole = {
            "ADD": first + second,
            "SUB": first - second,
            "MUL": first * second,
            "DIV": quotient,
            "MOD": first - quotient * second,
        }[op]
        if -(2**63) <= whole < 2**64:
            return whole
    first, second = float(first), float(second)
    real = {
        "ADD": lambda: first + second,
        "SUB": lambda: first - second,
        "MUL": lambda: first * second,
        "DIV": lambda: first / second,
        "MOD": lambda: math.fmod(first, second),
    }[op]()
    return real if math.isfinite(real) else NAN


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "DIV", "MOD"])
def test_arithmetic_for_every_pair(op: str) -> None:
    for left, right in itertools.product(OPERANDS, repeat=2):
        made = Code().const(left, right).op(op).evaluate()
        assert same(made, model_arithmetic(op, left, right)), (left, right, made)


@pytest.mark.parametrize("value", OPERANDS)
def test_signs(value: Scalar) -> None:
    number = as_number(value)
    assert same(Code().const(value).op("POS").evaluate(), number)
    negative: object = None if number is None else -number
    if isinstance(negative, int) and negative < -(2**63):
        negative = float(negative)
    assert same(Code().const(value).op("NEG").evaluate(), negative)


def test_arithmetic_takes_first_elements_and_keeps_no_text() -> None:
    """Behaviours 16, 17, 27."""
    assert Code().field(b"d").const(1).op("ADD").evaluate(MESSAGE) == 5
    assert Code().field(b"nl").const(1).op("ADD").evaluate(MESSAGE) is None
    assert Code().field(b"x").const(1).op("ADD").evaluate(MESSAGE) is None
    assert Code().field(b"none").const(NAN).op("ADD").evaluate(MESSAGE) is None
    assert Code().field(b"f").op("POS").const(b"").call("CONCAT", 2).evaluate(MESSAGE) == b"2.5"
    assert Code().field(b"f").const(b"").call("CONCAT", 2).evaluate(MESSAGE) == b"2.50"


# Fields and subscripts: §9.


@pytest.mark.parametrize(
    ("path", "element", "expected"),
    [
        ("d", 0, 4),
        ("d", 2, b"yak"),
        ("d", 3, 15),
        ("d", 4, None),
        ("d", 0xFFFFFF, None),
        ("i", 0, 7),
        ("i", 1, None),
        ("e", 0, None),
        ("none", 0, None),
        ("q", 2, 3),
        ("nl", 1, 5),
    ],
)
def test_subscripts(path: str, element: int, expected: Scalar) -> None:
    """expressions.md §13 rows 59, 60; §15 item 26."""
    assert Code().field(*name(path)).op("ELEMENT", element).evaluate(MESSAGE) == expected


def test_a_subscript_of_a_value() -> None:
    assert Code().const(7).op("ELEMENT", 0).evaluate() == 7
    assert Code().const(7).op("ELEMENT", 1).evaluate() is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("d", 4),
        ("i", 7),
        ("f", 2.5),
        ("b", True),
        ("esc", b"abc"),
        ("s", None),
        ("x", None),
        ("x/k", 1),
        ("nl", None),
    ],
)
def test_the_value_of_a_field(path: str, expected: Scalar) -> None:
    assert same(Code().field(*name(path)).evaluate(MESSAGE), expected)


# The any-element rule.

COMPARISONS = {"EQ": "=", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
ARRAYS: dict[str, list[Scalar]] = {
    "d": [4, 8, b"yak", 15],
    "o": [16, 23, 8],
    "e": [],
    "n": [None],
    "nn": [None, None],
    "nl": [None, 5],
    "i": [7],
    "f": [2.5],
    "b": [True],
    "c": [b"0042"],
    "none": [],
}


@pytest.mark.parametrize("op", COMPARISONS)
def test_a_comparison_is_true_if_any_pair_is(op: str) -> None:
    """expressions.md §13 rows 53 to 58, 65; §15 items 25, 28. A constant on the right is fused with the field."""
    for left, right in itertools.product(ARRAYS, repeat=2):
        expected = any(
            compares(a, COMPARISONS[op], b) for a, b in itertools.product(ARRAYS[left], ARRAYS[right])
        )
        assert Code().field(*name(left)).field(*name(right)).op(op).evaluate(MESSAGE) is expected, (
            left,
            right,
        )
    for path, constant in itertools.product(ARRAYS, [None, 4, 7, 15.5, b"yak", b"42", b"0042", NAN]):
        any_left = any(compares(a, COMPARISONS[op], constant) for a in ARRAYS[path])
        assert Code().field(*name(path)).const(constant).op(op).evaluate(MESSAGE) is any_left, (
            path,
            constant,
        )
        any_right = any(compares(constant, COMPARISONS[op], a) for a in ARRAYS[path])
        assert Code().const(constant).field(*name(path)).op(op).evaluate(MESSAGE) is any_right, (
            path,
            constant,
        )


@pytest.mark.parametrize(("op", "count"), [("EQ", 0), ("BEGINS", 1), ("IN", 1)])
def test_comparing_two_long_arrays_is_given_up(op: str, count: int) -> None:
    """Comparing four hundred million pairs would take seconds, which a filter must not."""
    left, right = b"[" + b"1," * 20_000 + b"1]", b"[" + b"2," * 20_000 + b"2]"
    before = searches_given_up()
    code = Code().field(b"a").field(b"b").op(op, count)
    assert code.evaluate(b'{"a":' + left + b',"b":' + right + b"}") is False
    assert searches_given_up() == before + 1
    assert code.evaluate(b'{"a":' + left + b',"b":2}') is False
    assert searches_given_up() == before + 1


def test_escaped_and_plain_text_is_compared() -> None:
    for op, expected in (("EQ", True), ("NE", False), ("GE", True), ("LT", False)):
        assert Code().field(b"esc").const(b"abc").op(op).evaluate(MESSAGE) is expected
        assert Code().field(b"t").const(b"keyboard").op(op).evaluate(MESSAGE) is expected


@pytest.mark.parametrize(
    ("path", "low", "high", "expected"),
    [
        ("i", 7, 7, True),
        ("i", 8, 6, False),
        ("i", 6, None, False),
        ("i", b"6", b"8", True),
        ("d", 5, 7, True),  # as two separate tests of any element
        ("o", 24, 30, False),
        ("none", 1, 2, False),
        ("i", NAN, 9, False),
    ],
)
def test_between(path: str, low: Scalar, high: Scalar, expected: bool) -> None:
    """expressions.md §13 rows 28, 29; §15 item 9; §9, last row."""
    assert Code().field(*name(path)).const(low, high).op("BETWEEN").evaluate(MESSAGE) is expected


@pytest.mark.parametrize(
    ("op", "path", "members", "expected"),
    [
        ("IN", "d", [9, 15], True),
        ("IN", "d", [b"yak", b"gnu"], True),
        ("IN", "d", [9], False),
        ("IN", "none", [None, 5], False),
        ("IN", "i", [None, b"7"], True),
        ("BEGINS", "t", [b"x", b"key"], True),
        ("BEGINS", "t", [b"Key"], False),
        ("BEGINS", "t", [b"keyboards"], False),
        ("BEGINS", "d", [b"y"], True),
        ("BEGINS", "f", [b"2.50"], True),
        ("BEGINS", "t", [None, NAN], False),
        ("ENDS", "t", [b"x", b"board"], True),
        ("ENDS", "t", [b"x"], False),
        ("ENDS", "d", [5], True),
        ("ENDS", "none", [b"x"], False),
        ("ENDS", "x", [b"x"], False),
    ],
)
def test_sets_of_members(op: str, path: str, members: list[Scalar], expected: bool) -> None:
    """expressions.md §13 rows 23, 25, 26, 57, 64, 78 to 80; §15 items 6, 10, 22."""
    assert Code().field(*name(path)).const(*members).op(op, len(members)).evaluate(MESSAGE) is expected


def test_members_may_be_arrays() -> None:
    """expressions.md §13 row 64; §15 item 25."""
    assert Code().const(8).field(b"o").op("IN", 1).evaluate(MESSAGE) is True
    assert Code().const(9).field(b"o").field(b"d").op("IN", 2).evaluate(MESSAGE) is False
    assert Code().const(b"yakety").field(b"o").field(b"d").op("BEGINS", 2).evaluate(MESSAGE) is True


MEMBERS: list[Scalar] = [
    *(
        None,
        b"",
        True,
        0,
        1,
        42,
        -1,
        2**63,
        2**64 - 1,
        -(2**63),
        1.0,
        -0.0,
        42.5,
        1e300,
        math.inf,
        NAN,
        2.0**63,
    ),
    *(
        b"1",
        b"1.0",
        b"42",
        b"0042",
        b"x",
        b"-1",
        b"42.50",
        b"18446744073709551615",
        b"1e300",
        b"true",
        b"\xff",
    ),
]
members = st.lists(st.sampled_from(MEMBERS), min_size=8, max_size=12)


@given(members, st.lists(st.sampled_from(MEMBERS), min_size=1, max_size=3))
def test_a_set_of_constants_gives_the_result_of_comparing_one_by_one(
    constants: list[Scalar], asked: list[Scalar]
) -> None:
    """§14.3 applies as well: a value of a format without types equals a string with the same text."""
    made = ConstantSet(constants)
    for value in asked:
        assert made.contains(value) == any(compares(value, "=", member) for member in constants), value
        if isinstance(value, bytes):
            expected = any(compares(("text", value), "=", member) for member in constants)
            assert made.contains(value, True) == expected, value
        in_code = Code().const(value, *constants).op("IN", len(constants)).evaluate()
        assert in_code is made.contains(value), value


def test_constants_that_are_equal_are_entered_once() -> None:
    """With a linear search, 16 times as many constants would take 256 times as long."""

    def seconds(constants: list[Scalar]) -> float:
        best = math.inf
        for _ in range(3):
            start = time.process_time()
            ConstantSet(constants)
            best = min(best, time.process_time() - start)
        return best

    equal: list[list[Scalar]] = [[1], [b"x"], [b"1", b"1.0", b"1.00", b"01"]]
    for same in equal:
        assert seconds(same * 64_000) < 100 * seconds(same * 4_000)
    assert ConstantSet([1, True, b"1.0", 1.0, None] * 10).contains(b"1")


def test_a_large_set() -> None:
    constants: list[Scalar] = [number if number % 2 else b"%d" % number for number in range(10_000)]
    code = Code().field(b"a").const(*constants).op("IN", len(constants))
    program = code.program(20_000)
    fields = FieldSet()
    bound = program.bind(fields)
    for text, expected in ((b"9998", True), (b'"9999"', True), (b"10000", False), (b"[-1,5.0]", True)):
        assert evaluate(bound, fields, b'{"a":' + text + b"}") is expected


# LIKE and the functions with patterns.


@pytest.mark.parametrize(
    ("path", "pattern", "raw", "expected"),
    [
        ("t", b"board", False, True),
        ("t", b"^board", False, False),
        ("t", b"(?i)BOARD$", False, True),
        ("t", rb"(.)\1", False, False),
        ("c", rb"(.)\1", False, True),
        ("t", b"b.a", False, True),
        ("t", b"b.a", True, False),
        ("d", b"y", False, True),
        ("o", b"3", False, True),
        ("f", b"50$", False, True),
        ("none", b"", False, False),
        ("n", b"", False, False),
        ("x", b"", False, False),
        ("esc", b"^abc$", False, True),
    ],
)
def test_like(path: str, pattern: bytes, raw: bool, expected: bool) -> None:
    """expressions.md §13 rows 56, 70 to 75; §15 items 18 to 20."""
    assert Code().field(*name(path)).pattern("LIKE", pattern, raw).evaluate(MESSAGE) is expected


def test_like_on_numbers_made_and_nan() -> None:
    assert Code().const(34).pattern("LIKE", b"4").evaluate() is True
    assert Code().const(NAN).pattern("LIKE", b"").evaluate() is False


def test_pattern_functions() -> None:
    """expressions.md §13 rows 90, 91."""
    assert Code().field(b"c").pattern("REGEXP_MATCH", b"4.").evaluate(MESSAGE) == b"42"
    assert Code().field(b"c").pattern("REGEXP_MATCH", b"x").evaluate(MESSAGE) is None
    assert Code().field(b"c").pattern("REGEXP_MATCH", b"0", True).evaluate(MESSAGE) == b"0"
    assert Code().field(b"none").pattern("REGEXP_MATCH", b"").evaluate(MESSAGE) is None
    assert Code().field(b"c").const(b"").pattern("REGEXP_REPLACE", b"^0+").evaluate(MESSAGE) == b"42"
    assert Code().field(b"c").const(None).pattern("REGEXP_REPLACE", b"^0+").evaluate(MESSAGE) == b"42"
    assert Code().field(b"c").const(7).pattern("REGEXP_REPLACE", b"^0+").evaluate(MESSAGE) == b"742"
    assert Code().field(b"none").const(b"x").pattern("REGEXP_REPLACE", b"").evaluate(MESSAGE) is None
    assert Code().field(b"t").const(b"").pattern("REGEXP_REPLACE", b".").evaluate(MESSAGE) is None


def test_a_search_that_is_given_up_is_no_match_and_is_counted() -> None:
    program = Code().const(b"a" * 5000 + b"b").pattern("LIKE", b"(a+)+$").program()
    fields = FieldSet()
    assert evaluate(program.bind(fields), fields, b"{}") is False
    assert program.given_up == 1


# NULL, NaN and logic: §5.


@pytest.mark.parametrize(
    ("path", "is_null"),
    [
        *(("none", True), ("n", True), ("s", True), ("e", True), ("nn", True), ("z", True)),
        *(("nl", False), ("i", False), ("b", False), ("x", False), ("d", False)),
    ],
)
def test_is_null(path: str, is_null: bool) -> None:
    """expressions.md §13 rows 14 to 16, 63; §15 items 4, 30."""
    assert Code().field(*name(path)).op("IS_NULL").evaluate(MESSAGE) is is_null


def test_is_nan() -> None:
    """expressions.md §13 rows 46, 98; §15 item 17."""
    for value, expected in ((NAN, True), (None, False), (1.5, False), (1, False), (b"nan", False)):
        assert Code().const(value).op("IS_NAN").evaluate() is expected
    assert Code().field(b"t").const(2).op("MUL").op("IS_NAN").evaluate(MESSAGE) is True
    assert Code().field(b"none").op("IS_NAN").evaluate(MESSAGE) is False
    assert Code().const(NAN).op("IS_NULL").evaluate() is False


TRUTHS: list[tuple[Scalar, bool | None]] = [
    *(
        (True, True),
        (False, False),
        (None, None),
        (NAN, None),
        (5, True),
        (0, False),
        (0.0, False),
        (0.5, True),
    ),
    *((b"x", False), (b"0", False), (b"2", True), (2**63, True)),
]


def logic(jump: str, left: Scalar, right: Scalar) -> Scalar:
    code = Code().const(left)
    code.op(jump, len(code.numbers) + 3).const(right).op("TRUTH")
    return code.evaluate()


@pytest.mark.parametrize("left", TRUTHS, ids=str)
@pytest.mark.parametrize("right", TRUTHS, ids=str)
def test_and_and_or(left: tuple[Scalar, bool | None], right: tuple[Scalar, bool | None]) -> None:
    """The tables of expressions.md §5, which are not symmetric; §15 item 8."""
    assert logic("AND_JUMP", left[0], right[0]) is (right[1] if left[1] is True else left[1])
    assert logic("OR_JUMP", left[0], right[0]) is (right[1] if left[1] is False else left[1])


@pytest.mark.parametrize(("value", "truth"), TRUTHS)
def test_not_and_truth(value: Scalar, truth: bool | None) -> None:
    assert Code().const(value).op("TRUTH").evaluate() is truth
    assert Code().const(value).op("NOT").evaluate() is (None if truth is None else not truth)
    assert Code().const(value).matches() is (truth is True)
    code = Code().const(value)
    code.op("JUMP_UNLESS_TRUE", len(code.numbers) + 3).const(b"yes")
    code.op("JUMP", len(code.numbers) + 2).const(b"no")
    assert code.evaluate() == (b"yes" if truth is True else b"no")


def test_truth_of_fields() -> None:
    for path, expected in (("d", True), ("none", None), ("nl", None), ("x", None), ("t", False), ("b", True)):
        assert Code().field(*name(path)).op("TRUTH").evaluate(MESSAGE) is expected


# Malformed code, and the changes that the constructor makes to code.


def number(op: str, argument: int = 0) -> int:
    return OPCODES[op] | argument << 8


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ([], "no code"),
        ([number("CONST")], "without an end"),
        ([number("END")], "more from the stack"),
        ([number("CONST"), number("CONST"), number("END")], "ends with 2"),
        ([number("CONST"), number("ADD"), number("END")], "more from the stack"),
        ([number("CONST", 1), number("END")], "no such constant"),
        ([number("FIELD", 1), number("END")], "no such constant or field"),
        ([number("CONST"), number("LIKE", 1), number("END")], "no such pattern"),
        ([number("CONST"), number("IN", 1), number("END")], "more from the stack"),
        ([number("CONST"), number("IN", 0xFFFFFF), number("END")], "more from the stack"),
        ([number("CALL", 0xFFF), number("END")], "no such function"),
        ([number("CALL", 0xFFFFFF), number("END")], "no such function"),
        ([99, number("END")], "no such operation"),
        ([max(OPCODES.values()) + 1, number("END")], "no such operation"),
        ([number("CONST"), number("AND_JUMP", 0), number("END")], "backwards"),
        ([number("CONST"), number("AND_JUMP", 9), number("CONST"), number("END")], "out of the code"),
        ([number("CONST"), number("AND_JUMP", 2), number("END")], "differs by the way"),
        ([number("CONST"), number("JUMP", 3), number("CONST"), number("END")], "never reaches"),
        ([number("CONST"), number("CONST"), number("ADD"), number("END")], "stack of 2, not 1"),
    ],
)
def test_malformed_code_is_refused(code: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Program(code, [1], [(b"x", False)], [(b"a",)], 1)


@given(
    st.lists(
        st.builds(
            lambda op, argument: op | argument << 8,
            st.integers(0, 34),
            st.one_of(st.integers(0, 6), st.sampled_from([1 << 12 | n for n in range(90)])),
        ),
        max_size=10,
    )
)
def test_code_that_is_accepted_runs(code: list[int]) -> None:
    constants: list[Scalar] = [None, 1, b"x", 2.5, True, NAN, b"7"]
    try:
        program = Program([*code, OPCODES["END"]], constants, [(b"x", False)] * 7, [(b"a",)] * 7, 50)
    except ValueError:
        return
    fields = FieldSet()
    bound = program.bind(fields)
    for message in (b"{}", b'{"a":[1,"x",null]}'):
        evaluate(bound, fields, message)


def test_a_jump_to_a_comparison_prevents_fusing() -> None:
    """`(no ? - : /i) = 7`: a jump leads to the comparison, so the field before it is not always its left operand."""
    code = Code().const(False)
    code.op("JUMP_UNLESS_TRUE", 4).const(1).op("JUMP", 5).field(b"i").const(7).op("EQ")
    assert code.evaluate(MESSAGE) is True
    code = Code().const(True)
    code.op("JUMP_UNLESS_TRUE", 4).const(1).op("JUMP", 5).field(b"i").const(7).op("EQ")
    assert code.evaluate(MESSAGE) is False


def test_a_jump_to_the_comparison_itself() -> None:
    for condition, expected in ((True, True), (False, False)):
        code = Code().const(condition)
        code.op("JUMP_UNLESS_TRUE", 5).const(1, 1).op("JUMP", 7).field(b"i").const(8).op("EQ")
        assert code.evaluate(MESSAGE) is expected


def test_a_jump_into_a_run_of_constants() -> None:
    """Constants within which a jump ends are not made into a set."""
    for condition, expected in ((True, True), (False, False)):
        code = Code().const(condition)
        code.op("JUMP_UNLESS_TRUE", 5).const(3, 3).op("JUMP", 7).const(4, 9)
        code.const(*range(10, 17)).op("IN", 8)
        assert code.evaluate(MESSAGE) is expected


def test_a_program_serves_several_sets_of_fields() -> None:
    program = Code().field(b"b").const(True).op("EQ").program()
    first, second = FieldSet([(b"x", b"k")]), FieldSet()
    assert evaluate(program.bind(first), first, MESSAGE) is True
    assert evaluate(program.bind(second), second, MESSAGE) is True
    assert first.paths == ((b"x", b"k"), (b"b",))
    assert program.fields == ((b"b",),)


def test_values_read_for_fewer_fields_are_refused() -> None:
    fields = FieldSet()
    values = FieldValues()
    JsonExtractor().read(b"{}", fields, values)
    bound = Code().field(b"a").program().bind(fields)
    with pytest.raises(ValueError, match="read the message again"):
        bound.matches(values)
