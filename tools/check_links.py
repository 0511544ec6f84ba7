#!/usr/bin/env python3
"""Checks that every relative link of a Markdown file in the source tree leads somewhere.

A link leads nowhere if its file or directory does not exist, or if the file has no heading for its anchor. Links
in code are text, and links to other sites are not followed. Anchors follow from headings as on code hosts:
lower case, without punctuation, with hyphens for spaces.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("amps", "conf", "docs", "perf", "tests", "tools")
"""Directories whose Markdown files are checked, beside those at the root."""

_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,}).*?(?:^ {0,3}(?P=fence)[`~]*\s*?$|\Z)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n\s*\n).)+?(?<!`)(?P=ticks)(?!`)", re.DOTALL)
_LINK = re.compile(
    r"\]\(\s*<?(?P<inline>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^ {0,3}\[[^]]+\]:\s*(?P<named>\S+)", re.MULTILINE
)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*#*$", re.MULTILINE)
_NAMED_PLACE = re.compile(r"<a\s+(?:id|name)=\"(?P<name>[^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Fault:
    """A link that leads nowhere, and why."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of each link."""
    for found in _LINK.finditer(_CODE.sub(_blank, _FENCE.sub(_blank, text))):
        kind = found.lastgroup or ""
        yield text.count("\n", 0, found.start(kind)) + 1, found[kind]


def anchors(text: str) -> set[str]:
    """The anchors of a Markdown file: those of its headings, and explicit ones."""
    text = _FENCE.sub(_blank, text)
    made: set[str] = {found["name"] for found in _NAMED_PLACE.finditer(text)}
    for heading in _HEADING.finditer(text):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading["title"])
        plain = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        anchor, number = plain, 0
        while anchor in made:
            number += 1
            anchor = f"{plain}-{number}"
        made.add(anchor)
    return made


def check_file(root: Path, path: Path) -> tuple[int, list[Fault]]:
    """The number of relative links in a file, and those that lead nowhere."""
    count, faults = 0, []
    own = path.relative_to(root)
    for line, link in links(path.read_text(encoding="utf-8")):
        if _ELSEWHERE.match(link):
            continue
        count += 1
        name, _, anchor = unquote(link).partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.is_relative_to(root):
            faults.append(Fault(own, line, f"{link} leads out of the source tree"))
        elif not target.exists():
            faults.append(Fault(own, line, f"{link}: there is no {target.relative_to(root)}"))
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))):
            faults.append(Fault(own, line, f"{link}: {target.relative_to(root)} has no heading #{anchor}"))
    return count, faults


def check_tree(root: Path) -> tuple[int, list[Fault]]:
    """The number of relative links in the Markdown files of a source tree, and those that lead nowhere."""
    root = root.resolve()
    count, faults = 0, []
    for path in sorted([*root.glob("*.md"), *(path for place in PLACES for path in (root / place).rglob("*.md"))]):
        links_of_file, faults_of_file = check_file(root, path)
        count += links_of_file
        faults += faults_of_file
    return count, faults


def main() -> int:
    """Exit status 1 if a link leads nowhere."""
    parser = argparse.ArgumentParser(description="Check that every relative link in Markdown files leads somewhere.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the source tree (default: this one)")
    count, faults = check_tree(parser.parse_args().root)
    for fault in faults:
        print(fault)
    print(f"{count} links, {len(faults)} lead nowhere", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
