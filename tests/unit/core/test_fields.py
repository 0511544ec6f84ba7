"""The tree of wanted fields, and the values that the JSON extractor finds along it (expressions.md §3, §9, §12)."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues

Path = tuple[bytes | int, ...]


def path_of(text: str) -> Path:
    """A path from text such as `o/c/1/k`, in which digits are subscripts."""
    return tuple(int(step) if step.isdigit() else step.encode() for step in text.split("/"))


def found(message: bytes, *paths: str, early_termination: bool = True) -> list[list[Any]] | None:
    """The values at each path, or None if the message cannot be parsed."""
    fields = FieldSet(path_of(path) for path in paths)
    values = FieldValues()
    if not JsonExtractor(early_termination).read(message, fields, values):
        return None
    return [values.values_of(fields.paths.index(path_of(path))) for path in paths]


# --- the tree ---------------------------------------------------------------------------------------------


def test_slots_are_numbered_in_order_and_stay() -> None:
    fields = FieldSet()
    paths = [(b"f%d" % number, b"g" * (number % 40 + 1)) for number in range(3000)]
    assert [fields.add(path) for path in paths] == list(range(3000))
    assert [fields.add(path) for path in reversed(paths)] == list(reversed(range(3000)))
    assert fields.slot_count == 3000
    assert fields.paths == tuple(paths)


@pytest.mark.parametrize("path", [(), (b"a", 1), (1,), (b"x",) * 1001])
def test_malformed_paths_are_refused(path: Path) -> None:
    fields = FieldSet([(b"a",)])
    with pytest.raises(ValueError, match="no path"):
        fields.add(path)
    assert fields.slot_count == 1


@given(st.sets(st.binary(max_size=12), min_size=1, max_size=60), st.data())
def test_names_that_look_alike_are_told_apart(names: set[bytes], data: st.DataObject) -> None:
    """Names may collide in the table. Each one finds its own slot, and unknown names find none."""
    wanted = data.draw(st.sets(st.sampled_from(sorted(names)), min_size=1))
    fields = FieldSet((name,) for name in sorted(wanted))
    message = json.dumps({name.decode("latin-1"): 1 for name in names}, ensure_ascii=False)
    values = FieldValues()
    # Escapes and control characters too: json.dumps escapes them, the tree has the plain bytes.
    wanted_utf8 = FieldSet((name.decode("latin-1").encode(),) for name in sorted(wanted))
    assert JsonExtractor().read(message.encode(), wanted_utf8, values)
    assert [values.values_of(slot) for slot in range(wanted_utf8.slot_count)] == [[1]] * len(wanted)
    assert fields.slot_count == wanted_utf8.slot_count


def test_values_are_those_of_the_last_message() -> None:
    fields, values, extractor = FieldSet([(b"a",), (b"b",)]), FieldValues(), JsonExtractor()
    assert extractor.read(b'{"a":[1,2,3],"b":"x"}', fields, values)
    assert [values.values_of(0), values.values_of(1)] == [[1, 2, 3], [b"x"]]
    assert extractor.read(b'{"b":[]}', fields, values)
    assert [values.values_of(0), values.values_of(1)] == [[], []]
    fields.add((b"c",))
    assert extractor.read(b'{"c":1,"a":2}', fields, values)
    assert [values.values_of(slot) for slot in range(3)] == [[2], [], [1]]
    with pytest.raises(IndexError):
        values.values_of(3)


# --- JSON -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "path", "values"),
    [
        (b'{"a":1}', "a", [1]),
        (b' \t\r\n{ "a" : 1 } \n', "a", [1]),
        (b'{"a":-0.5e3}', "a", [-500.0]),
        (b'{"a":true,"b":false}', "b", [False]),
        (b'{"a":null}', "a", [None]),
        (b'{"a":""}', "a", [None]),
        (b'{"a":[]}', "a", []),
        (b'{"a":[1,[2,[3]],[],null,"x"]}', "a", [1, 2, 3, None, b"x"]),
        (b'{"a":{"b":1}}', "a", [...]),
        (b'{"a":{}}', "a", []),
        (b'{"a":{"b":[{},[ ]]}}', "a", []),
        (b'{"a":{"b":[{},[ null]]}}', "a", [...]),
        (b'{"a":{"b" : "x"}}', "a", [...]),
        (b'{"a":{"b":{"c":"x"}}}', "a/b/c", [b"x"]),
        (b'{"o":[{"k":"a"},{"j":1},{"k":["b","c"]}]}', "o/k", [b"a", b"b", b"c"]),
        (b'{"o":[{"k":"a"},{"k":"b"}]}', "o/1/k", [b"b"]),
        (b'{"o":[{"k":"a"},{"k":"b"}]}', "o/2/k", []),
        (b'{"o":[[{"k":1},{"k":2}],[{"k":3}]]}', "o/0/k", [1]),
        (b'{"o":[[{"k":1},{"k":2}],[{"k":3}]]}', "o/2/k", [3]),
        (b'{"o":[{"c":[{"k":1},{"k":2}]},{"c":[{"k":3}]}]}', "o/c/0/k", [1, 3]),
        (b'{"o":{"k":"a"}}', "o/0/k", [b"a"]),
        (b'{"o":{"k":"a"}}', "o/1/k", []),
        (b'{"z":{"a":1},"y":[{"a":2}],"a":3}', "a", [3]),
        (b'{"z":"\\"a\\":9,","a":3}', "a", [3]),
        (b'{"z":"}","y":["]","{"],"a":3}', "a", [3]),
        (b'{"a":"\\u0041\\n\\ud83d\\ude00"}', "a", ["A\n\U0001f600".encode()]),
        (b'{"\\u0061":1}', "a", [1]),
        (b"[1,2]", "a", []),
        (b"7", "a", []),
        (b"", "a", []),
        (b"  ", "a", []),
        (b"{}", "a", []),
    ],
)
def test_expressions_fields_of_json(message: bytes, path: str, values: list[Any]) -> None:
    """expressions.md §9, §12.4"""
    assert found(message, path) == [values]


def test_expressions_43_of_a_repeated_key_the_first_counts() -> None:
    """expressions.md §12.3, §15 43: this also holds when the whole message is read."""
    message = b'{"a":1,"o":{"x":1,"y":2},"a":[2,3],"o":{"x":3,"z":4},"a":4}'
    assert found(message, "a", "o/x", "o/y", "o/z", "none") == [[1], [1], [2], [], []]


def test_expressions_43_without_early_termination_the_last_counts() -> None:
    """expressions.md §12.3, §15 43"""
    message = b'{"a":1,"o":{"x":1,"y":2},"l":[{"x":1,"x":2},{"x":3}],"a":[2,3],"o":{"x":3,"z":4},"a":[4,5]}'
    assert found(message, "a", "o/x", "o/y", "o/z", "l/x", early_termination=False) == [
        [4, 5],
        [3],
        [],
        [4],
        [2, 3],
    ]


def test_expressions_47_errors_behind_the_last_wanted_field_go_unnoticed() -> None:
    """expressions.md §12.3, §15 47: once all fields are found; an array that has begun is read to its end."""
    assert found(b'{"id":1,"x":2} trailing', "id") == [[1]]
    assert found(b'{"id":1,!', "id") == [[1]]
    assert found(b'{"id":1,"o":{"x":2,!', "id", "o/x") == [[1], [2]]
    assert found(b'{"id":1,"x":2} trailing', "id", "none") is None
    assert found(b'{"id":1,"x":2} trailing', "id", early_termination=False) is None
    assert found(b'{"l":[{"x":1},!', "l/x") is None


@pytest.mark.parametrize(
    "message",
    [
        b"{", b'{"', b'{"a', b'{"a"', b'{"a":', b'{"a":1', b'{"a":true', b'{"a":1,', b'{"a":1,}',
        b'{"b":1 "a":2}', b'{"b"1,"a":2}', b'{b:1}', b"{,}", b'{"a":01}', b'{"a":+1}', b'{"a":1.}',
        b'{"a":.5}', b'{"a":1e}', b'{"a":-}', b'{"a":tru}', b'{"a":nulll}', b'{"a":x}', b'{"a":"x}',
        b'{"a":"\\q"}', b'{"a":"\\u12g4"}', b'{"a":"\\', b'{"\\q":1}', b'{"a":[1}', b'{"a":[1,]}',
        b'{"a":[1 2]}', b'{"a":[', b'{"b":"x', b'{"b":{', b'{"b":["]}', b'{"b":x}', b'{"b":,"a":1}', b"x",
        b'"x', b"[1",
    ],
)  # fmt: skip
def test_expressions_46_malformed_messages_are_noticed(message: bytes) -> None:
    """expressions.md §12.3: as far as the message is read, which is to its end if a field is missing."""
    assert found(message, "a", "none") is None


@example(b'{"a":1}', 0)
@given(st.binary(max_size=60), st.integers(0, 20))
def test_any_bytes_are_survived(message: bytes, depth: int) -> None:
    nested = b'{"a":' * depth + message + b"}" * depth
    found(nested, "a", "a/a/a", "a/0/b")
    found(nested, "a", "a/a/a", "a/0/b", early_termination=False)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_deep_nesting_is_skipped_or_refused(opening: bytes) -> None:
    """Unwanted values may have any depth; wanted ones must not exhaust the stack."""
    closing = opening.replace(b'{"a":', b"}").replace(b"[", b"]")[::-1]
    deep = opening * 200_000 + b"1" + closing * 200_000
    assert found(b'{"z":' + deep + b',"a":5}', "a") == [[5]]
    wanted = "/".join("a" * 900)
    assert found(b'{"a":' + opening * 300 + b"1" + closing * 300 + b"}", wanted) == [[]]
    assert found(b'{"a":' + deep + b"}", wanted) is None or opening == b'{"a":'


def test_a_number_cut_off_is_malformed() -> None:
    """`12` cut to `1` must not be read as 1."""
    for cut in range(1, 8):
        assert found(b'{"a":12}'[:cut], "a") is None
