"""Every element of a configuration, and the proof that it takes effect.

An element takes effect if the server reads it, or if a finding tells its author otherwise:


* it is refused, or a finding at its own place reports it, or
* two values of it give two configurations that differ in a field, and a running server reads that field, or
* two values of it give different findings, or let the rest of the text be expanded differently: a rule has read it.

`READ_SPY` records which fields a running server reads: it notes each field of the configuration's classes that is
read while the configuration is not being loaded. Comparing or printing an object does not count as reading.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from lxml import etree

from amps.config import ConfigError, Finding, load
from amps.config.schema import Block, Leaf, Options, Synonym
from amps.expressions import Functions

_ANYTHING = ("something", "2s", "enabled", "3GB", "0600", "4", "<A/>", "")
"""Every element accepts at least one of these values."""

Field = tuple[str, str]
"""Name of a class, name of a field."""

READ_SPY = """
import os, sys
import amps.config.model, amps.config.model_base, amps.config.model_queues, amps.config.model_replication
import amps.config.model_sow, amps.messages
from dataclasses import fields, is_dataclass
SEEN = set()
NOTES = os.open({notes!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
READ = object.__getattribute__
def watch(cls):
    names = {{field.name for field in fields(cls)}}
    def spy(self, name):
        if name in names and (cls, name) not in SEEN:
            frame = sys._getframe(1)
            is_of_server = frame.f_code.co_name not in ("__eq__", "__hash__", "__repr__")
            while frame is not None and is_of_server:
                is_of_server = frame.f_globals.get("__name__") not in ("amps.config", "amps.config.build")
                frame = frame.f_back
            if is_of_server:
                SEEN.add((cls, name))
                os.write(NOTES, f"{{cls.__name__}} {{name}}\\n".encode())
        return READ(self, name)
    cls.__getattribute__ = spy
CONFIG = amps.config
for module in (
    CONFIG.model, CONFIG.model_base, CONFIG.model_queues, CONFIG.model_replication, CONFIG.model_sow
):
    for value in list(vars(module).values()):
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
            watch(value)
watch(amps.messages.TypeSettings)
"""


def read_fields(notes: Path) -> set[Field]:
    """The fields that the spy has noted."""
    return {(line.split()[0], line.split()[1]) for line in notes.read_text().splitlines()}


@dataclass(frozen=True)
class Case:
    """Two values of one element, as text between its tags.

    `beside`: the elements beside it, in place of the usual ones. `around`: elements elsewhere in the file.
    """

    one: str
    other: str
    beside: str | None = None
    around: str = ""


def elements(
    block: Block, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, Leaf | Block | Options | Synonym]]:
    """Every element that can have a meaning of its own, with its path below the root.

    These are texts and options, synonyms, and blocks that are refused or reported as a whole.
    """
    for name, described in block.children.items():
        below = (*path, name)
        if isinstance(described, Block) and not described.later and not described.unused:
            yield from elements(described, below)
        else:
            yield "/".join(below), described


class Prover:
    """Finds the elements without proof."""

    def __init__(
        self, root: Block, cases: Mapping[str, Case], siblings: Mapping[str, str], read: set[Field]
    ) -> None:
        """`siblings`: the other elements that a block needs, by the block's path. `read`: the fields that servers
        read.
        """
        self._root = root
        self._cases = cases
        self._siblings = siblings
        self._read = read

    def problems(self) -> list[str]:
        """One line for each element without proof."""
        found = []
        paths = set()
        for path, described in elements(self._root):
            paths.add(path)
            problem = self._problem(path, described)
            if problem:
                found.append(f"{path}: {problem}")
        found += [f"{path}: there is no such element" for path in self._cases if path not in paths]
        return found

    def _problem(self, path: str, described: Leaf | Block | Options | Synonym) -> str:
        case = self._cases.get(path)
        if isinstance(described, Synonym):
            target = "/".join([*path.split("/")[:-1], described.of])
            case = case or self._cases.get(target) or Case("2s", "3s")
        elif case is None and _is_marked(described):
            return self._problem_of_marked(path)
        if case is None:
            return "give two values of it, in CASES"
        of = described.of if isinstance(described, Synonym) else ""
        (one, one_said, one_text), (other, other_said, other_text) = (
            self._outcome(path, case, text, of) for text in (case.one, case.other)
        )
        if any(f.path == f"AMPSConfig/{path}" and _is_about_meaning(f) for f in (*one_said, *other_said)):
            return ""
        if {(f.path, f.text) for f in one_said} != {(f.path, f.text) for f in other_said}:
            return ""
        if one_text != other_text:
            return ""
        if one is None or other is None:
            return f"it is refused, but not for itself: {[str(finding) for finding in one_said]}"
        differing = set(_differing(one, other))
        if not differing:
            return "two values of it mean the same, and nothing is said"
        if not differing & self._read:
            return f"it goes into {sorted(differing)}, which no running server reads"
        return ""

    def _problem_of_marked(self, path: str) -> str:
        """Check that a finding reports the element, whatever its value is, unless every value is refused anyway."""
        for text in _ANYTHING:
            _, said, _ = self._outcome(path, Case("", ""), text)
            if any(f.path == f"AMPSConfig/{path}" and _is_about_meaning(f) for f in said):
                return ""
        return "nothing is said of it"

    def _outcome(
        self, path: str, case: Case, text: str, of: str = ""
    ) -> tuple[Any, tuple[Finding, ...], str]:
        """Return the configuration (None if it is refused), the findings, and the expanded text without the element.

        `of`: the element of which it is a synonym.
        """
        names = path.split("/")
        inner = own = f"<{names[-1]}>{text}</{names[-1]}>"
        for depth in range(len(names) - 1, -1, -1):
            block = "/".join(names[:depth])
            usual = self._siblings.get(block, "")
            if depth == len(names) - 1 and case.beside is not None:
                usual = case.beside
            if depth == len(names) - 1:
                usual = _without(usual, of)
            inner = _without(usual, names[depth]) + inner
            if depth:
                inner = f"<{names[depth - 1]}>{inner}</{names[depth - 1]}>"
        try:
            loaded = load("c.xml", text=f"<AMPSConfig>{inner}{case.around}</AMPSConfig>")
        except ConfigError as refusal:
            return None, refusal.findings, ""
        return loaded.config, loaded.findings, loaded.expanded_text.replace(own, "", 1)


def _is_about_meaning(finding: Finding) -> bool:
    """True if the finding is about the effect of an element, not about the form of a value."""
    return (
        re.match(r"not supported yet: |has no effect: |\w+ belongs to a \w+ only; ", finding.text) is not None
    )


def _is_marked(described: Leaf | Block | Options | Synonym) -> bool:
    if isinstance(described, Leaf):
        return bool(described.later or described.unused or described.note.startswith("has no effect: "))
    return not isinstance(described, Synonym) and bool(described.later or getattr(described, "unused", ""))


def _without(siblings: str, name: str) -> str:
    """The siblings without the elements of that name; those inside of others stay."""
    if not name:
        return siblings
    kept = (one for one in etree.fromstring(f"<all>{siblings}</all>") if one.tag != name)
    return "".join(etree.tostring(one, encoding="unicode") for one in kept)


def _differing(one: Any, other: Any, place: Field = ("", "")) -> Iterator[Field]:
    """The fields in which two configurations differ, the innermost ones."""
    if isinstance(one, Functions):
        if _functions(one) != _functions(other):
            yield place
    elif is_dataclass(one) and not isinstance(one, type) and type(one) is type(other):
        for field in fields(one):
            yield from _differing(
                getattr(one, field.name), getattr(other, field.name), (type(one).__name__, field.name)
            )
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for first, second in zip(one, other, strict=True):
            yield from _differing(first, second, place)
    elif isinstance(one, Mapping) and isinstance(other, Mapping) and list(one) == list(other):
        for key in one:
            yield from _differing(one[key], other[key], place)
    elif one != other:
        yield place


def _functions(functions: Functions) -> object:
    """The parts that can be compared: the code itself is loaded again each time."""
    own = {
        name: (one.minimum, one.maximum, getattr(one.implementation, "__qualname__", ""))
        for name, one in functions.own.items()
    }
    return functions.legacy, own
