"""Parsing: from text to syntax tree.

The grammar is grammar.lark. Its rules become nodes here, while the LALR parser of lalr.py runs. That parser keeps its
own stack, so the depth of an expression is limited by DEPTH_MAX, not by Python. Everything that is not form (known
functions, numbers of arguments, usage) is checked in checks.py.

The parser is created for the first expression, once per process. That takes milliseconds, because its tables are
stored.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from typing import Literal as OneOf

from amps._core.expressions.functions import PATTERN_FUNCTIONS
from amps.expressions.diagnosis import refusal_of
from amps.expressions.errors import ExpressionError, Refusal
from amps.expressions.lalr import Parser, Token, Unexpected, shipped_tables
from amps.expressions.syntax import (
    And,
    BeginsWith,
    Between,
    Binary,
    Call,
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
    Or,
    Pattern,
    Unary,
)
from amps.expressions.tokens import identifier_of, number_of, path_of, pattern_of, string_of

TEXT_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 1000

_TOO_DEEP = f"the expression is nested more than {DEPTH_MAX} deep"
# Atomic groups, not possessive ones: those match wrongly in early releases of Python 3.11.
_PARENTHESES = re.compile(  # and the tokens that may contain them: strings and names in brackets
    r"""(?<![A-Za-z0-9_])[rR](?:'[^']*+'|"[^"]*+")|'[^'\\]*+(?>(?:\\.[^'\\]*+)*)'|"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"|\[[^\]]*+\]|[()]""",
    re.DOTALL,
)

_PATTERN_PLACE = 1  # index of the pattern among the arguments of PATTERN_FUNCTIONS

# The parts of tokens that combine several simple tokens.
_CONSTANT = re.compile(
    r"""[0-9][-+.0-9eE]*+|'[^'\\]*+(?>(?:\\.[^'\\]*+)*)'|"[^"\\]*+(?>(?:\\.[^"\\]*+)*)\"""", re.DOTALL
)
_COMPARED = re.compile(r"([^ \t\r\n\f\v=!<>]+)[ \t\r\n\f\v]*([=!<>]+)[ \t\r\n\f\v]*(.+)", re.DOTALL)

# Precedence of comparisons, tightest first. Tests (BETWEEN, IN, LIKE, IS ...) bind least.
_RANKS = {"==": 0, ">": 1, ">=": 2, "<": 3, "<=": 4, "!=": 5}
_RANK_OF_TESTS = 6
_SAME_OPERATORS = {"=": "==", "<>": "!=", "MOD": "%"}


@dataclass(frozen=True, slots=True)
class Construction:
    """The parts of a field constructor. `hints` are tokens, in the order of the text."""

    source: Node
    destination: Field | None
    hints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The operator and right operand of a comparison."""

    op: str
    right: Node
    position: int


_Test = Callable[[Node], Node]


def _limited(node: Node) -> Node:
    if node.depth > DEPTH_MAX:
        raise Refusal(_TOO_DEEP, node.position)
    return node


def _limit_parentheses(text: str) -> None:
    """Limit the depth of parentheses, which leave no nodes, before the parser runs: otherwise they could cost much."""
    if text.count("(") <= DEPTH_MAX:
        return
    depth = 0
    for piece in _PARENTHESES.finditer(text):
        if piece[0] == "(":
            depth += 1
            if depth > DEPTH_MAX:
                raise Refusal(_TOO_DEEP, piece.start())
        elif piece[0] == ")":
            depth -= 1


def _chain(kind: type[And] | type[Or], written: list[Node]) -> Node:
    """Join parts to one chain. Parts that are chains of the same kind are merged into it."""
    parts: list[Node] = []
    for part in written:
        parts += part.parts if isinstance(part, kind) else (part,)
    return _limited(kind(tuple(parts), position=parts[0].position))


def _operator(token: Token) -> str:
    written = token.upper()
    return _SAME_OPERATORS.get(written, written)


class _Builder:
    """Makes nodes from the grammar's rules. Methods have the names of rules and their alternatives."""

    def chain(self, children: list[Any]) -> Node:
        """AND binds tighter than OR."""
        groups = [[children[0]]]
        for token, condition in zip(children[1::2], children[2::2], strict=True):
            if token.type == "AND":
                groups[-1].append(condition)
            else:
                groups.append([condition])
        parts = [group[0] if len(group) == 1 else _chain(And, group) for group in groups]
        return parts[0] if len(parts) == 1 else _chain(Or, parts)

    def negation(self, children: list[Any]) -> Node:
        token, value = children
        return _limited(Not(value, position=token.position))

    def predicate(self, children: list[Any]) -> Node:
        """Apply comparisons and tests in their order of precedence, those of equal precedence from left to right."""
        operands: list[Node] = [children[0]]
        waiting: list[_Comparison] = []

        def reduce_to(rank: int) -> None:
            while waiting and _RANKS[waiting[-1].op] <= rank:
                comparison = waiting.pop()
                right = operands.pop()
                left = operands.pop()
                operands.append(_limited(Compare(comparison.op, left, right, position=comparison.position)))

        for tail in children[1:]:
            if isinstance(tail, _Comparison):
                reduce_to(_RANKS[tail.op])
                waiting.append(tail)
                operands.append(tail.right)
            else:
                reduce_to(_RANK_OF_TESTS)
                operands.append(_limited(tail(operands.pop())))
        reduce_to(_RANK_OF_TESTS)
        return operands[0]

    def compared(self, children: list[Token]) -> Node:
        (token,) = children
        start = token.position
        written = _COMPARED.fullmatch(token)
        assert written is not None
        field = Field(path_of(written[1], start), position=start)
        literal = _literal(written[3], start + written.start(3))
        operator = _SAME_OPERATORS.get(written[2], written[2])
        return Compare(operator, field, literal, position=start + written.start(2))

    def comparison(self, children: list[Any]) -> _Comparison:
        token, right = children
        return _Comparison(_operator(token), right, token.position)

    def between(self, children: list[Any]) -> _Test:
        negation, token, low, _, high = children
        position = token.position
        return _negated(negation, lambda value: Between(value, low, high, position=position))

    def membership(self, children: list[Any]) -> _Test:
        negation, token, *members = children
        position = token.position
        values = _members(members)
        return _negated(negation, lambda value: In(value, values, position=position))

    def like(self, children: list[Any]) -> _Test:
        negation, _, token = children
        pattern, raw = pattern_of(token)
        position = token.position  # of the pattern, which may be invalid
        return _negated(negation, lambda value: Like(value, pattern, raw, position=position))

    def affix(self, children: list[Any]) -> _Test:
        negation, token, *members = children
        made = BeginsWith if token.type == "BEGINS" else EndsWith
        position = token.position
        values = _members(members)
        return _negated(negation, lambda value: made(value, values, position=position))

    def test(self, children: list[Any]) -> _Test:
        token, negation, wanted = children
        made = IsNull if wanted.type == "NULL" else IsNan
        position = token.position
        return _negated(negation, lambda value: made(value, position=position))

    def arithmetic(self, children: list[Any]) -> Node:
        """Apply products before sums, both from left to right."""
        total: Node | None = None
        sign: Token | None = None
        product: Node = children[0]
        for token, operand in zip(children[1::2], children[2::2], strict=True):
            if token in ("+", "-"):
                total = product if total is None or sign is None else _binary(sign, total, product)
                sign = token
                product = operand
            else:
                product = _binary(token, product, operand)
        return product if total is None or sign is None else _binary(sign, total, product)

    def number(self, children: list[Any]) -> Node:
        sign, token = children
        return _signed(sign, Literal(number_of(token), position=token.position))

    def string(self, children: list[Any]) -> Node:
        sign, token = children
        return _signed(sign, Literal(string_of(token), written=str(token), position=token.position))

    def null(self, children: list[Any]) -> Node:
        sign, token = children
        return _signed(sign, Literal(None, position=token.position))

    def field(self, children: list[Any]) -> Node:
        sign, token, moment = children
        return _signed(sign, _field(token, None if moment is None else moment.type))

    def call(self, children: list[Any]) -> Node:
        sign, token, *arguments = children
        if arguments == [None]:
            arguments = []
        name = token.upper()
        if name in PATTERN_FUNCTIONS and len(arguments) > _PATTERN_PLACE:
            arguments[_PATTERN_PLACE] = _pattern(name, arguments[_PATTERN_PLACE])
        return _signed(sign, _limited(Call(name, tuple(arguments), position=token.position)))

    def call_of_everything(self, children: list[Any]) -> Node:
        """COUNT(*) counts records, like COUNT(1)."""
        sign, token, everything = children
        if token.upper() != "COUNT":
            raise Refusal("only COUNT takes '*'", everything.position)
        one = Literal(1, position=everything.position)
        return _signed(sign, Call("COUNT", (one,), position=token.position))

    def parenthesis(self, children: list[Any]) -> Node:
        sign, node = children
        return _signed(sign, node)

    def hint(self, children: list[Token]) -> Token:
        return children[0]

    def field_constructor(self, children: list[Any]) -> Construction:
        source, identifier, *hints = children
        destination = None if identifier is None else _field(identifier, None)
        return Construction(source, destination, tuple(hint.upper() for hint in hints if hint is not None))


def _literal(written: str, position: int) -> Literal:
    """A number, or a string that is not raw."""
    if written[0] in "'\"":
        return Literal(string_of(written), written=written, position=position)
    return Literal(number_of(written), position=position)


def _members(children: list[Node | Token]) -> tuple[Node, ...]:
    """The members of a list. Several constants may be one token."""
    members: list[Node] = []
    for child in children:
        if isinstance(child, Token):
            start = child.position
            members += (_literal(one[0], start + one.start()) for one in _CONSTANT.finditer(child))
        else:
            members.append(child)
    return tuple(members)


def _signed(sign: Token | None, node: Node) -> Node:
    return node if sign is None else _limited(Unary(str(sign), node, position=sign.position))


def _binary(token: Token, left: Node, right: Node) -> Node:
    return _limited(Binary(_operator(token), left, right, position=token.position))


def _field(token: Token, of: OneOf["CURRENT", "PREVIOUS"] | None) -> Field:
    position = token.position
    path, element, qualifier = identifier_of(token, position)
    return Field(path, element, qualifier, of, position=position)


def _negated(negation: Token | None, make: _Test) -> _Test:
    if negation is None:
        return make
    position = negation.position
    return lambda value: Not(make(value), position=position)


def _pattern(name: str, argument: Node) -> Node:
    if not isinstance(argument, Literal) or argument.written is None:
        raise Refusal(f"the pattern of {name} must be a quoted literal", argument.position)
    value, raw = pattern_of(argument.written)
    return Pattern(value, raw, position=argument.position)


@cache
def _parser() -> Parser:
    return Parser(shipped_tables(), _Builder())


def source_text(text: str | bytes) -> str:
    """The text that the parser reads. Bytes that are not UTF-8 are kept, as surrogates."""
    if isinstance(text, bytes):
        length = len(text)
        text = text.decode("utf-8", "surrogateescape")
    elif text.isascii():
        length = len(text)
    else:
        try:
            length = len(text.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError as error:
            raise ExpressionError("this is not a valid character", error.start, text) from None
    if length > TEXT_BYTES_MAX:
        reason = f"the expression is {length} bytes long, {TEXT_BYTES_MAX} are allowed"
        raise ExpressionError(reason, min(len(text), TEXT_BYTES_MAX), text)
    return text


def parse_expression(text: str) -> Node:
    """The tree of an expression. text: a result of `source_text`."""
    node: Node = _parsed(text, "expression")
    return node


def parse_construction(text: str) -> Construction:
    """The parts of a field constructor. text: a result of `source_text`."""
    construction: Construction = _parsed(text, "field_constructor")
    return construction


def _parsed(text: str, start: str) -> Any:
    try:
        _limit_parentheses(text)
        return _parser().parse(text, start)
    except Unexpected as error:
        refusal = refusal_of(error, text)
    except Refusal as error:
        refusal = error
    raise ExpressionError(refusal.reason, refusal.position, text)
