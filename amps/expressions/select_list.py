"""Select lists of subscriptions and entitlements, compiled to Selections (sow.md §18)."""

from typing import Final

from amps._core.values.documents import Selection
from amps.expressions.errors import ExpressionError
from amps.expressions.parser import parse_expression
from amps.expressions.syntax import Field

DIRECTIVES_MAX: Final = 10_000


def parse_select_list(text: str) -> Selection:
    """Compile a list such as `[-/,+/id,+/order/price]`. The brackets may be missing, as in a configuration.

    ValueError: it is malformed; the text says how to write it.
    """
    inside = text.strip()
    if inside.startswith("[") and inside.endswith("]"):
        inside = inside[1:-1]
    directives = []
    for directive in _separated(inside):
        sign, identifier = directive[:1], directive[1:].strip()
        if sign not in ("+", "-"):
            raise ValueError(
                f"select list {text!r}: {directive!r} does not begin with + (include) or - (exclude), as in [-/,+/id]"
            )
        directives.append((sign == "+", () if identifier == "/" else _path(text, directive, identifier)))
    if len(directives) > DIRECTIVES_MAX:
        raise ValueError(f"a select list has at most {DIRECTIVES_MAX} directives, not {len(directives)}")
    return Selection(directives)


def _separated(inside: str) -> list[str]:
    """The directives. Commas in the brackets of an identifier do not separate them."""
    found = [""]
    depth = 0
    for character in inside:
        if character == "," and depth == 0:
            found.append("")
            continue
        depth += {"[": 1, "]": -1}.get(character, 0)
        found[-1] += character
    return [directive.strip() for directive in found]


def _path(text: str, directive: str, identifier: str) -> tuple[bytes, ...]:
    try:
        field = parse_expression(identifier)
    except ExpressionError as error:
        raise ValueError(f"select list {text!r}: {directive!r}: {error}") from error
    if not isinstance(field, Field) or field.qualifier or field.of is not None:
        raise ValueError(f"select list {text!r}: {directive!r} does not name a field, such as +/id or -/order/price")
    if field.element is not None or not all(isinstance(step, bytes) for step in field.path):
        raise ValueError(f"select list {text!r}: {directive!r} has a subscript; a select list names whole fields")
    return tuple(step for step in field.path if isinstance(step, bytes))
