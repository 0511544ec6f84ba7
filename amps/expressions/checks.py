"""Checks of what an expression may contain: functions and their arguments, aggregates, qualifiers, OF, and determinism.
Patterns are compiled here too, because not every expression becomes a program.

Usage defines the use of an expression. functions.py defines the available functions. IF is not one of them, because it
does not evaluate all of its arguments.
"""

import enum
from dataclasses import dataclass
from difflib import get_close_matches

from amps._core.expressions.functions import FUNCTIONS
from amps._core.expressions.functions import Pattern as MachinePattern
from amps.expressions.errors import Refusal, shown
from amps.expressions.functions import Functions
from amps.expressions.syntax import Call, Field, Like, Literal, Node, Pattern, fold

_ARGUMENTS_MAX = 4095  # the limit of an instruction of the machine
_IF_ARGUMENTS = 3


class Usage(enum.Flag):
    """The use of an expression: FILTER, FIELD, ENRICHMENT or PROJECTION. DETERMINISTIC may be added to each."""

    AGGREGATES = enum.auto()
    QUALIFIERS = enum.auto()
    STORED_RECORD = enum.auto()  # `OF PREVIOUS`
    CONSTRUCTED = enum.auto()
    DETERMINISTIC = enum.auto()  # no function whose result for the same message may change later

    FILTER = 0
    FIELD = CONSTRUCTED
    ENRICHMENT = CONSTRUCTED | STORED_RECORD
    PROJECTION = CONSTRUCTED | AGGREGATES | QUALIFIERS


@dataclass(frozen=True, slots=True)
class Findings:
    """The first call of each kind in a part of an expression, and whether all fields are of the topic itself."""

    aggregate: Call | None = None
    changing: Call | None = None  # not deterministic
    one_topic_only: bool = True


_NOTHING = Findings()
_ELSEWHERE = Findings(one_topic_only=False)


def check(root: Node, usage: Usage, functions: Functions) -> Findings:
    """Raise Refusal if the expression contains anything that its usage does not allow. Return its findings."""

    def combine(node: Node, below: list[Findings]) -> Findings:
        if isinstance(node, Field):
            return _field(node, usage)
        if isinstance(node, Like):
            _try_pattern(node.pattern, node.raw, node.position)
        elif isinstance(node, Pattern):
            _try_pattern(node.value, node.raw, node.position)
        found = _merged(below)
        return _call(node, usage, found, functions) if isinstance(node, Call) else found

    return fold(root, combine)


def _try_pattern(text: bytes, raw: bool, position: int) -> None:
    try:
        MachinePattern(text, raw)
    except ValueError as error:
        raise Refusal(str(error), position) from None


def _merged(below: list[Findings]) -> Findings:
    of_interest = [findings for findings in below if findings is not _NOTHING]
    if not of_interest:
        return _NOTHING
    return Findings(
        next((findings.aggregate for findings in of_interest if findings.aggregate), None),
        next((findings.changing for findings in of_interest if findings.changing), None),
        all(findings.one_topic_only for findings in of_interest),
    )


def _field(field: Field, usage: Usage) -> Findings:
    if field.qualifier and not usage & Usage.QUALIFIERS:
        raise Refusal("a field with [topic] is allowed only in the projection of a view", field.position)
    if field.of == "PREVIOUS" and not usage & Usage.STORED_RECORD:
        raise Refusal("OF PREVIOUS is allowed only in the enrichment of a SOW topic", field.position)
    return _ELSEWHERE if field.qualifier else _NOTHING


def _call(call: Call, usage: Usage, inside: Findings, functions: Functions) -> Findings:
    if call.name == "IF":
        _count(call, _IF_ARGUMENTS, _IF_ARGUMENTS)
        return inside
    function = functions.find(call.name)
    if function is None:
        raise Refusal(
            f"there is no function {shown(call.name)}{_proposal(call.name, functions)}", call.position
        )
    _count(call, function.minimum, function.maximum)
    if function.aggregate:
        if not usage & Usage.AGGREGATES:
            raise Refusal(
                f"{call.name} aggregates, which is allowed only in the projection of a view", call.position
            )
        if inside.aggregate is not None:
            raise Refusal(
                f"{call.name} cannot aggregate the result of {inside.aggregate.name}",
                inside.aggregate.position,
            )
        if call.name == "GROUP_CONCAT":
            _delimiter(call)
        if inside.changing is not None:
            reason = f"{inside.changing.name} is not deterministic, so {call.name} cannot aggregate it"
            raise Refusal(reason, inside.changing.position)
        return Findings(aggregate=call, one_topic_only=inside.one_topic_only)
    if not function.deterministic:
        if usage & Usage.DETERMINISTIC:
            raise Refusal(f"{call.name} is not deterministic, which is not allowed here", call.position)
        return Findings(inside.aggregate, inside.changing or call, inside.one_topic_only)
    return inside


def _delimiter(call: Call) -> None:
    """Check the delimiter of GROUP_CONCAT. It is the same for the whole group, so it cannot be a field."""
    for delimiter in call.arguments[1:]:
        if not isinstance(delimiter, Literal) or not isinstance(delimiter.value, bytes | None):
            raise Refusal("the delimiter of GROUP_CONCAT must be a string in quotes", delimiter.position)


def _count(call: Call, minimum: int, maximum: int | None) -> None:
    given = len(call.arguments)
    if maximum is None:
        maximum = _ARGUMENTS_MAX
    if minimum <= given <= maximum:
        return
    if minimum == maximum:
        wanted = str(minimum)
    elif given < minimum and maximum == _ARGUMENTS_MAX:
        wanted = f"at least {minimum}"
    else:
        wanted = f"{minimum} to {maximum}"
    noun = "argument" if wanted.endswith(" 1") or wanted == "1" else "arguments"
    raise Refusal(f"{call.name} takes {wanted} {noun}, not {given}", call.position)


def _proposal(name: str, functions: Functions) -> str:
    if name in FUNCTIONS:  # it is a legacy function
        return " without the module libamps_udf_legacy_compatibility.so: declare it in Modules"
    similar = get_close_matches(name, [*functions.names(), "IF"], 1) if len(name) <= 40 else []
    return f", but there is {similar[0]}" if similar else ""
