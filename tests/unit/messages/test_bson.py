"""BSON against the bson package: reading, writing, and malformed bytes (expressions.md §12.4)."""

import datetime
import struct

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.son import SON
from bson.timestamp import Timestamp
from hypothesis import assume, example, given
from hypothesis import strategies as st

from amps._core.values.fields import OMIT
from amps.messages.bson import BsonType
from amps.messages.settings import TypeSettings
from tests.support.reference_values import Object
from tests.unit.messages.nested import (
    EXAMPLES,
    GIVEN,
    NAMES,
    Destination,
    assert_cut_off,
    assert_read,
    documents,
    equal,
    merged,
    paths_of,
)
from tests.unit.messages.reading import Found, Path, matches, merge, read

BSON = BsonType(TypeSettings("bson", "bson"), {})
BSON_NAMES = NAMES.filter(lambda name: b"\0" not in name)
DOCUMENTS = documents(names=BSON_NAMES)
IN_ORDER: CodecOptions[SON[str, object]] = CodecOptions(
    document_class=SON, unicode_decode_error_handler="strict"
)


def packed(place: object) -> bytes:
    made: bytes = bson.encode(packable(place))
    return made


def packable(place: object) -> object:
    """Values that the package can store: texts that are UTF-8 as strings, others as binary."""
    if isinstance(place, Object):
        return SON((name.decode(), packable(value)) for name, value in place.items())
    if isinstance(place, list):
        return list(map(packable, place))
    if isinstance(place, bytes):
        try:
            return place.decode()
        except UnicodeDecodeError:
            return place
    return place


def document_of(message: bytes) -> Object:
    made = plain(bson.decode(message, IN_ORDER))
    assert isinstance(made, Object)
    return made


def plain(place: object) -> object:
    if isinstance(place, dict):
        return Object({name.encode(): plain(value) for name, value in place.items()})
    if isinstance(place, list):
        return list(map(plain, place))
    if isinstance(place, str):
        return place.encode()
    if isinstance(place, Int64):
        return int(place)
    return bytes(place) if isinstance(place, Binary) else place


def element(kind: int, name: bytes, value: bytes) -> bytes:
    return bytes([kind]) + name + b"\0" + value


def message_of(*elements: bytes) -> bytes:
    content = b"".join(elements)
    return struct.pack("<i", len(content) + 5) + content + b"\0"


@EXAMPLES
@given(DOCUMENTS)
@example(
    Object(
        {b"a": [1, [2, [3]], Object({b"k": [Object({b"k": 3}), []]})], b"b": Object(), b"k": [[], Object()]}
    )
)
def test_every_path_is_found(document: Object) -> None:
    assert_read(BSON.extractor(), packed(document), document)


def test_filters() -> None:
    message = bson.encode(
        {"id": 7, "sym": "ACME", "px": 12.5, "none": [], "nul": None, "acct": {"lim": [1, 2]}}
    )
    for text in ("/id = 7 AND /sym = 'ACME'", "/px > 12", "/none IS NULL", "/nul IS NULL", "/acct/lim = 2"):
        assert matches(BSON.extractor(), message, text)
        assert not matches(BSON.extractor(), message, f"NOT ({text})")


SCOPE = {"x": 1}
IDENTITY = ObjectId("5f0e2b7c9d1a4b3c2d1e0f9a")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        # expressions.md §12.4, and interpretations where it is silent
        (Regex("^a.c", "im"), b"^a.c"),
        (Regex("", ""), None),
        (IDENTITY, b"5f0e2b7c9d1a4b3c2d1e0f9a"),
        (datetime.datetime(2015, 1, 2, 12, 35, tzinfo=datetime.UTC), 1420202100000),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=datetime.UTC), -1000),
        (Binary(b"\0\xff", 0), b"\0\xff"),
        (Binary(b"ab", 2), b"ab"),
        (Binary(b"", 2), None),
        (Binary(b"0123456789abcdef", 4), b"0123456789abcdef"),
        (Code("f()"), b"f()"),
        (Code("f()", SCOPE), b"f()"),
        (Timestamp(5, 7), 5 << 32 | 7),
        (Timestamp(2**32 - 1, 0), (2**32 - 1) << 32),
        (MinKey(), None),
        (MaxKey(), None),
        (Decimal128("12.50"), b"12.50"),
        (Int64(5), 5),
        (DBRef("c", IDENTITY), ...),
    ],
)
def test_types_without_a_counterpart(value: object, found: object) -> None:
    message = bson.encode({"a": value, "list": [value], "after": 1})
    assert read(BSON.extractor(), message, [(b"a",), (b"list",), (b"after",)]) == [[found], [found], [1]]


def test_deprecated_types() -> None:
    message = message_of(
        element(0x06, b"undefined", b""),
        element(0x0C, b"pointer", b"\x02\0\0\0c\0" + bytes(range(12))),
        element(0x0E, b"symbol", b"\x02\0\0\0s\0"),
        element(0x10, b"after", b"\x01\0\0\0"),
    )
    wanted: list[Path] = [(b"undefined",), (b"pointer",), (b"symbol",), (b"after",)]
    assert read(BSON.extractor(), message, wanted) == [[None], [bytes(range(12)).hex().encode()], [b"s"], [1]]


@EXAMPLES
@given(st.binary(min_size=16, max_size=16))
@example(bytes(16))
@example(bytes.fromhex("0000000000000000000000000000403000"[:32]))
def test_decimal_numbers_are_their_text(bits: bytes) -> None:
    check_decimal(bits)


@EXAMPLES
@given(
    st.booleans(),
    st.integers(0, 10**34 - 1) | st.integers(0, 9999),
    st.integers(-40, 5) | st.integers(-6176, 6111),
)
def test_decimal_numbers_of_every_exponent(negative: bool, coefficient: int, exponent: int) -> None:
    check_decimal((negative << 127 | (exponent + 6176) << 113 | coefficient).to_bytes(16, "little"))


def check_decimal(bits: bytes) -> None:
    message = message_of(element(0x13, b"a", bits))
    assert read(BSON.extractor(), message, [(b"a",)]) == [[str(Decimal128.from_bid(bits)).encode()]]


def test_of_a_repeated_name_the_first_counts() -> None:
    message = message_of(
        element(0x10, b"a", b"\x01\0\0\0"),
        element(0x10, b"a", b"\x02\0\0\0"),
        element(0x03, b"b", message_of(element(0x10, b"a", b"\x03\0\0\0"))),
    )
    assert read(BSON.extractor(), message, [(b"a",), (b"b", b"a")]) == [[1], [3]]


def test_errors_behind_the_last_wanted_field_go_unnoticed() -> None:
    """expressions.md §12.3."""
    message = message_of(element(0x10, b"a", b"\x01\0\0\0"), element(0x55, b"b", b""))
    assert read(BSON.extractor(), message, [(b"a",)]) == [[1]]
    assert read(BSON.extractor(), message, [(b"a",), (b"b",)]) is None


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b"", [[]]),
        (b"\x05\0\0\0\0", [[]]),
        (b"\x05\0\0\0\x01", None),
        (b"\x04\0\0\0\0", None),
        (b"\x06\0\0\0\0", None),
        (b"\x05\0\0\0\0\0", None),
        (b"\xff\xff\xff\xff\0", None),
        (message_of(element(0x02, b"a", b"\x02\0\0\0x\0")), [[b"x"]]),
        (message_of(element(0x02, b"a", b"\x01\0\0\0\0")), [[None]]),
        (message_of(element(0x02, b"a", b"\x00\0\0\0\0")), None),
        (message_of(element(0x02, b"a", b"\x02\0\0\0xx")), None),
        (message_of(element(0x02, b"a", b"\xff\xff\xff\xffx\0")), None),
        (message_of(element(0x05, b"a", b"\xff\xff\xff\xff\0x")), None),
        (message_of(element(0x05, b"a", b"\xff\xff\xff\x7f\0x")), None),
        (message_of(element(0x08, b"a", b"\x02")), None),
        (message_of(element(0x03, b"a", b"\xff\xff\xff\xff\0")), None),
        (message_of(element(0x04, b"a", b"\x04\0\0\0\0")), None),
        (message_of(element(0x0B, b"a", b"no end")), None),
        (message_of(element(0x0F, b"a", b"\x0e\0\0\0\x01\0\0\0\0\x05\0\0\0\0")), [[None]]),
        (message_of(element(0x0F, b"a", b"\x0f\0\0\0\x02\0\0\0\0\x05\0\0\0\0")), None),
        (message_of(b"\x10a"), None),
    ],
)
def test_lengths_are_checked(message: bytes, found: list[Found] | None) -> None:
    assert read(BSON.extractor(), message, [(b"a",)]) == found


@pytest.mark.parametrize(
    ("kind", "path"), [(4, (b"a",)), (3, (b"a", b"0")), (4, (b"a", 0, b"b")), (4, (b"a", b"b"))]
)
def test_a_value_ends_within_its_container(kind: int, path: Path) -> None:
    """Its type needs eight bytes where four are left. The surrounding bytes would suffice."""
    value = element(0x12, b"b" if path[-1] == b"b" else b"0", b"\1\0\0\0")
    if path[-1] == b"b":
        value = element(0x03, b"0", message_of(value))
    message = message_of(element(kind, b"a", message_of(value)) + element(0x12, b"c", bytes(8)))
    assert read(BSON.extractor(), message, [path]) is None


@EXAMPLES
@given(DOCUMENTS, st.data())
def test_a_truncated_message_gives_right_values_or_is_unparsable(
    document: Object, data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.sampled_from(paths_of(document)), min_size=1, max_size=3, unique=True))
    assert_cut_off(BSON.extractor(), packed(document), document, wanted)


@EXAMPLES
@given(DOCUMENTS, st.integers(0), st.binary(max_size=4), st.integers(0, 4), GIVEN)
def test_a_damaged_message_causes_no_crash(
    document: Object, place: int, put: bytes, cut: int, given_fields: list[tuple[Destination, object]]
) -> None:
    message = packed(document)
    at = place % (len(message) + 1)
    damaged = message[:at] + put + message[at + cut :]
    if cut == len(put) or not damaged:
        check_hostile(damaged, paths_of(document), given_fields)
    else:
        # With its length corrected, its contents are read.
        check_hostile(struct.pack("<i", len(damaged)) + damaged[4:], paths_of(document), given_fields)


@EXAMPLES
@given(st.integers(0, 20), st.binary(max_size=60), GIVEN)
def test_random_bytes_cause_no_crash(
    kind: int, tail: bytes, given_fields: list[tuple[Destination, object]]
) -> None:
    wanted: list[Path] = [(b"a",), (b"a", b"b"), (b"a", 1, b"k"), (b"k",)]
    for message in (
        tail,
        message_of(element(kind, b"a", tail)),
        message_of(element(4, b"a", message_of(tail))),
    ):
        check_hostile(message, wanted, given_fields)


def check_hostile(message: bytes, wanted: list[Path], given_fields: list[tuple[Destination, object]]) -> None:
    """A message that the package reads is read here as well. The package can be stricter about text."""
    read(BSON.extractor(), message, wanted)
    builder = BSON.builder([path for path, _ in given_fields])
    values = [value for _, value in given_fields]
    try:
        bson.decode(message)
    except Exception:
        if message:
            try:
                merge(builder, message, values)
            except ValueError:
                return
        return
    assert read(BSON.extractor(), message, wanted) is not None
    merge(builder, message, values)


@pytest.mark.parametrize("kind", [3, 4])
@pytest.mark.parametrize("depth", [10, 500, 990, 5000])
def test_deep_messages_are_read(kind: int, depth: int) -> None:
    message = message_of(element(0x10, b"a", b"\x07\0\0\0"))
    for _ in range(depth):
        message = message_of(element(kind, b"a", message))
    steps = depth + 1 if kind == 3 else 1
    if depth == 5000:
        wanted: list[Path] = [(b"a",) * 999, (b"a", 0, b"a")]
        read(BSON.extractor(), message, wanted)
        assert read(BSON.extractor(), message, [(b"b",)]) == [[]]
        BSON.builder([(b"a",) * 999]).merge(message, [1])
    elif kind == 3:
        assert read(BSON.extractor(), message, [(b"a",) * steps]) == [[7]]
    else:
        inner = message_of(element(4, b"a", message))
        assert read(BSON.extractor(), inner, [(b"a",)]) == [[7]]


@EXAMPLES
@given(GIVEN)
@example([((b"a",), 2**63 - 1), ((b"b",), 2**31), ((b"k",), -(2**31)), ((b"new",), b"\xff" * 300)])
def test_built_messages_are_read_by_the_package(given_fields: list[tuple[Destination, object]]) -> None:
    made = BSON.builder([path for path, _ in given_fields]).build([value for _, value in given_fields])
    document = merged(Object(), given_fields)
    assert equal(document_of(made), document)
    # The package writes the same fields, in another order.
    assert len(made) == len(packed(without_empty(document)))


def without_empty(place: object) -> object:
    if isinstance(place, Object):
        return Object({name: without_empty(value) for name, value in place.items()})
    return None if place == b"" else place


def test_an_integer_above_the_largest_signed_one_is_a_double() -> None:
    assert bson.decode(BSON.builder([(b"a",)]).build([2**64 - 1])) == {"a": 1.8446744073709552e19}


@EXAMPLES
@given(DOCUMENTS, GIVEN)
def test_a_merge_changes_the_named_fields(
    document: Object, given_fields: list[tuple[Destination, object]]
) -> None:
    assume(document)
    made = merge(
        BSON.builder([path for path, _ in given_fields]),
        packed(document),
        [value for _, value in given_fields],
    )
    assert equal(document_of(made), merged(document, given_fields))


def test_a_merge_leaves_all_other_bytes_as_they_are() -> None:
    inner = message_of(element(0x0A, b"k", b""), element(0x12, b"m", b"\x01" + bytes(7)))
    message = message_of(
        element(0x06, b"x", b""),
        element(0x03, b"m", inner),
        element(0x0B, b"r", b"a\0b\0"),
        element(0x7F, b"z", b""),
    )
    assert BSON.builder([(b"m", b"no"), (b"q",)]).merge(message, [OMIT, OMIT]) == message
    assert BSON.builder([(b"m", b"k"), (b"z",)]).merge(message, [OMIT, True]) == message_of(
        element(0x06, b"x", b""),
        element(0x03, b"m", message_of(element(0x12, b"m", b"\x01" + bytes(7)))),
        element(0x0B, b"r", b"a\0b\0"),
        element(0x08, b"z", b"\x01"),
    )


def test_a_merge_replaces_all_values_of_a_repeated_name() -> None:
    one, two, nine = (element(0x10, b"a", bytes([number, 0, 0, 0])) for number in (1, 2, 9))
    other = element(0x0A, b"b", b"")
    message = message_of(one, other, two, one)
    assert BSON.builder([(b"a",)]).merge(message, [9]) == message_of(nine, other)
    assert BSON.builder([(b"a",)]).merge(message, [OMIT]) == message_of(other)


def test_a_merge_into_nothing_is_a_new_message() -> None:
    assert BSON.builder([(b"a",)]).merge(b"", [None]) == message_of(element(0x0A, b"a", b""))
    for message in (b"\x05\0\0\0\x01", message_of() + b"\0", message_of(b"\x55a\0")):
        with pytest.raises(ValueError, match="cannot be parsed"):
            BSON.builder([(b"a",)]).merge(message, [1])


def test_names_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(ValueError, match="zero byte"):
        BSON.builder([(b"a", b"b\0")])
