"""Conversion of a syntax tree to canonical text.

Two expressions with the same tree have the same text, and parsing the text gives the same tree again. So the text
identifies equal filters. Parentheses are written where they are needed, and around every predicate that is an operand
of another one, so that a reader need not know the precedence of comparisons.
"""

import re
from typing import Final

from amps.expressions.syntax import (
    And,
    BeginsWith,
    Between,
    Binary,
    Call,
    Chain,
    Compare,
    EndsWith,
    Field,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    OneOfMany,
    Or,
    Pattern,
    Unary,
)

_LIST, _OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _SIGN, _PRIMARY = range(9)
_LEVELS: Final[dict[type[Node], int]] = {
    Or: _OR,
    And: _AND,
    Not: _NOT,
    Compare: _PREDICATE,
    Between: _PREDICATE,
    In: _PREDICATE,
    BeginsWith: _PREDICATE,
    EndsWith: _PREDICATE,
    Like: _PREDICATE,
    IsNull: _PREDICATE,
    IsNan: _PREDICATE,
    Unary: _SIGN,
}
_MANY = {In: " IN (", BeginsWith: " BEGINS WITH (", EndsWith: " ENDS WITH ("}

_PLAIN_STEP = re.compile(r"@?[-A-Za-z0-9_.:\x80-\U0010ffff]+")
_PATTERN_PIECE = re.compile(r"\\.|['\"]", re.DOTALL)
_ESCAPES = {byte: f"\\x{byte:02x}" for byte in range(256) if not 0x20 <= byte < 0x7F}
_ESCAPES |= {ord("'"): "\\'", ord("\\"): "\\\\"}

# A piece of text, or a node and the level below which it needs parentheses.
_Item = str | tuple[Node, int]


def text_of(root: Node) -> str:
    """The text of a tree."""
    pieces: list[str] = []
    pending: list[_Item] = [(root, _LIST)]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        node, level = item
        items = _items(node)
        if _level(node) < level:
            items = ["(", *items, ")"]
        pending += reversed(items)
    return "".join(pieces)


def _level(node: Node) -> int:
    if isinstance(node, Binary):
        return _SUM if node.op in "+-" else _PRODUCT
    return _LEVELS.get(type(node), _PRIMARY)


def _items(node: Node) -> list[_Item]:
    match node:
        case Literal():
            return [_literal(node.value)]
        case Field():
            return [_field(node)]
        case Pattern():
            return [_pattern(node.value, node.raw)]
        case Unary():
            return [node.op, (node.operand, _PRIMARY)]
        case Binary():
            level = _level(node)
            return [(node.left, level), f" {node.op} ", (node.right, level + 1)]
        case Compare():
            return [(node.left, _SUM), f" {node.op} ", (node.right, _SUM)]
        case Between():
            return [(node.value, _SUM), " BETWEEN ", (node.low, _SUM), " AND ", (node.high, _SUM)]
        case OneOfMany():
            return [(node.value, _SUM), _MANY[type(node)], *_separated(node.members, ", ", _LIST), ")"]
        case Like():
            return [(node.value, _SUM), " LIKE ", _pattern(node.pattern, node.raw)]
        case IsNull():
            return [(node.value, _SUM), " IS NULL"]
        case IsNan():
            return [(node.value, _SUM), " IS NAN"]
        case Not():
            return ["NOT ", (node.operand, _NOT)]
        case Chain():
            word, level = (" OR ", _AND) if isinstance(node, Or) else (" AND ", _NOT)
            return _separated(node.parts, word, level)
        case Call():
            return [f"{node.name}(", *_separated(node.arguments, ", ", _LIST), ")"]
    raise TypeError(f"no text for {type(node).__name__}")


def _separated(nodes: tuple[Node, ...], separator: str, level: int) -> list[_Item]:
    items: list[_Item] = []
    for node in nodes:
        if items:
            items.append(separator)
        items.append((node, level))
    return items


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _literal(value: int | float | bytes | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return "'" + value.decode("latin-1").translate(_ESCAPES) + "'"
    return "1e999" if value == float("inf") else repr(value)


def _pattern(pattern: bytes, raw: bool) -> str:
    """A pattern in quotes that need no backslash, if possible.

    A backslash before other quotes belongs to the pattern.
    """
    content = _decoded(pattern)
    if raw:
        quote = '"' if "'" in content else "'"
        return f"r{quote}{content}{quote}"
    pairs = _PATTERN_PIECE.findall(content)
    quote = '"' if "\\'" in pairs or ("'" in pairs and '"' not in pairs and '\\"' not in pairs) else "'"
    return (
        quote
        + _PATTERN_PIECE.sub(lambda piece: f"\\{quote}" if piece[0] == quote else piece[0], content)
        + quote
    )


def _field(field: Field) -> str:
    pieces = [f"[{name}]." for name in field.qualifier]
    names = [step if isinstance(step, int) else _decoded(step) for step in field.path]
    if all(isinstance(name, int) or _PLAIN_STEP.fullmatch(name) for name in names):
        pieces += [f"[{name}]" if isinstance(name, int) else f"/{name}" for name in names]
    else:
        pieces.append(f"[/{'/'.join(map(str, names))}]")
    if field.element is not None:
        pieces.append(f"[{field.element}]")
    if field.of is not None:
        pieces.append(f" OF {field.of}")
    return "".join(pieces)
