"""The syntax tree of an expression.

Nodes are immutable and have one form for each meaning: `<>` and `!=` are the same Compare, `x NOT IN y` is Not(In),
`x IS NOT NULL` is Not(IsNull). checks.py decides which nodes are allowed in which place.

Every node has a `position`, the character offset of its characteristic token (an operator, a name), and a `depth`,
counted from the leaves. Neither takes part in comparisons. A chain of ANDs or ORs is one node. Trees can be as deep as
the parser allows, which is deeper than Python's stack: functions over trees use `fold`, or an explicit stack.

A path is a tuple of steps: bytes are names (an attribute's begins with "@"), integers are subscripts within the path. A
subscript at the end is not part of the path, but the `element` of the Field.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import TypeVar

Path = tuple[bytes | int, ...]
Folded = TypeVar("Folded")


@dataclass(frozen=True, slots=True)
class Node:
    """Any part of an expression that has a value."""

    position: int = field(default=0, compare=False, repr=False, kw_only=True)
    depth: int = field(init=False, compare=False, repr=False, default=1)

    @property
    def children(self) -> tuple["Node", ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Parent(Node):
    """A node with nodes below it."""

    def __post_init__(self) -> None:
        deepest = 0
        for child in self.children:
            if child.depth > deepest:
                deepest = child.depth
        object.__setattr__(self, "depth", deepest + 1)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A number (never negative: signs are Unary), a string or NULL. `written` is the token of a string."""

    value: int | float | bytes | None
    written: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pattern(Node):
    """The pattern argument of a function, as written. In a raw pattern every character is literal."""

    value: bytes
    raw: bool


@dataclass(frozen=True, slots=True)
class Field(Node):
    path: Path
    element: int | None = None
    qualifier: tuple[str, ...] = ()
    of: OneOf["CURRENT", "PREVIOUS"] | None = None


@dataclass(frozen=True, slots=True)
class Unary(Parent):
    op: str  # + -
    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Binary(Parent):
    op: str  # + - * / %
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Compare(Parent):
    op: str  # == != < <= > >=
    left: Node
    right: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class Between(Parent):
    value: Node
    low: Node
    high: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.value, self.low, self.high)


@dataclass(frozen=True, slots=True)
class OneOfMany(Parent):
    """A value and the list that it is compared with."""

    value: Node
    members: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.value, *self.members)


class In(OneOfMany):
    __slots__ = ()


class BeginsWith(OneOfMany):
    __slots__ = ()


class EndsWith(OneOfMany):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Like(Parent):
    """`pattern` as written: the pattern engine resolves its escapes. raw: every character is literal."""

    value: Node
    pattern: bytes
    raw: bool = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.value,)


@dataclass(frozen=True, slots=True)
class OfOne(Parent):
    value: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.value,)


class IsNull(OfOne):
    __slots__ = ()


class IsNan(OfOne):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Not(Parent):
    operand: Node

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Chain(Parent):
    """Two or more parts, evaluated from left to right until the result is known.

    No part is a chain of the same kind: by the documented truth tables, grouping makes no difference.
    """

    parts: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.parts


class And(Chain):
    __slots__ = ()


class Or(Chain):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Call(Parent):
    """A function call. `name` is in upper case."""

    name: str
    arguments: tuple[Node, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.arguments


def fold(root: Node, combine: Callable[[Node, list[Folded]], Folded]) -> Folded:
    """Combine every node with the results of its children, from the leaves up and from left to right."""
    order: list[Node] = []
    pending = [root]
    while pending:
        node = pending.pop()
        order.append(node)
        pending += node.children
    results: list[Folded] = []
    for node in reversed(order):
        first = len(results) - len(node.children)
        below = results[first:]
        del results[first:]
        results.append(combine(node, below))
    return results[0]
