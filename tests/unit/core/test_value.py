"""Values against plain Python: numbers from text, JSON escapes, conversions, and a table of all comparisons."""

from __future__ import annotations

import json
import math
import re
import struct
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.values.value import Arena, compares, convert

if TYPE_CHECKING:
    from amps._core.values.value import Scalar, Specimen

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def model_number(text: bytes) -> int | float | None:
    """expressions.md §4.2: an integer without point and exponent and within 64 bits, otherwise the nearest double."""
    if not NUMBER.fullmatch(text):
        return None
    if re.fullmatch(rb"[+-]?\d+", text) and INT64_MIN <= int(text) <= UINT64_MAX:
        return int(text)
    return float(text)


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


def number_of(text: bytes) -> object:
    made = convert(text, "number")
    return None if isinstance(made, float) and math.isnan(made) else made


digits = st.text("0123456789", max_size=30)
number_texts = st.builds(
    lambda sign, whole, point, part, exponent: (sign + whole + point + part + exponent).encode(),
    st.sampled_from(["", "-", "+"]),
    digits,
    st.sampled_from(["", "."]),
    digits,
    st.one_of(
        st.just(""),
        st.builds(
            lambda e, s, d: e + s + str(d),
            st.sampled_from("eE"),
            st.sampled_from(["", "-", "+"]),
            st.integers(0, 400),
        ),
    ),
)


@given(number_texts)
def test_text_becomes_the_number_that_python_reads(text: bytes) -> None:
    if text:
        assert same(number_of(text), model_number(text)), text


@given(st.text("0123456789.-+eE/: ", max_size=12).map(str.encode))
@example(b".")
@example(b"-.")
@example(b"-")
@example(b"--1")
@example(b"1234567.")
@example(b".1234567")
@example(b"-.0")
@example(b"1.2.3")
@example(b"-12345678")
@example(b"-1234567.")
@example(b"-123456789")
def test_text_that_may_be_a_number(text: bytes) -> None:
    if text:
        assert same(number_of(text), model_number(text)), text


@pytest.mark.parametrize("length", range(1, 18))
def test_every_byte_at_every_place_of_a_number(length: int) -> None:
    """Digits are parsed eight at a time, with the point among them.

    Each digit counts, and other bytes are no digits.
    """
    digits = bytes(49 + at % 9 for at in range(length))
    for at in range(length):
        for byte in range(256):
            text = digits[:at] + bytes([byte]) + digits[at + 1 :]
            assert same(number_of(text), model_number(text)), text
            assert same(number_of(b"-" + text), model_number(b"-" + text)), text
        for other in range(length):
            text = digits[:at] + b"." + digits[at + 1 :]
            text = text[:other] + b"." + text[other + 1 :]
            assert same(number_of(text), model_number(text)), text


@given(st.integers(0, 99_999_999), st.integers(0, 8), st.sampled_from([b"", b"-"]))
def test_short_decimals_are_the_nearest_doubles(number: int, places: int, sign: bytes) -> None:
    digits = b"%0*d" % (places, number)
    text = sign + digits[: len(digits) - places] + b"." + digits[len(digits) - places :]
    assert same(number_of(text), float(text)), text
    assert same(convert(("number", text), "value"), float(text)), text


@given(
    st.sampled_from(
        [10**count for count in range(25)] + [2**53, 2**63, 2**64, 9 * 10**15, 18446744073709551610]
    ),
    st.integers(-12, 12),
    st.integers(0, 25),
    st.integers(-330, 330) | st.none(),
    st.integers(0, 9),
    st.sampled_from([b"", b"-", b"+"]),
)
def test_numbers_about_the_limits_of_integers_and_doubles(
    number: int, beside: int, places: int, exponent: int | None, zeros: int, sign: bytes
) -> None:
    """With a point anywhere, an exponent, or zeros in front."""
    digits = b"0" * zeros + b"%d" % abs(number + beside)
    at = max(0, len(digits) - places)
    text = sign + digits[:at] + (b"." + digits[at:] if places else b"")
    if exponent is not None:
        text += b"e%d" % exponent
    assert same(number_of(text), model_number(text)), text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_survives_its_text(number: float) -> None:
    text = convert(number, "text")
    assert isinstance(text, bytes)
    assert text == repr(number).encode()
    assert same(convert(text, "number"), number)


@given(st.floats(min_value=0, allow_infinity=False), st.integers(0, 900), st.sampled_from("013579"))
def test_digits_far_behind_decide_between_neighbours(number: float, zeros: int, last: str) -> None:
    """The text of the middle between two doubles, exactly and slightly above: no digit may be ignored."""
    above = math.nextafter(number, math.inf)
    if math.isinf(above):
        return
    middle = (Fraction(number) + Fraction(above)) / 2
    exponent = 1100
    written = (
        f"{middle.numerator * 10**exponent // middle.denominator}{'0' * zeros}{last}e-{exponent + zeros + 1}"
    )
    assert same(convert(written.encode(), "number"), float(written))


EDGES = [
    *(
        b"9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616 -0 0.0 -0.0".split()
    ),
    *(
        b"-9223372036854775808 -9223372036854775809 1e999 -1e999 1e-999 5. .5 5.e1 . e5 1e 1e+ --1 +-1 + 0x10".split()
    ),
    *(
        b"1_0 inf nan Infinity 1e99999999999999999999 0e99999999999999999999 00012 2e3 9007199254740993.0".split()
    ),
    *(b"2.2250738585072011e-308 4.9e-324 2e-324 1.7976931348623159e308 8.5e22 1e23".split()),
    *(b"123456789012345 1234567890123456 12345678901234567 123456789012345678 1234567890123456789".split()),
    *(
        b"12345678901234567890 123456789012345678901 99999999 100000000 9999999999999999 10000000000000000".split()
    ),
    *(
        b"18446744073709551609 18446744073709551610 184467440737 184467440736 184467440736.0000000000000001".split()
    ),
    *(
        b"18446744073709551615.5 9007199254740992 9007199254740993 -9007199254740993 0.0000000000000000000001".split()
    ),
    *(b" 1", b"1 ", b"0." + b"0" * 5000 + b"1e5001", b"1" * 4000, b"1" * 4000 + b"e-3999"),
]


@pytest.mark.parametrize("text", EDGES, ids=range(len(EDGES)))
def test_numbers_at_the_limits(text: bytes) -> None:
    assert same(number_of(text), model_number(text))


@given(st.text(), st.randoms())
def test_escapes_mean_what_json_means(text: str, random: object) -> None:
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        expected = text.encode("utf-8", "surrogatepass") or None
        assert convert(("string", written[1:-1].encode("utf-8", "surrogatepass")), "value") == expected


@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=6))
def test_units_of_utf16_become_characters_where_they_pair(units: list[int]) -> None:
    written = "".join(f"\\u{unit:04X}" for unit in units)
    expected = json.loads(f'"{written}"').encode("utf-8", "surrogatepass")
    assert convert(("string", written.encode()), "value") == expected


def test_every_short_escape() -> None:
    assert convert(("string", rb"\"\\\/\b\f\n\r\t\u0000"), "value") == b'"\\/\b\f\n\r\t\0'


@pytest.mark.parametrize(
    ("made", "value", "number", "text", "truth"),
    [
        (None, None, None, None, None),
        (b"", None, None, None, None),
        (True, True, 1, b"1", True),
        (False, False, 0, b"0", False),
        (7, 7, 7, b"7", True),
        (0, 0, 0, b"0", False),
        (INT64_MIN, INT64_MIN, INT64_MIN, b"-9223372036854775808", True),
        (UINT64_MAX, UINT64_MAX, UINT64_MAX, b"18446744073709551615", True),
        (2**64, 2.0**64, 2.0**64, b"1.8446744073709552e+19", True),
        (0.0, 0.0, 0.0, b"0.0", False),
        (2.0, 2.0, 2.0, b"2.0", True),
        (math.nan, math.nan, math.nan, b"nan", None),
        (b"1.50", b"1.50", 1.5, b"1.50", True),
        (b"0", b"0", 0, b"0", False),
        (b"yes", b"yes", math.nan, b"yes", False),
        (b"nan", b"nan", math.nan, b"nan", False),
        (("number", b"1.50"), 1.5, 1.5, b"1.50", True),
        (("number", b"-0"), 0, 0, b"-0", False),
        (("string", rb"4\u0032"), b"42", 42, b"42", True),
        (("text", b""), None, None, None, None),
        (("text", b"0042"), 42, 42, b"0042", True),
        (("text", b"x"), b"x", math.nan, b"x", False),
        (("container", b""), ..., None, None, None),
    ],
)
def test_conversions(made: Specimen, value: object, number: object, text: object, truth: object) -> None:
    for how, expected in (("value", value), ("number", number), ("text", text), ("truth", truth)):
        assert same(convert(made, how), expected), how


def model_compare(left: Scalar, operator: str, right: Scalar, text_format: tuple[bool, bool]) -> bool:
    """§6.1 and §14.3, word by word. text_format: the side that comes from a format without types."""

    def number(side: Scalar) -> int | float | None:
        if isinstance(side, bytes):
            return model_number(side)
        return None if side is None else side + 0

    if left in (None, b"") or right in (None, b""):
        return False
    if any(isinstance(side, float) and math.isnan(side) for side in (left, right)):
        return False
    inferred = [
        is_text and number(side) is not None for is_text, side in zip(text_format, (left, right), strict=True)
    ]
    strings = [
        isinstance(side, bytes) and not number_like
        for side, number_like in zip((left, right), inferred, strict=True)
    ]
    first: object
    second: object
    by_text = operator in ("=", "!=") and (
        (inferred[0] and strings[1] and not text_format[1])
        or (inferred[1] and strings[0] and not text_format[0])
    )
    if all(strings) or by_text:
        first, second = left, right
    else:
        numbers = number(left), number(right)
        if None in numbers:
            # A string that does not convert is above every number.
            first, second = numbers[0] is None, numbers[1] is None
        else:
            first, second = numbers
    return {
        "=": first == second,
        "!=": first != second,
        "<": first < second,  # type: ignore[operator]
        "<=": first <= second,  # type: ignore[operator]
        ">": first > second,  # type: ignore[operator]
        ">=": first >= second,  # type: ignore[operator]
    }[operator]


PLAIN: list[Scalar] = [
    None, b"", True, False, 0, 1, -1, 2, 42, INT64_MIN, INT64_MAX, INT64_MAX - 1, 2**63, UINT64_MAX, UINT64_MAX - 1,
    0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 42.0, 2.0**53, 2**53 + 1, 2.0**63, 2.0**64, -(2.0**63), 1e300, -1e300, 5e-324,
    math.inf, -math.inf, math.nan, b"1", b"1.0", b"01", b"42", b"0042", b"x", b"xy", b"true", b"nan", b"-1", b"\xff",
    b"9223372036854775808", b"9007199254740993", b"x\0y", b"1e2", b"+1", b".5",
]  # fmt: skip
SIDES: list[tuple[Specimen, Scalar, bool]] = [
    *[(value, value, False) for value in PLAIN],
    *[(("text", value), value, True) for value in PLAIN if isinstance(value, bytes)],
    (("number", b"42.0"), 42.0, False),
    (("string", rb"4\u0032"), b"42", False),
    (("container", b""), None, False),
]


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_comparison_is_the_documented_one_for_every_pair(operator: str) -> None:
    for left, left_value, left_text in SIDES:
        for right, right_value, right_text in SIDES:
            expected = model_compare(left_value, operator, right_value, (left_text, right_text))
            assert compares(left, operator, right) == expected, (left, operator, right)


@given(
    st.one_of(st.integers(INT64_MIN, UINT64_MAX), st.floats(allow_nan=False)),
    st.one_of(st.integers(INT64_MIN, UINT64_MAX), st.floats(allow_nan=False)),
)
def test_integers_and_doubles_compare_without_rounding(left: float, right: float) -> None:
    assert compares(left, "<", right) == (left < right)
    assert compares(left, "=", right) == (left == right)


def test_an_arena_is_bounded_and_can_be_used_again() -> None:
    arena = Arena(100_000)
    arena.take(70_000)
    arena.take(30_000)
    with pytest.raises(MemoryError, match="100000 bytes"):
        arena.take(1)
    arena.reset()
    assert arena.used == 0
    arena.take(100_000)
    with pytest.raises(MemoryError):
        Arena(10).take(2**63)


def test_unknown_conversions_are_refused() -> None:
    with pytest.raises(ValueError, match="value, number, text and truth"):
        convert(1, "colour")
    with pytest.raises(TypeError, match="list"):
        convert([], "value")  # type: ignore[arg-type]
