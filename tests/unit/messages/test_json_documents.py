"""Deltas and select lists of JSON messages (sow.md §14, §17, §18): examples, and documents against plain Python."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.values.documents import Selection
from amps._core.values.fields import FieldSet
from amps.messages.json import JsonType
from amps.messages.settings import TypeSettings
from tests.support.reference_values import Object
from tests.unit.messages.document_models import (
    DIRECTIVES,
    KEYS,
    Checked,
    Directive,
    Names,
    compared,
    in_order,
    merged_by,
    selected,
)
from tests.unit.messages.nested import EXAMPLES, documents, equal

JSON = Checked(JsonType(TypeSettings("json", "json"), {}).documents())
LAST_COUNTS = Checked(JsonType(TypeSettings("json-last", "json", early_termination=False), {}).documents())


# --- merging a delta --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "delta", "merged"),
    [
        # sow.md §25 items 23 to 26.
        (b'{"id":1,"a":20,"b":7}', b'{"id":1,"a":5}', b'{"id":1,"a":5,"b":7}'),
        (b'{"id":1,"a":1}', b'{"id":1,"c":[2]}', b'{"id":1,"a":1,"c":[2]}'),
        (b'{"id":1,"q":{"x":1,"y":2}}', b'{"id":1,"q":{"x":9}}', b'{"id":1,"q":{"x":9,"y":2}}'),
        (
            b'{"id":1,"l":[1,2,3],"c":{"p":[{"m":1},{"n":2}]}}',
            b'{"id":1,"l":[7],"c":{"p":[{"k":3}]}}',
            b'{"id":1,"l":[7],"c":{"p":[{"k":3}]}}',
        ),
        (b'{"id":1,"a":4}', b'{"id":1,"a":null}', b'{"id":1,"a":4}'),
        (b'{"id":1,"a":4}', b'{"id":1,"a":""}', b'{"id":1,"a":4}'),
        # NULLs of a delta are ignored at any depth, and so are objects that contain nothing else.
        (b'{"a":1}', b'{"n":null,"o":{},"p":{"x":{"y":""}}}', b'{"a":1}'),
        (b'{"a":1}', b'{"o":{"x":null, "y":2 ,"z":{"k":""}}}', b'{"a":1,"o":{ "y":2}}'),
        (b'{"a":{"x":1}}', b'{"a":{}}', b'{"a":{"x":1}}'),
        # An empty array is a value, and the NULLs in an array belong to it.
        (b'{"l":[1]}', b'{"l":[]}', b'{"l":[]}'),
        (b'{"l":1}', b'{"l":[null,{"a":null}]}', b'{"l":[null,{"a":null}]}'),
        # D11: the value of the delta replaces one of another type.
        (b'{"a":{"x":1}}', b'{"a":5}', b'{"a":5}'),
        (b'{"a":5}', b'{"a":{"x":1,"y":null}}', b'{"a":{"x":1}}'),
        (b'{"a":[{"x":1}]}', b'{"a":{"x":2}}', b'{"a":{"x":2}}'),
        (b'{"a":null}', b'{"a":false}', b'{"a":false}'),
        # All other text stays, and the spelling of the delta's values, too.
        (b' { "a" : 1 ,\n "b":[1, 2] }\n', b'{"a":1.50,"c":"\\u0041"}',
         b' { "a" : 1.50 ,\n "b":[1, 2],"c":"\\u0041" }\n'),
        (b"{ }", b'{"a":1}', b'{"a":1 }'),
        # An empty message has no fields (expressions.md §12.3).
        (b"", b'{"a":1,"b":null}', b'{"a":1}'),
        (b'{"a":1}', b" ", b'{"a":1}'),
        (b"", b"", b"{}"),
        # Names are compared without their escapes.
        (b'{"\\u0061":1,"b":2}', b'{"a":3,"\\u0062":4}', b'{"\\u0061":3,"b":4}'),
        # Of members with one name the first counts, in both messages.
        (b'{"a":1,"k":0,"a":2}', b'{"a":8,"a":9}', b'{"a":8,"k":0}'),
        (b'{"o":{"x":1},"o":{"y":2}}', b'{"o":{"z":3}}', b'{"o":{"x":1,"z":3}}'),
        (b'{"a":1,"a":2}', b'{"b":8}', b'{"a":1,"a":2,"b":8}'),
        (b'{"a":1}', b'{"a":null,"a":2}', b'{"a":1}'),
    ],
)  # fmt: skip
def test_merging_a_delta(stored: bytes, delta: bytes, merged: bytes) -> None:
    assert JSON.merge(stored, delta) == merged


def test_merging_where_the_last_of_equal_members_counts() -> None:
    stored = b'{"a":1, "o":{"x":1},"k":0 ,"a":2,"o":{"x":[],"y":0,"x":2}}'
    assert LAST_COUNTS.merge(stored, b'{"a":8,"o":{"x":9}}') == b'{"k":0 ,"a":8,"o":{"y":0,"x":9}}'
    assert LAST_COUNTS.merge(b'{"a":1}', b'{"a":2,"b":3,"a":4,"b":null}') == b'{"a":4}'


@pytest.mark.parametrize(
    "message",
    [
        b"[]", b"1", b"null", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":1,}', b'{"a":1}}', b'{"a":1} x',
        b"{a:1}", b'{"a" 1}', b'{"a":1 "b":2}', b'{"\\q":1}', b'{"\\u12":1}', b'{"a":"', b'{"a":"\\', b'{"a":[1,2}',
        b'{"a":{"b":1}', b'{"a":}', b'{,"a":1}', b'{"a":?}',
    ],
)  # fmt: skip
def test_malformed_messages_are_refused(message: bytes) -> None:
    """expressions.md §12.3; a root that is not an object has no fields, so it takes part in no operation."""
    good = b'{"a":1,"b":2,"q":{"x":1}}'
    for first, second in ((message, good), (good, message)):
        with pytest.raises(ValueError, match="cannot be parsed"):
            JSON.merge(first, second)
        with pytest.raises(ValueError, match="cannot be parsed"):
            JSON.difference(first, second)
    with pytest.raises(ValueError, match="cannot be parsed"):
        JSON.select(message, "-/a")


@pytest.mark.parametrize("value", [b"tru", b"01", b'"\\q"', b"[1,]", b"{]", b"nul", b"+1", b'{"x" 1}'])
def test_all_of_a_delta_is_checked(value: bytes) -> None:
    """Its values become part of the stored message."""
    for delta in (b'{"a":%b}', b'{"b":%b}', b'{"q":{"x":%b}}', b'{"l":[%b]}'):
        with pytest.raises(ValueError, match="cannot be parsed"):
            JSON.merge(b'{"a":1,"q":{}}', delta % value)


# --- the difference of two states -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "body", "changed"),
    [
        # sow.md §25 items 30 and 31.
        (b'{"id":1,"a":2,"b":3}', b'{"id":1,"a":2,"b":4}', b'{"id":1,"b":4}', True),
        (b'{"id":1,"a":2}', b'{"id":1,"a":2}', b'{"id":1}', False),
        # Changed leaves with their path, a changed array whole.
        (b'{"id":1,"q":{"x":1,"y":{"z":1,"k":2}}}', b'{"id":1,"q":{"x":1,"y":{"z":1,"k":3}}}',
         b'{"id":1,"q":{"y":{"k":3}}}', True),
        (b'{"id":1,"l":[1,2],"m":[3]}', b'{"id":1,"l":[1,5],"m":[3]}', b'{"id":1,"l":[1,5]}', True),
        # D10: what was removed is NULL, at the end of its object.
        (b'{"id":1,"a":2,"q":{"x":1,"y":2}}', b'{"id":1,"q":{"x":1},"b":3}',
         b'{"id":1,"q":{"y":null},"b":3,"a":null}', True),
        (b'{"id":1,"q":{"x":1}}', b'{"id":1}', b'{"id":1,"q":null}', True),
        (b'{"id":1,"q":{"x":1}}', b'{"id":1,"q":{}}', b'{"id":1,"q":{"x":null}}', True),
        # NULL, the empty string and a missing field are the same.
        (b'{"id":1,"a":null,"b":"","c":null}', b'{"id":1,"c":"","d":null}', b'{"id":1}', False),
        (b'{"id":1,"a":null}', b'{"id":1,"a":1}', b'{"id":1,"a":1}', True),
        (b'{"id":1,"a":1}', b'{"id":1,"a":null}', b'{"id":1,"a":null}', True),
        # Another type, and another spelling of the same value.
        (b'{"id":1,"a":{"x":1}}', b'{"id":1,"a":1}', b'{"id":1,"a":1}', True),
        (b'{"id":1,"a":1}', b'{"id":1,"a":{"x":1}}', b'{"id":1,"a":{"x":1}}', True),
        (b'{"id":1,"a":1,"b":"A"}', b'{"id":1,"a":1.0,"b":"\\u0041"}', b'{"id":1,"a":1.0,"b":"\\u0041"}', True),
        # The order does not matter, and a name does not matter in its spelling.
        (b'{"a":1,"id":1,"b":2}', b'{"b":2,"\\u0061":1,"id":1}', b'{"id":1}', False),
        # Of members with one name the first counts.
        (b'{"id":1,"a":1,"a":2}', b'{"id":1,"a":1,"a":3}', b'{"id":1}', False),
        (b'{"id":1,"a":1}', b'{"id":1,"id":2,"a":2,"a":1}', b'{"id":1,"a":2}', True),
        # A message without fields.
        (b"", b'{"id":1}', b'{"id":1}', True),
        (b'{"id":1,"a":2}', b"", b'{"id":null,"a":null}', True),
        (b"{}", b"{}", b"{}", False),
    ],
)  # fmt: skip
def test_the_difference_of_two_states(old: bytes, new: bytes, body: bytes, changed: bool) -> None:
    assert JSON.difference(old, new, "/id") == (body, changed)


def test_key_fields_below_others() -> None:
    message = b'{"o":{"k":1,"v":2},"L":[{"k":5}],"s":"k","n":{"m":{"k":1},"v":1}}'
    assert JSON.difference(message, message, "/o/k", "/n") == (b'{"o":{"k":1},"n":{"m":{"k":1},"v":1}}', False)
    assert JSON.difference(message, message, "/L/k", "/s/k", "/nothing/k") == (b'{"L":[{"k":5}]}', False)
    subscripts: Names = (b"L", 0, b"k")  # type: ignore[assignment]
    assert JSON.difference(message, message, subscripts) == (b'{"L":[{"k":5}]}', False)
    # A key field that changed is a change; an object that is a key is written whole.
    new = b'{"o":{"k":3,"v":2},"n":{"m":{"k":1},"v":2}}'
    old = b'{"o":{"k":1,"v":2},"n":{"m":{"k":1},"v":1}}'
    assert JSON.difference(old, new, "/o/k", "/n") == (b'{"o":{"k":3},"n":{"m":{"k":1},"v":2}}', True)


def test_a_difference_where_the_last_of_equal_members_counts() -> None:
    assert LAST_COUNTS.difference(b'{"a":1,"b":1,"a":2}', b'{"a":2,"b":5,"a":3,"b":1}') == (b'{"a":3}', True)


# --- select lists -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "directives", "body"),
    [
        # sow.md §25 item 39.
        (b'{"id":1,"n":{"a":2,"b":3},"x":4}', "[-/,+/id,+/n/a]", b'{"id":1,"n":{"a":2}}'),
        (b'{"id":1,"n":{"a":2,"b":3}}', "[-/n,+/n/a]", b'{"id":1,"n":{"a":2}}'),
        (b'{"a":1,"b":2}', "[-/a,+/a]", b'{"b":2}'),
        (b'{"a":1,"b":2}', "[+/a,-/a]", b'{"a":1,"b":2}'),
        # sow.md §18.
        (b'{"a":1,"d":2,"e":{"d":3}}', "[+/,-/d]", b'{"a":1,"e":{"d":3}}'),
        (b'{"q":8,"r":{"x":1,"y":2,"z":3}}', "-/,+/q,+/r/y", b'{"q":8,"r":{"y":2}}'),
        # D30: nothing is left. No field is created.
        (b'{"a":1, "b":2}', "[-/]", b"{}"),
        (b'{"a":1}', "[-/,+/b,+/a/x]", b"{}"),
        (b'{"a":{"y":1}}', "[-/,+/a/x]", b"{}"),
        (b"", "[-/]", b""),
        # The deepest directive decides, whatever the order of the list.
        (b'{"n":{"a":{"x":1,"y":2},"b":3}}', "[+/n/a/x,-/n/a,+/n,-/]", b'{"n":{"a":{"x":1},"b":3}}'),
        (b'{"n":{"a":1}}', "[-/n/a]", b'{"n":{}}'),
        # A list leads through arrays. Elements keep their places.
        (b'{"L":[{"x":1,"y":2},5,[{"y":3},"s"],null,{}]}', "[-/,+/L/y]",
         b'{"L":[{"y":2},null,[{"y":3},null],null,{}]}'),
        (b'{"L":[{"x":1,"y":2},5,[{"y":3}, "s"]]}', "[-/L/y]", b'{"L":[{"x":1},5,[{}, "s"]]}'),
        (b'{"L":[{"x":1},5],"M":[]}', "[-/,+/L/y,+/M/y]", b"{}"),
        (b'{"L":[[[]],{"x":1}],"M":[]}', "[-/L/x]", b'{"L":[[[]],{}],"M":[]}'),
        # All members of a name, in any spelling, are excluded.
        (b'{"a":1,"\\u0061":2,"b":3,"a":4}', "[-/a]", b'{"b":3}'),
        # The text of what stays is unchanged.
        (b' {"a":1, "b" : [1, 2] , "c":3}\n', "[-/a]", b' { "b" : [1, 2] , "c":3}\n'),
        (b' {"a":1, "b" : [1, 2] , "c":3}\n', "[-/b]", b' {"a":1 , "c":3}\n'),
        (b' {"a":1, "b" : [1, 2] , "c":3}\n', "[-/c]", b' {"a":1, "b" : [1, 2]}\n'),
        (b'{"a b":1,"b":{"c d":2,"e":3}}', "[-/,+[/a b],+[/b/c d]]", b'{"a b":1,"b":{"c d":2}}'),
    ],
)  # fmt: skip
def test_select_lists(message: bytes, directives: str, body: bytes) -> None:
    assert JSON.select(message, directives) == body


def test_the_list_of_the_subscriber_works_on_what_entitlement_leaves() -> None:
    """sow.md §18: the two lists of its examples, one after the other."""
    assert JSON.select(JSON.select(b'{"p":7,"q":8}', "[-/p]"), "[+/p]") == b'{"q":8}'
    left = JSON.select(b'{"q":8,"r":{"x":1,"y":2,"z":3}}', "[-/,+/q,+/r/y]")
    assert JSON.select(left, "[-/,+/r/x,+/r/y]") == b'{"r":{"y":2}}'


# --- large and hostile messages ---------------------------------------------------------------------------------


def test_objects_of_many_members() -> None:
    """100,000 members in opposite order. A search member by member would take minutes."""
    names = [b"field%d" % number for number in range(100_000)]
    stored = b"{" + b",".join(b'"%b":1' % name for name in names) + b"}"
    delta = b"{" + b",".join(b'"%b":2' % name for name in reversed(names)) + b',"new":3}'
    merged = JSON.merge(stored, delta)
    assert merged == stored.replace(b":1", b":2")[:-1] + b',"new":3}'
    assert JSON.difference(delta, merged) == (b"{}", False)
    body, changed = JSON.difference(stored, merged)
    assert (body, changed) == (merged, True)
    assert JSON.select(delta, "[-/,+/new,+/field7]") == b'{"field7":2,"new":3}'


def test_repeated_members_do_not_multiply_a_value() -> None:
    value = b'"' + b"x" * 1000 + b'"'
    for kind in (JSON, LAST_COUNTS):
        merged = kind.merge(b'{"a":0' + b',"a":0' * 1000 + b"}", b'{"a":' + value + b',"a":' + value + b"}")
        assert merged == b'{"a":' + value + b"}"


def test_deep_messages() -> None:
    """Objects may be nested 1,000 times; what an operation does not go into, more often."""
    deep = b'{"a":' * 1000 + b"1" + b"}" * 1000
    assert JSON.merge(deep, deep.replace(b"1", b"2")) == deep.replace(b"1", b"2")
    assert JSON.difference(deep, deep.replace(b"1", b"2")) == (deep.replace(b"1", b"2"), True)
    too_deep = b'{"a":' * 1001 + b"1" + b"}" * 1001
    with pytest.raises(ValueError, match="cannot be parsed"):
        JSON.merge(too_deep, too_deep)
    with pytest.raises(ValueError, match="cannot be parsed"):
        JSON.difference(too_deep, b"{}")
    arrays = b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert JSON.merge(arrays, b'{"b":1}') == arrays[:-1] + b',"b":1}'
    assert JSON.select(arrays, "[-/b,-/a]") == b"{}"
    assert JSON.difference(arrays, arrays) == (b"{}", False)
    with pytest.raises(ValueError, match="cannot be parsed"):
        JSON.select(arrays, "[-/a/b]")


def test_messages_of_too_many_members_are_refused() -> None:
    """The bound is a million members; members that an operation does not look for are not counted."""
    many = b'{"k":0' + b',"k":0' * (1 << 20) + b"}"
    with pytest.raises(ValueError, match="cannot be parsed"):
        JSON.documents.merged(b"{}", many)
    with pytest.raises(ValueError, match="cannot be parsed"):
        JSON.documents.compared(many, b"{}", FieldSet())
    with pytest.raises(ValueError, match="cannot be parsed"):
        JSON.documents.selected(many, Selection([(False, (b"a",))]))
    assert JSON.documents.merged(many, b'{"a":1}') == many[:-1] + b',"a":1}'
    assert JSON.merge(b'{"a":1}', b'{"b":2}') == b'{"a":1,"b":2}'


# --- random documents -------------------------------------------------------------------------------------------


def text_of(place: object, escaped: bool = False) -> str:
    if isinstance(place, Object):
        members = (f"{text_of(name, escaped)}: {text_of(value, escaped)}" for name, value in place.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(place, list):
        return "[" + ", ".join(text_of(value, escaped) for value in place) + "]"
    if isinstance(place, bytes):
        try:
            return json.dumps(place.decode(), ensure_ascii=escaped)
        except UnicodeDecodeError:
            return json.dumps(place.decode("utf-8", "surrogateescape"), ensure_ascii=False)
    if isinstance(place, float) and not abs(place) < float("inf"):
        return '"not a number of JSON"'
    return json.dumps(place)


def packed(place: object, escaped: bool = False) -> bytes:
    return text_of(place, escaped).encode("utf-8", "surrogateescape")


def pairs(found: list[tuple[str, object]]) -> Object:
    made = Object()
    for name, value in found:
        assert name not in made
        made[name.encode("utf-8", "surrogateescape")] = plain(value)  # type: ignore[assignment]
    return made


def plain(place: object) -> object:
    if isinstance(place, list):
        return list(map(plain, place))
    return place.encode("utf-8", "surrogateescape") if isinstance(place, str) else place


def document_of(message: bytes) -> Object:
    made = json.loads(message.decode("utf-8", "surrogateescape"), object_pairs_hook=pairs)
    assert isinstance(made, Object)
    return made


DOCUMENTS = documents(2**64 - 1).map(lambda made: document_of(packed(made)))


def assert_same(message: bytes, expected: Object) -> None:
    found = document_of(message)
    assert equal(found, expected), (message, expected)
    assert in_order(found, expected), (message, expected)


@EXAMPLES
@given(DOCUMENTS, DOCUMENTS, st.booleans(), st.data())
@example(Object({b"a": Object({b"k": 1})}), Object({b"a": Object({b"b": None}), b"b": Object({b"k": b""})}), True, None)
def test_random_deltas(stored: Object, delta: Object, escaped: bool, data: st.DataObject | None) -> None:
    before, given_ = packed(stored, escaped), packed(delta, not escaped)
    for kind in (JSON, LAST_COUNTS):
        assert_same(kind.merge(before, given_), merged_by(stored, delta))
    if data is not None:
        cut = data.draw(st.integers(1, len(before) - 1))
        with pytest.raises(ValueError, match="cannot be parsed"):
            JSON.merge(before[:cut], given_)
        cut = data.draw(st.integers(1, len(given_) - 1))
        with pytest.raises(ValueError, match="cannot be parsed"):
            JSON.merge(before, given_[:cut])


@EXAMPLES
@given(DOCUMENTS, DOCUMENTS, KEYS)
def test_random_differences(old: Object, new: Object, keys: Sequence[Names]) -> None:
    for after in (new, merged_by(old, new)):
        expected, changed = compared(old, after, keys, packed)
        body, found = JSON.difference(packed(old), packed(after), *keys)
        assert found is changed
        assert_same(body, expected)


@EXAMPLES
@given(DOCUMENTS, DIRECTIVES, DIRECTIVES, st.booleans())
def test_random_select_lists(
    document: Object, first: Sequence[Directive], second: Sequence[Directive], escaped: bool
) -> None:
    once = JSON.select(packed(document, escaped), Selection(first))
    assert_same(once, selected(document, first))
    assert_same(JSON.select(once, Selection(second)), selected(selected(document, first), second))
