"""The values of tokens: numbers, strings, patterns and fields.

The lexer has checked their form. This module refuses only what a regular expression cannot express.
"""

import re
from typing import Final

from amps.expressions.errors import Refusal, shown
from amps.expressions.syntax import Path

STEPS_MAX: Final = 1000
SUBSCRIPT_MAX: Final = 2**24 - 1  # the limit of an instruction of the machine

_UNSIGNED_MAX = 2**64 - 1
_UNSIGNED_DIGITS = 20

# Three octal digits are an escape only if their value fits one byte.
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|([0-3][0-7]{2})|(.))", re.DOTALL)
_ESCAPED_LETTERS = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"f": b"\f", b"r": b"\r"}
_PAIR = re.compile(r"\\(.)", re.DOTALL)

_STEP = re.compile(r"/([^/\[ \t\r\n\f\v]+)(?:[ \t\r\n\f\v]*\[[ \t\r\n\f\v]*([0-9]+)[ \t\r\n\f\v]*\])?")
_BLANKS = " \t\r\n\f\v"


def encoded(text: str) -> bytes:
    """The bytes of a part of an expression. Bytes that are not UTF-8 are restored."""
    return text.encode("utf-8", "surrogateescape")


def number_of(token: str) -> int | float:
    """An integer if it is written as one and fits 64 bits, otherwise a double."""
    if token.isdigit():
        digits = token.lstrip("0") or "0"
        if len(digits) <= _UNSIGNED_DIGITS and (value := int(digits)) <= _UNSIGNED_MAX:
            return value
    return float(token)


def string_of(token: str) -> bytes:
    """The content of a quoted literal, raw or not."""
    if token[0] in "rR":
        return encoded(token[2:-1])
    content = encoded(token[1:-1])
    return _ESCAPE.sub(_unescaped, content) if b"\\" in content else content


def _unescaped(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, other = match.groups()
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if octal is not None:
        return bytes((int(octal, 8),))
    return _ESCAPED_LETTERS.get(other, other)


def pattern_of(token: str) -> tuple[bytes, bool]:
    """The value of a quoted literal that is a pattern, and whether it is raw.

    The pattern engine resolves the escapes. Only a backslash before the enclosing quote is removed here.
    """
    if token[0] in "rR":
        return encoded(token[2:-1]), True
    quote = token[0]
    content = token[1:-1]
    if "\\" in content:
        content = _PAIR.sub(lambda pair: quote if pair[1] == quote else pair[0], content)
    return encoded(content), False


def path_of(token: str, position: int) -> Path:
    """The path of a field without subscripts and qualifiers."""
    return _checked(tuple(encoded(token[1:]).split(b"/")), position)


def identifier_of(token: str, position: int) -> tuple[Path, int | None, tuple[str, ...]]:
    """Path, final subscript, and qualifiers of a field."""
    if "[" not in token:
        return path_of(token, position), None, ()
    qualifiers: list[str] = []
    while token[0] == "[":
        inside, _, rest = token[1:].partition("]")
        rest = rest.lstrip(_BLANKS)
        if not rest.startswith("."):
            if "//" in inside or inside[-1] == "/":
                raise Refusal("a step of this field has no name", position)
            path = _checked(tuple(encoded(inside[1:]).split(b"/")), position)
            element = _subscript(rest[1:-1].strip(_BLANKS), position) if rest else None
            return path, element, tuple(qualifiers)
        qualifiers.append(inside)
        token = rest[1:].lstrip(_BLANKS)
    steps: list[bytes | int] = []
    for step in _STEP.finditer(token):
        steps.append(encoded(step[1]))
        if step[2] is not None:
            steps.append(_subscript(step[2], position))
    last = steps[-1]
    if isinstance(last, int):
        return _checked(tuple(steps[:-1]), position), last, tuple(qualifiers)
    return _checked(tuple(steps), position), None, tuple(qualifiers)


def _subscript(digits: str, position: int) -> int:
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(SUBSCRIPT_MAX)) or int(digits) > SUBSCRIPT_MAX:
        raise Refusal(f"subscript {shown(digits)} is above {SUBSCRIPT_MAX}", position)
    return int(digits)


def _checked(path: Path, position: int) -> Path:
    if len(path) > STEPS_MAX:
        raise Refusal(f"this field has {len(path)} steps, {STEPS_MAX} are allowed", position)
    return path
