"""Deltas of proto2 and select lists of proto3 messages (sow.md §14, §17, §18), against the protobuf package."""

from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from amps._core.values.documents import Selection
from tests.unit.messages.document_models import Checked, Directive, Names
from tests.unit.messages.nested import EXAMPLES
from tests.unit.messages.protobuf_files import factory, kind, messages, repeated

FILE, TYPE = "second/two.proto", "two.All"
TWO = Checked(kind(FILE, TYPE).documents())
THREE = Checked(kind("three.proto", "three.All").documents())


def two(**fields: Any) -> Message:
    made: Message = factory(FILE, TYPE)(**fields)
    return made


def packed(message: Message) -> bytes:
    return message.SerializePartialToString(deterministic=True)


def shown(message: bytes, like: Message) -> bytes:
    """A message in the order of the package."""
    made = type(like)()
    made.MergeFromString(message)
    return packed(made)


def test_which_operations_there_are() -> None:
    """sow.md §14, §18: deltas of version 2, select lists of version 3."""
    assert (kind(FILE, TYPE).has_deltas, kind(FILE, TYPE).has_select_lists) == (True, False)
    three = kind("three.proto", "three.All")
    assert (three.has_deltas, three.has_select_lists) == (False, True)


def merge(stored: Message, delta: Message) -> Message:
    made = type(stored)()
    made.MergeFromString(TWO.merge(packed(stored), packed(delta)))
    return made


def test_merging_a_delta() -> None:
    stored = two(needed=1, bare="x", number=5, packed=[1, 2], loose=[3], part={"n": 1, "s": "y"}, alls=[{"needed": 1}])
    delta = two(number=6, bare="", packed=[7], part={"n": 2, "s": ""}, alls=[{"needed": 8}, {}], i64=-7)
    assert merge(stored, delta) == two(
        needed=1, bare="x", number=6, packed=[7], loose=[3], part={"n": 2, "s": "y"}, alls=[{"needed": 8}, {}], i64=-7
    )
    # A sub-message is a value even if it is empty.
    assert merge(two(needed=1), two(part={})) == two(needed=1, part={})
    assert merge(two(part={"n": 1}), two(part={"ns": [4]})) == two(part={"n": 1, "ns": [4]})
    # The length of a sub-message may get longer.
    assert merge(two(part={"s": "x"}), two(part={"s": "y" * 300})) == two(part={"s": "y" * 300})
    assert TWO.merge(b"", b"") == b""


def test_a_member_of_a_oneof_replaces_the_others() -> None:
    assert merge(two(one=5, needed=1), two(three={"n": 1})) == two(needed=1, three={"n": 1})
    assert merge(two(three={"n": 1}), two(one=5)) == two(one=5)
    assert merge(two(three={"n": 1}), two(three={"s": "x"})) == two(three={"n": 1, "s": "x"})
    assert TWO.merge(packed(two(one=5)), packed(two(three={"n": 1}))).count(b"\xa0\x01") == 0


def test_groups() -> None:
    stored = two(group={"n": 1, "texts": ["a"]}, groups=[{"n": 1}])
    delta = two(group={"texts": ["b", "c"]}, groups=[{"n": 2}, {"n": 3}])
    merged = two(group={"n": 1, "texts": ["b", "c"]}, groups=[{"n": 2}, {"n": 3}])
    assert merge(stored, delta) == merged
    body, changed = TWO.difference(packed(stored), packed(merged))
    assert changed
    assert shown(body, stored) == packed(delta)


def test_the_difference_of_two_states() -> None:
    """An unchanged default is not written; NULL cannot be written, so a field that was removed is a change only."""
    old = two(needed=1, bare="x", number=5, packed=[1], part={"n": 1, "s": "y"})
    new = two(needed=1, bare="x", number=6, packed=[1], part={"n": 1, "s": "z"}, b=True)
    body, changed = TWO.difference(packed(old), packed(new), "/needed", "/part/n")
    assert changed
    assert shown(body, old) == packed(two(needed=1, number=6, part={"n": 1, "s": "z"}, b=True))
    assert TWO.difference(packed(old), packed(old), "/needed") == (packed(two(needed=1)), False)
    assert TWO.difference(packed(old), packed(two(needed=1)), "/needed") == (packed(two(needed=1)), True)
    assert TWO.difference(packed(two(bare="")), b"") == (b"", False)


def test_fields_that_the_schema_lacks() -> None:
    """Unknown fields and other wire types have no path: they stay in the stored message, and deltas cannot set them."""
    unknown = b"\xf8\x3f\x05"  # field 1023
    other_type = b"\x6a\x01x"  # the number 13 with bytes
    stored = packed(two(needed=1)) + unknown + other_type
    assert TWO.merge(stored, b"\xf8\x3f\x06" + packed(two(number=2))) == stored + packed(two(number=2))
    assert TWO.difference(b"", stored) == (packed(two(needed=1)), True)


@pytest.mark.parametrize(
    "malformed",
    [
        b"\x08",
        b"\x08\x80",
        b"\x3a\x05x",
        b"\x00",
        b"\x0c",
        b"\x93\x01\x08\x01",
        # A sub-message in two pieces, and two members of a oneof.
        packed(two(part={"n": 1})) + packed(two(part={"s": "x"})),
        packed(two(one=1)) + packed(two(three={})),
    ],
)
def test_malformed_messages_are_refused(malformed: bytes) -> None:
    good = packed(two(needed=1, part={"n": 1}, three={"n": 1}))
    with pytest.raises(ValueError, match="cannot be parsed"):
        TWO.merge(good, malformed)
    with pytest.raises(ValueError, match="cannot be parsed"):
        TWO.difference(good, malformed)
    with pytest.raises(ValueError, match="cannot be parsed"):
        TWO.difference(malformed, good)
    if malformed != packed(two(one=1)) + packed(two(three={})):  # the delta decides which member counts
        with pytest.raises(ValueError, match="cannot be parsed"):
            TWO.merge(malformed, good)


def test_deep_messages() -> None:
    field = 17 << 3 | 2
    deep = b"\x08\x01"
    for _ in range(99):
        deep = bytes([field | 0x80, field >> 7]) + varint(len(deep)) + deep
    assert TWO.merge(deep, deep) == deep  # elements of arrays are not gone into
    three = b"\x28\x01"
    for depth in range(101):
        if depth == 99:
            assert THREE.select(three, "[-/i64]") == three
        three = b"\xaa\x01" + varint(len(three)) + three
    select = Selection([(False, (b"all",) * 200)])
    with pytest.raises(ValueError, match="cannot be parsed"):
        THREE.select(three, select)


def varint(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


# --- random messages --------------------------------------------------------------------------------------------


def merged_by(stored: Message, delta: Message) -> Message:
    made = type(stored)()
    made.CopyFrom(stored)
    for field, value in delta.ListFields():
        if field.is_extension or value in ("", b""):
            continue
        if repeated(field):
            made.ClearField(field.name)
            getattr(made, field.name).MergeFrom(value)
        elif field.message_type is None:
            setattr(made, field.name, value)
        else:
            part = merged_by(getattr(made, field.name), value)
            getattr(made, field.name).SetInParent()
            getattr(made, field.name).CopyFrom(part)
    return made


def alone(message: Message, name: str) -> bytes:
    """A field of a message by itself, as bytes."""
    made = type(message)()
    value = getattr(message, name)
    field = message.DESCRIPTOR.fields_by_name[name]
    if repeated(field):
        getattr(made, name).MergeFrom(value)
    elif not message.HasField(name):
        pass
    elif field.message_type is not None:
        getattr(made, name).CopyFrom(value)
        getattr(made, name).SetInParent()
    else:
        setattr(made, name, value)
    return packed(made)


def is_null(message: Message, name: str) -> bool:
    field = message.DESCRIPTOR.fields_by_name[name]
    return not repeated(field) and (not message.HasField(name) or getattr(message, name) in ("", b""))


def compared(old: Message, new: Message) -> tuple[Message, bool]:
    made = type(new)()
    changed = False
    for field, value in new.ListFields():
        name = field.name
        if field.message_type is not None and not repeated(field) and old.HasField(name):
            part, part_changed = compared(getattr(old, name), value)
            changed = changed or part_changed
            if part_changed:
                getattr(made, name).CopyFrom(part)
                getattr(made, name).SetInParent()
            continue
        if (is_null(old, name) and is_null(new, name)) or alone(old, name) == alone(new, name):
            continue
        changed = True
        made.MergeFromString(alone(new, name))
    there = {field.name for field, _ in new.ListFields()}
    removed = [field.name for field, _ in old.ListFields() if field.name not in there]
    return made, changed or not all(is_null(old, name) for name in removed)


MESSAGES = messages(FILE, TYPE)


@EXAMPLES
@given(MESSAGES, MESSAGES)
def test_random_deltas(stored: Message, delta: Message) -> None:
    merged = TWO.merge(packed(stored), packed(delta))
    assert shown(merged, stored) == packed(merged_by(stored, delta))


@EXAMPLES
@given(MESSAGES, MESSAGES)
def test_random_differences(old: Message, new: Message) -> None:
    for after in (new, merged_by(old, new), old):
        expected, changed = compared(old, after)
        body, found = TWO.difference(packed(old), packed(after))
        assert found is changed
        assert shown(body, old) == packed(expected)


STEPS = st.lists(st.sampled_from([b"s", b"leg", b"legs", b"all", b"n", b"one", b"i64", b"leg"]), max_size=3).map(tuple)


def reduce_to(message: Message, above: Names, chosen: dict[Names, bool], included: bool) -> bool:
    """Remove what is excluded. Return whether anything is left."""
    left = included
    for field, value in message.ListFields():
        path = (*above, field.name.encode())
        includes = chosen.get(path, included)
        below = any(len(other) > len(path) and other[: len(path)] == path for other in chosen)
        if field.message_type is None or not below:
            if not includes:
                message.ClearField(field.name)
            left = left or includes
        elif repeated(field):
            kept = []
            for part in value:
                holds = bool(part.ByteSize())
                if (reduce_to(part, path, chosen, includes) and holds) or includes:
                    kept.append(part.SerializeToString())
            message.ClearField(field.name)
            for part in kept:
                getattr(message, field.name).add().MergeFromString(part)
            left = left or bool(kept)
        else:
            holds = bool(value.ByteSize())
            if not ((reduce_to(value, path, chosen, includes) and holds) or includes):
                message.ClearField(field.name)
            else:
                left = True
    return left


@EXAMPLES
@given(messages("three.proto", "three.All"), st.lists(st.tuples(st.booleans(), STEPS), max_size=5))
def test_random_select_lists(message: Message, directives: list[Directive]) -> None:
    chosen: dict[Names, bool] = {}
    for included, path in directives:
        chosen.setdefault(path, included)
    left = THREE.select(packed(message), Selection(directives))
    reduce_to(message, (), chosen, chosen.get((), True))
    assert shown(left, message) == packed(message)
