"""The XML tree in the form that the schema checks: names, trimmed texts, children, and the place of each element."""

from dataclasses import dataclass, field

from lxml import etree

from amps.config.findings import Findings
from amps.config.text import ROOT_NAME, ExpandedText, Origin, new_parser, syntax_reason

DEEPEST_NESTING = 64


@dataclass(slots=True)
class Node:
    """One element. In `path`, elements with the same name as an earlier sibling have a number."""

    name: str
    path: str
    origin: Origin
    text: str
    attributes: dict[str, str]
    children: list["Node"] = field(default_factory=list)

    def child_path(self, name: str) -> str:
        """Return the path that a child would have, for a finding about a missing child."""
        return f"{self.path}/{name}"


def parse(expanded: ExpandedText, findings: Findings) -> Node:
    """Return the tree of an expanded text. Raises ConfigError if it is not a configuration at all."""
    try:
        root = etree.fromstring(expanded.text.encode("utf-8", "surrogatepass"), new_parser())
    except etree.XMLSyntaxError as error:
        origin = expanded.origin(error.lineno)
        findings.error(origin.file, origin.line, ROOT_NAME, f"not well-formed XML: {syntax_reason(error)}")
        findings.raise_if_errors()
        raise
    node = _node(root, str(root.tag), expanded, findings, 1)
    if node.name != ROOT_NAME:
        findings.error(
            node.origin.file,
            node.origin.line,
            node.name,
            f"the root element is {node.name}; it must be {ROOT_NAME}",
        )
    findings.raise_if_errors()
    return node


def _node(element: etree._Element, path: str, expanded: ExpandedText, findings: Findings, depth: int) -> Node:
    origin = expanded.origin(_line(element))
    texts = [element.text or ""]
    node = Node(str(element.tag), path, origin, "", {str(k): str(v) for k, v in element.attrib.items()})
    if depth > DEEPEST_NESTING:
        findings.error(
            origin.file, origin.line, path, f"nested deeper than {DEEPEST_NESTING} levels; flatten the file"
        )
        return node
    seen: dict[str, int] = {}
    for child in element:
        texts.append(child.tail or "")
        if not isinstance(child.tag, str):  # an undefined entity reference
            findings.error(
                origin.file,
                origin.line,
                path,
                "an entity is used here that XML does not define; write &amp; for &",
            )
            continue
        seen[child.tag] = seen.get(child.tag, 0) + 1
        suffix = f"[{seen[child.tag]}]" if seen[child.tag] > 1 else ""
        node.children.append(_node(child, f"{path}/{child.tag}{suffix}", expanded, findings, depth + 1))
    node.text = "".join(texts).strip()
    return node


def _line(element: etree._Element) -> int | None:
    line: object = element.sourceline
    return line if isinstance(line, int) else None
