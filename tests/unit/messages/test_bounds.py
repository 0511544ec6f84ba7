"""Messages that could take far longer to read than their length suggests (values/evaluation_budget.pxi).

They are read in one pass, or given up.

Where a test expects a message to be given up, reading it takes many times the permitted time.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from amps._core.messages.bson import BsonExtractor
from amps._core.messages.composite import CompositeExtractor
from amps._core.messages.msgpack import MsgpackExtractor
from amps._core.messages.protobuf import ProtobufExtractor, ProtobufField
from amps._core.messages.struct import StructExtractor, StructField
from amps._core.messages.xml import XmlExtractor
from amps._core.values import fields as budget
from amps._core.values.fields import Extractor, FieldSet, FieldValues
from tests.unit.messages.reading import Found, Path, read

INT32, GROUP, MESSAGE = 5, 10, 11


@contextmanager
def worked_on(length: int) -> Iterator[None]:
    budget.message(length)
    try:
        yield
    finally:
        budget.message(0)


def read_in_time(extractor: Extractor, message: bytes, paths: Sequence[Path]) -> list[Found] | None:
    fields, values = FieldSet(), FieldValues()
    slots = [fields.add(path) for path in paths]
    assert extractor.read(b"", fields, values)
    with worked_on(len(message)):
        readable = extractor.read(message, fields, values)
    return [values.values_of(slot) for slot in slots] if readable else None


def is_given_up(extractor: Extractor, message: bytes, paths: Sequence[Path]) -> bool:
    fields, values = FieldSet(paths), FieldValues()
    assert extractor.read(b"", fields, values)  # the preparation of the paths is not counted
    before = budget.searches_given_up()
    with worked_on(len(message)):
        readable = extractor.read(message, fields, values)
    assert readable is (budget.searches_given_up() == before)
    return not readable


def places(depth: int, name: bytes = b"a", leaf: bytes = b"z") -> list[Path]:
    """Paths in which each step is the value itself or its own first element, in all combinations."""
    found: list[Path] = [()]
    for _ in range(depth):
        found = [path + step for path in found for step in ((name,), (name, 0))]
    return [(*path, leaf) for path in found]


def document(content: bytes) -> bytes:
    """A BSON document."""
    return struct.pack("<I", len(content) + 5) + content + b"\0"


def msgpack_nested(depth: int, empty: int) -> bytes:
    """A message of that depth, with an array of that many empty arrays, and behind it `z`, which is 1."""
    return b"\x81\xa1a" * depth + b"\x82\xa1y\xdd" + struct.pack(">I", empty) + b"\x90" * empty + b"\xa1z\x01"


def bson_nested(depth: int, empty: int) -> bytes:
    made = document(b"\x04y\0" + document(b"\x04\0\x05\0\0\0\0" * empty) + b"\x10z\0\1\0\0\0")
    for _ in range(depth):
        made = document(b"\x03a\0" + made)
    return made


def bson_long(depth: int, count: int) -> bytes:
    """A document of that depth, with that many unwanted fields before `z`."""
    made = document(b"\x10y\0\0\0\0\0" * count + b"\x10z\0\1\0\0\0")
    for _ in range(depth):
        made = document(b"\x03a\0" + made)
    return made


def xml_nested(depth: int, empty: int) -> bytes:
    return b"<r>" + b"<a>" * depth + b"<y/>" * empty + b"<z>1</z>" + b"</a>" * depth + b"</r>"


def xml_attributes(depth: int, count: int) -> bytes:
    many = b" ".join(b"y%d=''" % number for number in range(count))
    return b"<r>" + b"<a>" * (depth - 1) + b"<a " + many + b" z='1'/>" + b"</a>" * (depth - 1) + b"</r>"


# --- containers and their contents ----------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [(MsgpackExtractor, msgpack_nested), (BsonExtractor, bson_nested)])
def test_every_level_of_deep_containers_is_wanted(
    nested: tuple[type[Extractor], Callable[[int, int], bytes]],
) -> None:
    kind, make = nested
    levels = [(b"a",) * depth for depth in range(1, 901)]
    paths = [*levels, (*levels[-1], b"z"), (*levels[-1], b"b")]
    message = make(900, 50_000)
    assert read_in_time(kind(), message, paths) == [[...]] * 900 + [[1], []]


TREE = [
    (b"a",), (b"a", b"b"), (b"a", b"b", b"c"), (b"a", b"d"), (b"a", b"d", b"e"), (b"a", b"f"), (b"a", b"f", b"g"),
    (b"a", b"h"), (b"i",), (b"i", b"j"), (b"i", b"j", b"k"),
]  # fmt: skip
TREE_FOUND: list[Found] = [[...], [], [], [], [], [...], [1], [], [...], [...], [2]]
MSGPACK_TREE = (
    b"\x82\xa1a\x84\xa1b\x81\xa1c\x90\xa1d\x92\x90\x81\xa1e\x80\xa1f\x81\xa1g\x01\xa1h\x80"
    b"\xa1i\x82\x81\x90\x90\x90\xa1j\x81\xa1k\x02"
)
BSON_TREE = document(
    b"\x03a\0"
    + document(
        b"\x03b\0"
        + document(b"\x04c\0" + document(b""))
        + b"\x04d\0"
        + document(b"\x040\0" + document(b"") + b"\x031\0" + document(b"\x03e\0" + document(b"")))
        + b"\x03f\0"
        + document(b"\x10g\0\1\0\0\0")
        + b"\x03h\0"
        + document(b"")
    )
    + b"\x03i\0"
    + document(b"\x04y\0" + document(b"") + b"\x03j\0" + document(b"\x10k\0\2\0\0\0"))
)


@pytest.mark.parametrize(("kind", "message"), [(MsgpackExtractor, MSGPACK_TREE), (BsonExtractor, BSON_TREE)])
def test_the_state_of_a_container_holds_for_those_in_it(kind: type[Extractor], message: bytes) -> None:
    """Some containers stand before the first scalar, some around it, and some behind it."""
    assert read(kind(), message, TREE) == TREE_FOUND
    assert [read(kind(), message, [path]) for path in TREE] == [[found] for found in TREE_FOUND]
    parts = CompositeExtractor((kind(),), False)
    whole = struct.pack(">I", len(message)) + message
    assert read(parts, whole, [(b"0",), *[(b"0", *path) for path in TREE]]) == [[...], *TREE_FOUND]
    extractor = kind()  # the state of the last message is dropped
    for _ in range(2):
        assert read(extractor, message, TREE) == TREE_FOUND
        assert read(extractor, message[:4] + b"\0" * (len(message) - 4), TREE) != TREE_FOUND


@pytest.mark.parametrize(
    "nested",
    [(MsgpackExtractor, msgpack_nested), (BsonExtractor, bson_long), (XmlExtractor, xml_nested)],
)
def test_values_wanted_by_many_paths(nested: tuple[type[Extractor], Callable[[int, int], bytes]]) -> None:
    kind, make = nested
    above: Path = (b"r",) if kind is XmlExtractor else ()
    few = [above + path for path in places(4)]
    assert read_in_time(kind(), make(4, 1000), few) == [[1]] * 16
    many = [above + path for path in places(12)]
    assert is_given_up(kind(), make(12, 1_000_000), many)
    assert not is_given_up(kind(), make(12, 1), many)


def test_elements_of_arrays_wanted_by_many_paths() -> None:
    inner = b"\x92" + b"\x81\xa1a" * 12 + b"\x91\xdd" + struct.pack(">I", 1_000_000) + b"\x90" * 1_000_000
    paths = [(b"a", 0, *path) for path in places(12)] + [(b"a", *path) for path in places(12)]
    assert is_given_up(MsgpackExtractor(), b"\x81\xa1a" + inner + b"\x80", paths)
    elements = document(b"\x030\0" + bson_long(12, 1_000_000) + b"\x031\0" + document(b""))
    assert is_given_up(BsonExtractor(), document(b"\x04a\0" + elements), paths)
    small = b"\x81\xa1a\x92\x81\xa1z\x01\x81\xa1z\x02"
    assert read_in_time(MsgpackExtractor(), small, [(b"a", b"z"), (b"a", 0, b"z"), (b"a", 1, b"z")]) == [
        [1, 2], [1], [2],
    ]  # fmt: skip


def test_attributes_wanted_by_many_paths() -> None:
    few = [(b"r", *path) for path in places(6, leaf=b"@z")]
    assert read_in_time(XmlExtractor(), xml_attributes(6, 100), few) == [[1]] * 64
    assert is_given_up(
        XmlExtractor(), xml_attributes(12, 200_000), [(b"r", *path) for path in places(12, leaf=b"@z")]
    )


def test_struct_fields_wanted_by_many_paths() -> None:
    def one(size: int) -> StructExtractor:
        return StructExtractor([StructField((*[b"a"] * 12, b"z"), "S", False, 0, size)])

    text = b"x" * 50
    assert read_in_time(one(50), text, places(12)) == [[text]] * 4096
    assert is_given_up(one(1 << 24), b"x" * (1 << 24), places(12))


# --- protobuf -------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made += bytes([number & 0x7F | 0x80])
        number >>= 7
    return made + bytes([number])


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def scalar(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def declared(
    name: bytes, number: int, kind: int, repeated: bool = False, message: int = -1, oneof: int = -1
) -> ProtobufField:
    return ProtobufField(name, number, kind, repeated, message, oneof, False, None)


RECURSIVE = (
    (
        declared(b"z", 9, INT32),
        declared(b"b", 2, MESSAGE, message=0, oneof=0),
        declared(b"c", 3, MESSAGE, message=0, oneof=0),
        declared(b"s", 4, MESSAGE, message=0),
        declared(b"g", 5, GROUP, message=0),
        declared(b"far", 5000, MESSAGE, True, 0),
        declared(b"a", 1, MESSAGE, True, 0),
    ),
)


def wide(count: int, oneof: int = -1, first: int = 2000) -> ProtobufExtractor:
    """A type with that many fields, of which the highest number is declared first."""
    fields = [declared(b"f%d" % number, first + number, INT32, oneof=oneof) for number in range(count)]
    return ProtobufExtractor(((*reversed(fields), declared(b"a", 1, MESSAGE, True, 0)),))


@pytest.mark.parametrize("array", [(b"a", 1), (b"far", 5000)])
def test_single_elements_of_arrays(array: tuple[bytes, int]) -> None:
    """The elements are wanted in no order, together, and in arrays that begin again."""
    name, number = array
    values = [scalar(9, value) for value in range(10)]
    message = b"".join(part(number, value) for value in values)
    wanted = [7, 0, 12, 3, 8]
    paths: list[Path] = [(name, index, b"z") for index in wanted]
    found: list[Found] = [[index] if index < 10 else [] for index in wanted]
    extractor = ProtobufExtractor(RECURSIVE)
    for _ in range(2):
        assert read(extractor, message, paths) == found
    assert read(extractor, message, [(name, b"z"), *paths, (name,)]) == [list(range(10)), *found, [...] * 10]
    twice = b"".join(part(1, message) for _ in range(2))
    assert read(extractor, twice, [(b"a", *path) for path in paths]) == [one * 2 for one in found]


def test_every_element_of_a_long_array() -> None:
    paths = [(b"a", index, b"z") for index in range(20_000)]
    message = part(1, b"") * 400_000 + part(4, b"")
    assert read_in_time(ProtobufExtractor(RECURSIVE), message, [*paths, (b"s",)]) == [[]] * 20_000 + [[...]]
    below = part(1, part(1, b"")) * 400_000 + part(4, b"")
    found = read_in_time(ProtobufExtractor(RECURSIVE), below, [*[(b"a", *path) for path in paths], (b"s",)])
    assert found == [[]] * 20_000 + [[...]]


def test_fields_with_high_numbers() -> None:
    names = [(b"f%d" % number,) for number in range(1, 9_999, 2)]
    message = b"".join(scalar(2000 + number, number % 100) for number in range(10_000)) * 20 + scalar(
        20_000, 1
    )
    found: list[Found] = [[number % 100] for number in range(1, 9_999, 2)]
    assert read_in_time(wide(10_000), message, names) == found


def test_empty_messages_of_many_fields() -> None:
    paths = [(b"a", b"f%d" % number) for number in range(10_000)]
    assert is_given_up(wide(10_000), part(1, b"") * 1_000_000, paths)
    message = part(1, scalar(2001, 5)) + part(1, b"") * 10 + part(1, scalar(2002, 6) + scalar(2001, 7))
    assert read_in_time(wide(100), message, paths[:100]) == [[], [5, 7], [6], *[[]] * 97]


def test_oneofs_of_many_fields() -> None:
    paths = [(b"f%d" % number,) for number in range(10_000)]
    message = b"".join(scalar(1 + number % 10_000, 1) for number in range(500_000))
    assert is_given_up(wide(10_000, 0, 1), message, paths)
    message = scalar(2, 5) + scalar(3, 6) * 2
    assert read_in_time(wide(100, 0, 1), message, paths[:100]) == [[], [], [6], *[[]] * 97]


def test_oneofs_that_are_set_again_and_again() -> None:
    paths: list[Path] = [(member, b"a", index, b"z") for index in range(5_000) for member in (b"b", b"c")]
    assert is_given_up(ProtobufExtractor(RECURSIVE), (part(2, b"") + part(3, b"")) * 500_000, paths)
    elements = part(1, scalar(9, 1)) + part(1, scalar(9, 2))
    message = part(2, elements) + part(3, elements) + part(2, part(1, scalar(9, 3)))
    paths = [*paths[:200], (b"b", b"a", b"z"), (b"c", b"a", b"z")]
    found = read_in_time(ProtobufExtractor(RECURSIVE), message, paths)
    assert found == [[3], *[[]] * 199, [3], []]


def test_sub_messages_wanted_by_many_paths() -> None:
    def nested(depth: int, count: int) -> bytes:
        made = scalar(9, 1) * count
        for _ in range(depth):
            made = part(4, made)
        return made

    extractor = ProtobufExtractor(RECURSIVE)
    assert read_in_time(extractor, nested(4, 1000), places(4, b"s")) == [[1]] * 16
    assert is_given_up(extractor, nested(12, 500_000), places(12, b"s"))


def test_groups_in_groups() -> None:
    depth = 99
    message = b"\x2b" * depth + scalar(9, 1) * 500 + b"\x2c" * depth
    assert read_in_time(ProtobufExtractor(RECURSIVE), message, [(*[b"g"] * depth, b"z")]) == [[1]]
