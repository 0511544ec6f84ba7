"""Predicates against the comparison of values, one by one: every operator, three formats, and the code behind them.

`compares` is the reference, which test_value checks against the documented rules. It uses no predicates.
"""

from __future__ import annotations

import itertools
import math
import struct
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amps._core.messages.fix import FixExtractor
from amps._core.messages.json import JsonExtractor
from amps._core.messages.msgpack import MsgpackExtractor
from amps._core.values.fields import FieldSet, FieldValues, searches_given_up
from amps._core.values.fields import message as begin_message
from amps._core.values.value import compares
from amps.expressions.filters import compile_filter
from tests.support.machine import Code

if TYPE_CHECKING:
    from amps._core.values.fields import Extractor
    from amps._core.values.value import Scalar, Specimen

COMPARISONS = {"EQ": "=", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
EXACT = 2**53


def msgpack(value: Scalar) -> bytes:
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    return b"\xd9" + bytes([len(value)]) + value


class Message:
    """Values of the field `a` in a message, and the values that `compares` uses for them."""

    def __init__(self, extractor: Extractor, text: bytes, specimens: list[Specimen]) -> None:
        self.extractor = extractor
        self.text = text
        self.specimens = specimens

    def __repr__(self) -> str:
        return repr(self.text)

    def any(self, operator: str, constant: Scalar) -> bool:
        return any(compares(specimen, operator, constant) for specimen in self.specimens)

    def is_true(self, op: str, constants: list[Scalar]) -> bool:
        if op == "BETWEEN":
            return self.any(">=", constants[0]) and self.any("<=", constants[1])
        if op == "IN":
            return any(self.any("=", constant) for constant in constants)
        return self.any(COMPARISONS[op], constants[0])

    def evaluate(self, code: Code) -> Scalar:
        fields = FieldSet()
        bound = code.program().bind(fields)
        values = FieldValues()
        assert self.extractor.read(self.text, fields, values)
        matches = bound.matches(values)
        made = bound.evaluate(values)
        assert matches is (made is True)
        values = FieldValues()
        assert self.extractor.read(self.text, fields, values)
        assert bound.evaluate(values) is made  # whether it has been evaluated before or not
        return made


def of_json(texts: list[bytes]) -> Message:
    """Numbers and strings in their JSON notation."""
    specimens: list[Specimen] = [
        ("string", text[1:-1]) if text.startswith(b'"') else ("number", text) for text in texts
    ]
    whole = texts[0] if len(texts) == 1 else b"[" + b",".join(texts) + b"]"
    return Message(JsonExtractor(), b'{"a":' + whole + b"}" if texts else b"{}", specimens)


def of_nvfix(texts: list[bytes]) -> Message:
    return Message(
        FixExtractor(numeric_tags=False),
        b"".join(b"a=" + text + b"\x01" for text in texts),
        [("text", text) for text in texts],
    )


def of_msgpack(values: list[Scalar]) -> Message:
    whole = (
        msgpack(values[0])
        if len(values) == 1
        else bytes([0x90 | len(values)]) + b"".join(map(msgpack, values))
    )
    return Message(MsgpackExtractor(), b"\x81\xa1a" + whole if values else b"\x80", list(values))


TEXTS = [
    *(b"", b"a", b"b", b"ab", b"ba", b"aa", b"abc", b"abcd", b"abce", b"abcdefgh", b"abcdefgi", b"xbcdefgh"),
    *(b"abcdefghijklmnop", b"abcdefghijklmnoq", b"abcdefghijklmnopq", b"abcdefghijklmnopr", b"\xff"),
    *(b"1", b"1.0", b"42", b"0042", b"-1", b"5.5", b"9007199254740993"),
]
NUMBERS = [
    *(0, 1, -1, 42, 5.5, -5.5, 0.1, -0.0, 1.0, EXACT, EXACT + 1, -EXACT, -EXACT - 1, float(EXACT), 2.0**63),
    *(
        2**63 - 1,
        2**63,
        2**64 - 1,
        -(2**63),
        5e-324,
        -5e-324,
        1.7976931348623157e308,
        -1.7976931348623157e308,
    ),
]
constants = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS),
    st.sampled_from([None, math.nan, math.inf, -math.inf]),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
)
alike = st.one_of(
    st.lists(st.sampled_from(TEXTS[1:]), min_size=7, max_size=9),
    st.lists(st.sampled_from(NUMBERS), min_size=7, max_size=9),
    st.lists(constants, min_size=7, max_size=9),
)
json_texts = st.one_of(
    st.sampled_from(TEXTS).filter(lambda text: text != b"\xff").map(lambda text: b'"' + text + b'"'),
    st.just(b'"\\u0061b"'),
    st.sampled_from(NUMBERS).map(lambda number: repr(number).encode()),
    st.sampled_from([b"1e999", b"-1e999", b"-0", b"42.000", b"4.2e1", b"9007199254740993.0"]),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
)
nvfix_texts = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS).map(lambda number: repr(number).encode()),
)
messages = st.one_of(
    st.lists(json_texts, max_size=2).map(of_json),
    st.lists(nvfix_texts, max_size=2).map(of_nvfix),
    st.lists(st.one_of(constants, st.booleans()), max_size=2).map(of_msgpack),
)
operators = st.sampled_from([*COMPARISONS, "BETWEEN", "IN", "IN"])


def predicate(code: Code, op: str, made: list[Scalar]) -> list[Scalar]:
    """Write a predicate into code. Returns its constants."""
    used = made[:2] if op == "BETWEEN" else made if op == "IN" else made[:1]
    code.field(b"a").const(*used).op(op, len(used) if op == "IN" else 0)
    return used


@given(messages, operators, alike)
@example(of_msgpack([math.nan]), "NE", [1])
@example(of_msgpack([1]), "NE", [math.nan])
@example(of_msgpack([EXACT]), "EQ", [EXACT + 1])
@example(of_msgpack([-EXACT]), "NE", [-EXACT - 1])
@example(of_msgpack([-math.inf]), "LT", [-math.inf])
@example(of_msgpack([math.inf]), "GT", [math.inf])
@example(of_msgpack([True]), "EQ", [1.0])
@example(of_json([b"9007199254740993"]), "GT", [float(EXACT)])
@example(of_json([b"-1e999"]), "LT", [-1.7976931348623157e308])
@example(of_nvfix([b"0042"]), "EQ", [b"42"])
@example(of_nvfix([b""]), "NE", [b"42"])
def test_a_predicate_gives_the_result_of_the_comparisons(
    message: Message, op: str, made: list[Scalar]
) -> None:
    code = Code()
    used = predicate(code, op, made)
    assert message.evaluate(code) is message.is_true(op, used), used


@pytest.mark.parametrize("length", range(1, 20))
def test_texts_that_differ_in_one_byte_are_not_equal(length: int) -> None:
    """Short texts are compared as words: all their bytes and their length must count."""
    text = bytes(97 + at for at in range(length))
    others = [text[:at] + b"!" + text[at + 1 :] for at in range(length)] + [text + b"!", text[:-1]]
    for other in filter(None, others):
        for message in (of_json([b'"' + other + b'"']), of_nvfix([other])):
            assert message.evaluate(Code().field(b"a").const(text).op("EQ")) is False
            assert message.evaluate(Code().field(b"a").const(text).op("NE")) is True
            assert message.evaluate(Code().field(b"a").const(text, text).op("IN", 2)) is False
            assert message.evaluate(Code().field(b"a").const(text, other).op("IN", 2)) is True
    assert of_nvfix([text]).evaluate(Code().field(b"a").const(text).op("EQ")) is True


def test_texts_of_one_byte_differ_by_their_length() -> None:
    for left, right in itertools.product(range(1, 18), repeat=2):
        code = Code().field(b"a").const(b"a" * left).op("EQ")
        assert of_nvfix([b"a" * right]).evaluate(code) is (left == right)


@pytest.mark.parametrize("op", COMPARISONS)
def test_neighbours_of_a_double(op: str) -> None:
    for number in (0.0, 0.1, 900.5, 1.0, -1.5, float(EXACT), 1e300, 5e-324, 1.7976931348623157e308):
        for value in (math.nextafter(number, -math.inf), number, math.nextafter(number, math.inf)):
            expected = compares(value, COMPARISONS[op], number)
            assert of_msgpack([value]).evaluate(Code().field(b"a").const(number).op(op)) is expected


# Code behind a predicate: any tree of AND, OR, NOT and IF over predicates and other conditions.

LEAVES = st.tuples(st.sampled_from(["predicate", "predicate", "comparison"]), st.booleans())
ONE = of_json([b"1"])
trees = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("NOT"), inner),
        st.tuples(st.sampled_from(["AND_JUMP", "OR_JUMP"]), inner, inner),
        st.tuples(st.sampled_from(["AND_JUMP", "OR_JUMP"]), inner, inner, inner),
        st.tuples(st.just("IF"), inner, inner, inner),
    ),
    max_leaves=8,
)


def write(code: Code, tree: tuple[object, ...]) -> bool:
    """Write a tree into code, as the compiler does. Returns its value for a field that is 1."""
    kind, *parts = tree
    if kind in ("predicate", "comparison"):
        truth = parts[0] is True
        if kind == "predicate":
            code.field(b"a").const(1 if truth else 2).op("EQ")
        else:
            code.const(1 if truth else 2).field(b"a").op("EQ")
        return truth
    subtrees = [part for part in parts if isinstance(part, tuple)]
    if kind == "NOT":
        inside = write(code, subtrees[0])
        code.op("NOT")
        return not inside
    if kind == "IF":
        condition = write(code, subtrees[0])
        otherwise = hole(code, "JUMP_UNLESS_TRUE")
        chosen = write(code, subtrees[1])
        end = hole(code, "JUMP")
        fill(code, otherwise)
        other = write(code, subtrees[2])
        fill(code, end)
        return chosen if condition else other
    assert isinstance(kind, str)
    holes, truths = [], []
    for place, subtree in enumerate(subtrees):
        truths.append(write(code, subtree))
        if place < len(subtrees) - 1:
            holes.append(hole(code, kind))
    code.op("TRUTH")
    for jump in holes:
        fill(code, jump)
    return all(truths) if kind == "AND_JUMP" else any(truths)


def hole(code: Code, name: str) -> int:
    code.op(name)
    return len(code.numbers) - 1


def fill(code: Code, jump: int) -> None:
    code.numbers[jump] |= len(code.numbers) << 8


@settings(max_examples=300)
@given(trees)
def test_the_machine_continues_where_the_result_leads(tree: tuple[object, ...]) -> None:
    code = Code()
    expected = write(code, tree)
    assert ONE.evaluate(code) is expected


@pytest.mark.parametrize("truths", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("outer", ["AND_JUMP", "OR_JUMP", "IF"])
@pytest.mark.parametrize("inner", ["AND_JUMP", "OR_JUMP", "NOT"])
@pytest.mark.parametrize("place", range(3))
def test_every_result_of_two_operators(truths: tuple[bool, ...], outer: str, inner: str, place: int) -> None:
    parts: list[tuple[object, ...]] = [("predicate", truth) for truth in truths]
    parts[place] = (inner, parts[place]) if inner == "NOT" else (inner, parts[place], parts[place - 1])
    code = Code()
    expected = write(code, (outer, *parts))
    assert ONE.evaluate(code) is expected


@given(trees, st.booleans())
def test_a_result_may_be_an_operand(tree: tuple[object, ...], left: bool) -> None:
    """Here it is an operand of a comparison, whose left side stays on the stack while the predicates are evaluated."""
    code = Code().const(left)
    expected = write(code, tree)
    assert ONE.evaluate(code.op("EQ")) is (left == expected)


def test_a_field_below_the_operand_of_in_is_another_operand() -> None:
    """`/a = (5 IN (1, 5))`"""
    assert ONE.evaluate(Code().field(b"a").const(5, 1, 5).op("IN", 2).op("EQ")) is True
    assert ONE.evaluate(Code().field(b"a").const(5, 1, 2).op("IN", 2).op("EQ")) is False


@pytest.mark.parametrize("depth", [1, 63, 64, 65, 300])
def test_many_operators_behind_a_predicate(depth: int) -> None:
    for truth in (True, False):
        code = Code().field(b"a").const(int(truth)).op("EQ")
        for _ in range(depth):
            code.op("NOT")
        assert of_json([b"1"]).evaluate(code) is (truth if depth % 2 == 0 else not truth)


def test_a_jump_into_the_code_behind_a_predicate() -> None:
    """`(c ? 1 : /a) = 1`: on one path the comparison has another left operand."""
    for condition, expected in ((True, True), (False, False)):
        code = Code().const(condition)
        code.op("JUMP_UNLESS_TRUE", 4).const(1).op("JUMP", 5).field(b"a").const(1).op("EQ")
        assert of_json([b"2"]).evaluate(code) is expected


# A number that a predicate has parsed keeps its text, and its place in the message.


@pytest.mark.parametrize(
    ("message", "pattern", "text"),
    [
        (of_json([b"1.50"]), b"^1\\.50$", b"1.50"),
        (of_nvfix([b"01.5"]), b"^01\\.5$", b"01.5"),
        (of_json([b"123456789.50"]), b"^123456789\\.50$", b"123456789.50"),
    ],
)
def test_a_value_parsed_by_a_predicate_keeps_its_text(message: Message, pattern: bytes, text: bytes) -> None:
    for again in (
        Code().field(b"a").pattern("LIKE", pattern),
        Code().field(b"a").const(text).op("EQ"),
    ):
        code = Code()
        code.fields, code.constants, code.patterns = again.fields, again.constants, again.patterns
        jump = hole(code.field(b"a").const(0.5).op("GT"), "AND_JUMP")
        code.numbers += again.numbers
        code.op("TRUTH")
        fill(code, jump)
        assert message.evaluate(code) is True


def test_of_a_format_without_types_the_text_counts_even_when_the_number_is_known() -> None:
    """expressions.md §14.3: 0042 is above 41 and is '0042', but not '42'."""
    for text, expected in ((b"0042", True), (b"42", False)):
        code = Code().field(b"a").const(41).op("GT")
        jump = hole(code, "AND_JUMP")
        code.field(b"a").const(text).op("EQ").op("TRUTH")
        fill(code, jump)
        assert of_nvfix([b"0042"]).evaluate(code) is expected


def test_predicates_of_a_large_message_check_its_time() -> None:
    """They are evaluated until the time of the message is over."""
    code = Code()
    holes = []
    for _ in range(1000):
        code.field(b"a").const(1).op("NE")
        holes.append(hole(code, "AND_JUMP"))
    code.field(b"a").const(1).op("NE")
    for jump in holes:
        fill(code, jump)
    fields = FieldSet()
    bound = code.program().bind(fields)
    values = FieldValues()
    assert JsonExtractor().read(b'{"a":2}', fields, values)
    before = searches_given_up()
    begin_message(20_000)
    try:
        assert bound.matches(values) is True
        deadline = time.monotonic() + 10
        while bound.matches(values) and time.monotonic() < deadline:
            pass
    finally:
        begin_message(0)
    assert searches_given_up() == before + 1
    assert bound.matches(values) is True


@pytest.mark.parametrize("text", ["/a >= 2 AND /b != 'x'", "/b LIKE '^a+b' AND /a > 1", "/b LIKE 'a[ab]*b$'"])
def test_time_without_processor_does_not_count(text: str) -> None:
    """A process that was stopped or had no processor during a message has not used up the message's time."""
    fields = FieldSet()
    bound = compile_filter(text).program.bind(fields)
    values = FieldValues()
    assert JsonExtractor().read(b'{"a":2,"b":"%sb"}' % (b"a" * 40_000), fields, values)
    before = searches_given_up()
    begin_message(40_100)
    try:
        assert bound.matches(values) is True
        time.sleep(0.7)  # twice a quarter of a second, and the share of 40,100 bytes
        assert bound.matches(values) is True
    finally:
        begin_message(0)
    assert searches_given_up() == before


def test_a_search_has_no_more_time_than_its_message() -> None:
    """By itself the search would be given up after two seconds of processor time."""
    fields = FieldSet()
    bound = compile_filter("/b LIKE '[ab]*[cd]$'").program.bind(fields)
    values = FieldValues()
    assert JsonExtractor().read(b'{"b":"%s"}' % (b"a" * 400_000), fields, values)
    before = searches_given_up()
    begin_message(400_000)
    begun_s = time.thread_time()
    try:
        assert bound.matches(values) is False
    finally:
        begin_message(0)
    assert searches_given_up() == before + 1
    assert time.thread_time() - begun_s < 1.5  # a quarter of a second, and 4 ms for its bytes


@pytest.mark.parametrize("count", [1, 2, 6, 7, 8, 9])
def test_every_member_counts(count: int) -> None:
    """Seven members are a predicate, eight are a set."""
    for hit in range(count):
        for members, text in (
            ([b"m%d" % number for number in range(count)], b'"m%d"' % hit),
            (list(range(count)), b"%d" % hit),
        ):
            others = [*members[:hit], b"x", *members[hit + 1 :]]
            message = of_json([text])
            assert message.evaluate(Code().field(b"a").const(*members).op("IN", count)) is True
            assert message.evaluate(Code().field(b"a").const(*others).op("IN", count)) is False
