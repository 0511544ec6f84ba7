"""Why a text is no expression, in words that help.

Lark says what it found and what could have stood there; which of the usual mistakes that is, is guessed here.
"""

import re

from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from amps.expressions.errors import Refusal, shown

_WORD_BEFORE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)[ \t\r\n\f\v]*\Z")
_LOOKED_AT_BEFORE = 300
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_AFTER_OPERAND = {"AND", "OR", "RPAR", "COMMA", "_AS", "$END", "_BLANK"}
_BETWEEN = {"AND"}
_OPERAND = "a field, a literal or a function"


def refusal_of(error: UnexpectedCharacters | UnexpectedToken, text: str) -> Refusal:
    """The fault that stopped the parser."""
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    wanted = frozenset(error.allowed if isinstance(error, UnexpectedCharacters) else error.expected)
    position = error.pos_in_stream
    if at_end or position is None:
        position = len(text)
    if "IDENTIFIER" in wanted and "NUMBER" in wanted:
        reason = _no_operand(text, position, at_end)
    elif wanted == {"LPAR"}:
        reason = _no_parenthesis(text, position)
    elif "COMPARISON" in wanted or (wanted <= _AFTER_OPERAND and wanted != _BETWEEN):
        reason = _no_operator(text, position, at_end, isinstance(error, UnexpectedCharacters))
    else:
        reason = _nothing_wanted(text, position, at_end, wanted)
    return Refusal(reason, position)


def _found(text: str, position: int, at_end: bool) -> str:
    if at_end:
        return "the expression ends"
    word = _WORD.match(text, position, position + _LOOKED_AT_BEFORE)
    return f"{shown(word[0] if word else text[position])!r} stands"


def _no_operand(text: str, position: int, at_end: bool) -> str:
    character = text[position : position + 1]
    if character in ("'", '"') and not at_end:
        return "this string is not closed"
    if character == "/":
        return "the name of a field must follow '/' at once"
    if character == "[":
        return "a field in brackets is written [/name], a qualified one [topic]./name"
    return f"{_found(text, position, at_end)} where {_OPERAND} is expected"


def _no_parenthesis(text: str, position: int) -> str:
    if text[position : position + 1] in ("'", '"') and text[position - 1 : position] in ("r", "R"):
        return "this string is not closed"
    word = _WORD_BEFORE.search(text[max(0, position - _LOOKED_AT_BEFORE) : position])
    name = word[1] if word else ""
    if name.upper() in ("IN", "WITH"):
        return f"a list in parentheses must follow {name.upper()}"
    if name.upper() == "NOT":
        return "NOT and what it denies are an operand only in parentheses"
    return (
        f"{shown(name)!r} is neither a field, which begins with '/', nor a function, which needs parentheses"
    )


def _no_operator(text: str, position: int, at_end: bool, unknown: bool) -> str:
    if at_end:
        return "a parenthesis is not closed"
    character = text[position]
    if character == ")":
        return "there is no '(' for this ')'"
    if character in ("'", '"') and unknown:
        return "this string is not closed"
    if character == "[":
        return "a subscript is written [0], and stands after a field only"
    word = _WORD.match(text, position, position + _LOOKED_AT_BEFORE)
    if word and word[0].upper() in ("AS", "HINT"):
        return f"{word[0].upper()} has no place here"
    return f"{_found(text, position, at_end)} where an operator is expected"


_NAMES = {"_WITH": "WITH", "_HINT": "HINT", "IDENTIFIER": "a field", "$END": "the end", "COMMA": "','"}


def _nothing_wanted(text: str, position: int, at_end: bool, wanted: frozenset[str]) -> str:
    if wanted == {"STRING", "RAW_STRING"}:
        return "the pattern of LIKE must be a quoted literal"
    names = sorted({_NAMES.get(name, name) for name in wanted - {"_BLANK"}})
    return f"{_found(text, position, at_end)} where {' or '.join(names)} is expected"
