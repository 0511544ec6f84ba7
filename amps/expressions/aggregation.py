"""Division of an expression of a projection into the parts evaluated per message and those evaluated per group.

Its aggregates, and the largest parts without an aggregate, become programs over one message. The rest of the tree
around them becomes a program over their results. So a field outside an aggregate, a message function or a user
function has the value of the group's last message, whenever the aggregates change.

In arithmetic a SUM counts as floating point (expressions.md §14.2): as an operand, also inside a branch of IF or an
argument of a function, but not where the result is a truth value. A SUM on its own stays an integer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from amps._core.expressions.functions import FUNCTIONS
from amps._core.expressions.machine import Program, UserFunction
from amps._core.values.fields import FACT_NAMES
from amps.expressions.compiler import Instead, compiled
from amps.expressions.functions import Functions
from amps.expressions.syntax import (
    Between,
    Binary,
    Call,
    Compare,
    Field,
    IsNan,
    IsNull,
    Like,
    Literal,
    Node,
    OneOfMany,
    Path,
    Pattern,
    Unary,
    fold,
)
from amps.expressions.text import text_of

_LOOKS_AT_ALL = (
    Between,
    Compare,
    IsNan,
    IsNull,
    Like,
    OneOfMany,
)  # operators that read all elements of an array, or yield a truth value
_MESSAGE_FUNCTIONS = frozenset(name.upper() for name in FACT_NAMES) | {"AMPS_GROUP_NAME"}
_OF_INSTANCE = frozenset({"AMPS_INSTANCE_NAME", "AMPS_INSTANCE_GROUP", "AMPS_GROUP_NAME"})


@dataclass(frozen=True, slots=True)
class Part:
    """A value that the outer program reads as a field. Parts with the same text are equal.

    function: the aggregate; None: the value of the group's last message. whole: all values of a field, because an
    operator reads all of them.
    """

    function: str | None
    text: str
    program: Program
    delimiter: bytes = b""
    whole: bool = False

    @property
    def path(self) -> Path:
        """The path of the part in the outer program. Different parts have different paths."""
        kind = self.function or ("every" if self.whole else "last")
        return (kind.encode(), self.text.encode("utf-8", "surrogateescape"), b"by" + self.delimiter)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An expression divided into parts. `outer` reads the parts by their paths. beyond_content: functions inside
    aggregates whose result does not depend on the message's content alone. If there are any, a message can be removed
    from a group only with the facts it had when it was added.
    """

    parts: tuple[Part, ...]
    outer: Program
    beyond_content: frozenset[str] = frozenset()


def aggregation_of(root: Node, functions: Functions) -> Aggregation:
    """Divide a checked expression about the messages of one topic."""
    aggregating = _aggregating(root)
    parts: dict[Path, Part] = {}
    instead: dict[int, Instead] = {}
    beyond: set[str] = set()
    pending: list[tuple[Node, bool, bool]] = [(root, False, False)]
    while pending:
        node, in_arithmetic, seen_whole = pending.pop()
        if isinstance(node, Call) and _is_aggregate(node):
            part = _aggregate(node, functions)
            beyond.update(_beyond_content(node, functions))
            instead[id(node)] = Instead(part.path, in_arithmetic and node.name == "SUM")
        elif id(node) in aggregating:
            pending += reversed(list(_below(node, in_arithmetic)))
            continue
        elif isinstance(node, Literal | Pattern):
            continue
        else:
            whole = seen_whole and isinstance(node, Field) and node.element is None
            part = Part(None, text_of(node), compiled(node, functions), whole=whole)
            instead[id(node)] = Instead(part.path)
        parts.setdefault(part.path, part)
    return Aggregation(tuple(parts.values()), compiled(root, functions, instead), frozenset(beyond))


def _is_aggregate(call: Call) -> bool:
    info = FUNCTIONS.get(call.name)
    return info is not None and info.aggregate


def _aggregating(root: Node) -> frozenset[int]:
    """The nodes that are aggregates or have an aggregate below them."""
    found: set[int] = set()

    def combine(node: Node, below: list[bool]) -> bool:
        there = any(below) or (isinstance(node, Call) and _is_aggregate(node))
        if there:
            found.add(id(node))
        return there

    fold(root, combine)
    return frozenset(found)


def _below(node: Node, in_arithmetic: bool) -> Iterator[tuple[Node, bool, bool]]:
    """The nodes below one that contains an aggregate. For each: whether it is in arithmetic, and whether all its values
    are read.
    """
    if isinstance(node, Binary):
        in_arithmetic = True
    elif isinstance(node, Call) and node.name == "IF":
        condition, chosen, other = node.arguments
        yield from ((condition, False, False), (chosen, in_arithmetic, False), (other, in_arithmetic, False))
        return
    elif not isinstance(node, Unary | Call):
        in_arithmetic = False
    for child in node.children:
        yield child, in_arithmetic, isinstance(node, _LOOKS_AT_ALL)


def _aggregate(call: Call, functions: Functions) -> Part:
    argument = call.arguments[0]
    delimiter = b","
    if call.name != "GROUP_CONCAT":
        delimiter = b""
    elif len(call.arguments) > 1:
        literal = call.arguments[1]
        assert isinstance(literal, Literal)
        delimiter = literal.value if isinstance(literal.value, bytes) else b""
    return Part(call.name, text_of(argument), compiled(argument, functions), delimiter)


def _beyond_content(call: Call, functions: Functions) -> Iterator[str]:
    pending: list[Node] = [call]
    while pending:
        node = pending.pop()
        pending += node.children
        if isinstance(node, Call) and (
            isinstance(functions.find(node.name), UserFunction)
            or (node.name in _MESSAGE_FUNCTIONS and node.name not in _OF_INSTANCE)
        ):
            yield node.name
