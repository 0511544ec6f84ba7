"""Fields of JSON messages against the json module.

A valid document gives the same values as in that module, for any wanted paths. A damaged one is reported as unparsable,
or gives the values before the damage.
"""

import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues
from tests.support import reference_values as reference
from tests.support.reference_values import same

EXAMPLES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Path = tuple[bytes | int, ...]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.text(alphabet='"\\/\b\f\n\r\t\0\x1f\x7fé\ud800\udfff\U0001f600', max_size=40),
)
names = st.one_of(
    st.sampled_from("abk"),
    st.sampled_from(["", "a/b", 'a"', "a\\", "é", "a\ud83d", "long name " * 4]),
    st.text(max_size=4),
)
documents = st.dictionaries(
    names,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=6,
)


@st.composite
def json_messages(draw: st.DrawFn) -> bytes:
    """Valid documents in several styles."""
    document = draw(documents)
    style = draw(st.integers(0, 3))
    text = json.dumps(
        document,
        ensure_ascii=style != 1,
        indent=2 if style == 2 else None,
        separators=(",", ":") if style == 3 else None,
    )
    if style == 3 and document:
        # The keys are repeated, with other members before and behind them.
        text = text[:-1] + ',"zz":{"a":"]}"},' + text[1:]
    return text.encode("utf-8", "surrogatepass")


def paths_of(place: reference.Json, above: Path = ()) -> list[Path]:
    """All paths of a message, and some that lead to nothing or to a subscript."""
    found: list[Path] = [above] if above else []
    if isinstance(place, reference.Object):
        for name, value in place.items():
            found += paths_of(value, (*above, name))
    elif isinstance(place, list):
        for element in place:
            found += paths_of(element, above)
    return list(dict.fromkeys([*found, (*above, b"nothing")]))


def read(
    message: bytes, paths: Sequence[Path], early_termination: bool = True
) -> tuple[bool, list[list[object]]]:
    """The extractor's result: whether the message could be parsed, and the values by path."""
    fields = FieldSet()
    slots = [fields.add(path) for path in paths]
    values = FieldValues()
    parsed = JsonExtractor(early_termination).read(message, fields, values)
    return parsed, [list(values.values_of(slot)) for slot in slots]


def expected_of(message: reference.Json, path: Path) -> list[object]:
    found = reference.values_at(message, path)
    return [value.value if isinstance(value, reference.TextNumber) else value for value in found]


def assert_same(found: list[object], expected: list[object], what: object) -> None:
    assert len(found) == len(expected), (found, expected, what)
    assert all(same(one, other) for one, other in zip(found, expected, strict=True)), (found, expected, what)


@EXAMPLES
@given(json_messages())
@example(rb'{"a":"\ud83d\ude00","b":"\ud83d","k":"\ude00\ud83d"}')
@example(rb'{"\u0061":1,"a":2,"\ud83d\ude00":3}')
@example(b'{"a":[[1,[2]],{"k":[{"k":3}]},[]],"b":{}}')
@example(b'{"a":' + b"9" * 400 + b',"b":-' + b"9" * 20 + b',"k":1' + b"0" * 5000 + b"e-5000}")
@example(b'{"a":1e400,"b":-1e-400,"k":-0,"":-0.0}')
@example(b'{"a":{"b":1},"a":{"b":2,"k":3}}')
@example(b'{"a":"\xff\xc3","\xff":2,"b":"\xed\xa0\x80"}')
@example(b' \r\n\t{ "a" : [ ] , "b" : [ { } ] , "k" : { "a" : null } } \n')
@example(b'{"a":"0123456789abcde\\"0123456789abcdef","b":"0123456789abcdef\\\\","k":"\\u0000"}')
def test_every_path_is_as_in_the_json_module(message: bytes) -> None:
    document = reference.parse_json(message)
    paths = paths_of(document)
    parsed, found = read(message, paths)
    assert parsed
    for path, values in zip(paths, found, strict=True):
        assert_same(values, expected_of(document, path), path)
        # A path alone, when reading may end early, has the same values.
        parsed, [alone] = read(message, [path])
        assert parsed
        assert_same(alone, values, path)


nested = st.recursive(
    st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ak"), inner),
    max_leaves=12,
)


@EXAMPLES
@given(
    st.dictionaries(st.sampled_from("ak"), nested),
    st.lists(st.sampled_from([b"a", b"k", b"a", b"k", 0, 1, 2]), min_size=2, max_size=6),
)
@example({"a": [[{"k": 1}, {"k": 2}], [{"k": 3}]]}, [b"a", 0, b"k"])
@example({"a": [[{"k": 1}, {"k": 2}], [{"k": 3}]]}, [b"a", 2, b"k"])
@example({"a": [{"k": [{"a": 1}, {"a": 2}]}, {"k": [{"a": 3}]}]}, [b"a", b"k", 0, b"a"])
@example({"a": {"k": 1}}, [b"a", 0, b"k"])
def test_subscripts_within_a_path_select_of_each_array(document: object, steps: list[bytes | int]) -> None:
    """Nested arrays are flattened, and a value that is no array is its own first element."""
    path = tuple(
        step
        for place, step in enumerate(steps)
        if isinstance(step, bytes) or (place and isinstance(steps[place - 1], bytes))
    )
    assume(path and isinstance(path[0], bytes) and isinstance(path[-1], bytes))
    message = json.dumps(document).encode()
    parsed, [values, *_] = read(message, [path, (b"a",), (b"a", b"k")])
    assert parsed
    assert_same(values, expected_of(reference.parse_json(message), path), path)


def test_subscripts_within_a_path_cost_time_in_proportion_to_the_message() -> None:
    opening = b'{"a":' + b"[" * 90
    message = opening * 10 + b"1" + b"]" * 90 + (b"}" + b"]" * 90) * 9 + b"}"
    assert read(message, [(b"a", 0) * 9 + (b"a",)]) == (True, [[1]])


FULL = b'{"z":[' + b"[]," * 2000 + b'1],"x":1}'
"""This message has more tokens than any window of another message."""


@EXAMPLES
@given(json_messages(), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.data())
@example(b'{"a":{"b":5,x', [0, 0], None)
@example(b'{"a":{"b":5,"d":1', [0, 0], None)
@example(b'{"a":{"b":5 5}}', [0, 0], None)
@example(b'{"a":{"b":5,"c":[{"c":1' + b" " * 1010 + b",,,", [0, 0, 0], None)
def test_nothing_of_an_earlier_message_remains(
    message: bytes, subscripts: list[int], data: st.DataObject | None
) -> None:
    """Damaged messages, and paths whose steps are values and first elements at once, which are read twice."""
    if data is not None and message:
        place = data.draw(st.integers(0, len(message) - 1))
        piece = data.draw(st.sampled_from([b"", b",", b"x", b"]", b"}", b'"', b" ", b"5"]))
        message = message[:place] + piece + message[place + data.draw(st.integers(0, len(message) - place)) :]
    names = (b"a", b"b", b"c", b"k")
    path = tuple(step for name, number in zip(names, subscripts, strict=False) for step in (name, number))
    for paths in ([(*path, b"c")], [(*path, b"c"), path[:-1], (b"a",)]):
        fields = FieldSet()
        slots = [fields.add(path) for path in paths]
        extractor, values = JsonExtractor(), FieldValues()
        assert extractor.read(FULL, fields, values)
        parsed = extractor.read(message, fields, values)
        assert (parsed, [list(values.values_of(slot)) for slot in slots]) == read(message, paths)


@EXAMPLES
@given(json_messages(), st.data())
def test_a_truncated_message_gives_right_values_or_is_unparsable(message: bytes, data: st.DataObject) -> None:
    document = reference.parse_json(message)
    paths = paths_of(document)
    wanted = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3, unique=True))
    for end in range(len(message.rstrip())):
        parsed, found = read(message[:end], wanted)
        if not parsed:
            continue
        if message[:end].strip():
            # The message was read as far as needed: all wanted fields were found.
            for path, values in zip(wanted, found, strict=True):
                assert_same(values, expected_of(document, path), (path, end))
        else:
            assert not any(found)


@EXAMPLES
@given(json_messages(), st.integers(0), st.binary(max_size=4), st.integers(0, 4))
def test_a_damaged_message_is_read_as_by_the_json_module_or_is_unparsable(
    message: bytes, place: int, put: bytes, cut: int
) -> None:
    at = place % (len(message) + 1)
    damaged = message[:at] + put + message[at + cut :]
    paths = paths_of(reference.parse_json(message))
    parsed, found = read(damaged, paths)
    try:
        document = reference.parse_json(damaged)
    except ValueError:
        return
    assert parsed
    for path, values in zip(paths, found, strict=True):
        assert_same(values, expected_of(document, path), path)


@EXAMPLES
@given(
    st.one_of(
        st.binary(max_size=80), st.text(alphabet='{}[]":,\\ \n1e.-tfnulraes', max_size=80).map(str.encode)
    )
)
def test_random_bytes_cause_no_crash(message: bytes) -> None:
    paths: list[Path] = [(b"a",), (b"a", b"b"), (b"a", 1, b"k"), (b"",)]
    for early_termination in (True, False):
        parsed, found = read(message, paths, early_termination)
        try:
            document = reference.parse_json(message)
        except ValueError:
            continue
        assert parsed
        if early_termination:
            for path, values in zip(paths, found, strict=True):
                assert_same(values, expected_of(document, path), path)


@EXAMPLES
@given(st.lists(st.tuples(st.sampled_from("abc"), documents | scalars), max_size=6))
def test_of_repeated_keys_the_first_or_the_last_counts(members: list[tuple[str, object]]) -> None:
    message = (
        "{" + ",".join(json.dumps(name) + ":" + json.dumps(value) for name, value in members) + "}"
    ).encode()
    backwards = (
        "{" + ",".join(json.dumps(name) + ":" + json.dumps(value) for name, value in members[::-1]) + "}"
    ).encode()
    for early_termination, said in ((True, message), (False, backwards)):
        document = reference.parse_json(said)
        paths = paths_of(reference.parse_json(message)) + paths_of(reference.parse_json(backwards))
        paths = list(dict.fromkeys(paths))
        parsed, found = read(message, paths, early_termination)
        assert parsed
        for path, values in zip(paths, found, strict=True):
            # Names within the values occur only once, so that only the order of the members differs.
            assert_same(values, expected_of(document, path), path)


def test_of_keys_repeated_at_several_levels_the_last_counts_at_each() -> None:
    message = b'{"o":{"a":1,"b":[2,3]},"a":4,"o":{"a":5,"a":6,"b":[7,{"b":8}],"b":9},"a":10,"b":[11,12]}'
    paths: list[Path] = [(b"o", b"a"), (b"o", b"b"), (b"a",), (b"b",), (b"o", b"b", b"b")]
    assert read(message, paths, early_termination=False) == (True, [[6], [9], [10], [11, 12], []])
    assert read(message, paths) == (True, [[1], [2, 3], [4], [11, 12], []])


def test_repeated_keys_cost_time_in_proportion_to_the_message() -> None:
    count = 200_000
    message = b'{"o":[' + b'{"a":1,"a":2},' * count + b"3]}"
    assert read(message, [(b"o", b"a")], early_termination=False) == (True, [[2] * count])
    names = [(b"%d" % number, b"a") for number in range(600)]
    message = b'{"0":' + b'{"a":1},"0":' * count + b'{"a":2}}'
    parsed, found = read(message, names, early_termination=False)
    assert parsed
    assert found[0] == [2]


def test_many_subscripts_cost_time_in_proportion_to_the_message() -> None:
    fields = FieldSet((b"a", number, b"x") for number in range(0, 100_000, 50))
    values = FieldValues()
    message = b'{"a":[' + b",".join(b'{"x":%d}' % number for number in range(200_000)) + b"]}"
    assert JsonExtractor().read(message, fields, values)
    assert [values.values_of(slot) for slot in range(fields.slot_count)] == [
        [number] for number in range(0, 100_000, 50)
    ]


def test_nested_objects_that_are_all_wanted_cost_time_in_proportion_to_the_message() -> None:
    paths: list[Path] = [(b"a",) * depth for depth in range(1, 900)]
    for leaf, expected in ((b"1", [...]), (b"[{}]", [])):
        message = b'{"a":' * 950 + b"[" + b"[]," * 1_000_000 + leaf + b"]" + b"}" * 950
        assert read(message, paths) == (True, [expected] * 899)


def test_a_container_has_a_value_if_there_is_a_leaf_in_it() -> None:
    """expressions.md §14.4, with leaves before the container, in it, and behind it."""
    paths: list[Path] = [(b"a",), (b"a", b"b"), (b"a", b"b", b"c"), (b"d",), (b"e",)]
    message = b'{"a":{"b":{"c":{}}},"d":{"x":[{}]},"e":{"y":1}}'
    assert read(message, paths) == (True, [[], [], [], [], [...]])
    message = b'{"e":{"y":[1]},"a":{"b":{"c":{}},"x":[0]},"d":{"x":{"y":null}}}'
    assert read(message, paths) == (True, [[...], [], [], [...], [...]])
    message = b'{"a":[{"b":[{"c":{}},{"c":{"x":"}"}}]},{"b":{}}],"d":1}'
    assert read(message, paths) == (True, [[...], [...], [...], [1], []])


@pytest.mark.parametrize("depth", [10, 500, 990])
def test_deep_messages_are_read(depth: int) -> None:
    message = b'{"a":' * depth + b"1" + b"}" * depth
    assert read(message, [(b"a",) * depth]) == (True, [[1]])
    message = b'{"a":' + b"[" * depth + b"1" + b"]" * depth + b"}"
    assert read(message, [(b"a",)]) == (True, [[1]])


@pytest.mark.parametrize("opening", [b'{"a":', b"[", b'{"b":', b'{"a":[', b'"'])
def test_messages_of_any_depth_cause_no_crash(opening: bytes) -> None:
    for message in (
        opening * 1_000_000,
        b'{"a":' + opening * 1_000_000,
        b'{"b":' + opening * 100_000 + b'}, "a":1}',
    ):
        read(message, [(b"a",), (b"a",) * 500, (b"a", 0, b"a")])


def test_skipped_values_may_have_any_depth() -> None:
    message = b'{"b":' + b"[" * 100_000 + b"]" * 100_000 + b',"a":1}'
    assert read(message, [(b"a",)]) == (True, [[1]])


@EXAMPLES
@given(st.text(max_size=30), st.binary(max_size=30))
def test_bytes_of_strings_are_unchanged(text: str, binary: bytes) -> None:
    """This includes invalid UTF-8."""
    assume(not set(b'"\\') & set(binary))
    message = b'{"a":"' + binary + b'","b":' + json.dumps(text).encode() + b"}"
    parsed, found = read(message, [(b"a",), (b"b",)])
    assert parsed
    assert found == [[binary or None], [text.encode("utf-8", "surrogatepass") or None]]


@pytest.mark.parametrize(
    ("opening", "expected"),
    [
        (b"", True),
        (b"  ", True),
        (b"{}", True),
        (b"[]", True),
        (b"1", True),
        (b"{", False),
        (b"}", False),
        (b"{}x", False),
    ],
)
def test_empty_messages_and_other_roots_have_no_fields(opening: bytes, expected: bool) -> None:
    assert read(opening, [(b"a",)]) == (expected, [[]])


def values_of(message: bytes, path: Path) -> list[object]:
    fields, values = FieldSet([path]), FieldValues()
    assert JsonExtractor().read(message, fields, values)
    return list(values.values_of(0))


def test_a_message_has_a_bounded_number_of_values() -> None:
    """Each value takes memory of its own, however short it is."""
    message = b'{"a":[' + b"1," * 5000 + b"1]}"
    assert JsonExtractor().read(message, FieldSet([(b"a",)]), FieldValues(nodes_max=6000))
    with pytest.raises(MemoryError, match="more than 5000 values"):
        JsonExtractor().read(message, FieldSet([(b"a",)]), FieldValues(nodes_max=5000))


@pytest.mark.parametrize(
    "message",
    [b'{"a":1,"b":tru}', b'{"a":1,"b":01}', b'{"b":"\\x","a":1}', b'{"a":1,"b":[1 2]}', b'{"a":1,"b":{]}', b'{"a":1}}',
     b'{"a":1,"b":[1,]}', b'{"a":1,"b":{"c"}}', b'{"a":1,"b":[}', b'{"a":1} x', b'{"a":1,"\\y":2}'],
)  # fmt: skip
def test_without_early_termination_everything_is_parsed(message: bytes) -> None:
    """expressions.md §12.3"""
    assert not JsonExtractor(early_termination=False).read(message, FieldSet([(b"a",)]), FieldValues())


@EXAMPLES
@given(json_messages(), st.data())
def test_without_early_termination_valid_messages_are_as_in_the_json_module(
    message: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(message)))
    damaged = (
        message[:at]
        + data.draw(st.sampled_from([b"", b",", b"]", b"}", b'"', b"1", b":"]))
        + message[at + 1 :]
    )
    for text in (message, damaged):
        try:
            json.loads(text.decode("latin-1"), strict=False, parse_constant=refuse)
            valid = True
        except ValueError:
            valid = False
        read = JsonExtractor(early_termination=False).read(text, FieldSet([(b"zzz",)]), FieldValues())
        assert read == (valid or not text.strip(b" \n\r\t")), text


def refuse(constant: str) -> object:
    raise ValueError(constant)


@pytest.mark.parametrize(
    "message", [b'{"b":{]}', b'{"a":1,"b":{]}', b'{"b":{"c":tru}}', b'{"b":[{"c":1 2}]}']
)
def test_a_container_that_is_wanted_is_parsed(message: bytes) -> None:
    assert not JsonExtractor().read(message, FieldSet([(b"b",)]), FieldValues())
