"""Plain-Python models of merging a delta, comparing two states and applying a select list (sow.md §14, §17, §18).

They work on the documents of nested.py, for all message types with nested fields.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import strategies as st

from amps._core.values.documents import Documents, Selection
from amps._core.values.fields import FieldSet
from amps.expressions.select_list import parse_select_list
from tests.support.reference_values import Object
from tests.unit.messages.reading import surrounded

Names = tuple[bytes, ...]
Directive = tuple[bool, Names]

STEPS = st.lists(st.sampled_from([b"a", b"b", b"k", b"new"]), min_size=1, max_size=3).map(tuple)
KEYS = st.lists(STEPS, max_size=3)
DIRECTIVES = st.lists(
    st.tuples(st.booleans(), st.lists(st.sampled_from([b"a", b"b", b"k"]), max_size=3).map(tuple)), max_size=5
)


class Checked:
    """The operations, also done on messages between bytes that would continue them: no result may change."""

    def __init__(self, documents: Documents) -> None:
        self.documents = documents

    def merge(self, stored: bytes, delta: bytes) -> bytes:
        return outcome(self.documents.merged, stored, delta)

    def difference(self, old: bytes, new: bytes, *keys: str | Names) -> tuple[bytes, bool]:
        paths = [tuple(key.encode().split(b"/")[1:]) if isinstance(key, str) else key for key in keys]
        fields = FieldSet(paths)
        return outcome(lambda *given: self.documents.compared(*given, fields), old, new)

    def select(self, message: bytes, selection: Selection | str) -> bytes:
        if isinstance(selection, str):
            selection = parse_select_list(selection)
        return outcome(lambda given: self.documents.selected(given, selection), message)


def outcome(operation: Callable[..., object], *messages: bytes) -> object:  # type: ignore[type-arg]
    views = zip(*map(surrounded, messages), strict=False)
    try:
        found = operation(*messages)
    except ValueError:
        for given in views:
            with pytest.raises(ValueError, match="cannot be parsed"):
                operation(*given)
        raise
    for given in views:
        assert operation(*given) == found
    return found


def is_null(value: object) -> bool:
    return value is None or value == b""


def merged_by(stored: Object, delta: Object) -> Object:
    """The stored document after a delta: named objects are merged, arrays replaced, NULLs ignored."""
    made = Object(stored)
    for name, value in delta.items():
        if is_null(value):
            continue
        if isinstance(value, Object):
            before = stored.get(name)
            is_object = isinstance(before, Object)
            value = merged_by(before if isinstance(before, Object) else Object(), value)
            if not value and not is_object:
                continue
            if not merged_by(Object(), delta[name]):  # type: ignore[arg-type]
                continue
        made[name] = value
    return made


def compared(
    old: Object, new: Object, keys: Sequence[Names], encoded: Callable[[object], object], above: Names = ()
) -> tuple[Object, bool]:
    """The key fields and changes of a document, and whether there are changes."""
    made = Object()
    changed = False
    for name, value in new.items():
        path = (*above, name)
        is_key = path in keys
        keys_below = any(len(key) > len(path) and key[: len(path)] == path for key in keys)
        before = old.get(name)
        if isinstance(value, Object) and isinstance(before, Object):
            inner, inner_changed = compared(before, value, keys, encoded, path)
            changed = changed or inner_changed
            if inner or is_key:
                made[name] = value if is_key else inner
        elif (is_null(value) and is_null(before)) or (name in old and encoded(value) == encoded(before)):
            if is_key or (keys_below and isinstance(value, list)):
                made[name] = value
        else:
            changed = True
            made[name] = value
    for name, value in old.items():
        if name not in new and not is_null(value):
            made[name] = None
            changed = True
    return made, changed


def selected(document: Object, directives: Sequence[Directive]) -> Object:
    """What a select list leaves of a document."""
    chosen: dict[Names, bool] = {}
    for included, path in directives:
        chosen.setdefault(path, included)
    return selected_object(document, (), chosen, chosen.get((), True))[0]


def selected_object(
    place: Object, above: Names, chosen: dict[Names, bool], included: bool
) -> tuple[Object, bool]:
    made = Object()
    for name, value in place.items():
        path = (*above, name)
        includes = chosen.get(path, included)
        left = includes
        if any(len(other) > len(path) and other[: len(path)] == path for other in chosen):
            if isinstance(value, Object) and value:
                value, inside = selected_object(value, path, chosen, includes)
                left = left or inside
            elif isinstance(value, list) and value:
                value, inside = selected_array(value, path, chosen, includes)
                left = left or inside
        if left:
            made[name] = value
    return made, bool(made)


def selected_array(
    place: list[object], path: Names, chosen: dict[Names, bool], included: bool
) -> tuple[list[object], bool]:
    made: list[object] = []
    left = included
    for value in place:
        if isinstance(value, Object):
            value, inside = selected_object(value, path, chosen, included)
            left = left or inside
        elif isinstance(value, list) and value:
            value, inside = selected_array(value, path, chosen, included)
            left = left or inside
        elif not included:
            value = None
        made.append(value)
    return made, left


def in_order(one: object, other: object) -> bool:
    """Whether the members of all objects of two equal documents have the same order."""
    if isinstance(one, Object) and isinstance(other, Object):
        return list(one) == list(other) and all(in_order(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return all(map(in_order, one, other))
    return True
