"""The description language for elements, and the check of a tree against such a description.

A description is data (`amps.config.elements` and related modules): `Leaf` for an element with a text, `Block`
for an element with children, `Options` for an element whose children a module defines. To add a feature, remove its
`later` or `unused` mark and read the value in `amps.config.build`.

Invariants: every element of a file is either read or reported. An element with a `later` mark is always
an error, because a server that ignored it would process messages in another way than configured.
An element with an `unused` mark is not essential: the server starts, with a warning that names the missing feature.
`ConfigValidation` `disabled` turns unknown, repeated and missing elements and unreadable values into
warnings, but not elements with a `later` mark.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from amps.config.document import Node
from amps.config.findings import Findings, Severity
from amps.config.units import shown

Reader = Callable[[str], Any]


class NotSupportedYet(Exception):
    """Raised by a reader for a valid value whose feature is not built."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An element whose content is a text.

    `at_least` and `at_most` have a bound and its written form. With `clamp` a value out of bounds is changed to the
    bound with a warning; otherwise it is an error. `later` names a feature that does not exist yet. `unused` is
    the text of a warning that the element has no effect; there is no warning for the default value, and the
    value is not read. `note` is reported, with severity info, if the element is present.
    """

    read: Reader
    default: Any = None
    required: bool = False
    repeatable: bool = False
    at_least: tuple[float, str] | None = None
    at_most: tuple[float, str] | None = None
    clamp: bool = False
    later: str = ""
    unused: str = ""
    note: str = ""
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """An element whose children are defined by a module: names and texts are read unchanged."""

    later: str = ""
    required: bool = False
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another spelling of an element of the same block."""

    of: str


@dataclass(frozen=True, slots=True)
class Block:
    """An element with child elements. `later` and `unused` apply to the whole element, as with Leaf."""

    children: Mapping[str, "Leaf | Block | Options | Synonym"]
    required: bool = False
    repeatable: bool = False
    later: str = ""
    unused: str = ""
    retired: Mapping[str, str] = field(default_factory=dict)
    """Names of older releases, with the text of their finding."""


@dataclass(slots=True)
class Section:
    """A block as read: values for leaves, Sections for blocks. Elements that could not be read are absent."""

    node: Node
    schema: Block
    values: dict[str, list[Any]] = field(default_factory=dict)
    nodes: dict[str, list[Node]] = field(default_factory=dict)

    def first(self, name: str) -> Any:
        """Return the value, or the default of the schema."""
        values = self.values.get(name)
        if values:
            return values[0]
        described = self.schema.children[name]
        return described.default if isinstance(described, Leaf) else None

    def all(self, name: str) -> list[Any]:
        """Return all values of a repeatable element."""
        return self.values.get(name, [])

    def has(self, name: str) -> bool:
        """Whether the element is present and could be read."""
        return bool(self.values.get(name))

    def where(self, name: str) -> Node:
        """Return the element, or this section's if it is absent: the place for a finding."""
        nodes = self.nodes.get(name)
        return nodes[0] if nodes else self.node


class Checker:
    """Checks a tree against a description and collects its values."""

    def __init__(self, findings: Findings, strict: bool) -> None:
        self.findings = findings
        self.strict = strict
        self.lenient_severity = Severity.ERROR if strict else Severity.WARNING

    def error(self, node: Node, text: str) -> None:
        """Add an error at an element."""
        self.findings.error(node.origin.file, node.origin.line, node.path, text)

    def note(self, node: Node, severity: Severity, text: str) -> None:
        """Add a finding of any severity at an element."""
        self.findings.add(severity, node.origin.file, node.origin.line, node.path, text)

    def not_yet(self, node: Node, feature: str) -> None:
        """Refuse a known element whose feature does not exist."""
        self.error(node, f"not supported yet: {feature}")

    def has_no_effect(self, node: Node, reason: str) -> None:
        """Accept an element that has no effect, with a warning and its reason."""
        self.note(node, Severity.WARNING, f"has no effect: {reason}")

    def section(self, node: Node, schema: Block, refused: bool = False) -> Section:
        """Read one block. `refused`: an outer element is already refused, so inner marks are ignored."""
        section = Section(node, schema)
        self._reject_attributes(node)
        if schema.later and not refused:
            self.not_yet(node, schema.later)
        if schema.unused and not refused:
            self.has_no_effect(node, schema.unused)
        refused = refused or bool(schema.later or schema.unused)
        if node.text:
            self.note(
                node, self.lenient_severity, f"unexpected text {shown(node.text)}; only elements belong here"
            )
        for child in node.children:
            self._child(section, child, refused)
        for name, described in schema.children.items():
            if isinstance(described, Synonym) or not described.required or section.nodes.get(name):
                continue
            if refused:  # no advice to complete a refused element
                continue
            self.findings.add(
                self.lenient_severity,
                node.origin.file,
                node.origin.line,
                node.child_path(name),
                f"the required element {name} is missing; add it to {node.name}",
            )
        return section

    def _child(self, section: Section, child: Node, refused: bool) -> None:
        name = child.name
        described = section.schema.children.get(name)
        if isinstance(described, Synonym):
            name = described.of
            described = section.schema.children[name]
        if described is None:
            self._unknown(section, child)
            return
        assert not isinstance(described, Synonym)
        earlier = section.nodes.setdefault(name, [])
        earlier.append(child)
        if len(earlier) > 1 and not described.repeatable:
            origin = earlier[0].origin
            self.note(
                child,
                self.lenient_severity,
                f"given twice, first at {origin.file}:{origin.line}; keep one of them",
            )
            return
        if isinstance(described, Block):
            section.values.setdefault(name, []).append(self.section(child, described, refused))
        elif isinstance(described, Options):
            self._reject_attributes(child)
            if described.later and not refused:
                self.not_yet(child, described.later)
            section.values.setdefault(name, []).append(child)
        else:
            self._leaf(section, name, child, described, refused)

    def _leaf(self, section: Section, name: str, node: Node, leaf: Leaf, refused: bool) -> None:
        self._reject_attributes(node)
        if leaf.later and not refused:
            self.not_yet(node, leaf.later)
            refused = True
        if leaf.note and not refused:
            self.note(node, Severity.INFO, leaf.note)
        if node.children:
            self.note(
                node,
                self.lenient_severity,
                f"unexpected element {node.children[0].name}; a text belongs here",
            )
            return
        if not node.text and not leaf.may_be_empty:
            self.note(node, self.lenient_severity, "the element is empty; write a value or remove it")
            return
        try:
            value = leaf.read(node.text)
        except NotSupportedYet as feature:
            if not refused:
                self.not_yet(node, str(feature))
            return
        except ValueError as error:
            self.note(node, self.lenient_severity, str(error))
            return
        value = self._bounded(node, leaf, value)
        if leaf.unused:
            if value != leaf.default and not refused:
                self.has_no_effect(node, leaf.unused)
            return
        section.values.setdefault(name, []).append(value)

    def _bounded(self, node: Node, leaf: Leaf, value: Any) -> Any:
        if leaf.at_least is not None and value < leaf.at_least[0]:
            relation, advice, (limit, written) = "below the minimum", "or more", leaf.at_least
        elif leaf.at_most is not None and value > leaf.at_most[0]:
            relation, advice, (limit, written) = "above the maximum", "or less", leaf.at_most
        else:
            return value
        text = f"{shown(node.text)} is {relation} of {written}"
        if leaf.clamp:
            self.note(node, Severity.WARNING, f"{text}; {written} is used")
        else:
            self.note(node, self.lenient_severity, f"{text}; write {written} {advice}")
        return limit

    def _unknown(self, section: Section, child: Node) -> None:
        retired = section.schema.retired.get(child.name)
        if retired is not None:
            self.note(child, self.lenient_severity, f"no longer known: {retired}")
            return
        known = sorted(section.schema.children)
        near = get_close_matches(child.name, known, n=1, cutoff=0.6) or [
            name for name in known if name.lower() == child.name.lower()
        ]
        if near:
            advice = f"did you mean {near[0]}?"
        elif known:
            advice = f"{section.node.name} knows {', '.join(known)}"
        else:
            advice = f"{section.node.name} takes no elements"
        self.note(child, self.lenient_severity, f"unknown element; {advice}")

    def _reject_attributes(self, node: Node) -> None:
        for name in node.attributes:
            self.note(node, self.lenient_severity, f"unknown attribute {name}; write its value as an element")
