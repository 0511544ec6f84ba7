"""Code for the expression machine, written by hand, and its value for a JSON message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amps._core.expressions.functions import FUNCTIONS, Pattern
from amps._core.expressions.machine import OPCODES, BoundProgram, Program
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues, MessageContext

if TYPE_CHECKING:
    from amps._core.values.value import Scalar


class Code:
    """Collects instructions with their constants, fields and patterns; every method returns the collector."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.constants: list[Scalar] = []
        self.fields: list[tuple[bytes | int, ...]] = []
        self.patterns: list[Pattern] = []

    def op(self, name: str, argument: int = 0) -> Code:
        self.numbers.append(OPCODES[name] | argument << 8)
        return self

    def const(self, *values: Scalar) -> Code:
        for value in values:
            self.constants.append(value)
            self.op("CONST", len(self.constants) - 1)
        return self

    def field(self, *path: bytes | int) -> Code:
        if path not in self.fields:
            self.fields.append(path)
        return self.op("FIELD", self.fields.index(path))

    def pattern(self, name: str, text: bytes, raw: bool = False) -> Code:
        self.patterns.append(Pattern(text, raw))
        return self.op(name, len(self.patterns) - 1)

    def call(self, name: str, count: int) -> Code:
        return self.op("CALL", count << 12 | FUNCTIONS[name].number)

    def program(self, stack_depth: int = 1000) -> Program:
        return Program(
            [*self.numbers, OPCODES["END"]], self.constants, self.patterns, self.fields, stack_depth
        )

    def evaluate(self, message: bytes = b"{}", context: MessageContext | None = None) -> Scalar:
        fields = FieldSet()
        bound = self.program().bind(fields)
        return evaluate(bound, fields, message, context)

    def matches(self, message: bytes = b"{}") -> bool:
        fields = FieldSet()
        bound = self.program().bind(fields)
        values = FieldValues()
        assert JsonExtractor().read(message, fields, values)
        return bound.matches(values)


def evaluate(
    bound: BoundProgram, fields: FieldSet, message: bytes, context: MessageContext | None = None
) -> Scalar:
    values = FieldValues()
    assert JsonExtractor().read(message, fields, values)
    return bound.evaluate(values, context)


def call(name: str, *arguments: Scalar, context: MessageContext | None = None) -> Scalar:
    """The value of a function of constants."""
    return Code().const(*arguments).call(name, len(arguments)).evaluate(context=context)
