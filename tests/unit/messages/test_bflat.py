"""BFlat against a plain reader and writer of its documented form (expressions.md §12.5).

Tested are fields found in messages, messages written, and malformed bytes.
"""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps._core.values.fields import OMIT
from amps.messages.bflat import BflatType
from amps.messages.settings import TypeSettings
from tests.unit.messages.nested import GIVEN, agree, scalars
from tests.unit.messages.reading import Found, Path, matches, merge, read

BFLAT = BflatType(TypeSettings("bflat", "bflat"), {})
EXAMPLES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

NULL, STRING, BINARY, INT8, INT16, INT32, INT64, DOUBLE, DATETIME, LEB128 = range(0, 0x50, 8)
FORMS = {INT8: "b", INT16: "<h", INT32: "<i", INT64: "<q", DOUBLE: "<d", DATETIME: "<q"}
# A field: type, tag, values.
Field = tuple[int, bytes, list[object]]


def unsigned(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def signed(number: int) -> bytes:
    made = b""
    while not -64 <= number < 64:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number & 0x7F])


def value_bytes(kind: int, value: object) -> bytes:
    if kind == NULL:
        return b""
    if kind in FORMS:
        return struct.pack(FORMS[kind], value)
    if kind == LEB128:
        assert isinstance(value, int)
        return signed(value)
    assert isinstance(value, bytes)
    return unsigned(len(value)) + value


def field_bytes(kind: int, tag: bytes, values: Sequence[object], array: bool = False) -> bytes:
    array = array or len(values) != 1
    short = len(tag) if len(tag) < 8 else 0
    head = bytes([array << 7 | kind | short]) + (b"" if short else unsigned(len(tag))) + tag
    return (
        head + (unsigned(len(values)) if array else b"") + b"".join(value_bytes(kind, one) for one in values)
    )


def message_of(fields: Sequence[Field]) -> bytes:
    return b"".join(field_bytes(*field) for field in fields)


class Malformed(Exception):
    pass


class Reader:
    """The plain reader: the fields of a message, or Malformed."""

    def __init__(self, message: bytes) -> None:
        self.left = message

    def fields(self) -> list[Field]:
        found = []
        while self.left:
            head = self.take(1)[0]
            kind, length = head & 0x78, head & 7
            if kind > LEB128:
                raise Malformed
            length = length or self.unsigned()
            if not length:
                raise Malformed
            tag = self.take(length)
            count = self.unsigned() if head & 0x80 else 1
            if kind == NULL:
                found.append((kind, tag, [None] * min(count, 100)))
                continue
            if count > len(self.left):
                raise Malformed
            found.append((kind, tag, [self.value(kind) for _ in range(count)]))
        return found

    def take(self, length: int) -> bytes:
        if length > len(self.left):
            raise Malformed
        taken, self.left = self.left[:length], self.left[length:]
        return taken

    def leb128(self) -> tuple[int, int]:
        number = bits = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << bits
            bits += 7
            if byte < 0x80:
                return number, bits
            if bits >= 70:
                raise Malformed

    def unsigned(self) -> int:
        number, _ = self.leb128()
        if number >= 2**64:
            raise Malformed
        return number

    def value(self, kind: int) -> object:
        if kind in FORMS:
            return struct.unpack(FORMS[kind], self.take(struct.calcsize(FORMS[kind])))[0]
        if kind == LEB128:
            number, bits = self.leb128()
            number -= (number >> bits - 1) << bits
            if not -(2**63) <= number < 2**63:
                raise Malformed
            return number
        return self.take(self.unsigned()) or None


def found_in(fields: Sequence[Field], tag: bytes) -> list[object]:
    """All values of a tag. The empty string is NULL."""
    return [
        None if value == b"" else value for _, other, values in fields if other == tag for value in values
    ]


TAGS = st.sampled_from([b"a", b"b", b"k", b"seven77", b"eight888", b"n" * 200, b"\xff"])
INTEGERS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64, DATETIME: 64, LEB128: 64}


@st.composite
def message_fields(draw: st.DrawFn) -> list[Field]:
    made: list[Field] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from([NULL, STRING, BINARY, *INTEGERS, DOUBLE]))
        values: st.SearchStrategy[object] = st.none()
        if kind in INTEGERS:
            values = st.integers(-(2 ** (INTEGERS[kind] - 1)), 2 ** (INTEGERS[kind] - 1) - 1)
        elif kind == DOUBLE:
            values = st.floats()
        elif kind != NULL:
            values = st.binary(max_size=5) | st.just(b"x" * 300)
        made.append(
            (kind, draw(TAGS), draw(st.lists(values, max_size=4) | st.lists(values, min_size=1, max_size=1)))
        )
    return made


@EXAMPLES
@given(message_fields())
@example([(LEB128, b"a", [0, -1, 63, 64, -64, -65, 2**63 - 1, -(2**63)])])
def test_every_field_is_found(fields: list[Field]) -> None:
    tags = [b"a", b"nothing", *dict.fromkeys(tag for _, tag, _ in fields)]
    message = message_of(fields)
    found = read(BFLAT.extractor(), message, [(tag,) for tag in dict.fromkeys(tags)])
    assert found is not None
    for tag, values in zip(dict.fromkeys(tags), found, strict=True):
        assert agree(values, found_in(fields, tag))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        # expressions.md §15 item 42
        (b"\x1bint\x09", "/int = 9"),
        (b"\x9bint\x02\x09\x0a", "/int = 10 AND /int[0] = 9"),
        # §12.5: an array of mixed types is several runs under one tag
        (
            field_bytes(INT8, b"a", [1, 2], True) + field_bytes(STRING, b"a", [b"x"], True),
            "/a = 2 AND /a[2] = 'x'",
        ),
        (field_bytes(NULL, b"a", [None]), "/a IS NULL"),
        (field_bytes(INT8, b"a", [], True), "/a IS NULL"),
        (field_bytes(DATETIME, b"t", [1420202100000]), "/t = 1420202100000"),
        # §3: a path of several steps is accepted, and leads to nothing
        (b"\x19a\x01", "/a/b IS NULL AND /a = 1"),
        (b"", "/a IS NULL"),
    ],
)
def test_filters(message: bytes, text: str) -> None:
    assert matches(BFLAT.extractor(), message, text)
    assert not matches(BFLAT.extractor(), message, f"NOT ({text})")


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b"\x18a\x01", None),  # the tag is 97 bytes long
        (b"\x18\x01a\x01", [[1], []]),  # a length that would fit if it were in the head
        (b"\x18\x00\x01", None),
        (b"\x51a", None),
        *[(bytes([kind | 1]) + b"a\x00", None) for kind in range(0x50, 0x80, 8)],  # unknown types
        (b"\x19", None),
        (b"\x19a", None),
        (b"\x99a", None),
        (b"\x99a\x02\x01", None),
        (b"\x99a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01", None),
        (b"\x99a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x01", None),
        (b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", None),
        (b"\x09a\x05x", None),
        (b"\x09a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", None),
        (b"\x09a\x81" + b"\x80" * 8 + b"\x00x", [[b"x"], []]),
        (b"\x09a\x81" + b"\x80" * 8 + b"\x02x", None),  # more than 64 bits, of which the lowest would suffice
        (b"\x49a" + b"\x80" * 9 + b"\x01", None),
        (b"\x49a" + b"\x80" * 10 + b"\x00", None),
        (b"\x49a" + b"\xff" * 9 + b"\x00", [[2**63 - 1], []]),
        (b"\x49a" + b"\x80" * 9 + b"\x7f", [[-(2**63)], []]),
        (b"\x81a\x05\x19b\x01", [[None] * 5, [1]]),
        # Nulls in an array take no bytes: a count that is too large is malformed, but only if the array is wanted.
        (b"\x81a\xff\xff\xff\xff\x0f\x19b\x01", None),
        (b"\x81z\xff\xff\xff\xff\x0f\x19b\x01", [[], [1]]),
    ],
)
def test_lengths_are_checked(message: bytes, found: list[Found] | None) -> None:
    assert read(BFLAT.extractor(), message, [(b"a",), (b"b",)]) == found


def test_the_number_of_nulls_is_bounded_for_a_message() -> None:
    claim = b"\x81a\xe8\x07"  # 1000 nulls
    assert read(BFLAT.extractor(), claim * 65, [(b"a",)]) == [[None] * 65000]
    assert read(BFLAT.extractor(), claim * 100, [(b"a",)]) is None


@EXAMPLES
@given(message_fields(), st.integers(0), st.binary(max_size=4), st.integers(0, 4), GIVEN)
def test_damaged_messages_are_read_as_the_plain_reader_reads_them(
    fields: list[Field],
    place: int,
    put: bytes,
    cut: int,
    given_fields: list[tuple[tuple[bytes, ...], object]],
) -> None:
    message = message_of(fields)
    at = place % (len(message) + 1)
    check_hostile(message[:at] + put + message[at + cut :], given_fields)


@EXAMPLES
@given(st.binary(max_size=40), GIVEN)
def test_random_bytes_cause_no_crash(
    message: bytes, given_fields: list[tuple[tuple[bytes, ...], object]]
) -> None:
    check_hostile(message, given_fields)


def check_hostile(message: bytes, given_fields: list[tuple[tuple[bytes, ...], object]]) -> None:
    wanted: list[Path] = [(b"a",), (b"b",), (b"a", 0, b"b"), (b"a", b"b")]
    try:
        fields = Reader(message).fields()
    except Malformed:
        assert read(BFLAT.extractor(), message, wanted) is None
        with pytest.raises(ValueError, match="cannot be parsed"):
            merge(BFLAT.builder([]), message, [])
        return
    if not any(kind == NULL and len(values) == 100 for kind, _, values in fields):
        found = read(BFLAT.extractor(), message, wanted)
        assert found is not None
        for [tag], values in zip([(b"a",), (b"b",)], found[:2], strict=True):
            assert agree(values, found_in(fields, tag))
    check_merge(message, fields, [(path[0], value) for path, value in given_fields])


def as_written(value: object) -> object:
    """The value as BFlat stores it: there are no booleans, and the empty string is NULL."""
    return int(value) if isinstance(value, bool) else None if value == b"" else value


def check_merge(message: bytes, fields: list[Field], given_fields: list[tuple[bytes, object]]) -> None:
    made = merge(
        BFLAT.builder([(tag,) for tag, _ in given_fields]), message, [value for _, value in given_fields]
    )
    read_back = Reader(made).fields()
    latest = dict(given_fields)
    for tag in {tag for _, tag, _ in fields} | set(latest):
        expected = found_in(fields, tag)
        if tag in latest:
            expected = [] if latest[tag] is OMIT else [as_written(latest[tag])]
        assert agree(found_in(read_back, tag), expected)
    untouched = [field for field in fields if field[1] not in latest]
    assert [repr(field) for field in read_back if field[1] not in latest] == list(map(repr, untouched))


@EXAMPLES
@given(st.lists(st.tuples(TAGS, scalars(2**63 - 1) | st.just(OMIT)), max_size=6))
def test_built_messages_are_read_by_the_plain_reader(given_fields: list[tuple[bytes, object]]) -> None:
    made = BFLAT.builder([(tag,) for tag, _ in given_fields]).build([value for _, value in given_fields])
    assert made == BFLAT.builder([(tag,) for tag, _ in given_fields]).merge(
        b"", [value for _, value in given_fields]
    )
    latest = {tag: value for tag, value in given_fields if value is not OMIT}
    for tag in {tag for tag, value in given_fields if value is OMIT}:
        if [value for other, value in given_fields if other == tag][-1] is OMIT:
            latest.pop(tag, None)
    found = {tag: values for _, tag, values in Reader(made).fields()}
    assert found.keys() == latest.keys()
    assert all(agree(found[tag], [as_written(value)]) for tag, value in latest.items())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, NULL),
        (b"text", STRING),
        (b"", NULL),
        (b"\xff", BINARY),
        (1.5, DOUBLE),
        (True, INT8),
        (127, INT8),
        (-128, INT8),
        (128, INT16),
        (-32768, INT16),
        (32768, LEB128),
        (2**20 - 1, LEB128),
        (2**20, INT32),
        (-(2**31), INT32),
        (2**31, LEB128),
        (2**48 - 1, LEB128),
        (2**48, INT64),
        (2**55, INT64),
        (-(2**63), INT64),
    ],
)
def test_values_are_written_in_their_most_compact_type(value: object, kind: int) -> None:
    """expressions.md §12.5."""
    made = BFLAT.builder([(b"a",)]).build([value])
    assert made == field_bytes(kind, b"a", [value if kind != NULL else None])
    if isinstance(value, int):
        others = [INT8, INT16, INT32, INT64, LEB128]
        fitting = [
            other
            for other in others
            if other == LEB128 or -(2 ** (INTEGERS[other] - 1)) <= value < 2 ** (INTEGERS[other] - 1)
        ]
        assert len(made) == min(len(field_bytes(other, b"a", [value])) for other in fitting)


def test_an_integer_above_the_largest_signed_one_is_a_double() -> None:
    assert BFLAT.builder([(b"a",)]).build([2**64 - 1]) == field_bytes(DOUBLE, b"a", [2.0**64])


def test_a_merge_writes_a_field_in_the_place_of_the_first_of_its_tag() -> None:
    a, b = field_bytes(INT64, b"a", [1]), field_bytes(STRING, b"b", [b"x", b""])
    assert (
        BFLAT.builder([(b"a",), (b"new",)]).merge(b + a + b + a, [9, OMIT])
        == b + field_bytes(INT8, b"a", [9]) + b
    )
    assert BFLAT.builder([(b"b",)]).merge(b + a + b + a, [OMIT]) == a + a
    assert BFLAT.builder([(b"c",)]).merge(b + a, [True]) == b + a + field_bytes(INT8, b"c", [1])


@pytest.mark.parametrize("path", [(b"a", b"b"), (b"",), ()])
def test_paths_that_cannot_be_written_are_refused(path: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="BFlat"):
        BFLAT.builder([path])
