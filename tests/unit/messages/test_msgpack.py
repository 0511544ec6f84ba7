"""MessagePack against the msgpack package: reading every form, writing, and malformed bytes (expressions.md §12.4)."""

import struct

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.values.fields import OMIT
from amps.messages.msgpack import MsgpackType
from amps.messages.settings import TypeSettings
from tests.support.reference_values import Object
from tests.unit.messages.nested import (
    EXAMPLES,
    GIVEN,
    Destination,
    assert_cut_off,
    assert_read,
    documents,
    equal,
    merged,
    paths_of,
)
from tests.unit.messages.reading import Path, matches, merge, read

MSGPACK = MsgpackType(TypeSettings("msgpack", "msgpack"), {})


def widest(place: object) -> bytes:
    """Every length and integer in its longest form, and texts that begin with a y as extensions."""
    if isinstance(place, Object):
        pairs = b"".join(
            struct.pack(">BI", 0xDB, len(name)) + name + widest(value) for name, value in place.items()
        )
        return struct.pack(">BI", 0xDF, len(place)) + pairs
    if isinstance(place, list):
        return struct.pack(">BI", 0xDD, len(place)) + b"".join(map(widest, place))
    if isinstance(place, bytes):
        if place.startswith(b"y"):
            return struct.pack(">BIb", 0xC9, len(place), 7) + place
        return struct.pack(">BI", 0xC6 if place.startswith(b"z") else 0xDB, len(place)) + place
    if isinstance(place, int) and not isinstance(place, bool):
        return struct.pack(">BQ", 0xCF, place) if place > 0 else struct.pack(">Bq", 0xD3, place)
    return bytes(msgpack.packb(place))


def narrowest(place: object) -> bytes:
    return bytes(msgpack.packb(place, use_bin_type=False))


def binaries(place: object) -> bytes:
    return bytes(msgpack.packb(place))


def document_of(message: bytes) -> Object:
    made = msgpack.unpackb(message, raw=True, object_pairs_hook=Object, strict_map_key=False)
    assert isinstance(made, Object)
    return made


@EXAMPLES
@given(documents(2**64 - 1), st.sampled_from([widest, narrowest, binaries]))
@example(Object({b"a": list(range(17)), b"b": [[1, [2]], Object({b"k": [Object({b"k": 3})]})]}), narrowest)
@example(Object({b"k%d" % number: Object({b"a": number}) for number in range(17)}), narrowest)
@example(Object({b"a": [None] * 70000}), narrowest)
@example(Object({b"a": b"x" * 255, b"b": b"x" * 256, b"k": b"x" * 70000}), binaries)
@example(Object({b"a": b"yy", b"k": [b"y", b"", b"z"]}), widest)
def test_every_path_is_found(document: Object, packed: object) -> None:
    assert callable(packed)
    assert_read(MSGPACK.extractor(), packed(document), document)


@pytest.mark.parametrize(
    "text",
    [
        "/n IS NULL",
        "/b = 1",
        "/i = 5",
        "/f = 5",
        "/s = 'x'",
        "/arr = 2",
        "/m/k = 1",
        "/e = 'ab'",
        "/nope IS NULL",
    ],
)
def test_filters(text: str) -> None:
    """expressions.md §15 item 41."""
    message = msgpack.packb(
        {
            "n": None,
            "b": True,
            "i": 5,
            "f": 5.0,
            "s": "x",
            "arr": [1, 2],
            "m": {"k": 1},
            "e": msgpack.ExtType(7, b"ab"),
        }
    )
    assert matches(MSGPACK.extractor(), message, text)
    assert not matches(MSGPACK.extractor(), message, f"NOT ({text})")


@pytest.mark.parametrize("length", [1, 2, 4, 8, 16, 3, 300, 70000])
def test_the_data_of_an_extension_is_a_string(length: int) -> None:
    message = msgpack.packb({"e": msgpack.ExtType(1, b"q" * length), "after": 1})
    assert read(MSGPACK.extractor(), message, [(b"e",), (b"after",)]) == [[b"q" * length], [1]]


def test_integer_keys_are_named_by_their_digits_and_other_types_have_no_name() -> None:
    message = msgpack.packb({7: 1, -2: 2, 2**64 - 1: 3, None: 4, 1.5: 5, True: 6, b"b": 7, (1, 2): 8, "z": 9})
    wanted: list[Path] = [(b"7",), (b"-2",), (b"18446744073709551615",), (b"b",), (b"z",), (b"1",), (b"nil",)]
    assert read(MSGPACK.extractor(), message, wanted) == [[1], [2], [3], [7], [9], [], []]


def test_floats_of_either_width() -> None:
    message = b"\x82\xa1a" + struct.pack(">Bf", 0xCA, 0.1) + b"\xa1b" + struct.pack(">Bd", 0xCB, 0.1)
    assert read(MSGPACK.extractor(), message, [(b"a",), (b"b",)]) == [
        [struct.unpack("f", struct.pack("f", 0.1))[0]],
        [0.1],
    ]


def test_of_a_repeated_key_the_first_counts() -> None:
    message = b"\x83\xa1a\x01\xa1a\x02\xa1b\x81\xa1a\x03"
    assert read(MSGPACK.extractor(), message, [(b"a",), (b"b", b"a")]) == [[1], [3]]
    assert read(MSGPACK.extractor(), message, [(b"a",)]) == [[1]]


def test_errors_behind_the_last_wanted_field_go_unnoticed() -> None:
    """expressions.md §12.3."""
    message = b"\x82\xa1a\x01\xc1\xc1"
    assert read(MSGPACK.extractor(), message, [(b"a",)]) == [[1]]
    assert read(MSGPACK.extractor(), message, [(b"a",), (b"b",)]) is None
    assert read(MSGPACK.extractor(), b"\x81\xa1a\x01\x00", [(b"b",)]) is None


@pytest.mark.parametrize("message", [b"", b"\x80", b"\x90", b"\x93\x01\x02\x03", b"\x05", b"\xc0"])
def test_empty_messages_and_other_roots_have_no_fields(message: bytes) -> None:
    assert read(MSGPACK.extractor(), message, [(b"a",)]) == [[]]


@EXAMPLES
@given(documents(2**64 - 1), st.sampled_from([widest, narrowest]), st.data())
def test_a_truncated_message_gives_right_values_or_is_unparsable(
    document: Object, packed: object, data: st.DataObject
) -> None:
    assert callable(packed)
    wanted = data.draw(st.lists(st.sampled_from(paths_of(document)), min_size=1, max_size=3, unique=True))
    assert_cut_off(MSGPACK.extractor(), packed(document), document, wanted)


@EXAMPLES
@given(documents(2**64 - 1), st.integers(0), st.binary(max_size=4), st.integers(0, 4), GIVEN)
def test_a_damaged_message_is_read_as_by_the_package_or_is_unparsable(
    document: Object, place: int, put: bytes, cut: int, given_fields: list[tuple[Destination, object]]
) -> None:
    message = narrowest(document)
    at = place % (len(message) + 1)
    check_hostile(message[:at] + put + message[at + cut :], paths_of(document), given_fields)


@EXAMPLES
@given(st.binary(max_size=60), GIVEN)
@example(b"\x81\xa1a\xdd\xff\xff\xff\xff", [])
@example(b"\xdf\xff\xff\xff\xff", [])
@example(b"\x81\xa1a\xdb\xff\xff\xff\xffx", [])
@example(b"\x81\xa1a\xc9\xff\xff\xff\xff\x01x", [])
def test_random_bytes_cause_no_crash(tail: bytes, given_fields: list[tuple[Destination, object]]) -> None:
    wanted: list[Path] = [(b"a",), (b"a", b"b"), (b"a", 1, b"k"), (b"k",)]
    for message in (tail, b"\x82\xa1a" + tail, b"\x81\xa1a\x92\x81\xa1b" + tail):
        check_hostile(message, wanted, given_fields)


def check_hostile(message: bytes, wanted: list[Path], given_fields: list[tuple[Destination, object]]) -> None:
    read(MSGPACK.extractor(), message, wanted)
    builder = MSGPACK.builder([path for path, _ in given_fields])
    values = [value for _, value in given_fields]
    try:
        document = msgpack.unpackb(message, raw=True, object_pairs_hook=first_counts, strict_map_key=False)
    except ValueError:  # other errors concern Python, which has no lists as keys and bounds the depth
        if message:
            try:
                merge(builder, message, values)
            except ValueError:
                return
        return
    except Exception:
        return
    if isinstance(document, Object):
        assert_read(MSGPACK.extractor(), message, without_extensions(document))
        changed = msgpack.unpackb(
            merge(builder, message, values), raw=True, object_pairs_hook=first_counts, strict_map_key=False
        )
        assert equal(without_extensions(changed), merged(without_extensions(document), given_fields))


def first_counts(pairs: list[tuple[object, object]]) -> Object:
    made = Object()
    for name, value in pairs:
        if isinstance(name, bytes | int) and not isinstance(name, bool):
            made.setdefault(name if isinstance(name, bytes) else str(name).encode(), value)
    return made


def without_extensions(place: object) -> object:
    if isinstance(place, Object):
        return Object({name: without_extensions(value) for name, value in place.items()})
    if isinstance(place, list):
        return [without_extensions(element) for element in place]
    if isinstance(place, msgpack.ExtType):
        return place.data
    return bytes(msgpack.packb(place))[2:] if isinstance(place, msgpack.Timestamp) else place


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\x81\xa1a\x91", b"\x81\x91\xa1a"])
def test_messages_of_any_depth_cause_no_crash(opening: bytes) -> None:
    for message in (opening * 300_000, b"\x81\xa1a" + opening * 300_000 + b"\x01"):
        read(MSGPACK.extractor(), message, [(b"a",), (b"a",) * 500, (b"a", 0, b"a")])
    with pytest.raises(ValueError, match="cannot be parsed"):
        MSGPACK.builder([(b"a",) * 500]).merge(opening * 300_000, [1])


@pytest.mark.parametrize("depth", [10, 500, 990])
def test_deep_messages_are_read(depth: int) -> None:
    assert read(MSGPACK.extractor(), b"\x81\xa1a" * depth + b"\x07", [(b"a",) * depth]) == [[7]]
    assert read(MSGPACK.extractor(), b"\x81\xa1a" + b"\x91" * depth + b"\x07", [(b"a",)]) == [[7]]


def test_skipped_values_may_have_any_depth() -> None:
    message = b"\x82\xa1b" + b"\x91" * 100_000 + b"\xc0\xa1a\x07"
    assert read(MSGPACK.extractor(), message, [(b"a",)]) == [[7]]


@EXAMPLES
@given(GIVEN)
@example([((b"a",), 2**64 - 1), ((b"b",), b"x" * 40), ((b"k",), b"x" * 300), ((b"new",), b"\xff" * 300)])
@example([((b"a",), b"x" * 70000), ((b"b",), b"\xff" * 70000)])
def test_built_messages_are_read_by_the_package(given_fields: list[tuple[Destination, object]]) -> None:
    made = MSGPACK.builder([path for path, _ in given_fields]).build([value for _, value in given_fields])
    document = merged(Object(), given_fields)
    assert equal(document_of(made), document)
    assert len(made) == len(msgpack.packb(textual(document)))


@pytest.mark.parametrize("count", [0, 15, 16, 65535, 65536])
def test_maps_of_every_size_are_built(count: int) -> None:
    names = [b"f%d" % number for number in range(count)]
    made = MSGPACK.builder([(name,) for name in names]).build(list(range(count)))
    assert made == msgpack.packb({name.decode(): number for number, name in enumerate(names)})


def textual(place: object) -> object:
    """Bytes that are UTF-8 as str, as the package needs for the shortest form. The empty string is NULL."""
    if isinstance(place, Object):
        return {textual(name): textual(value) for name, value in place.items()}
    if isinstance(place, bytes):
        try:
            return place.decode() or None
        except UnicodeDecodeError:
            return place
    return place


@EXAMPLES
@given(documents(2**64 - 1), st.sampled_from([widest, narrowest]), GIVEN)
@example(
    Object({b"n%d" % number: number for number in range(15)}), narrowest, [((b"a",), 1), ((b"b", b"k"), 2)]
)
@example(Object({b"n%d" % number: number for number in range(16)}), narrowest, [((b"n3",), OMIT)])
def test_a_merge_changes_the_named_fields(
    document: Object, packed: object, given_fields: list[tuple[Destination, object]]
) -> None:
    assert callable(packed)
    message = packed(document)
    made = merge(
        MSGPACK.builder([path for path, _ in given_fields]), message, [value for _, value in given_fields]
    )
    read_back = document_of(made)
    assert equal(without_extensions(read_back), merged(document, given_fields))


def test_a_merge_leaves_all_other_bytes_as_they_are() -> None:
    message = (
        b"\xde\x00\x03\xd9\x01a\xd3" + bytes(7) + b"\x01\xa1m\xdf\x00\x00\x00\x01\xa1k\xcd\x00\x07\xa1z\xc0"
    )
    assert MSGPACK.builder([(b"m", b"no"), (b"q",)]).merge(message, [OMIT, OMIT]) == message
    made = MSGPACK.builder([(b"m", b"k"), (b"z",)]).merge(message, [b"new", True])
    assert made == message[:-8] + b"\xa1k\xa3new\xa1z\xc3"


def test_a_merge_replaces_all_values_of_a_repeated_key() -> None:
    message = b"\x84\xa1a\x01\xa1b\x02\xa1a\x03\xa1a\x04"
    assert MSGPACK.builder([(b"a",)]).merge(message, [9]) == b"\x82\xa1a\x09\xa1b\x02"
    assert MSGPACK.builder([(b"a",)]).merge(message, [OMIT]) == b"\x81\xa1b\x02"


def test_a_merge_into_nothing_is_a_new_message() -> None:
    assert MSGPACK.builder([(b"a",)]).merge(b"", [1]) == b"\x81\xa1a\x01"
    for message in (b"\x90", b"\x81\xa1a\x01\x01", b"\x81\xa1a"):
        with pytest.raises(ValueError, match="cannot be parsed"):
            MSGPACK.builder([(b"a",)]).merge(message, [1])


def test_paths_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(ValueError, match="names only"):
        MSGPACK.builder([(b"a", 1, b"b")])
