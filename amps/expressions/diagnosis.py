"""Explanations of syntax errors.

The parser reports the token that it found and the terminals that are allowed there. This module guesses which frequent
mistake that is.
"""

import re
import string

from amps.expressions.errors import Refusal, shown
from amps.expressions.lalr import END, Unexpected

_NAME_CHARACTERS = string.ascii_letters + string.digits + "_"
_BLANKS = string.whitespace
_WORD_LENGTH_MAX = 300
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_QUOTES = ("'", '"')
_RAW_PREFIX = re.compile(r"(?<![A-Za-z0-9_])[rR]\Z")
_AFTER_OPERAND = {"AND", "OR", "RPAR", "COMMA", "_AS", END}
_BETWEEN = {"AND"}
_OPERAND = "a field, a literal or a function"


def refusal_of(error: Unexpected, text: str) -> Refusal:
    """The fault at which the parser stopped."""
    at_end = error.found == ""
    wanted = error.wanted
    position = error.position
    string_start = _open_string(error, text, position)
    if string_start is not None:
        return Refusal("this string is not closed", string_start)
    if "IDENTIFIER" in wanted and "NUMBER" in wanted:
        reason = _no_operand(text, position, at_end)
    elif wanted == {"LPAR"}:
        reason, position = _no_parenthesis(text, position)
    elif "COMPARISON" in wanted or (wanted <= _AFTER_OPERAND and wanted != _BETWEEN):
        reason = _no_operator(text, position, at_end)
    else:
        reason = _nothing_wanted(text, position, at_end, wanted)
    return Refusal(reason, position)


def _open_string(error: Unexpected, text: str, position: int) -> int | None:
    """The beginning of a string that is not closed. Only its quote is not a token; the R of a raw string is a name."""
    if error.found is None:
        if text[position] not in _QUOTES:
            return None
        prefix = text[max(0, position - 2) : position]
        return position - 1 if _RAW_PREFIX.search(prefix) else position
    return position if error.found in ("r", "R") and text[position + 1 : position + 2] in _QUOTES else None


def _found(text: str, position: int, at_end: bool) -> str:
    if at_end:
        return "the expression ends"
    word = _WORD.match(text, position, position + _WORD_LENGTH_MAX)
    return f"{shown(word[0] if word else text[position])!r} stands"


def _no_operand(text: str, position: int, at_end: bool) -> str:
    character = text[position : position + 1]
    if character == "/":
        return "the name of a field must follow '/' at once"
    if character == "[":
        return "a field in brackets is written [/name], a qualified one [topic]./name"
    return f"{_found(text, position, at_end)} where {_OPERAND} is expected"


def _no_parenthesis(text: str, position: int) -> tuple[str, int]:
    """Reason and position. The fault may be the word before."""
    before = text[:position].rstrip(_BLANKS)
    start = len(before.rstrip(_NAME_CHARACTERS))
    name = before[start:]
    if text[start - 1 : start] == "/":
        return "'/' divides here: an operator is missing before it, or another '/' after it", start - 1
    if name.upper() in ("IN", "WITH"):
        return f"a list in parentheses must follow {name.upper()}", position
    if name.upper() == "NOT":
        return "NOT with its operand needs parentheses here", start
    reason = (
        f"{shown(name)!r} is neither a field, which begins with '/', nor a function, which needs parentheses"
    )
    return reason, start


def _no_operator(text: str, position: int, at_end: bool) -> str:
    if at_end:
        return "a parenthesis is not closed"
    character = text[position]
    if character == ")":
        return "there is no '(' for this ')'"
    if character == "[":
        return "a subscript is written [0], and stands after a field only"
    word = _WORD.match(text, position, position + _WORD_LENGTH_MAX)
    if word and word[0].upper() in ("AS", "HINT"):
        return f"{word[0].upper()} is not allowed here"
    return f"{_found(text, position, at_end)} where an operator is expected"


_NAMES = {"_WITH": "WITH", "_HINT": "HINT", "IDENTIFIER": "a field", END: "the end", "COMMA": "','"}


def _nothing_wanted(text: str, position: int, at_end: bool, wanted: frozenset[str]) -> str:
    if wanted == {"STRING", "RAW_STRING"}:
        return "the pattern of LIKE must be a quoted literal"
    names = sorted({_NAMES.get(name, name) for name in wanted})
    return f"{_found(text, position, at_end)} where {' or '.join(names)} is expected"
