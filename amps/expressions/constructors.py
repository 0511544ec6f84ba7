"""Constructed fields: `source AS /destination HINT ...`, in preprocessing, enrichment and projections."""

import enum
from dataclasses import dataclass
from typing import NoReturn

from amps.expressions.checks import Usage
from amps.expressions.errors import ExpressionError
from amps.expressions.expression import Expression, expression_of
from amps.expressions.functions import SHIPPED, Functions
from amps.expressions.parser import Construction, parse_construction, source_text
from amps.expressions.syntax import Field, Path


class Hint(enum.Enum):
    OPTIONAL = "OPTIONAL"  # a NULL result leaves the field out
    SET_CURRENT = "SET_CURRENT"  # later constructors read the result


@dataclass(frozen=True)
class FieldConstructor:
    expression: Expression
    destination: Path
    hints: frozenset[Hint]


def parse_field_constructor(
    text: str | bytes, usage: Usage = Usage.FIELD, functions: Functions = SHIPPED
) -> FieldConstructor:
    """Parse, check and compile. Raise ExpressionError if the text is not a constructor that this usage allows.

    Without AS, a plain field keeps its path but not its qualifier.
    """
    source = source_text(text)
    construction = parse_construction(source)
    destination = _destination(construction, source)
    expression = expression_of(source, construction.source, usage, functions)
    return FieldConstructor(expression, destination, frozenset(Hint(name) for name in construction.hints))


def _destination(construction: Construction, text: str) -> Path:
    def refuse(reason: str, position: int) -> NoReturn:
        raise ExpressionError(reason, position, text)

    field = construction.destination
    if field is None:
        field = construction.source if isinstance(construction.source, Field) else None
        if field is None or field.element is not None or field.of is not None:
            refuse("this value needs a name: ... AS /field", construction.source.position)
    elif field.qualifier:
        refuse("the field after AS cannot have a [topic]", field.position)
    if field.element is not None or any(isinstance(step, int) for step in field.path):
        refuse("a constructed field cannot have a subscript", field.position)
    return field.path
