"""A compiled expression: the form in which the server keeps a filter or the source of a field."""

from dataclasses import dataclass
from functools import cached_property

from amps._core.expressions.machine import Program
from amps.expressions.aggregation import Aggregation, aggregation_of
from amps.expressions.checks import Usage, check
from amps.expressions.compiler import compiled
from amps.expressions.errors import ExpressionError, Refusal
from amps.expressions.functions import SHIPPED, Functions
from amps.expressions.parser import parse_expression, source_text
from amps.expressions.syntax import Field, Node, Path
from amps.expressions.text import text_of


@dataclass(frozen=True)
class Expression:
    """`program` is None if a value needs messages of several topics, or a group of them: joined topics, aggregates.

    With Usage.STORED_RECORD the program is about two messages: each of its fields begins with CURRENT or PREVIOUS.

    `aggregation`: for an expression that aggregates the messages of one topic; None for all others.
    """

    text: str
    syntax: Node
    program: Program | None
    aggregation: Aggregation | None
    deterministic: bool

    @property
    def fields(self) -> tuple[Path, ...]:
        """The fields that the program reads."""
        return () if self.program is None else tuple(self.program.fields)

    @cached_property
    def canonical(self) -> str:
        """A text that is equal for expressions which differ only in blanks, case, quotes or redundant parentheses."""
        return text_of(self.syntax)


def compile_expression(
    text: str | bytes, usage: Usage = Usage.FILTER, functions: Functions = SHIPPED
) -> Expression:
    """Parse, check and compile. Raise ExpressionError if the text is not an expression that this usage allows.

    functions: those of the instance, from ServerConfig.
    """
    source = source_text(text)
    return expression_of(source, parse_expression(source), usage, functions)


def parse_field(text: str | bytes) -> Path:
    """The path of a text that only names a field of a message. Raise ExpressionError for any other text.

    Names in brackets (`[topic]./field`), `OF` and the number of one element at the end are refused.
    """
    source = source_text(text)
    node = parse_expression(source)
    if not isinstance(node, Field) or node.element is not None or node.of is not None or node.qualifier:
        raise ExpressionError("this is not the name of a field", 0, source)
    return node.path


def expression_of(text: str, root: Node, usage: Usage, functions: Functions) -> Expression:
    """The expression with this tree. `text` is the text that positions in the tree refer to."""
    try:
        findings = check(root, usage, functions)
        program = aggregation = None
        if findings.one_topic_only:
            if findings.aggregate is None:
                program = compiled(root, functions, two_messages=Usage.STORED_RECORD in usage)
            else:
                aggregation = aggregation_of(root, functions)
    except Refusal as refusal:
        raise ExpressionError(refusal.reason, refusal.position, text) from None
    return Expression(text, root, program, aggregation, findings.changing is None)
