"""The meaning of an expression, computed in the simplest way: the reference for the compiler and the machine in
tests.

It walks the syntax tree of an expression over a message that the json module has parsed. It shares no code with the
machine and is not optimised. Every rule is in one place, with its section of the expression reference. It supports
JSON messages and all functions that need neither the message's headers nor a clock.

An operand is the list of all values at a path (section 9); reference_values.py defines values.
"""

import math
import re
import time
from collections.abc import Callable, Sequence

from amps.expressions import syntax
from tests.support.reference_values import (
    INTEGER_MAX,
    INTEGER_MIN,
    Json,
    Result,
    TextNumber,
    Unknown,
    Value,
    any_pair,
    calculate,
    compare,
    is_nan,
    parse_json,
    scalar,
    to_number,
    to_text,
    truth_of,
    valid,
    values_at,
)

WHITESPACE = b" \t\n\v\f\r"
STRFTIME_BYTES_MAX = 128


def negative(number: int | float | None) -> int | float | None:
    """The sign gives another number of the same kind, also of an infinity; an integer zero has none."""
    return calculate("-", 0, number) if isinstance(number, int) else None if number is None else -number


# Functions (section 10)


def fold_case(text: bytes) -> bytes:
    return text.lower()  # of bytes: ASCII letters only


def position(text: Value, part: Value, change: Callable[[bytes], bytes]) -> int:
    whole, wanted = to_text(text), to_text(part)
    return 0 if whole is None or wanted is None else change(whole).find(change(wanted)) + 1


def equal_text(one: Value, other: Value, change: Callable[[bytes], bytes]) -> int:
    left, right = to_text(one), to_text(other)
    return 0 if left is None or right is None else int(change(left) == change(right))


def whole_number(value: int | float) -> int:
    if not math.isfinite(value) or value != int(value):
        raise Unknown("what a position is that is no integer")
    return int(value)


def substr(text: bytes, at: int | float, length: int | float | None) -> bytes:
    start = whole_number(at)
    if start < -len(text):
        raise Unknown("positions before the beginning")
    start = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if length is None:
        return text[start:]
    return text[start : start + max(0, whole_number(length))]


def integral(change: Callable[[float], int]) -> Callable[[int | float], int | float]:
    def changed(number: int | float) -> int | float:
        if math.isnan(number):
            return number
        if not -(2.0**63) <= number < 2.0**64:
            raise Unknown("what is beyond integers")
        return number if isinstance(number, int) else change(number)

    return changed


def half_away(number: float) -> int:
    below = math.floor(abs(number))
    rounded = below + (abs(number) - below >= 0.5)
    return rounded if number >= 0 else -rounded


def sign(number: int | float) -> int | float:
    return number if math.isnan(number) else (number > 0) - (number < 0)


def real(function: Callable[[float], float]) -> Callable[[int | float], float]:
    def called(number: int | float) -> float:
        try:
            return valid(function(float(number)))
        except (ValueError, OverflowError):
            return math.nan

    return called


def crc32c_register(text: bytes) -> int:
    """CRC-32C without its final inversion (section 10.8)."""
    register = 0xFFFFFFFF
    for byte in text:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register


def crc64(text: bytes) -> int:
    """CRC-64/XZ."""
    register = 0xFFFFFFFFFFFFFFFF
    for byte in text:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xC96C5795D7870F42 if register & 1 else 0)
    return register ^ 0xFFFFFFFFFFFFFFFF


def strftime(form: bytes, timestamp: int | float) -> bytes | None:
    if not math.isfinite(timestamp) or not 0 <= timestamp < 2**32:
        raise Unknown("far away times")
    seconds = math.floor(timestamp)
    microseconds = math.floor((timestamp - seconds) * 1_000_000)
    made = (
        form.decode("ascii")
        .replace("%03f", f"{microseconds // 1000:03d}")
        .replace("%f", f"{microseconds:06d}")
    )
    text = time.strftime(made, time.gmtime(seconds)).encode()
    return text if len(text) <= STRFTIME_BYTES_MAX else None


def geo_distance(*degrees: int | float) -> float:
    latitude, longitude, other_latitude, other_longitude = (float(angle) for angle in degrees)
    if max(abs(latitude), abs(other_latitude)) > 90 or max(abs(longitude), abs(other_longitude)) > 180:
        return math.nan
    one, other = math.radians(latitude), math.radians(other_latitude)
    across = math.radians(other_longitude - longitude)
    haversine = math.sin((other - one) / 2) ** 2 + math.cos(one) * math.cos(other) * math.sin(across / 2) ** 2
    return 2 * 6_371_000 * math.asin(math.sqrt(haversine))


def greatest(operator: str, values: Sequence[Value]) -> Value:
    """The greatest of those that are not NULL, NaN only if there is no other; of equals the first."""
    best: Value = None
    for value in values:
        if scalar(value) is None or (best is not None and is_nan(value)):
            continue
        if best is None or is_nan(best) or compare(operator, value, best):
            best = value
    return best


# Functions of text and of numbers; a NULL argument gives NULL.
OF_TEXT: dict[str, Callable[[bytes], Value]] = {
    "UPPER": bytes.upper,
    "LOWER": bytes.lower,
    "REVERSE": lambda text: text[::-1],
    "LENGTH": len,
    "TRIM": lambda text: text.strip(WHITESPACE),
    "LTRIM": lambda text: text.lstrip(WHITESPACE),
    "RTRIM": lambda text: text.rstrip(WHITESPACE),
    "CRC32": crc32c_register,
    "CRC64": crc64,
}
OF_NUMBER: dict[str, Callable[[int | float], int | float]] = {
    "ABS": abs,
    "CEILING": integral(math.ceil),
    "FLOOR": integral(math.floor),
    "ROUND": integral(half_away),
    "SIGN": sign,
    "EXP": real(math.exp),
    "LN": real(math.log),
    "LOG2": real(math.log2),
    "LOG10": real(math.log10),
    "SQRT": real(math.sqrt),
    "ACOS": real(math.acos),
    "ASIN": real(math.asin),
    "ATAN": real(math.atan),
    "COS": real(math.cos),
    "SIN": real(math.sin),
    "TAN": real(math.tan),
    "SINH": real(math.sinh),
    "COSH": real(math.cosh),
    "TANH": real(math.tanh),
}


class Evaluator:
    """Evaluates trees over one message."""

    def __init__(self, message: bytes | Json) -> None:
        self.message = parse_json(message) if isinstance(message, bytes) else message

    def matches(self, node: syntax.Node) -> bool:
        return truth_of(self.value(node)) is True

    def evaluate(self, node: syntax.Node) -> Result:
        found = scalar(self.value(node))
        return found.value if isinstance(found, TextNumber) else found

    def operand(self, node: syntax.Node) -> list[Value]:
        """All values of an operand, for operators that any of them may satisfy (section 9)."""
        if isinstance(node, syntax.Field) and node.element is None:
            return values_at(self.message, node.path)
        return [self.value(node)]

    def value(self, node: syntax.Node) -> Value:
        """The one value of an expression: of an array the first element."""
        match node:
            case syntax.Literal(value=value):
                return value
            case syntax.Field(path=path, element=element):
                found = values_at(self.message, path)[element or 0 :]
                return found[0] if found else None
            case syntax.Unary(op=op, operand=operand):
                number = to_number(self.value(operand))
                return number if op == "+" else negative(number)
            case syntax.Binary(op=op, left=left, right=right):
                return calculate(op, self.value(left), self.value(right))
            case syntax.And(parts=parts):
                return self.joined(parts, goes_on=True)
            case syntax.Or(parts=parts):
                return self.joined(parts, goes_on=False)
            case syntax.Not(operand=operand):
                truth = truth_of(self.value(operand))
                return None if truth is None else not truth
            case syntax.Call(name=name, arguments=arguments):
                return self.call(name, arguments)
            case _:
                return self.predicate(node)

    def joined(self, parts: Sequence[syntax.Node], goes_on: bool) -> bool | None:
        """AND and OR, not symmetric (section 5): the first operand that decides, or is NULL, is the result."""
        for part in parts:
            truth = truth_of(self.value(part))
            if truth is not goes_on:
                return truth
        return goes_on

    def predicate(self, node: syntax.Node) -> bool:
        match node:
            case syntax.Compare(op=op, left=left, right=right):
                return any_pair(
                    "==" if op == "=" else "!=" if op == "<>" else op, self.operand(left), self.operand(right)
                )
            case syntax.Between(value=value, low=low, high=high):
                values = self.operand(value)
                return any_pair(">=", values, self.operand(low)) and any_pair(
                    "<=", values, self.operand(high)
                )
            case syntax.In(value=value, members=members):
                values = self.operand(value)
                return any(any_pair("==", values, self.operand(member)) for member in members)
            case syntax.Like(value=value, pattern=pattern, raw=raw):
                search = re.compile(re.escape(pattern) if raw else pattern).search
                return any(search(text) is not None for text in self.texts(value))
            case syntax.BeginsWith(value=value, members=members):
                parts = [part for member in members for part in self.texts(member)]
                return any(text.startswith(part) for text in self.texts(value) for part in parts)
            case syntax.EndsWith(value=value, members=members):
                parts = [part for member in members for part in self.texts(member)]
                return any(text.endswith(part) for text in self.texts(value) for part in parts)
            case syntax.IsNull(value=value):
                return all(element is None or element == b"" for element in self.operand(value))
            case syntax.IsNan(value=value):
                return is_nan(self.value(value))
        raise TypeError(node)

    def texts(self, node: syntax.Node) -> list[bytes]:
        """The values of an operand as text, without those for which every predicate is false."""
        made = [to_text(value) for value in self.operand(node) if not is_nan(value)]
        return [text for text in made if text is not None]

    def call(self, name: str, arguments: Sequence[syntax.Node]) -> Value:
        if name == "IF":
            return scalar(self.value(arguments[1 if truth_of(self.value(arguments[0])) else 2]))
        if name == "COALESCE":
            there = (scalar(self.value(argument)) for argument in arguments)
            return next((value for value in there if value is not None), None)
        if name.startswith("ARRAY_"):
            return self.call_array(
                name, self.operand(arguments[0]), [self.value(rest) for rest in arguments[1:]]
            )
        if name.startswith("REGEXP_"):
            return self.call_pattern(arguments)
        values = [scalar(self.value(argument)) for argument in arguments]
        match name, values:
            case "TRUE_VALUE", []:
                return True
            case "FALSE_VALUE", []:
                return False
            case "NAN_VALUE", []:
                return math.nan
            case "GREATEST", _:
                return greatest(">", values)
            case "LEAST", _:
                return greatest("<", values)
            case "CONCAT", _:
                return b"".join(to_text(value) or b"" for value in values)
            case "INSTR", [text, part]:
                return position(text, part, bytes)
            case "INSTR_I", [text, part]:
                return position(text, part, fold_case)
            case "STREQUAL", [one, other]:
                return equal_text(one, other, bytes)
            case "STREQUAL_I", [one, other]:
                return equal_text(one, other, fold_case)
            case "REPLACE", [text, part, made]:
                # A missing replacement is the empty string, as in the documented REGEXP_REPLACE.
                if text is None or part is None:
                    return None
                return (to_text(text) or b"").replace(to_text(part) or b"", to_text(made) or b"")
        if any(value is None for value in values):
            return None
        return self.call_strict(name, values)

    def call_strict(self, name: str, values: Sequence[Value]) -> Value:
        """A function for which a NULL argument gives NULL. No argument is NULL here."""
        text, number = b"", math.nan
        if name in OF_TEXT:
            text = to_text(values[0]) or b""
            return OF_TEXT[name](text)
        numbers = [to_number(value) for value in values]
        number = numbers[0] if numbers[0] is not None else math.nan
        if name in OF_NUMBER and len(values) == 1:
            made = OF_NUMBER[name](number)
            if isinstance(made, float):
                return valid(made)
            return made if INTEGER_MIN <= made <= INTEGER_MAX else float(made)
        if name in ("SUBSTR", "LEFT", "RIGHT"):
            text = to_text(values[0]) or b""
        match name, numbers[1:]:
            case "SUBSTR", [int() | float() as at]:
                return substr(text, at, None)
            case "SUBSTR", [int() | float() as at, length]:
                return substr(text, at, length)
            case "LEFT", [int() | float() as length]:
                return text[: max(0, whole_number(length))]
            case "RIGHT", [int() | float() as length]:
                return text[max(0, len(text) - max(0, whole_number(length))) :]
            case "CHAR_VALUE", []:
                code = whole_number(number)
                return bytes([code]) if 0 <= code <= 255 else None
            case "STRFTIME", [int() | float() as timestamp]:
                return strftime(to_text(values[0]) or b"", timestamp)
            case "POWER", [int() | float() as exponent]:
                return real(lambda base: math.pow(base, float(exponent)))(number)
            case "GEO_DISTANCE", _:
                return geo_distance(*(angle for angle in numbers if angle is not None))
        raise Unknown(name)

    def call_pattern(self, arguments: Sequence[syntax.Node]) -> Value:
        """REGEXP_MATCH, and with a third argument REGEXP_REPLACE."""
        text, pattern = to_text(self.value(arguments[0])), arguments[1]
        assert isinstance(pattern, syntax.Pattern)
        if text is None:
            return None
        search = re.compile(re.escape(pattern.value) if pattern.raw else pattern.value)
        if len(arguments) == 2:
            found = search.search(text)
            return found[0] if found else None
        # A missing replacement is the empty string.
        return search.sub((to_text(self.value(arguments[2])) or b"").replace(b"\\", rb"\\"), text)

    def call_array(self, name: str, array: list[Value], rest: list[Value]) -> Value:
        """Functions of a whole array (section 10.5). A field that is NULL is not an array of one NULL."""
        if len(array) == 1 and (array[0] is None or array[0] == b""):
            array = []
        if name == "ARRAY_COUNT":
            return len(array)
        there = [value for value in array if scalar(value) is not None]
        match name:
            case "ARRAY_MAX":
                return greatest(">", there)
            case "ARRAY_MIN":
                return greatest("<", there)
            case "ARRAY_SUM":
                if not there:
                    return None
                total = to_number(there[0])
                for value in there[1:]:
                    total = calculate("+", total, value)
                return total
            case "ARRAY_TO_STRING":
                delimiter, replacement = (to_text(value) or b"" for value in rest)
                texts = (to_text(value) for value in array)
                return delimiter.join(replacement if text is None else text for text in texts) or None
        raise Unknown(name)
