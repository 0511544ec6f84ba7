"""Protobuf messages against the protobuf package (expressions.md §12.5).

Tested are fields found, presence and defaults, and malformed bytes.
"""

import gc
import struct
import weakref

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.values.fields import FieldSet, FieldValues
from tests.unit.messages.nested import EXAMPLES, agree
from tests.unit.messages.protobuf_files import factory, found_in, kind, messages, some_paths
from tests.unit.messages.reading import Path, matches, read, reader

THREE = ("three.proto", "three.All")
TWO = ("second/two.proto", "two.All")
PATHS = {which: some_paths(factory(*which).DESCRIPTOR) for which in (THREE, TWO)}


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def key(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def part(number: int, content: bytes) -> bytes:
    return key(number, 2) + varint(len(content)) + content


def check(which: tuple[str, str], message: bytes, paths: list[Path] | None = None) -> None:
    """Compare all paths together, and a few alone, with the package."""
    there = factory(*which).FromString(message)
    wanted = paths or PATHS[which]
    found = read(kind(*which).extractor(), message, wanted)
    assert found is not None
    for path, values in zip(wanted, found, strict=True):
        assert agree(values, found_in(there, path)), (path, values, found_in(there, path))
    for path in wanted[:: len(wanted) // 4 + 1]:
        [alone] = read(kind(*which).extractor(), message, [path]) or [[]]
        assert agree(alone, found_in(there, path)), path


@EXAMPLES
@given(st.data(), st.sampled_from([THREE, TWO]))
def test_every_path_is_found(data: st.DataObject, which: tuple[str, str]) -> None:
    check(which, data.draw(messages(*which)).SerializePartialToString())


@EXAMPLES
@given(st.data(), st.sampled_from([THREE, TWO]))
def test_messages_in_pieces_are_merged(data: st.DataObject, which: tuple[str, str]) -> None:
    """Fields that occur twice: the last scalar counts, sub-messages are merged, a oneof is set again."""
    pieces = data.draw(st.lists(messages(*which), min_size=2, max_size=4))
    check(which, b"".join(piece.SerializePartialToString() for piece in pieces))


SUBMESSAGES = st.sampled_from([19, 20, 21, 28, 29, 30, 31, 32, 33, 34])


@EXAMPLES
@given(
    st.recursive(
        st.just(b""),
        lambda below: st.lists(
            st.tuples(SUBMESSAGES, below).map(lambda made: part(*made))
            | st.tuples(st.sampled_from([1, 2, 4]), below).map(lambda made: part(*made))
            | st.integers(0, 3).map(lambda number: part(2, bytes([number])) + key(28, 0) + b"\1"),
            max_size=4,
        ).map(b"".join),
        max_leaves=20,
    )
)
@example(part(21, part(30, part(2, b"\1")) + part(31, part(20, part(2, b"\2"))) + part(30, part(2, b"\3"))))
@example(
    part(31, part(20, part(2, b"\1")) + part(33, part(20, part(2, b"\2")) + part(30, part(2, b"\2"))))
    + part(30, b"")
)
@example(part(31, part(21, part(30, part(2, b"\1"))) + part(21, part(30, part(2, b"\2")))) + part(32, b""))
def test_oneofs_that_are_set_again(message: bytes) -> None:
    try:
        factory(*THREE).FromString(message)
    except Exception:
        return
    check(THREE, message)


@pytest.mark.parametrize(
    ("which", "message", "text", "passes"),
    [
        # expressions.md §15 item 70
        (THREE, part(19, b""), "/leg IS NOT NULL", True),
        (THREE, b"", "/leg IS NOT NULL", False),
        (THREE, b"", "/i32 = 0", True),
        # §12.5: a member of a oneof that is present is not NULL, even if it is empty
        (THREE, part(32, b""), "/five IS NOT NULL AND /four IS NULL", True),
        (THREE, part(30, part(3, b"42")), "/three/s = '42' AND /two IS NULL", True),
        # §12.5: defaults count for filters; a field without one is NULL
        (THREE, b"", "/maybe IS NULL AND /s IS NULL AND /ints IS NULL AND /color = 0", True),
        (THREE, b"", "/leg/n IS NULL AND /one IS NULL", True),
        (THREE, part(19, b""), "/leg/n = 0 AND /leg/leg/n IS NULL", True),
        (
            TWO,
            b"",
            "/d = -1.5 AND /i64 = -7 AND /side = -1 AND /b = 1 AND /bare IS NULL AND /number IS NULL",
            True,
        ),
        (TWO, b"", "/u64 = 18446744073709551615 AND /far > 1e308 AND /none IS NAN", True),
        (TWO, b"", """/s = "it's \\"é\\"" """, True),
        (TWO, b"", "/y = 'a\\x01\\'\"\\\\\\xff\\n'", True),
        # §12.4: enums are integers, repeated fields arrays
        (THREE, key(12, 0) + varint(-5), "/color = -5", True),
        (THREE, part(22, b"\1\2") + key(22, 0) + b"\3", "/ints = 3 AND /ints[1] = 2", True),
        # §3: subscripts of repeated sub-messages
        (
            THREE,
            part(20, b"\x08\1") + part(20, b"\x08\2"),
            "/legs/n[1] = 2 AND /legs[1]/n = 2 AND /legs[2]/n IS NULL",
            True,
        ),
        (THREE, part(20, b"\x08\1") + part(20, b"\x08\2"), "/legs[1]/n = 1", False),
    ],
)
def test_filters(which: tuple[str, str], message: bytes, text: str, passes: bool) -> None:
    assert matches(kind(*which).extractor(), message, text) is passes


def test_a_float_default_is_of_single_precision() -> None:
    single = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert read(kind(*TWO).extractor(), b"", [(b"f",)]) == [[single]]


def test_maps_are_repeated_entries() -> None:
    maps = kind("three.proto", "three.Maps")
    entries = (
        part(1, part(1, b"k") + key(2, 0) + b"\7") + part(1, part(1, b"zero")) + part(1, key(2, 0) + b"\1")
    )
    paths: list[Path] = [
        (b"counts", b"key"),
        (b"counts", b"value"),
        (b"counts", 1, b"key"),
        (b"legs", b"value", b"n"),
    ]
    message = entries + part(2, key(1, 0) + b"\5" + part(2, b"\x08\6"))
    assert read(maps.extractor(), message, paths) == [[b"k", b"zero", None], [7, 0, 1], [b"zero"], [6]]


@pytest.mark.parametrize("which", [THREE, TWO])
def test_protobuf_messages_cannot_be_written(which: tuple[str, str]) -> None:
    """expressions.md §12.1"""
    with pytest.raises(ValueError, match="cannot be written"):
        kind(*which).builder([(b"one",)])


def test_fields_that_are_wanted_later_are_found() -> None:
    extractor = kind(*THREE).extractor()
    message = part(19, b"\x08\1" + part(4, b"\x08\2"))
    fields, values = FieldSet([(b"leg", b"n")]), FieldValues()
    assert extractor.read(message, fields, values)
    assert values.values_of(0) == [1]
    slot = fields.add((b"leg", b"leg", b"n"))
    assert extractor.read(message, fields, values)
    assert (values.values_of(0), values.values_of(slot)) == ([1], [2])


class Watched(FieldSet):
    """A set of fields that supports weak references."""


def test_plans_are_kept_for_topics_whose_messages_alternate() -> None:
    """Making a plan costs a thousand times the reading of a message."""
    extractor = kind(*THREE).extractor()
    message, values = part(19, b"\x08\1" + part(4, b"\x08\2")), FieldValues()
    one, other = FieldSet([(b"leg", b"n")]), FieldSet([(b"leg", b"leg", b"n")])
    for _ in range(3):
        assert extractor.read(message, one, values)
        assert values.values_of(0) == [1]
        assert extractor.read(message, other, values)
        assert values.values_of(0) == [2]
    assert extractor.plans.made == 2
    # An existing node may be wanted later.
    assert one.add((b"leg",)) == 1
    assert extractor.read(message, one, values)
    assert (values.values_of(0), values.values_of(1)) == ([1], [...])
    assert extractor.read(message, other, values)
    assert values.values_of(0) == [2]
    assert extractor.plans.made == 3


def test_plans_are_bounded_and_keep_no_unused_fields_alive() -> None:
    extractor = kind(*THREE).extractor()
    message, values = part(19, b"\x08\1"), FieldValues()
    there = [Watched([(b"leg", b"n")]) for _ in range(1030)]
    for fields in there:
        assert extractor.read(message, fields, values)
        assert values.values_of(0) == [1]
    assert extractor.plans.made == 1030
    for fields in there[-1024:]:
        assert extractor.read(message, fields, values)
    assert extractor.plans.made == 1030
    assert extractor.read(message, there[0], values)
    assert extractor.plans.made == 1031
    lives = [weakref.ref(fields) for fields in there]
    del there, fields
    last = FieldSet([(b"leg", b"n")])
    assert extractor.read(message, last, values)
    gc.collect()
    assert not any(reference() for reference in lives)


def nested(depth: int, innermost: bytes) -> bytes:
    for _ in range(depth):
        innermost = part(4, innermost)
    return part(19, innermost)


@pytest.mark.parametrize("depth", [1, 99, 900])
def test_deep_messages_are_read(depth: int) -> None:
    path = (b"leg",) * (depth + 1) + (b"n",)
    assert read(kind(*THREE).extractor(), nested(depth, b"\x08\7"), [path]) == [[7]]
    # Unwanted fields are not read.
    assert read(kind(*THREE).extractor(), nested(depth, b"\xff") + key(5, 0) + b"\1", [(b"i32",)]) == [[1]]


GROUP, GROUP_END = key(99, 3), key(99, 4)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (key(5, 0) + b"\1", [1]),
        (key(5, 0) + b"\xff" * 9 + b"\1", [-1]),
        (key(5, 0) + b"\xff" * 10 + b"\1", None),
        (key(5, 0) + b"\x80", None),
        (key(5, 0), None),
        (key(5, 5) + b"\1\2\3\4", [0]),  # with another wire type it is another field
        (key(5, 6), None),
        (key(5, 7), None),
        (b"\0\0", None),
        (b"\2\0", None),
        (b"\xff\xff\xff\xff\x7f\0", None),
        (key(99, 1) + bytes(7), None),
        (key(99, 5) + bytes(3), None),
        (key(99, 2) + b"\5x", None),
        (key(99, 2) + b"\xff" * 9 + b"\1", None),
        (GROUP + GROUP_END + key(5, 0) + b"\1", [1]),
        (GROUP + key(5, 0) + b"\2" + GROUP_END, [0]),
        (GROUP * 100 + GROUP_END * 100, [0]),
        (GROUP * 101 + GROUP_END * 101, None),
        (GROUP + key(98, 4), None),
        (GROUP, None),
        (GROUP_END, None),
        (GROUP + part(5, b"x") + GROUP_END, [0]),
        (GROUP + key(5, 2) + b"\xff" + GROUP_END, None),
        (GROUP * 1_000_000, None),
    ],
)
def test_lengths_and_keys_are_checked(message: bytes, found: list[object] | None) -> None:
    read_back = read(kind(*THREE).extractor(), message, [(b"i32",)])
    assert (read_back and read_back[0]) == found


@pytest.mark.parametrize("content", [b"\x80", b"\1\x80", key(1, 0), b"\xff"])
def test_wanted_contents_are_checked(content: bytes) -> None:
    assert read(kind(*THREE).extractor(), part(22, content), [(b"ints",)]) is None or content == key(1, 0)
    assert read(kind(*THREE).extractor(), part(19, content), [(b"leg", b"n")]) is None
    assert read(kind(*THREE).extractor(), part(19, content), [(b"leg",)]) == [[...]]


def test_packed_numbers_of_fixed_size_are_whole() -> None:
    assert read(kind(*THREE).extractor(), part(24, bytes(15)), [(b"doubles",)]) is None
    assert read(kind(*THREE).extractor(), part(24, bytes(16)), [(b"doubles",)]) == [[0.0, 0.0]]


def test_defaults_of_empty_messages_are_bounded() -> None:
    """An empty message takes two bytes, and has a default for every wanted field."""
    empty = part(35, b"")
    paths: list[Path] = [
        (b"alls", name) for name in (b"d", b"f", b"i64", b"u64", b"i32", b"x64", b"b", b"color")
    ]
    found = read(kind(*THREE).extractor(), empty * 50_000, paths)
    assert found is not None
    assert [len(values) for values in found] == [50_000] * 8
    assert read(kind(*THREE).extractor(), empty * 500_000, paths) is None


@EXAMPLES
@given(messages(*THREE), st.integers(0), st.binary(max_size=4), st.integers(0, 4))
def test_damaged_messages_are_read_as_by_the_package(made: object, place: int, put: bytes, cut: int) -> None:
    message = made.SerializeToString()  # type: ignore[attr-defined]
    at = place % (len(message) + 1)
    check_hostile(message[:at] + put + message[at + cut :])


@EXAMPLES
@given(st.binary(max_size=40))
def test_random_bytes_cause_no_crash(message: bytes) -> None:
    check_hostile(message)
    check_hostile(part(19, message) + part(20, message) + part(31, message))


def check_hostile(message: bytes) -> None:
    """A message that the package reads has the same values here.

    The package may refuse more: bad text and unwanted fields.
    """
    try:
        factory(*THREE).FromString(message)
    except Exception:
        read(kind(*THREE).extractor(), message, PATHS[THREE])
        return
    check(THREE, message)


@EXAMPLES
@given(messages(*TWO))
def test_a_truncated_message_causes_no_crash(made: object) -> None:
    message = made.SerializePartialToString()  # type: ignore[attr-defined]
    read_part = reader(kind(*TWO).extractor(), PATHS[TWO])
    for end in range(len(message)):
        read_part(message[:end])
