"""Building pages: one self-contained HTML file, built as a tree, so that texts are always escaped.

A page is well-formed XML as well as HTML, so parsers of both can read it. It has no external resources:
no scripts, styles or fonts. Characters that are not allowed in XML (control characters, halves of surrogate
pairs) are shown as U+FFFD.
"""

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Without characters that need escaping: HTML does not unescape the content of a style element.
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #ffffff; --quiet: #66707f; --line: #d7dce3;
  --one: #2166ac; --two: #d6604d; --three: #b0b7c3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181f; --quiet: #98a2b1; --line: #343c48;
  --one: #6aaee8; --two: #ef8a72; --three: #566070; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 0.3rem; } p.quiet, li.quiet { color: var(--quiet); font-size: 0.9rem; }
table { border-collapse: collapse; margin: 0.5rem 0; } td, th { padding: 0.15rem 0.8rem 0.15rem 0; text-align: left;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; } th { font-weight: 600; color: var(--quiet); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { width: 100%; height: auto; display: block; } svg text { font-size: 11px; fill: var(--quiet); }
.axis { stroke: var(--line); stroke-width: 1; } .one { fill: var(--one); } .two { fill: var(--two); }
.three { fill: var(--three); } .stroke-one { stroke: var(--one); fill: none; stroke-width: 1.5; }
.stroke-two { stroke: var(--two); fill: none; stroke-width: 1.5; }
"""


def clean(text: str) -> str:
    """Return a text in which characters that XML does not allow are replaced."""
    return _NOT_XML.sub("\ufffd", text)


def element(tag: str, *content: "Element | str", **attributes: object) -> Element:
    """Return an element; `class_` is its class, `_` in names of attributes becomes `-`."""
    made = Element(tag, {_attribute(name): clean(str(value)) for name, value in attributes.items()})
    for part in content:
        if isinstance(part, Element):
            made.append(part)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + clean(part)
        else:
            made.text = (made.text or "") + clean(part)
    return made


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def table(titles: Sequence[str], rows: Iterable[Sequence[str | int]]) -> Element:
    """Return a table; numbers are aligned right, with separators for thousands."""
    body = [
        element(
            "tr",
            *(
                element("td", f"{cell:,}", class_="number")
                if isinstance(cell, int)
                else element("td", cell, **({"class_": "number"} if at and _is_measure(cell) else {}))
                for at, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    head = element("tr", *(element("th", title) for title in titles))
    return element("table", element("thead", head), element("tbody", *body))


def _is_measure(cell: str) -> bool:
    return cell[:1].isdigit() or cell == "-"


def page(title: str, *content: "Element | str") -> str:
    """Return the whole HTML file."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", _STYLE),
    )
    root = element("html", head, element("body", element("h1", title), *content), lang="en")
    # HTML treats a self-closed element as open, except for elements that never have content.
    text = ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)
    return "<!DOCTYPE html>\n" + text.replace("></meta>", "/>") + "\n"
