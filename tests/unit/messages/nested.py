"""Shared parts of the tests of nested message types: documents, paths, and expected results of reading and merging.

A document is an `Object` of the reference evaluator, whose scalars are None, bool, int, float and bytes.
"""

import math
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from amps._core.values.fields import OMIT, Extractor
from tests.support.reference_values import Object, same, values_at
from tests.unit.messages.reading import Path, read, reader

EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Destination = tuple[bytes, ...]

NAMES = st.one_of(
    st.sampled_from([b"a", b"b", b"k", b"a", b"b", b"k", "é".encode(), b"a/b", b"", b"long name " * 5]),
    st.text(max_size=4).map(str.encode),
)
TEXTS = st.one_of(
    st.sampled_from([b"", b"x", b"0042", b"12.5", b"\xff\xc3", b"\0", b"y" * 40, b"z" * 300]),
    st.text(max_size=8).map(str.encode),
    st.binary(max_size=8),
)
DOUBLES = st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e300, 5e-324])


def scalars(integer_max: int) -> st.SearchStrategy[object]:
    edges = [2**bits + off for bits in (5, 7, 8, 15, 16, 31, 32, 62) for off in (-1, 0, 1)]
    edges += [-edge for edge in edges] + [-(2**63), integer_max]
    integers = st.sampled_from(edges) | st.integers(-(2**63), integer_max)
    return st.one_of(st.none(), st.booleans(), integers, DOUBLES, TEXTS)


def documents(
    integer_max: int = 2**63 - 1, names: st.SearchStrategy[bytes] = NAMES
) -> st.SearchStrategy[Object]:
    inner = st.recursive(
        scalars(integer_max),
        lambda below: st.lists(below, max_size=4) | st.dictionaries(names, below, max_size=4).map(Object),
        max_leaves=12,
    )
    return st.dictionaries(names, inner, max_size=6).map(Object)


def paths_of(place: object, above: Path = ()) -> list[Path]:
    """All paths of a document, some with subscripts on their way, and one at each place that leads to nothing."""
    found: list[Path] = [above] if above else []
    if isinstance(place, Object):
        for name, value in place.items():
            found += paths_of(value, (*above, name))
    elif isinstance(place, list):
        for index, element in enumerate(place):
            found += paths_of(element, above)
            if isinstance(element, Object) and isinstance(above[-1], bytes):
                found += paths_of(element, (*above, index))
    found = [path for path in found if isinstance(path[-1], bytes)]
    return list(dict.fromkeys([*found, (*above, b"nothing")]))


def found_in(document: Object, path: Path) -> list[object]:
    """The expected values at a path. The empty string is NULL."""
    return [None if value == b"" else value for value in values_at(document, path)]


def agree(found: Sequence[object], expected: Sequence[object]) -> bool:
    return len(found) == len(expected) and all(
        same(one, other) for one, other in zip(found, expected, strict=True)
    )


def assert_read(extractor: Extractor, message: bytes, document: Object) -> None:
    """Assert that every path is found in the message, with all others, and alone with early termination."""
    paths = paths_of(document)
    found = read(extractor, message, paths)
    assert found is not None
    for path, values in zip(paths, found, strict=True):
        assert agree(values, found_in(document, path)), (path, values, document)
        assert read(extractor, message, [path]) is not None
        [alone] = read(extractor, message, [path]) or [[]]
        assert agree(alone, values), (path, alone)


def assert_cut_off(extractor: Extractor, message: bytes, document: Object, wanted: list[Path]) -> None:
    """Assert that each truncated message is unparsable, or gives the values of all wanted paths."""
    read_part = reader(extractor, wanted)
    for end in range(1, len(message)):
        found = read_part(message[:end])
        for path, values in zip(wanted, found or [], strict=found is not None):
            assert agree(values, found_in(document, path)), (path, end)


DESTINATIONS = st.lists(st.sampled_from([b"a", b"b", b"k", b"new"]), min_size=1, max_size=3).map(tuple)
GIVEN = st.lists(st.tuples(DESTINATIONS, scalars(2**63 - 1) | st.just(OMIT)), max_size=5)


def merged(document: Object, fields: Sequence[tuple[Destination, object]]) -> Object:
    """The document after changing fields one by one.

    If one path is a prefix of another, only the later field counts.
    """
    made = copied(document)
    for number, (path, value) in enumerate(fields):
        later = [other for other, _ in fields[number + 1 :]]
        if not any(other[: len(path)] == path or path[: len(other)] == other for other in later):
            put(made, path, value)
    return made


def copied(place: object) -> object:
    if isinstance(place, Object):
        return Object({name: copied(value) for name, value in place.items()})
    return list(map(copied, place)) if isinstance(place, list) else place


def put(place: object, path: Destination, value: object) -> None:
    assert isinstance(place, Object)
    name, *rest = path
    if not rest:
        if value is OMIT:
            place.pop(name, None)
        else:
            place[name] = value
        return
    if not isinstance(place.get(name), Object):
        if value is OMIT:
            return
        place[name] = Object()
    put(place[name], tuple(rest), value)


def equal(one: object, other: object) -> bool:
    """True if the documents are equal: types count, and the order of names does not. The empty string is NULL."""
    if isinstance(one, Object) and isinstance(other, Object):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return same(None if one == b"" else one, None if other == b"" else other)
