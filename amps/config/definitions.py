"""The definitions in `SOW`, of all kinds, in the order of the file, and the rules about their names.

A name is defined once per message type (queues.md D-32), and before a topic whose `Pattern` matches it (sow.md §7).
"""

from collections.abc import Callable

from amps.config.document import Node
from amps.config.schema import Checker, Section
from amps.config.units import shown
from amps.topic_expressions import BadTopicExpression, pattern_predicate

Definition = tuple[str, Section]
"""The proper name of an element, and the element."""


def definitions(container: Section | None) -> list[Definition]:
    """Return all definitions in `SOW`, in the order of the file."""
    if container is None:
        return []
    found = {
        id(section.node): (kind, section)
        for kind, sections in container.values.items()
        for section in sections
    }
    return [found[id(node)] for node in container.node.children if id(node) in found]


def place(node: Node) -> str:
    """Return file and line of an element."""
    return f"{node.origin.file}:{node.origin.line}"


def check_names(defined: list[Definition], checker: Checker) -> None:
    """Check that no definition hides another one."""
    earlier: dict[tuple[str, str], Definition] = {}
    for kind, section in defined:
        key = section.first("Name"), section.first("MessageType")
        if None in key:
            continue
        first_kind, first = earlier.setdefault(key, (kind, section))
        if first is not section:
            checker.error(
                section.where("Name"),
                f"{shown(key[0])} of the message type {key[1]} is defined at {place(first.node)} as well "
                f"({first_kind}); give each its own name",
            )
    _check_patterns(defined, checker)


def _check_patterns(defined: list[Definition], checker: Checker) -> None:
    patterns: list[tuple[str, str | None, Callable[[str], bool]]] = []
    for _, section in defined:
        name, message_type = section.first("Name"), section.first("MessageType")
        for where, type_of_pattern, matches in patterns:
            if type_of_pattern == message_type and name is not None and matches(name):
                checker.error(
                    section.where("Name"),
                    f"{shown(name)} is matched by the Pattern at {where}, which keeps its messages; move this "
                    "definition before that topic",
                )
                break
        pattern = section.first("Pattern") if "Pattern" in section.schema.children else None
        if pattern is None:
            continue
        try:
            patterns.append((place(section.where("Pattern")), message_type, pattern_predicate(pattern)))
        except BadTopicExpression:
            continue  # ConfigValidation is disabled, or the element was reported
