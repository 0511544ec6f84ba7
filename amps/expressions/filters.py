"""Filters for the delivery of messages: a program, and conditions without which it cannot match.

Of thousands of filters on one topic, most are conjunctions with an equality: `/symbol = 'A' AND /price > 10`. A message
with another symbol cannot match, and need not be tried. This module derives such necessary conditions, each on one
field and constants. The filter set (amps/_core/expressions/filter_set.pxi) files filters under these constants.
"""

from collections.abc import Iterable
from typing import Final

from amps._core.expressions.machine import Filter
from amps.expressions.checks import Usage
from amps.expressions.compiler import INTEGER_MIN
from amps.expressions.expression import compile_expression
from amps.expressions.functions import SHIPPED, Functions
from amps.expressions.syntax import And, Call, Compare, Field, In, Literal, Node, Or, Path, Unary, fold

Constant = int | float | bytes
Equality = tuple[Path, tuple[Constant, ...]]

CONSTANTS_MAX = 1000
"""Equalities with more constants are not used: filing a filter under each would cost more than it saves."""

PUBLISHER_FUNCTIONS: Final = frozenset({"CLIENT_NAME", "CONNECTION_NAME", "CLIENT_VERSION", "REMOTE_ADDRESS"})
MESSAGE_FUNCTIONS: Final = PUBLISHER_FUNCTIONS | {
    "MESSAGE_SIZE",
    "CORRELATION_ID",
    "LAST_UPDATED",
    "BOOKMARK",
    "TOPIC_NAME",
    "SOW_KEY",
    "LAST_READ",
    "SOW_KEY_HASH",
    "LEASE_COUNT",
    "LAST_LEASED",
    "USER",
}


def load_compiler() -> None:
    """Load all parts of the compiler, so that the first filter of a process is compiled as fast as later ones."""
    compile_filter(
        "NOT /a = 1 AND (/b IN ('c', -2.5) OR /d LIKE 'e') AND /f BETWEEN 1 AND 2 AND LENGTH(/g) IS NOT NULL"
    )


def compile_filter(text: str, functions: Functions = SHIPPED) -> Filter:
    """Compile a filter. functions: those of the instance. Raises ExpressionError."""
    expression = compile_expression(text, Usage.FILTER, functions)
    root = expression.syntax
    assert expression.program is not None
    equalities, exact = necessary_equalities(root)
    return Filter(
        expression.program,
        expression.canonical,
        equalities,
        exact,
        asks_message(root),
        _calls(root, PUBLISHER_FUNCTIONS),
        expression.deterministic,
    )


def asks_message(root: Node) -> bool:
    """Whether an expression reads facts about the message besides its fields."""
    return _calls(root, MESSAGE_FUNCTIONS)


def necessary_equalities(root: Node) -> tuple[tuple[Equality, ...], bool]:
    """Equalities that must all hold for the filter to match, and whether a single one is the whole filter.

    An equality holds if any value of the field is equal to any of the constants, by the rules of `=`.
    """
    parts = root.parts if isinstance(root, And) else (root,)
    found = [equality for equality in map(_equality, parts) if equality is not None]
    exact = len(parts) == 1 and len(found) == 1 and not _has_subscript(parts[0])
    return tuple(found), exact


def _equality(node: Node) -> Equality | None:
    """The equality that a node requires: `=`, IN, or OR over the same field. None for any other node."""
    match node:
        case (
            Compare(op="==", left=Field() as field, right=other)
            | Compare(op="==", left=other, right=Field() as field)
        ):
            return _checked(field, (other,))
        case In(value=Field() as field, members=members):
            return _checked(field, members)
        case Or(parts=parts) if len(parts) <= CONSTANTS_MAX and not any(
            isinstance(part, Or) for part in parts
        ):
            alternatives = [_equality(part) for part in parts]
            first = alternatives[0]
            if first is None or any(other is None or other[0] != first[0] for other in alternatives):
                return None
            constants = tuple(
                constant for other in alternatives if other is not None for constant in other[1]
            )
            return (first[0], constants) if len(constants) <= CONSTANTS_MAX else None
    return None


def _checked(field: Field, others: Iterable[Node]) -> Equality | None:
    constants: list[Constant] = []
    for other in others:
        sign = 1
        if isinstance(other, Unary) and other.op == "-":
            other, sign = other.operand, -1
        if not isinstance(other, Literal) or (sign < 0 and not isinstance(other.value, int | float)):
            return None
        if other.value is None or other.value == b"":
            continue  # equal to no value
        constants.append(_negative(other.value) if sign < 0 else other.value)
    return (field.path, tuple(constants)) if len(constants) <= CONSTANTS_MAX else None


def _negative(value: Constant) -> Constant:
    assert not isinstance(value, bytes)
    return -value if -value >= INTEGER_MIN else float(-value)


def _has_subscript(node: Node) -> bool:
    match node:
        case Compare(left=left, right=right):
            return any(isinstance(side, Field) and side.element is not None for side in (left, right))
        case In(value=Field(element=element)):
            return element is not None
        case Or(parts=parts):
            return any(map(_has_subscript, parts))
    return True


def _calls(root: Node, names: frozenset[str]) -> bool:
    """Whether an expression calls one of these functions."""

    def visit(node: Node, children: list[bool]) -> bool:
        return any(children) or (isinstance(node, Call) and node.name in names)

    return fold(root, visit)
