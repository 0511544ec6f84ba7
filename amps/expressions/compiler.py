"""Compiling a syntax tree to the program of the machine (amps/_core/expressions/vm.pxi).

The compiler processes the tree with an explicit stack: a node is replaced by other nodes, instructions and the targets
of jumps. All jumps go forward.

A field remains an array until an operator reads it, so every construct that yields *one* value must select the first
element: the compiler does this for the branches of IF, the machine for functions and arithmetic.

The machine reads all fields from one set of values. A program about two messages, the incoming one and the stored
record, therefore has one more step in front of each path: CURRENT or PREVIOUS. What runs it reads the two messages for
the parts of its fields below these steps (amps/_core/sow/stage.pxi).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amps._core.expressions.functions import FUNCTIONS, PATTERN_FUNCTIONS
from amps._core.expressions.machine import OPCODES, Program, UserFunction
from amps.expressions.errors import Refusal
from amps.expressions.functions import Functions
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
    Path,
    Pattern,
    Unary,
)

Constant = int | float | bytes | None

CURRENT: Final = b"current"
PREVIOUS: Final = b"previous"

_ARGUMENT_SHIFT = 8
_CALL_COUNT_SHIFT = 12
_FUNCTIONS_MAX = 1 << _CALL_COUNT_SHIFT
INTEGER_MIN = -(2**63)

_BINARY = {"+": "ADD", "-": "SUB", "*": "MUL", "/": "DIV", "%": "MOD"}
_COMPARE = {"==": "EQ", "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE"}
_MANY = {In: "IN", BeginsWith: "BEGINS", EndsWith: "ENDS"}


class _Place:
    """The target of a jump."""

    __slots__ = ("depth", "jumps")

    def __init__(self) -> None:
        self.jumps: list[int] = []
        self.depth = 0


class _Instruction:
    """An operation, its argument, and the numbers of operands that it takes from the stack and leaves on it."""

    __slots__ = ("argument", "leaves", "name", "takes")

    def __init__(self, name: str, argument: int = 0, takes: int = 0, leaves: int = 1) -> None:
        self.name = name
        self.argument = argument
        self.takes = takes
        self.leaves = leaves


class _Jump:
    """A jump.

    `left`: how many of the operands that it tested remain on the stack at its target; otherwise none does.
    """

    __slots__ = ("left", "name", "place", "takes")

    def __init__(self, name: str, place: _Place, takes: int, left: int) -> None:
        self.name = name
        self.place = place
        self.takes = takes
        self.left = left


_Item = Node | _Instruction | _Jump | _Place


@dataclass(frozen=True, slots=True)
class Instead:
    """The field that is read in place of a node whose value is calculated elsewhere."""

    path: Path
    as_double: bool = False  # if it is an integer


_NOTHING_INSTEAD: Mapping[int, Instead] = {}


def compiled(
    root: Node,
    functions: Functions,
    instead: Mapping[int, Instead] = _NOTHING_INSTEAD,
    *,
    two_messages: bool = False,
) -> Program:
    """The program of a checked expression about one message, or about two.

    instead: replacements by `id` of the node. two_messages: each field is below CURRENT or PREVIOUS.
    """
    return _Compiler(functions, instead, two_messages).compile(root)


class _Compiler:
    def __init__(self, functions: Functions, instead: Mapping[int, Instead], two_messages: bool) -> None:
        self._functions = functions
        self._two_messages = two_messages
        self._instead = instead
        self._own: dict[UserFunction, int] = {}
        self._code: list[int] = []
        self._constants: list[Constant] = []
        self._constant_places: dict[tuple[type, str | Constant], int] = {}
        self._patterns: list[tuple[bytes, bool]] = []
        self._fields: dict[Path, int] = {}

    def compile(self, root: Node) -> Program:
        pending: list[_Item] = [_Instruction("END", 0, 1, 1), root]
        depth = 0
        deepest = 0
        code = self._code
        while pending:
            item = pending.pop()
            if isinstance(item, _Instruction):
                code.append(OPCODES[item.name] | item.argument << _ARGUMENT_SHIFT)
                depth += item.leaves - item.takes
                deepest = max(deepest, depth)
            elif isinstance(item, _Jump):
                item.place.jumps.append(len(code))
                item.place.depth = depth - item.takes + item.left
                code.append(OPCODES[item.name])
                depth -= item.takes
            elif isinstance(item, _Place):
                for jump in item.jumps:
                    code[jump] |= len(code) << _ARGUMENT_SHIFT
                depth = item.depth
            else:
                pending += reversed(self._items(item))
        return Program(code, self._constants, self._patterns, list(self._fields), deepest, list(self._own))

    def _items(self, node: Node) -> list[_Item]:
        if id(node) in self._instead:
            return self._read_instead(self._instead[id(node)])
        match node:
            case Literal():
                return [self._constant(node.value)]
            case Field():
                return self._field(node)
            case Unary():
                return self._unary(node)
            case Binary():
                return [node.left, node.right, _Instruction(_BINARY[node.op], takes=2)]
            case Compare():
                return [node.left, node.right, _Instruction(_COMPARE[node.op], takes=2)]
            case Between():
                return [node.value, node.low, node.high, _Instruction("BETWEEN", takes=3)]
            case OneOfMany():
                count = len(node.members)
                return [node.value, *node.members, _Instruction(_MANY[type(node)], count, takes=count + 1)]
            case Like():
                pattern = self._pattern(node.pattern, node.raw)
                return [node.value, _Instruction("LIKE", pattern, takes=1)]
            case IsNull():
                return [node.value, _Instruction("IS_NULL", takes=1)]
            case IsNan():
                return [node.value, _Instruction("IS_NAN", takes=1)]
            case Not():
                return [node.operand, _Instruction("NOT", takes=1)]
            case Chain():
                return self._chain(node)
            case Call():
                return self._call(node)
        raise TypeError(f"no program for {type(node).__name__}")

    def _constant(self, value: Constant) -> _Instruction:
        if value == b"":
            value = None
        key = (type(value), repr(value) if isinstance(value, float) else value)
        place = self._constant_places.setdefault(key, len(self._constants))
        if place == len(self._constants):
            self._constants.append(value)
        return _Instruction("CONST", place)

    def _field(self, field: Field) -> list[_Item]:
        path = field.path
        if self._two_messages:
            path = (PREVIOUS if field.of == "PREVIOUS" else CURRENT, *path)
        place = self._fields.setdefault(path, len(self._fields))
        items: list[_Item] = [_Instruction("FIELD", place)]
        if field.element is not None:
            items.append(_Instruction("ELEMENT", field.element, takes=1))
        return items

    def _read_instead(self, instead: Instead) -> list[_Item]:
        place = self._fields.setdefault(instead.path, len(self._fields))
        items: list[_Item] = [_Instruction("FIELD", place)]
        if instead.as_double:
            items += (self._constant(1.0), _Instruction("MUL", takes=2))
        return items

    def _unary(self, node: Unary) -> list[_Item]:
        operand = node.operand
        if node.op == "-" and isinstance(operand, Literal) and isinstance(operand.value, int | float):
            negative = -operand.value
            return [self._constant(negative if negative >= INTEGER_MIN else float(negative))]
        return [operand, _Instruction("NEG" if node.op == "-" else "POS", takes=1)]

    def _chain(self, node: Chain) -> list[_Item]:
        end = _Place()
        jump = "AND_JUMP" if isinstance(node, And) else "OR_JUMP"
        items: list[_Item] = []
        for part in node.parts[:-1]:
            items += (part, _Jump(jump, end, takes=1, left=1))
        return [*items, node.parts[-1], _Instruction("TRUTH", takes=1), end]

    def _call(self, call: Call) -> list[_Item]:
        if call.name == "IF":
            condition, chosen, other = call.arguments
            otherwise, end = _Place(), _Place()
            return [
                condition,
                _Jump("JUMP_UNLESS_TRUE", otherwise, takes=1, left=0),
                *_one_value(chosen),
                _Jump("JUMP", end, takes=0, left=0),
                otherwise,
                *_one_value(other),
                end,
            ]
        if call.name in PATTERN_FUNCTIONS:
            return self._pattern_call(call)
        count = len(call.arguments)
        function = self._functions.find(call.name)
        if not isinstance(function, UserFunction):
            return [*call.arguments, _called(call.name, count)]
        place = self._own.setdefault(function, len(self._own))
        if place >= _FUNCTIONS_MAX:
            raise Refusal(
                f"at most {_FUNCTIONS_MAX} functions of the instance in one expression", call.position
            )
        return [*call.arguments, _Instruction("CALL_USER", count << _CALL_COUNT_SHIFT | place, takes=count)]

    def _pattern_call(self, call: Call) -> list[_Item]:
        operands: list[_Item] = []
        place = 0
        for argument in call.arguments:
            if isinstance(argument, Pattern):
                place = self._pattern(argument.value, argument.raw)
            else:
                operands.append(argument)
        return [*operands, _Instruction(call.name, place, takes=len(operands))]

    def _pattern(self, text: bytes, raw: bool) -> int:
        self._patterns.append((text, raw))
        return len(self._patterns) - 1


def _one_value(node: Node) -> list[_Item]:
    """A node with one value: the first element of an array, and NULL for a container, as COALESCE with one argument."""
    return [node, _called("COALESCE", 1)] if isinstance(node, Field) else [node]


def _called(name: str, count: int) -> _Instruction:
    return _Instruction("CALL", count << _CALL_COUNT_SHIFT | FUNCTIONS[name].number, takes=count)
