"""Messages and values for the reference evaluator of expressions.

These are JSON as the json module reads it, conversions, comparisons and arithmetic, by the sections of the expression
reference. A value is None, bool, int, float, bytes, a number that keeps the text it had in the message, or Ellipsis
for an object. The empty string is None wherever it comes from. An infinity is a value that a message or a literal can
name; the result of arithmetic is NaN instead (section 4.1).
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1
NUMBER = re.compile(rb"[+-]?(?:\d+(\.\d*)?|(\.\d+))([eE][+-]?\d+)?", re.ASCII)
# Stands for bytes that are not UTF-8 while the json module works on text.
BYTE_PLANE = 0x10FF00


@dataclass(frozen=True)
class TextNumber:
    """A number taken directly from a message: as text it is the text in the message (section 4.2)."""

    text: bytes
    value: int | float


Value = None | bool | int | float | bytes | TextNumber | EllipsisType
Result = None | bool | int | float | bytes


class Unknown(Exception):
    """The reference evaluator gives no result: the section does not define it, or it is not about expressions."""


# Messages


class Object(dict[bytes, "Json"]):
    """A JSON object.

    Of the values of a repeated key the first counts (section 12.3). The object's text decides whether it contains a
    scalar, since all values are in the text.
    """

    has_leaf = False


Json = Object | list["Json"] | None | bool | bytes | TextNumber


def parse_json(message: bytes) -> Json:
    """A JSON document; ValueError if the text is none. Strings are the bytes they represent, whatever these are."""
    if not message.strip(b" \t\r\n"):
        return Object()
    try:
        text = message.decode()
        binary = False
    except UnicodeDecodeError:
        text = "".join(chr(byte if byte < 0x80 else BYTE_PLANE + byte) for byte in message)
        binary = True

    def encoded(made: str) -> bytes:
        if not binary:
            return made.encode("utf-8", "surrogatepass")
        return b"".join(
            bytes([ord(char) - BYTE_PLANE])
            if ord(char) >= BYTE_PLANE + 0x80
            else char.encode("utf-8", "surrogatepass")
            for char in made
        )

    def number(literal: str) -> TextNumber:
        found = number_from_text(literal.encode())
        assert found is not None
        return TextNumber(literal.encode(), found)

    def refuse(literal: str) -> None:
        raise ValueError(f"{literal} is no JSON")

    def settled(made: object) -> Json:
        if isinstance(made, str):
            return encoded(made) or None
        if isinstance(made, list):
            return [settled(element) for element in made]
        assert made is None or isinstance(made, bool | TextNumber | Object)
        return made

    def first_counts(pairs: list[tuple[str, object]]) -> Object:
        made = Object()
        for name, value in pairs:
            member = made.setdefault(encoded(name), settled(value))
            made.has_leaf |= has_leaf(member) or has_leaf(settled(value))
        return made

    return settled(
        json.loads(
            text,
            parse_int=number,
            parse_float=number,
            parse_constant=refuse,
            object_pairs_hook=first_counts,
            strict=False,
        )
    )


def values_at(message: Json, path: Sequence[bytes | int]) -> list[Value]:
    """All values at a path, in the order of the message (section 9)."""
    if not isinstance(message, Object):
        return []
    found: list[Json] = [message]
    for step in path:
        below: list[Json] = []
        for place in found:
            if isinstance(step, int):
                # Each array by itself, nested arrays flattened; a value that is no array is its own first element.
                below += flat([place])[step : step + 1]
            else:
                below += [part[step] for part in flat([place]) if isinstance(part, Object) and step in part]
        found = below
    # An object exists if it contains a scalar (section 14.4), and is not a value.
    return [
        ... if isinstance(value, Object) else value
        for value in flat(found)
        if not isinstance(value, list) and has_leaf(value)
    ]


def flat(places: list[Json]) -> list[Json]:
    """The list with the elements of arrays in place of the arrays."""
    made: list[Json] = []
    for place in places:
        made += flat(place) if isinstance(place, list) else [place]
    return made


def has_leaf(value: Json) -> bool:
    """True if a value contains a scalar."""
    if isinstance(value, Object):
        return value.has_leaf or any(has_leaf(member) for member in value.values())
    if isinstance(value, list):
        return any(has_leaf(element) for element in value)
    return True


# Conversions (section 4.2)


def number_from_text(text: bytes) -> int | float | None:
    """The number that the whole text represents, or None."""
    form = NUMBER.fullmatch(text)
    if form is None:
        return None
    if form[1] is None and form[2] is None and form[3] is None and len(text.lstrip(b"+-0")) <= 20:
        integer = int(text)
        if INTEGER_MIN <= integer <= INTEGER_MAX:
            return integer
    return float(text)


def scalar(value: Value) -> bool | int | float | bytes | TextNumber | None:
    """A value as operators see it: an object has none, the empty string is none."""
    return None if value is ... or value == b"" else value


def to_number(value: Value) -> int | float | None:
    value = scalar(value)
    if value is None:
        return None
    if isinstance(value, TextNumber):
        return value.value
    if isinstance(value, bytes):
        found = number_from_text(value)
        return math.nan if found is None else found
    return int(value) if isinstance(value, bool) else value


def to_text(value: Value) -> bytes | None:
    value = scalar(value)
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, TextNumber):
        return value.text
    if isinstance(value, float) and not math.isfinite(value):
        raise Unknown("how NaN and infinity are written")
    return str(int(value)).encode() if isinstance(value, bool) else repr(value).encode()


def truth_of(value: Value) -> bool | None:
    number = to_number(value)
    if number is None:
        return None
    if math.isnan(number):
        return False if isinstance(value, bytes) else None
    return number != 0


def is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


# Comparison (section 6.1)

COMPARISONS: dict[str, Callable[[int], bool]] = {
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def compare(operator: str, left: Value, right: Value) -> bool:
    """Compare two single values. With NULL or NaN on either side every comparison is false (section 5)."""
    left, right = scalar(left), scalar(right)
    if left is None or right is None or is_nan(left) or is_nan(right):
        return False
    if isinstance(left, bytes) and isinstance(right, bytes):
        return COMPARISONS[operator]((left > right) - (left < right))
    left_number, right_number = to_number(left), to_number(right)
    assert left_number is not None
    assert right_number is not None
    if math.isnan(left_number):
        return COMPARISONS[operator](1)  # a string that is no number is greater than every number
    if math.isnan(right_number):
        return COMPARISONS[operator](-1)
    return COMPARISONS[operator]((left_number > right_number) - (left_number < right_number))


def any_pair(operator: str, left: list[Value], right: list[Value]) -> bool:
    return any(compare(operator, one, other) for one in left for other in right)


# Arithmetic (sections 4.1 and 14.6)


def divided(left: int | float, right: int | float) -> int | float:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def remainder(left: int | float, right: int | float) -> int | float:
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return math.nan if math.isinf(left) else math.fmod(left, right)


ARITHMETIC: dict[str, Callable[[int | float, int | float], int | float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": divided,
    "%": remainder,
}


def calculate(operator: str, left_value: Value, right_value: Value) -> int | float | None:
    left, right = to_number(left_value), to_number(right_value)
    if left is None or right is None:
        return None
    if math.isnan(left) or math.isnan(right) or (operator in "/%" and right == 0):
        return math.nan
    if isinstance(left, float) or isinstance(right, float):
        return valid(ARITHMETIC[operator](float(left), float(right)))
    exact = ARITHMETIC[operator](left, right)
    return exact if INTEGER_MIN <= exact <= INTEGER_MAX else ARITHMETIC[operator](float(left), float(right))


def valid(number: float) -> float:
    return number if math.isfinite(number) else math.nan


def same(one: object, other: object) -> bool:
    """Of one type and equal; NaN equals NaN, and the zeros differ."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return type(one) is type(other) and one == other
