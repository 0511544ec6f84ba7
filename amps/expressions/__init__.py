"""Expressions: filters, values of constructed fields, projections.

A text is parsed (parser.py, by the grammar in grammar.lark, from which make_tables.py makes the tables for lalr.py)
into a syntax tree (syntax.py), checked against its usage (checks.py) and compiled (compiler.py) for the machine in
amps/_core/expressions/vm.pxi, which evaluates it message by message. An expression with aggregates is first divided
into parts (aggregation.py); the expressions of a projection (projection.py) together make groups. select_list.py
compiles select lists. No code of this package runs per message.

An invalid text raises ExpressionError, with the reason and the character. No fault in a text, even a hostile one,
raises another exception from this package.
"""

from amps.expressions.checks import Usage
from amps.expressions.compiler import CURRENT, PREVIOUS
from amps.expressions.constructors import FieldConstructor, Hint, parse_field_constructor
from amps.expressions.errors import ExpressionError
from amps.expressions.expression import Expression, compile_expression, parse_field
from amps.expressions.functions import SHIPPED, Functions, name_of_own
from amps.expressions.projection import Projection
from amps.expressions.select_list import parse_select_list

__all__ = [
    "CURRENT",
    "PREVIOUS",
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
    "parse_field",
    "parse_field_constructor",
    "parse_select_list",
]
