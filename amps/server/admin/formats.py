"""The formats of resources (operations.md §5.2): JSON, XML, CSV. `pages` makes HTML pages."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from html import escape

from amps.server.admin.tree import Content, Members

SUFFIXES = ("json", "xml", "csv")

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_json(content: Content) -> str:
    """Nested objects; a collection is an array of objects whose first member is `id`."""
    return json.dumps(_plain(content), ensure_ascii=False, separators=(",", ":")) + "\n"


def _plain(content: Content) -> object:
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace").decode()
    if isinstance(content, Members):
        return [
            {"id": identity, **(_object(member) if isinstance(member, dict) else {})}
            for identity, member in content.contents
        ]
    return _object(content)


def _object(content: Mapping[str, Content]) -> dict[str, object]:
    return {name: _plain(content[name]) for name in sorted(content)}


def as_xml(content: Content) -> str:
    """Nested elements; a member of a collection has its id as an attribute."""
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + "".join(_elements(content)) + "\n"


def _elements(content: Content) -> Iterable[str]:
    if isinstance(content, str):
        yield _xml_text(content)
    elif isinstance(content, Members):
        for identity, member in content.contents:
            yield f"<{content.singular} id='{_xml_text(identity)}'>"
            yield from _elements(member)
            yield f"</{content.singular}>"
    else:
        for name in sorted(content):
            yield f"<{name}>"
            yield from _elements(content[name])
            yield f"</{name}>"


def _xml_text(text: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def as_csv(value: str, now_s: float) -> str:
    """One line: time and value."""
    return f"{format_time(now_s)},{value}\n"


def format_time(time_s: float) -> str:
    """`YYYYMMDDThhmmss.ffffffZ`"""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def format_time_ns(time_ns: int) -> str:
    """The same for nanoseconds; empty for 0, which means no time."""
    if not time_ns:
        return ""
    seconds, rest_ns = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}.{rest_ns // 1000:06d}Z"
