"""JSON documents as the rules of the state of the world see them, in the simplest way (sow.md §§3, 14, 17, 18).

What lives here: the texts of keys, merging a delta, the difference of two states, and select lists. Bytes and order of
fields do not count. A number is kept as the text that it has in the message, because `1` and `1.0` are different keys.

Where sow.md leaves a choice, the model does this:

- An object has no value of its own, only its members have. So a delta's object without a value in it changes nothing.
- A field that is null or the empty text and a field that is missing are the same state: no difference mentions them.
- A select list that excludes all members of an included object leaves the object empty.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
"""An object: its values are texts, booleans, None, `Number`, lists and documents."""
Path = tuple[str, ...]

_DIRECTIVE = re.compile(r"\s*([+-])\s*(/[^,\s]*)\s*")


@dataclass(frozen=True)
class Number:
    """A number by its text."""

    text: str


def parse(text: str | bytes) -> Document:
    """The document of a message. Raises ValueError."""
    document = json.loads(text, parse_int=Number, parse_float=Number)
    if not isinstance(document, dict):
        raise ValueError("a message is an object")
    return document


def plain(value: Any) -> Any:
    """A value with Python's numbers, as `json.loads` gives it."""
    match value:
        case Number(text):
            return json.loads(text)
        case dict():
            return {name: plain(member) for name, member in value.items()}
        case list():
            return [plain(member) for member in value]
    return value


def path_of(text: str) -> Path:
    """The steps of an identifier: `/a/b`."""
    return tuple(step for step in text.split("/") if step)


def value_at(document: Document, path: Path) -> Any:
    """The value of a field, None if there is none."""
    value: Any = document
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def has_field(document: Document, path: Path) -> bool:
    """Whether there is the field, be it null."""
    above = value_at(document, path[:-1])
    return isinstance(above, dict) and path[-1] in above


def is_null(value: Any) -> bool:
    return value is None or value == ""


def text_of(value: Any) -> str:
    """A value as a part of a key: its text as it stands in the message, empty for NULL (D3, D4).

    An array counts as its first element, as in expressions, and an object as NULL.
    """
    match value:
        case Number(text):
            return text
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case [first, *_]:
            return text_of(first)
    return ""


def without_nulls(value: Any) -> Any:
    """A value of a delta that replaces or merges; None if it has none (§14.5)."""
    if isinstance(value, dict):
        members = {name: without_nulls(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member is not None} or None
    return None if is_null(value) else value


def merge(stored: Document, delta: Document, keys: Iterable[Path] = ()) -> Document:
    """The stored document after a delta. The fields of the key stay as they are stored (§14.6)."""
    merged = laid_over(stored, without_nulls(delta) or {})
    for path in keys:
        if value_at(stored, path) is not None:
            _put(merged, path, value_at(stored, path))
    return merged


def laid_over(stored: Document, delta: Document) -> Document:
    """The members of both documents; where both have one that is no object, that of the delta."""
    merged = dict(stored)
    for name, value in delta.items():
        before = merged.get(name)
        merges = isinstance(value, dict) and isinstance(before, dict)
        merged[name] = laid_over(before, value) if merges else value
    return merged


def _put(document: Document, path: Path, value: Any) -> None:
    """Set a field, with copies of the objects around it."""
    if len(path) == 1:
        document[path[0]] = value
        return
    inner = dict(document.get(path[0]) or {})
    document[path[0]] = inner
    _put(inner, path[1:], value)


def without(document: Document, path: Path) -> Document:
    """A copy without a field, and without the objects that are empty then."""
    if path[0] not in document:
        return document
    rest = {name: value for name, value in document.items() if name != path[0]}
    inner = document[path[0]]
    if len(path) > 1:
        kept = without(inner, path[1:]) if isinstance(inner, dict) else inner
        return {**rest, path[0]: kept} if kept != {} else rest
    return rest


def changes(old: Document, new: Document) -> Document:
    """The changed leaves; a removed field is None (§17, D10)."""
    found: Document = {}
    for name in (*new, *(name for name in old if name not in new)):
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            if inner := changes(before, after):
                found[name] = inner
        elif before != after and not (is_null(before) and is_null(after)):
            found[name] = after
    return found


def difference(old: Document, new: Document, keys: Iterable[Path]) -> tuple[Document, Document]:
    """What a delta subscriber gets for an update, and the part of it that is not the key."""
    changed = changes(old, new)
    for path in keys:
        changed = without(changed, path)
    whole = changed
    for path in keys:
        if has_field(new, path):
            whole = dict(whole)
            _put(whole, path, value_at(new, path))
    return whole, changed


def has_values(document: Document) -> bool:
    """Whether there is a field in it, or only empty objects."""
    return any(
        has_values(value) if isinstance(value, dict) else True for value in document.values()
    )


def select(document: Document, directives: str) -> Document:
    """The document under a select list such as `-/,+/id` (§18). Raises ValueError."""
    rules: dict[Path, bool] = {}
    for directive in directives.split(","):
        match = _DIRECTIVE.fullmatch(directive)
        if match is None:
            raise ValueError(f"{directive!r} is no directive")
        rules.setdefault(path_of(match[2]), match[1] == "+")
    return _selected(document, (), rules, True) or {}


def _selected(document: Document, above: Path, rules: dict[Path, bool], included: bool) -> Document | None:
    included = rules.get(above, included)
    kept: Document = {}
    for name, value in document.items():
        path = (*above, name)
        left = _selected_value(value, path, rules, rules.get(path, included))
        if left is not EXCLUDED:
            kept[name] = left
    return kept if kept or included else None


EXCLUDED = object()


def rest_of(element: Any) -> Any:
    """What stands for an excluded element of an array, so that the others keep their places."""
    if isinstance(element, dict):
        return {}
    return [rest_of(inner) for inner in element] or None if isinstance(element, list) else None


def _selected_value(value: Any, path: Path, rules: dict[Path, bool], included: bool) -> Any:
    """What is left of a value. The members of objects in an array have the path of the array before their names."""
    if isinstance(value, dict):
        inner = _selected(value, path, rules, included)
        return EXCLUDED if inner is None else inner
    if isinstance(value, list):
        elements = [_selected_value(element, path, rules, included) for element in value]
        if included or any(element is not EXCLUDED for element in elements):
            return [
                rest_of(element) if left is EXCLUDED else left
                for element, left in zip(value, elements, strict=True)
            ]
        return EXCLUDED
    return value if included else EXCLUDED
