"""From the text of an expression and the bytes of a message to a value, through the whole engine, for tests."""

from collections.abc import Iterable

from amps._core.expressions.machine import BoundProgram
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues, MessageContext
from amps.expressions import Expression, compile_expression
from amps.expressions.parser import parse_expression, source_text
from amps.expressions.syntax import Node, Path

Result = None | bool | int | float | bytes


class Unparsable(Exception):
    """The message cannot be parsed as far as the expression needs it."""


def parsed(text: str | bytes) -> Node:
    """The tree of an expression, not checked for any use."""
    return parse_expression(source_text(text))


def same(left: Node, right: Node) -> bool:
    """True if the trees are equal, and no integer corresponds to a double on the other side."""
    return left == right and repr(left) == repr(right)


def evaluate(
    text: str | bytes | Expression,
    message: bytes = b"{}",
    context: MessageContext | None = None,
    early_termination: bool = True,
    beside: Iterable[Path] = (),
) -> Result:
    """The value of an expression over a JSON message. `beside`: further fields that other expressions need."""
    program, values = _looked_at(text, message, early_termination, beside)
    return program.evaluate(values, context or MessageContext())


def delivers(
    text: str | bytes | Expression,
    message: bytes = b"{}",
    context: MessageContext | None = None,
    early_termination: bool = True,
) -> bool:
    """True if a message passes a filter; an unparsable message does not."""
    try:
        program, values = _looked_at(text, message, early_termination, ())
    except Unparsable:
        return False
    return program.matches(values, context or MessageContext())


def _looked_at(
    text: str | bytes | Expression, message: bytes, early_termination: bool, beside: Iterable[Path]
) -> tuple[BoundProgram, FieldValues]:
    """Bind the expression and extract its fields. The values refer to the message, which the caller keeps."""
    expression = text if isinstance(text, Expression) else compile_expression(text)
    assert expression.program is not None
    fields = FieldSet([*beside, *expression.fields])
    values = FieldValues()
    if not JsonExtractor(early_termination).read(message, fields, values):
        raise Unparsable(message)
    return expression.program.bind(fields), values
