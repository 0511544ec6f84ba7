"""Fields of messages of any type, read as the server reads them: by a type's extractor, for paths or for a filter."""

from collections.abc import Sequence
from types import EllipsisType

from amps._core.fields import Extractor, FieldSet, FieldValues
from amps._core.message_context import MessageContext
from amps.expressions import compile_expression

Path = tuple[bytes | int, ...]
Found = list[bool | int | float | bytes | EllipsisType | None]


def read(extractor: Extractor, message: bytes, paths: Sequence[Path]) -> list[Found] | None:
    """All values at each of these paths; None if the message cannot be parsed."""
    fields = FieldSet()
    slots = [fields.add(path) for path in paths]
    values = FieldValues()
    if not extractor.read(message, fields, values):
        return None
    return [values.values_of(slot) for slot in slots]


def matches(extractor: Extractor, message: bytes, text: str) -> bool:
    """Whether a message passes a filter; one that cannot be parsed does not."""
    expression = compile_expression(text)
    assert expression.program is not None
    fields = FieldSet(expression.fields)
    program = expression.program.bind(fields)
    values = FieldValues()
    return extractor.read(message, fields, values) and program.matches(values, MessageContext())
