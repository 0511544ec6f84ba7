"""Deltas and select lists of MessagePack and BSON messages (sow.md §14, §17, §18), against plain Python."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.values.documents import Selection
from amps.messages.bson import BsonType
from amps.messages.msgpack import MsgpackType
from amps.messages.settings import TypeSettings
from tests.support.reference_values import Object
from tests.unit.messages import test_bson, test_msgpack
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


@dataclass(frozen=True)
class Format:
    """A message type, with an implementation of it by others."""

    checked: Checked
    packed: Callable[[object], bytes]
    unpacked: Callable[[bytes], Object]

    def merge(self, stored: Object, delta: Object) -> Object:
        return self.unpacked(self.checked.merge(self.packed(stored), self.packed(delta)))


def packed_value(place: object) -> bytes:
    return test_bson.packed(Object({b"value": place}))


def unpacked(message: bytes) -> Object:
    """A MessagePack document, extensions as the text that they hold."""
    made = msgpack.unpackb(
        message, raw=True, object_pairs_hook=Object, strict_map_key=False, ext_hook=lambda _, data: data
    )
    assert isinstance(made, Object)
    return made


MSGPACK = Format(
    Checked(MsgpackType(TypeSettings("msgpack", "msgpack"), {}).documents()), test_msgpack.binaries, unpacked
)
WIDE = Format(MSGPACK.checked, test_msgpack.widest, unpacked)
BSON = Format(
    Checked(BsonType(TypeSettings("bson", "bson"), {}).documents()), test_bson.packed, test_bson.document_of
)
FORMATS = [MSGPACK, WIDE, BSON]
FORMAT = st.sampled_from(FORMATS)
DOCUMENTS = documents(names=test_bson.BSON_NAMES)


def assert_same(found: Object, expected: Object) -> None:
    assert equal(found, expected), (found, expected)
    assert in_order(found, expected), (found, expected)


def object_of(**members: object) -> Object:
    return Object({name.encode(): value for name, value in members.items()})


@pytest.mark.parametrize("kind", FORMATS)
def test_merging_a_delta(kind: Format) -> None:
    """sow.md §25 items 23 to 26."""
    stored = object_of(id=1, a=4, q=object_of(x=1, y=2), l=[1, 2, 3], c=object_of(p=[object_of(m=1)], z=0))
    delta = object_of(
        id=1, a=None, new=b"n", q=object_of(x=9, y=b""), l=[7], c=object_of(p=[object_of(k=3)]), o=object_of(v=None)
    )
    merged = object_of(
        id=1, a=4, q=object_of(x=9, y=2), l=[7], c=object_of(p=[object_of(k=3)], z=0), new=b"n"
    )
    assert_same(kind.merge(stored, delta), merged)
    # D11: another type.
    assert_same(kind.merge(object_of(a=object_of(x=1)), object_of(a=5)), object_of(a=5))
    assert_same(
        kind.merge(object_of(a=5), object_of(a=object_of(x=1, y=None))), object_of(a=object_of(x=1))
    )
    # The number of members decides on the length of a head.
    many = Object({b"k%d" % number: number for number in range(15)})
    assert_same(kind.merge(many, object_of(new=1)), Object({**many, b"new": 1}))
    assert kind.unpacked(kind.checked.merge(b"", kind.packed(object_of(a=1, b=None)))) == object_of(a=1)
    assert kind.checked.merge(kind.packed(stored), b"") == kind.packed(stored)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_difference_of_two_states(kind: Format) -> None:
    """sow.md §25 items 30 and 31; D10."""
    old = object_of(id=1, a=5, b=2, q=object_of(x=1, y=2), r=4, n=None)
    new = object_of(id=1, a=5, b=3, q=object_of(x=1, y=3), e=b"")
    body, changed = kind.checked.difference(kind.packed(old), kind.packed(new), "/id")
    assert changed
    assert_same(kind.unpacked(body), object_of(id=1, b=3, q=object_of(y=3), r=None))
    assert kind.checked.difference(kind.packed(old), kind.packed(old), "/id") == (
        kind.packed(object_of(id=1)), False,
    ) or kind is WIDE  # fmt: skip
    body, changed = kind.checked.difference(kind.packed(old), b"", "/id")
    assert_same(kind.unpacked(body), object_of(id=None, a=None, b=None, q=None, r=None))


@pytest.mark.parametrize("kind", FORMATS)
def test_select_lists(kind: Format) -> None:
    """sow.md §25 item 39. Elements of arrays keep their places."""
    elements = [object_of(x=1, y=2), 5, [object_of(y=3), b"s"]]
    message = kind.packed(object_of(id=1, n=object_of(a=2, b=3), x=4, L=elements))

    def left(directives: str) -> Object:
        return kind.unpacked(kind.checked.select(message, directives))

    assert_same(left("[-/,+/id,+/n/a]"), object_of(id=1, n=object_of(a=2)))
    assert_same(left("[-/n,-/L,+/n/a]"), object_of(id=1, n=object_of(a=2), x=4))
    assert_same(left("[-/]"), Object())
    assert_same(left("[-/,+/L/y]"), object_of(L=[object_of(y=2), None, [object_of(y=3), None]]))
    assert_same(left("[-/,+/L,-/L/y]"), object_of(L=[object_of(x=1), 5, [Object(), b"s"]]))
    assert_same(left("[-/,+/L/z]"), Object())
    assert kind.checked.select(b"", "[-/]") == b""


def test_keys_that_are_no_names() -> None:
    """An integer key has its digits as its name; a pair with any other key has no path."""
    kind = MSGPACK.checked
    stored = msgpack.packb({1: "a", None: 2, 1.5: 3, "b": {-7: 1}})
    delta = msgpack.packb({"1": "z", None: 9, 2.5: 9, "b": {-7: 2}})
    merged = {1: "z", None: 2, 1.5: 3, "b": {-7: 2}}
    assert msgpack.unpackb(kind.merge(stored, delta), strict_map_key=False) == merged
    body, changed = kind.difference(stored, msgpack.packb(merged), "/b")
    assert changed
    assert msgpack.unpackb(body, strict_map_key=False) == {1: "z", "b": {-7: 2}}
    assert msgpack.unpackb(kind.select(stored, "[-/b]"), strict_map_key=False) == {1: "a", None: 2, 1.5: 3}
    assert msgpack.unpackb(kind.select(stored, "[-/,+/1]"), strict_map_key=False) == {1: "a"}


def test_of_a_repeated_key_the_first_pair_counts() -> None:
    kind = MSGPACK.checked
    assert kind.merge(b"\x83\xa1a\x01\xa1k\x00\xa1a\x02", b"\x82\xa1a\x08\xa1a\x09") == b"\x82\xa1a\x08\xa1k\x00"
    assert kind.difference(b"\x82\xa1a\x01\xa1a\x02", b"\x82\xa1a\x01\xa1a\x03") == (b"\x80", False)
    assert kind.select(b"\x83\xa1a\x01\xa1b\x02\xa1a\x03", "[-/a]") == b"\x81\xa1b\x02"


@pytest.mark.parametrize(
    ("kind", "malformed"),
    [
        (MSGPACK, b"\x01"),
        (MSGPACK, b"\x90"),
        (MSGPACK, b"\x81\xa1a"),
        (MSGPACK, b"\x81\xa1a\xc1"),
        (MSGPACK, b"\x80\x00"),
        (MSGPACK, b"\xdf\xff\xff\xff\xff"),
        (MSGPACK, b"\x81\xa1a\xdd\xff\xff\xff\xff"),
        (BSON, b"\x05\0\0\0"),
        (BSON, b"\x06\0\0\0\0"),
        (BSON, b"\x05\0\0\0\1"),
        (BSON, b"\x07\0\0\0\x08a\0"),
        (BSON, struct.pack("<I", 12) + b"\x03a\0\xff\0\0\0\0"),
    ],
)
def test_malformed_messages_are_refused(kind: Format, malformed: bytes) -> None:
    good = kind.packed(object_of(a=1, b=object_of(c=2)))
    for first, second in ((malformed, good), (good, malformed)):
        with pytest.raises(ValueError, match="cannot be parsed"):
            kind.checked.merge(first, second)
        with pytest.raises(ValueError, match="cannot be parsed"):
            kind.checked.difference(first, second)
    with pytest.raises(ValueError, match="cannot be parsed"):
        kind.checked.select(malformed, "-/b")


def msgpack_map(members: dict[bytes, int]) -> bytes:
    pairs = b"".join(bytes([0xA0 | len(name)]) + name + bytes([value]) for name, value in members.items())
    return struct.pack(">BI", 0xDF, len(members)) + pairs


def bson_document(members: dict[bytes, int]) -> bytes:
    content = b"".join(b"\x10" + name + struct.pack("<xi", value) for name, value in members.items())
    return struct.pack("<I", len(content) + 5) + content + b"\0"


@pytest.mark.parametrize(("kind", "packed"), [(MSGPACK, msgpack_map), (BSON, bson_document)])
def test_objects_of_many_members(kind: Format, packed: Callable[[dict[bytes, int]], bytes]) -> None:
    """A search member by member would take minutes."""
    names = [b"field%d" % number for number in range(100_000)]
    stored = packed(dict.fromkeys(names, 1))
    delta = packed({**dict.fromkeys(reversed(names), 2), b"new": 3})
    merged = kind.checked.merge(stored, delta)
    assert merged == packed({**dict.fromkeys(names, 2), b"new": 3})
    assert kind.checked.difference(delta, merged) == (kind.packed(Object()), False)


def test_deep_messages() -> None:
    deep = b"\x81\xa1a" * 1000 + b"\x01"
    assert MSGPACK.checked.merge(deep, deep[:-1] + b"\x02") == deep[:-1] + b"\x02"
    too_deep = b"\x81\xa1a" * 1001 + b"\x01"
    with pytest.raises(ValueError, match="cannot be parsed"):
        MSGPACK.checked.merge(too_deep, too_deep)
    arrays = b"\x82\xa1k\x00\xa1a" + b"\x91" * 200_000 + b"\x90"
    assert MSGPACK.checked.merge(arrays, b"\x81\xa1k\x01") == arrays.replace(b"k\x00", b"k\x01")
    with pytest.raises(ValueError, match="cannot be parsed"):
        MSGPACK.checked.select(arrays, "[-/a/b]")
    content = b"\x08a\0\1"
    for _ in range(1001):
        content = b"\x03a\0" + struct.pack("<I", len(content) + 5) + content + b"\0"
    nested = struct.pack("<I", len(content) + 5) + content + b"\0"
    with pytest.raises(ValueError, match="cannot be parsed"):
        BSON.checked.difference(nested, nested)


# --- random documents -------------------------------------------------------------------------------------------


@EXAMPLES
@given(FORMAT, DOCUMENTS, DOCUMENTS, st.data())
def test_random_deltas(kind: Format, stored: Object, delta: Object, data: st.DataObject) -> None:
    assert_same(kind.merge(stored, delta), merged_by(stored, delta))
    before, given_ = kind.packed(stored), kind.packed(delta)
    cut = data.draw(st.integers(1, len(before) - 1)) if len(before) > 1 else 0
    if cut:
        with pytest.raises(ValueError, match="cannot be parsed"):
            kind.checked.merge(before[:cut], given_)
    cut = data.draw(st.integers(1, len(given_) - 1)) if len(given_) > 1 else 0
    if cut:
        with pytest.raises(ValueError, match="cannot be parsed"):
            kind.checked.merge(before, given_[:cut])


@EXAMPLES
@given(FORMAT, DOCUMENTS, DOCUMENTS, KEYS)
def test_random_differences(kind: Format, old: Object, new: Object, keys: Sequence[Names]) -> None:
    for after in (new, merged_by(old, new)):
        expected, changed = compared(old, after, keys, packed_value)
        body, found = kind.checked.difference(kind.packed(old), kind.packed(after), *keys)
        assert found is changed
        assert_same(kind.unpacked(body), expected)


@EXAMPLES
@given(FORMAT, DOCUMENTS, DIRECTIVES, DIRECTIVES)
def test_random_select_lists(
    kind: Format, document: Object, first: Sequence[Directive], second: Sequence[Directive]
) -> None:
    once = kind.checked.select(kind.packed(document), Selection(first))
    assert_same(kind.unpacked(once), selected(document, first))
    assert_same(
        kind.unpacked(kind.checked.select(once, Selection(second))), selected(selected(document, first), second)
    )


@EXAMPLES
@given(FORMAT, DOCUMENTS, DOCUMENTS, st.data())
def test_damaged_messages_are_refused_or_give_messages(
    kind: Format, stored: Object, delta: Object, data: st.DataObject
) -> None:
    """Whatever the damage is: what comes out can be read again by the same operations."""
    before = bytearray(kind.packed(stored))
    before[data.draw(st.integers(0, len(before) - 1))] = data.draw(st.integers(0, 255))
    try:
        merged = kind.checked.merge(bytes(before), kind.packed(delta))
        kind.checked.difference(bytes(before), merged)
        left = kind.checked.select(bytes(before), "[-/a,+/a/b,-/k/b]")
    except ValueError:
        return
    kind.checked.merge(merged, merged)
    kind.checked.select(left, "[-/]")
