#!/usr/bin/env python3
"""Checks that every citation of the specification leads somewhere.

Code, tests and documents cite the files in docs/spec: `queues.md §19`, `protocol.md §21 28` and
`client.md §21, 36 to 42` (numbered behaviours, items and rows of a section), `expressions.md §§10.9 and 10.10`,
`queues.md D-24` and `protocol.md §5.3 D9` (decisions), `the behaviours 5 to 12 of §21`. `expressions.md §14.3` may be
number 3 of section 14. A `§` without a name belongs to the file that was named last. In docs/spec itself `section 20`
and `section 20 item 5` are citations, too.

A citation leads nowhere if the file, the section, the number in it or the decision does not exist.
"""

import argparse
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("amps", "tests", "perf", "docs", "tools", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
SUFFIXES = frozenset({".py", ".pyx", ".pxd", ".pxi", ".h", ".md", ".sh", ".xml"})

_END = r"(?!\.?\d|-\d)"
_NUMBERS = rf"\d+{_END}(?:(?:,\ |\ and\ |\ to\ |-)\d+{_END})*"
_KIND = r"(?:(?:items?|rows?|behaviours?)\ )?"
_SECTION = r"\d+(?:\.\d+)*"
_CITATION = re.compile(
    rf"""
    (?P<other>RFC\ \d+,?\ §[\d.]+)
  | (?P<spec>docs/spec/(?P<full>[a-z_]+)\.md|(?<![\w/])(?P<name>[a-z_]+)\.md(?=,?\ (?:§|D-?\d)))
  | (?:behaviours?|items?|rows?)\ (?P<before>{_NUMBERS})\ of\ (?=§)
  | (?P<some>§§(?:{_SECTION})(?:(?:,\ |\ and\ |\ to\ |-){_SECTION})*)
  | §(?P<section>{_SECTION})(?:,?\ {_KIND}(?P<numbers>(?>{_NUMBERS}))(?!\ of\ §))?
  | (?<![\w{{-])D-?(?P<decision>\d+)(?![\w}}-]|\ =)
    """,
    re.VERBOSE,
)
_OWN_SECTION = re.compile(
    rf"(?<![\w.])[Ss]ection (?P<section>(?>{_SECTION}))(?! of)(?:,? {_KIND}(?P<numbers>{_NUMBERS}))?"
)
_GOES_ON = re.compile(r"(?: and|[,;])? ?")
_NEXT_LINE = re.compile(r"[ \t]*\n[ \t]*(?:#:?|//|\*(?!/))?[ \t]*")
_HEADING = re.compile(rf"(?P<marks>#+) (?P<section>{_SECTION})[. ]+(?P<title>.*)")
_ITEM = re.compile(r"(?:^|(?<=[.:;] ))\s*(\d+)\. ")
_ROW = re.compile(r"\| *\**(?:(\d+)|D-?(\d+))\** *\|")
_DECIDED = re.compile(r"(?:^|\*\*)\s*-?\s*\**D-?(\d+)\b")


@dataclass(frozen=True, slots=True)
class Fault:
    """A citation that leads nowhere, and why."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class Specification:
    """One file of the specification: its sections, the numbers in each, its decisions."""

    def __init__(self, text: str) -> None:
        self.numbers: dict[str, set[int]] = {}
        """The numbers in a section and its subsections."""
        self.sections: dict[str, set[int]] = {}
        """The numbers in a section itself."""
        self.decisions: set[int] = set()
        section, decides = "", False
        for line in text.splitlines():
            heading = _HEADING.match(line)
            if heading is not None:
                section = heading["section"]
                decides = "decision" in heading["title"].lower()
                self.numbers.setdefault(section, set())
                self.sections.setdefault(section, set())
                continue
            row = _ROW.match(line)
            items = {int(number) for number in _ITEM.findall(line)}
            if row is not None and row[1] is not None:
                items.add(int(row[1]))
            decided = {int(number) for number in _DECIDED.findall(line)}
            if row is not None and row[2] is not None:
                decided.add(int(row[2]))
            self.decisions |= decided | (items if decides else set())
            self.sections.setdefault(section, set()).update(items)
            above = section.split(".")
            for depth in range(1, len(above) + 1):
                self.numbers.setdefault(".".join(above[:depth]), set()).update(items)


@dataclass(slots=True)
class Checker:
    """Checks the citations in texts; counts them and collects those that lead nowhere."""

    specifications: dict[str, Specification]
    count: int = 0

    def check(self, path: Path, text: str) -> Iterator[Fault]:
        """The faults of one file. `path` is for the message, and decides whether it belongs to the specification."""
        flat, lines = _flatten(text)
        own = path.name if path.parent.name == "spec" else None
        named = own
        before, end = "", 0
        for citation in _CITATION.finditer(flat):
            if citation["other"]:
                continue
            line = bisect_right(lines, citation.start())
            if own is not None and not _GOES_ON.fullmatch(flat[end : citation.start()]):
                named = own
            end = citation.end()
            if citation["spec"]:
                named = f"{citation['full'] or citation['name']}.md"
                if named not in self.specifications:
                    self.count += 1
                    yield Fault(path, line, f"there is no docs/spec/{named}")
                continue
            if citation["before"]:
                before = citation["before"]
                continue
            if citation["decision"] and named is None:
                continue
            of = re.match(r" of ([a-z_]+\.md)", flat[citation.end() :])
            target = of[1] if of is not None else named
            self.count += 1
            if target is None:
                yield Fault(path, line, f"{citation[0]} names no file of the specification")
            elif target in self.specifications:
                yield from self._follow(path, line, target, citation, before)
            before = ""
        if own is not None:
            for citation in _OWN_SECTION.finditer(flat):
                self.count += 1
                yield from self._look_up(
                    path, bisect_right(lines, citation.start()), own, citation["section"], citation["numbers"]
                )

    def _follow(
        self, path: Path, line: int, name: str, citation: re.Match[str], before: str
    ) -> Iterator[Fault]:
        specification = self.specifications[name]
        if citation["decision"]:
            if int(citation["decision"]) not in specification.decisions:
                yield Fault(path, line, f"{name} has no decision D{citation['decision']}")
            return
        if citation["some"]:
            for section in re.findall(_SECTION, citation["some"]):
                yield from self._look_up(path, line, name, section, None)
            return
        yield from self._look_up(path, line, name, citation["section"], citation["numbers"] or before or None)

    def _look_up(
        self, path: Path, line: int, name: str, section: str, numbers: str | None
    ) -> Iterator[Fault]:
        specification = self.specifications[name]
        known = specification.numbers.get(section)
        if known is None:
            above, _, item = section.rpartition(".")
            if int(item) not in specification.sections.get(above, ()):
                yield Fault(path, line, f"{name} has no §{section}")
            return
        for number in map(int, re.findall(r"\d+", numbers or "")):
            if number not in known:
                yield Fault(path, line, f"{name} §{section} has no number {number}")


def _flatten(text: str) -> tuple[str, list[int]]:
    """A text as one line, without comment marks at the beginnings of lines, and the offsets of the lines in it."""
    lines = [0]
    parts: list[str] = []
    length = position = 0
    for line_end in _NEXT_LINE.finditer(text):
        parts += [text[position : line_end.start()], " "]
        length += line_end.start() - position + 1
        lines.append(length)
        position = line_end.end()
    parts.append(text[position:])
    return "".join(parts), lines


def read_specifications(directory: Path) -> dict[str, Specification]:
    """The files of the specification by name."""
    return {path.name: Specification(path.read_text(encoding="utf-8")) for path in directory.glob("*.md")}


def files_below(places: Iterable[Path]) -> Iterator[Path]:
    """The texts in these files and directories."""
    for place in places:
        if place.is_dir():
            yield from sorted(path for path in place.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        elif place.is_file():
            yield place


def check_tree(root: Path, specification: Path) -> tuple[int, list[Fault]]:
    """The number of citations in a source tree, and those that lead nowhere."""
    checker = Checker(read_specifications(specification))
    faults: list[Fault] = []
    for path in files_below(root / place for place in PLACES):
        faults += checker.check(path.relative_to(root), path.read_text(encoding="utf-8", errors="replace"))
    return checker.count, faults


def main() -> int:
    """Exit status 1 if a citation leads nowhere."""
    parser = argparse.ArgumentParser(
        description="Check that every citation of the specification (queues.md §19, D-24 …) leads somewhere."
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the source tree (default: this one)")
    parser.add_argument("--spec", type=Path, help="the specification (default: docs/spec of the tree)")
    options = parser.parse_args()
    count, faults = check_tree(options.root, options.spec or options.root / "docs" / "spec")
    for fault in faults:
        print(fault)
    print(f"{count} citations, {len(faults)} lead nowhere", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
