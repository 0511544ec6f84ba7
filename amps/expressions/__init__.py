"""Expressions: filters, values of constructed fields, projections.

A text is parsed (parser.py, by the grammar in grammar.lark, from which make_tables.py makes the tables for lalr.py)
into a syntax tree (syntax.py), checked for where it is used (checks.py) and compiled (compiler.py) for the machine in
amps/_core/expressions/vm, which evaluates it message by message. An expression with aggregates is taken apart first
(aggregation.py); all of a projection (projection.py) make groups. Nothing here is on the way of a message.

A text that is refused raises ExpressionError, which says why and at which character; nothing else leaves this package
for a fault in a text, however hostile it is.
"""

from amps.expressions.checks import Usage
from amps.expressions.constructors import FieldConstructor, Hint, parse_field_constructor
from amps.expressions.errors import ExpressionError
from amps.expressions.expression import Expression, compile_expression
from amps.expressions.functions import SHIPPED, Functions, name_of_own
from amps.expressions.projection import Projection

__all__ = [
    "SHIPPED",
    "Expression",
    "ExpressionError",
    "FieldConstructor",
    "Functions",
    "Hint",
    "Projection",
    "Usage",
    "compile_expression",
    "name_of_own",
    "parse_field_constructor",
]
