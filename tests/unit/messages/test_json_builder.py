"""Building and changing JSON messages (expressions.md §11).

The json module reads the new values, and all other text stays byte for byte.
"""

import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps._core.values.fields import OMIT, FieldSet, FieldValues
from amps.messages.fix import NvfixType
from amps.messages.json import JsonType
from amps.messages.settings import TypeSettings
from tests.unit.messages.reading import merge as merge_into
from tests.unit.messages.reading import read

JSON = JsonType(TypeSettings("json", "json"), {})
LAST_COUNTS = JsonType(TypeSettings("json-last", "json", early_termination=False), {})
Path = tuple[bytes, ...]
EXAMPLES = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def path(text: str) -> Path:
    return tuple(text.encode().split(b"/")[1:])


def build(paths: Sequence[str], *values: object) -> bytes:
    return JSON.builder(map(path, paths)).build(values)


def merge(message: bytes, paths: Sequence[str], *values: object) -> bytes:
    return merge_into(JSON.builder(map(path, paths)), message, values)


@pytest.mark.parametrize(
    ("paths", "values", "message"),
    [
        ([], [], b"{}"),
        (["/a"], [1], b'{"a":1}'),
        (["/a", "/b"], [OMIT, OMIT], b"{}"),
        # Members are in the order of the paths, with those of one object together.
        (["/b", "/o/x", "/a", "/o/y/z"], [1, 2, 3, 4], b'{"b":1,"o":{"x":2,"y":{"z":4}},"a":3}'),
        # Objects that would contain only omitted values are not written.
        (["/o/x", "/o/y/z", "/a"], [OMIT, OMIT, 1], b'{"a":1}'),
        (["/o/x", "/o/y/z", "/a"], [1, OMIT, OMIT], b'{"o":{"x":1}}'),
        # NULL is written (expressions.md §11), the empty string is NULL, NaN is null (§10.12).
        (["/a", "/b", "/c"], [None, b"", float("nan")], b'{"a":null,"b":null,"c":null}'),
        (["/a", "/b"], [float("inf"), float("-inf")], b'{"a":null,"b":null}'),
        (["/a", "/b"], [True, False], b'{"a":true,"b":false}'),
        (["/a", "/b"], [-(2**63), 2**64 - 1], b'{"a":-9223372036854775808,"b":18446744073709551615}'),
        (["/a", "/b", "/c"], [1.5, 1e300, -0.0], b'{"a":1.5,"b":1e+300,"c":-0.0}'),
        (["/a"], [b'q" b\\ n\n \x00\x1f\x7f'], b'{"a":"q\\" b\\\\ n\\n \\u0000\\u001f\x7f"}'),
        (
            ["/a"],
            [b'0123456789abcde"0123456789abcdef\x0b'],
            b'{"a":"0123456789abcde\\"0123456789abcdef\\u000b"}',
        ),
        # Bytes that are not UTF-8 stay unchanged.
        (["/a"], [b"\xff\xc3\xa9"], b'{"a":"\xff\xc3\xa9"}'),
        (['/a"b', "/@c", "/é"], [1, 2, 3], b'{"a\\"b":1,"@c":2,"\xc3\xa9":3}'),
    ],
)
def test_new_messages(paths: list[str], values: list[object], message: bytes) -> None:
    assert build(paths, *values) == message


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["/a", "/b", "/a"], b'{"b":1,"a":2}'),
        (["/a/x", "/a"], b'{"a":1}'),
        (["/a", "/a/x"], b'{"a":{"x":1}}'),
        (["/a/x", "/a", "/a/y"], b'{"a":{"y":2}}'),
        (["/a/x/y", "/b", "/a/x"], b'{"b":1,"a":{"x":2}}'),
    ],
)
def test_of_two_fields_with_one_destination_the_later_one_wins(paths: list[str], message: bytes) -> None:
    assert build(paths, *range(len(paths))) == message


@pytest.mark.parametrize("steps", [(b"a", 1, b"b"), (1,), ()])
def test_paths_that_cannot_be_written(steps: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="path"):
        JSON.builder([steps])


@pytest.mark.parametrize(
    ("message", "paths", "values", "merged"),
    [
        # An empty message has no fields and is no error (§12.3).
        (b"", ["/a"], [1], b'{"a":1}'),
        (b" \n", ["/a"], [1], b'{"a":1}'),
        (b"{}", ["/a", "/b"], [1, 2], b'{"a":1,"b":2}'),
        (b" { } \n", ["/a"], [1], b' {"a":1 } \n'),
        # Members are changed in place, and all other text stays unchanged; new members come last.
        (b'{ "a" : 1 , "b":[1, 2] }', ["/b", "/c"], [None, b"x"], b'{ "a" : 1 , "b":null,"c":"x" }'),
        (b'{\n  "a": 1,\n  "b": 2\n}', ["/c", "/a"], [3, 9], b'{\n  "a": 9,\n  "b": 2,"c":3\n}'),
        (b'{"a":1.50,"b":"\\u0041"}', ["/c"], [OMIT], b'{"a":1.50,"b":"\\u0041"}'),
        # expressions.md §11: HINT OPTIONAL removes the member that the message had.
        (b'{"a":1, "b":2 , "c":3}', ["/a"], [OMIT], b'{ "b":2 , "c":3}'),
        (b'{"a":1, "b":2 , "c":3}', ["/b"], [OMIT], b'{"a":1, "c":3}'),
        (b'{"a":1, "b":2 , "c":3}', ["/c"], [OMIT], b'{"a":1, "b":2 }'),
        (b'{"a":1, "b":2 , "c":3}', ["/c", "/b", "/a"], [OMIT] * 3, b"{}"),
        (b'{"a":1}', ["/a", "/b"], [OMIT, 1], b'{"b":1}'),
        # New fields are entered into existing objects; a value that is no object is replaced by one.
        (
            b'{"o":{"x":1,"k":2}}',
            ["/o/x", "/o/y", "/p/q"],
            [5, 6, 7],
            b'{"o":{"x":5,"k":2,"y":6},"p":{"q":7}}',
        ),
        (
            b'{"o":3,"p":null,"q":[1]}',
            ["/o/x", "/p/x", "/q/x"],
            [1, 2, 3],
            b'{"o":{"x":1},"p":{"x":2},"q":{"x":3}}',
        ),
        (b'{"o":3,"p":{"x":1}}', ["/o/x", "/p/x"], [OMIT, OMIT], b'{"o":3,"p":{}}'),
        (b'{"o":{"x":1}}', ["/o"], [5], b'{"o":5}'),
        # Of members with one name the first counts, and only that one stays.
        (b'{"a":1,"a":2,"o":{"x":1},"o":{}}', ["/a", "/o/x"], [8, 9], b'{"a":8,"o":{"x":9}}'),
        (b'{"a":1,"k":0,"k":1,"a":2}', ["/a"], [OMIT], b'{"k":0,"k":1}'),
        (b'{"o":1,"o":{"x":1},"L":[{"k":1,"k":2}]}', ["/o/x", "/L/k"], [OMIT, 3], b'{"o":1,"L":[{"k":3}]}'),
        # The first object of an array gets the field, and the others lose it.
        (b'{"L":[1,{"k":1,"v":1},[{"k":2,"v":2}]]}', ["/L/k"], [9], b'{"L":[1,{"k":9,"v":1},[{"v":2}]]}'),
        (b'{"L":["{", {"v":1},{"k":{}}]}', ["/L/k/z"], [9], b'{"L":["{", {"v":1,"k":{"z":9}},{"k":{}}]}'),
        (b'{"L":[{"k":{}},{"k":5}]}', ["/L/k/z"], [9], b'{"L":[{"k":{"z":9}},{"k":5}]}'),
        (b'{"L":[]}', ["/L/k"], [9], b'{"L":{"k":9}}'),
        # Names are compared after decoding their escapes.
        (b'{"\\u0061":1,"a\\"b":2}', ["/a", '/a"b'], [5, 6], b'{"\\u0061":5,"a\\"b":6}'),
    ],
)
def test_changed_messages(message: bytes, paths: list[str], values: list[object], merged: bytes) -> None:
    assert merge(message, paths, *values) == merged


@pytest.mark.parametrize(
    "message",
    [
        b"[]",
        b"1",
        b"{",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b'{"a":1,}',
        b'{"a":"x}',
        b'{"a":x}',
        b'{"b":1 "c":2}',
        b"{b:1}",
        b'{"b":1} x',
        b'{"b\\x":1}',
        b'{"o":{"x":1}',
        b'{"o":{"x":1,}}',
        b'{"o":[{"x":1}',
        b'{"o":[{"x":1}}',
        b'{"o":[{"x"]}',
        b'{"o":[{"x":1}}}',
    ],
)
def test_messages_that_cannot_be_changed(message: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be parsed"):
        merge(message, ["/a", "/o/x"], 1, 2)


def test_values_found_in_other_messages() -> None:
    """Numbers keep their text if it is valid JSON, otherwise their value; a container is NULL (§14.4)."""
    paths: list[Path] = [(name,) for name in (b"a", b"b", b"c", b"d", b"e", b"f")]
    fields = FieldSet(paths)
    builder = JSON.builder(paths)
    found = FieldValues()
    assert JSON.extractor().read(
        b'{"a":1.50,"b":"\\u0041\\n","c":{"x":1},"d":[1e999,2],"e":true}', fields, found
    )
    assert builder.project(found) == b'{"a":1.50,"b":"A\\n","c":null,"d":1e999,"e":true}'
    nvfix = NvfixType(TypeSettings("nvfix", "nvfix"), {})
    assert nvfix.extractor().read(b"a=1.50\x01b=0042\x01c=.5\x01d=+5\x01e=5.\x01f=\x01", fields, found)
    assert builder.project(found) == b'{"a":1.50,"b":42,"c":0.5,"d":5,"e":5.0,"f":null}'
    assert nvfix.builder(paths).project(found) == b"a=1.50\x01b=0042\x01c=.5\x01d=+5\x01e=5.\x01f=\x01"


def test_where_the_last_of_equal_members_counts() -> None:
    builder = LAST_COUNTS.builder([path("/a"), path("/o/x")])
    message = b'{"a":1, "o":{"x":1},"k":0 ,"a":2,"o":{"x":[],"y":0,"x":2}}'
    assert merge_into(builder, message, [8, 9]) == b'{"k":0 ,"a":8,"o":{"y":0,"x":9}}'
    assert merge_into(builder, message, [OMIT, OMIT]) == b'{"k":0 ,"o":{"y":0}}'
    assert merge_into(builder, b'{"a":1,"b":2}', [8, OMIT]) == b'{"a":8,"b":2}'
    objects = b'{"o":[{"x":1,"x":2},{"x":3,"y":4}]}'
    assert merge_into(builder, objects, [OMIT, 9]) == b'{"o":[{"x":9},{"y":4}]}'
    for cut in range(1, len(message)):
        with pytest.raises(ValueError, match="cannot be parsed"):
            merge_into(builder, message[:cut], [8, 9])


def test_a_message_cannot_make_its_writer_repeat_a_value() -> None:
    value = b"x" * 1000
    for message in (b'{"a":0' + b',"a":0' * 1000 + b"}", b'{"o":[{}' + b",{}" * 1000 + b"]}"):
        for kind in (JSON, LAST_COUNTS):
            merged = merge_into(kind.builder([path("/a"), path("/o/x")]), message, [value, value])
            assert merged.count(value) == 2


def test_numbers_keep_their_text() -> None:
    """expressions.md §15 item 44, and other notations of numbers."""
    texts = [b"18446744073709551615", b"1.50", b"123456789012345678901234567890", b"1E5", b"-0"]
    for text in texts:
        assert merge(b'{"a":1,"b":%b}' % text, ["/a"], 2) == b'{"a":2,"b":%b}' % text


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(min_size=1, max_size=20),
    st.text(alphabet='"\\/\n\0\x1f\x7fé\U0001f600', min_size=1, max_size=40),
)
names = st.sampled_from(["a", "b", "c", 'q"', "é", "long name of a member"])
documents = st.recursive(
    scalars, lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=10
).filter(lambda made: isinstance(made, dict))
# A value of None leaves the field out.
fields = st.lists(
    st.tuples(st.lists(names, min_size=1, max_size=3).map(tuple), scalars, st.booleans()), max_size=5
)
Fields = list[tuple[tuple[str, ...], object, bool]]


def lasting(wanted: Fields) -> Fields:
    """The fields without those that a later field overrides."""
    return [
        one
        for number, one in enumerate(wanted)
        if not any(
            later[0][: len(one[0])] == one[0] or one[0][: len(later[0])] == later[0]
            for later in wanted[number + 1 :]
        )
    ]


def changed(document: object, wanted: Fields) -> object:
    """The document with these fields, changed by plain Python."""
    for steps, value, there in lasting(wanted):
        place = document
        assert isinstance(place, dict)
        for step in steps[:-1]:
            if not isinstance(place.get(step), dict):
                if not there:
                    break
                place[step] = {}
            place = place[step]
        else:
            if there:
                place[steps[-1]] = value
            else:
                place.pop(steps[-1], None)
    return document


def values_of(wanted: Fields) -> list[object]:
    return [
        OMIT if not there else value.encode() if isinstance(value, str) else value
        for _, value, there in wanted
    ]


def paths_of(wanted: Fields) -> list[Path]:
    return [tuple(step.encode() for step in steps) for steps, _, _ in wanted]


@EXAMPLES
@given(fields)
def test_new_messages_are_read_back(wanted: Fields) -> None:
    message = JSON.builder(paths_of(wanted)).build(values_of(wanted))
    assert json.loads(message) == changed({}, wanted)
    # The extractor reads the same values; the empty string does not occur here.
    left = [one for one in lasting(wanted) if one[2]]
    found = read(JSON.extractor(), message, paths_of(left))
    assert found == [[value] for value in values_of(left)]


@EXAMPLES
@given(documents, fields, st.integers(0, 2), st.data())
def test_changed_messages_are_read_back(
    document: object, wanted: Fields, style: int, data: st.DataObject
) -> None:
    text = json.dumps(document, indent=[None, 2, "\t"][style], ensure_ascii=style == 0).encode()
    builder = JSON.builder(paths_of(wanted))
    merged = merge_into(builder, text, values_of(wanted))
    assert json.loads(merged) == changed(document, wanted)
    # A truncated message is refused.
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(ValueError, match="cannot be parsed"):
        merge_into(builder, text[:cut], values_of(wanted))


@EXAMPLES
@given(documents, fields, st.data())
@example({"a": [{"b": "]"}]}, [(("a", "b"), 1, True)], None)
def test_damaged_messages_are_refused_or_keep_their_content(
    document: object, wanted: Fields, data: st.DataObject | None
) -> None:
    text = json.dumps(document).encode()
    if data is not None:
        at = data.draw(st.integers(0, len(text) - 1))
        text = (
            text[:at]
            + data.draw(st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\0"]))
            + text[at + 1 :]
        )
    try:
        merged = merge_into(JSON.builder(paths_of(wanted)), text, values_of(wanted))
    except ValueError:
        with pytest.raises((ValueError, TypeError)):
            dict(**json.loads(text))
        return
    # Skipped values are checked loosely; a valid message stays valid.
    try:
        right = json.loads(text)
    except ValueError:
        return
    if text.count(b"[") == 0:
        assert json.loads(merged) == changed(right, wanted)


def test_deep_messages_are_skipped() -> None:
    """Recursion does not follow the message, only the paths, which a configuration contains."""
    deep = b"[" * 200_000 + b"]" * 200_000
    assert merge(b'{"a":' + deep + b"}", ["/b"], 1) == b'{"a":' + deep + b',"b":1}'
    assert merge(b'{"a":' + deep + b"}", ["/a/b"], 1) == b'{"a":{"b":1}}'
    inner = deep[:200_000] + b'{"b":2}' + deep[200_000:]
    assert merge(b'{"a":' + inner + b"}", ["/a/b"], 1) == b'{"a":' + inner.replace(b"2", b"1") + b"}"
    objects = b'{"a":' * 500 + b"1" + b"}" * 500
    assert merge(objects, ["/a" * 500], 2) == objects.replace(b"1", b"2")
