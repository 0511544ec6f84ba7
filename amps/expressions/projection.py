"""Projections: the fields that a view or an aggregated query calculates from the messages of a group.

A Projection is created once from its constructors, and bound to a set of fields for each reader of messages. The bound
projection creates groups, which add and remove messages (amps/_core/expressions/aggregates.pxi).
"""

from collections.abc import Sequence

from amps._core.expressions.aggregates import GROUP_BYTES_MAX, BoundProjection
from amps._core.expressions.machine import OPCODES, Program
from amps._core.values.fields import FieldSet
from amps.expressions.aggregation import Aggregation, Part
from amps.expressions.constructors import FieldConstructor, Hint
from amps.expressions.expression import Expression
from amps.expressions.syntax import Path


class Projection:
    """The fields of a projection, in order."""

    def __init__(self, constructors: Sequence[FieldConstructor]) -> None:
        """ValueError: a constructor that needs more than the messages of one topic, or a hint that is not allowed."""
        aggregations = []
        for constructor in constructors:
            if Hint.SET_CURRENT in constructor.hints:
                raise ValueError(
                    "HINT SET_CURRENT is allowed in preprocessing and enrichment, not in a projection"
                )
            aggregations.append(_aggregation(constructor.expression))
        parts = {part.path: part for aggregation in aggregations for part in aggregation.parts}
        self._parts = tuple(parts.values())
        self._outputs = [
            (aggregation.outer, Hint.OPTIONAL in constructor.hints)
            for aggregation, constructor in zip(aggregations, constructors, strict=True)
        ]
        self.destinations = tuple(
            tuple(step for step in constructor.destination if isinstance(step, bytes))
            for constructor in constructors
        )
        self.fields: tuple[Path, ...] = tuple(
            dict.fromkeys(path for part in self._parts for path in part.program.fields)
        )
        self.beyond_content: frozenset[str] = frozenset().union(
            *(aggregation.beyond_content for aggregation in aggregations)
        )

    def bind(self, fields: FieldSet, limit_bytes: int = GROUP_BYTES_MAX) -> BoundProjection:
        """Bind the projection to the set of fields that messages are read for. Its fields are added to the set.

        limit_bytes: limit of the values that one group keeps.
        """
        parts = [
            (part.path, part.function, part.text, part.program, part.delimiter, part.whole)
            for part in self._parts
        ]
        return BoundProjection(fields, parts, self._outputs, limit_bytes)


def _aggregation(expression: Expression) -> Aggregation:
    if expression.aggregation is not None:
        return expression.aggregation
    if expression.program is None:
        raise ValueError(
            f"{expression.text}: fields with a [topic], of joined topics, and OF PREVIOUS have no value here"
        )
    part = Part(None, expression.canonical, expression.program)
    return Aggregation((part,), Program([OPCODES["FIELD"], OPCODES["END"]], [], [], [part.path], 1))
