"""Composite messages: reading fields of their parts, and writing parts (expressions.md §12.6)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.messages.composite import CompositeExtractor
from amps._core.messages.struct import BinaryExtractor
from amps._core.values.fields import OMIT, Extractor, FieldSet, FieldValues
from amps.messages import MODULES, MessageType, TypeSettings, make_message_types
from amps.messages.composite import CompositeLocalType
from tests.unit.messages.protobuf_files import kind as protobuf_kind
from tests.unit.messages.reading import Found, Path, matches, merge
from tests.unit.messages.reading import read as read_with

TYPES = make_message_types(
    [
        *(TypeSettings(name, name) for name in ("json", "nvfix", "binary")),
        TypeSettings("last", "json", early_termination=False),
        TypeSettings("local", "composite-local", parts=("json", "json", "binary")),
        TypeSettings("global", "composite-global", parts=("json", "json")),
        TypeSettings("mixed", "composite-global", parts=("binary", "nvfix", "last")),
        TypeSettings("deep", "composite-local", parts=("local", "global", "nvfix")),
        *(TypeSettings(name, name) for name in ("fix", "xml", "bson", "msgpack", "bflat")),
        TypeSettings("tick", "struct", fields=("/skip = 2x", "/a = h", "/b = h")),
        TypeSettings("padding", "struct", fields=("/skip = 2x",)),
    ]
)
LOCAL, GLOBAL, MIXED, DEEP = (TYPES[name] for name in ("local", "global", "mixed", "deep"))


def read(extractor: Extractor, content: bytes, *paths: Path) -> list[Found] | None:
    return read_with(extractor, content, paths)


def message(*parts: bytes, payload: bytes = b"") -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts) + payload


def passes(kind: MessageType, content: bytes, text: str) -> bool:
    return matches(kind.extractor(), content, text)


def split(content: bytes) -> tuple[bytes, ...]:
    """The three parts and the payload."""
    found = []
    for _ in range(3):
        end = 4 + struct.unpack(">I", content[:4])[0]
        found.append(content[4:end])
        content = content[end:]
    return (*found, content)


PHOTO = message(b'{"id":1,"m":"a"}', b'{"m":"b","c":2}', b"\x00\xff{", payload=b'{"id":9}')


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # expressions.md §15 item 67
        ("/0/id = 1 AND /1/m = 'b'", True),
        ("/id = 1", False),
        # expressions.md §12.6
        ("/0/m = 'a'", True),
        ("/0/m = 'b'", False),
        ("/1/c = 2", True),
        ("/0/c IS NULL AND /1/id IS NULL AND /2/id IS NULL AND /3/id IS NULL", True),
        ("/2 IS NULL AND /3 IS NULL AND /00/id IS NULL AND /-1/id IS NULL", True),
        ("1=1", True),
    ],
)
def test_fields_of_parts_that_are_kept_apart(text: str, wanted: bool) -> None:
    """expressions.md §15 item 67"""
    assert passes(LOCAL, PHOTO, text) is wanted


@pytest.mark.parametrize(
    ("part_type", "part", "has_field"),
    [
        ("json", b'{"a":null}', True),
        ("json", b' {"a":{"b":[1]}}', True),
        ("json", b'{"a":{},"b":[[]]}', False),
        ("json", b"{}", False),
        ("json", b"5", False),
        ("json", b"[1]", False),
        ("json", b"", False),
        ("nvfix", b"a=\x01", True),
        ("nvfix", b"", False),
        ("fix", b"1=2\x01", True),
        ("xml", b"<a/>", True),
        ("xml", b" \n", False),
        ("msgpack", b"\x81\xa1a\x81\xa1b\xc0", True),
        ("msgpack", b"\x81\xa1a\x92\x80\x90", False),
        ("msgpack", b"\x80", False),
        ("msgpack", b"\x91\x05", False),
        ("bson", b"\x08\0\0\0\x0aa\0\0", True),
        ("bson", b"\x0d\0\0\0\x03a\0\x05\0\0\0\0\0", False),
        ("bson", b"\x05\0\0\0\0", False),
        ("bflat", b"\x1b\x69\x6e\x74\x09", True),
        ("bflat", b"\x99a\x00\x19b\x09", True),
        ("bflat", b"\x99a\x00", False),
        ("bflat", b"\x81a\xff\xff\xff\xff\x0f", True),
        ("tick", b"xx\1\0", True),
        ("tick", b"xx\1", False),
        ("padding", b"xx", False),
        ("binary", b"ab", False),
        ("local", message(b"{}", b'{"a":1}', b""), True),
        ("local", message(b"{}", b"{}", b"x"), False),
        ("local", b"\0", False),
        ("global", message(b"{}", b'{"a":1}'), True),
        ("global", message(b"{}", b"{}"), False),
    ],
)
def test_a_part_is_a_container_if_there_is_a_field_in_it(
    part_type: str, part: bytes, has_field: bool
) -> None:
    """expressions.md §14.4: a part with at least one leaf is not NULL, but is NULL for every scalar use."""
    settings = TypeSettings("c", "composite-local", parts=("json", part_type))
    extractor = CompositeLocalType(settings, TYPES).extractor()
    content = message(b'{"x":1}', part)
    assert read(extractor, content, (b"1",)) == [[...] if has_field else []]
    assert read(extractor, content, (b"1",), (b"0", b"x")) == [[...] if has_field else [], [1]]
    for text, wanted in (("/1 IS NULL", not has_field), ("/1 IS NOT NULL AND /0/x = 1", has_field)):
        assert matches(extractor, content, text) is wanted
    assert not matches(extractor, content, "/1 = 1 OR /1 LIKE '.' OR COALESCE(/1, /none) IS NOT NULL")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/1/i32 = 0 AND /1/leg/n IS NULL", True),
        ("/1 IS NOT NULL AND /0/x = 1", True),
        ("/1 IS NULL", False),
    ],
)
def test_an_empty_part_is_an_empty_message_of_its_type(text: str, wanted: bool) -> None:
    """expressions.md §12.5: defaults of protobuf count as present, as in messages that are not parts."""
    known = TYPES | {"three": protobuf_kind("three.proto", "three.All")}
    settings = TypeSettings("c", "composite-local", parts=("json", "three"))
    extractor = CompositeLocalType(settings, known).extractor()
    assert matches(extractor, message(b'{"x":1}', b""), text) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/0 IS NOT NULL AND /0/0 IS NOT NULL AND /1 IS NOT NULL AND /2 IS NOT NULL", True),
        ("/0/2 IS NULL AND /0/1 IS NOT NULL AND /0/1/o IS NOT NULL AND /1/x = 2", True),
        ("/3 IS NULL", True),
    ],
)
def test_containers_in_composites_of_composites(text: str, wanted: bool) -> None:
    """expressions.md §14.4 and §12.6"""
    inner = message(b'{"id":1}', b'{"o":{"k":1}}', b"\xff")
    assert passes(DEEP, message(inner, message(b'{"x":1}', b'{"x":2}'), b"y=3\x01"), text) is wanted


@pytest.mark.parametrize("part", [b'{"a":1', b'{"a":1}}', b"{{", b"<"])
def test_a_part_that_is_itself_wanted_must_be_readable(part: bytes) -> None:
    """expressions.md §12.3"""
    for text in ("/0 IS NULL", "/0 IS NOT NULL"):
        assert not passes(LOCAL, message(part, b"{}", b""), text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # expressions.md §15 item 68
        ("/id = 1", True),
        ("/m = 'a'", True),
        ("/m = 'b'", True),
        # expressions.md §12.6
        ("/c = 2 AND ARRAY_COUNT(/m) = 2 AND /m[0] = 'a' AND /m[1] = 'b'", True),
        ("NOT (/m = 'b')", False),
        ("/0/id IS NULL", True),
    ],
)
def test_fields_of_merged_parts(text: str, wanted: bool) -> None:
    """expressions.md §15 item 68"""
    assert passes(GLOBAL, message(b'{"id":1,"m":"a"}', b'{"m":"b","c":2}', payload=b"x"), text) is wanted


def test_merged_parts_of_several_types() -> None:
    content = message(b"\xff", b"a=1\x01b=0042\x01a=2\x01", b'{"a":3,"a":[4,5],"c":{"b":6}}')
    assert read(MIXED.extractor(), content, (b"a",), (b"b",), (b"c", b"b")) == [[1, 2, 4, 5], [42], [6]]


def test_composites_of_composites() -> None:
    content = message(PHOTO, message(b'{"x":1}', b'{"x":2}'), b"y=3\x01")
    paths = [(b"0", b"1", b"m"), (b"1", b"x"), (b"2", b"y"), (b"0", b"m")]
    assert read(DEEP.extractor(), content, *paths) == [[b"b"], [1, 2], [3], []]


def test_one_extractor_reads_many_messages() -> None:
    extractor = GLOBAL.extractor()
    for number in range(5):
        content = message(b'{"a":%d}' % number, b'{"a":7,"a":8}')
        assert read(extractor, content, (b"a",)) == [[number, 7]]


@pytest.mark.parametrize(
    "content",
    [
        b"\x00",
        b"\x00\x00\x00\x01",
        b"\x00\x00\x00\x03{}",
        b"\xff\xff\xff\xff{}",
        message(b'{"a":'),
        message(b"{}"),
        message(b"{}")[:-1],
        message(b"{}", b"")[:-1],
        message(b"{}", b"{}}"),
    ],
)
def test_messages_that_are_no_composites_cannot_be_read(content: bytes) -> None:
    """A wanted part is missing, truncated or malformed."""
    assert read(LOCAL.extractor(), content, (b"1", b"a")) is None
    assert read(GLOBAL.extractor(), content, (b"a",)) is None


def test_errors_in_unwanted_parts_go_unnoticed() -> None:
    """expressions.md §12.3: errors behind the last needed field."""
    assert read(LOCAL.extractor(), message(b'{"a":1}') + b"\x00\x00", (b"0", b"a")) == [[1]]
    assert read(LOCAL.extractor(), message(b"{{{", b'{"a":1}'), (b"1", b"a")) == [[1]]
    assert read(LOCAL.extractor(), b"\x00", (b"9", b"a")) is None
    assert read(LOCAL.extractor(), b"\x00") == []


def test_parts_too_short_for_wanted_fields_are_counted() -> None:
    """expressions.md §12.5; this holds in composites of composites too."""
    inner = CompositeExtractor([TYPES["tick"].extractor(), TYPES["json"].extractor()], False)
    extractor = CompositeExtractor([inner, TYPES["tick"].extractor()], False)
    for ticks, count in ((b"__aabb", 0), (b"__aab", 2), (b"", 4)):
        fields = FieldSet([(b"0", b"0", b"b"), (b"1", b"b")])
        assert extractor.read(message(message(ticks, b"{}"), ticks), fields, FieldValues())
        assert extractor.messages_cut_short() == count


def test_empty_messages_and_empty_parts_have_no_fields() -> None:
    for content in (b"", message(b"", b"", b"")):
        assert read(LOCAL.extractor(), content, (b"0", b"a"), (b"1", b"b")) == [[], []]
        assert read(GLOBAL.extractor(), content, (b"a",)) == [[]]
    assert passes(LOCAL, message(b"", b"", b""), "/0/a IS NULL")


@given(st.binary(max_size=40))
def test_any_bytes(content: bytes) -> None:
    """Compared with a plain reading, which splits parts by their lengths.

    Any bytes are a message of parts of any bytes here.
    """
    rest = content
    whole = True
    for _ in range(3):
        if len(rest) < 4 or len(rest) - 4 < (length := struct.unpack(">I", rest[:4])[0]):
            whole = False
            break
        rest = rest[4 + length :]
    types = make_message_types(
        [TypeSettings("b", "binary"), TypeSettings("c", "composite-global", parts=("b", "b", "b"))]
    )
    assert (read(types["c"].extractor(), content, (b"a",)) is not None) is (whole or not content)


@given(st.lists(st.tuples(st.integers(0, 99), st.binary(max_size=10)), min_size=3, max_size=3), st.binary())
def test_every_part_is_found_in_its_place(parts: list[tuple[int, bytes]], payload: bytes) -> None:
    content = message(*(b'{"n":%d}' % number for number, _ in parts[:2]), parts[2][1], payload=payload)
    wanted = [[number] for number, _ in parts[:2]]
    assert read(LOCAL.extractor(), content, (b"0", b"n"), (b"1", b"n")) == wanted


def test_new_messages() -> None:
    builder = LOCAL.builder([(b"1", b"m"), (b"0", b"id"), (b"1", b"o", b"k")])
    assert builder.build([b"b", 1, None]) == message(b'{"id":1}', b'{"m":"b","o":{"k":null}}', b"")
    assert builder.build([b"b", OMIT, OMIT]) == message(b"", b'{"m":"b"}', b"")
    assert LOCAL.builder([]).build([]) == message(b"", b"", b"")


def test_changed_messages_keep_everything_else() -> None:
    """The unparsed payload, parts without a new value and other fields stay byte for byte."""
    builder = LOCAL.builder([(b"1", b"m"), (b"1", b"new")])
    changed = builder.merge(PHOTO, [b"z", 5])
    assert changed == message(
        b'{"id":1,"m":"a"}', b'{"m":"z","c":2,"new":5}', b"\x00\xff{", payload=b'{"id":9}'
    )
    assert read(LOCAL.extractor(), changed, (b"1", b"m"), (b"1", b"new")) == [[b"z"], [5]]
    assert LOCAL.builder([]).merge(PHOTO, []) == PHOTO
    assert builder.merge(PHOTO, [OMIT, OMIT]) == PHOTO.replace(b'"m":"b",', b"").replace(
        struct.pack(">I", 15), struct.pack(">I", 7)
    )


def test_an_empty_part_gets_fields_if_there_are_some() -> None:
    empty = message(b"{}", b"", b"x")
    builder = LOCAL.builder([(b"1", b"m")])
    assert builder.merge(empty, [1]) == message(b"{}", b'{"m":1}', b"x")
    assert builder.merge(empty, [OMIT]) == empty


def test_a_message_that_cannot_be_read_cannot_be_changed() -> None:
    builder = LOCAL.builder([(b"1", b"m")])
    for content in (b"", message(b"{}", b"{}"), message(b"{}", b"{", b""), PHOTO[:20]):
        with pytest.raises(ValueError, match="cannot be parsed"):
            builder.merge(content, [1])


@given(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            message,
            st.sampled_from([b"", b"{}", b'{"a":1}', b"{", b'{"a":1,"a":[2]}']),
            st.sampled_from([b"", b'{"b":{"c":5}}', b'{"b":5} ', b"\xff"]),
            st.binary(max_size=5),
            payload=st.binary(max_size=5),
        ),
    )
)
def test_a_change_makes_a_message_with_the_new_values_or_none(content: bytes) -> None:
    builder = LOCAL.builder([(b"0", b"a"), (b"1", b"b", b"c")])
    try:
        changed = merge(builder, content, [7, b"x"])
    except ValueError:
        return
    assert read(LOCAL.extractor(), changed, (b"0", b"a"), (b"1", b"b", b"c")) == [[7], [b"x"]]
    first, second, *rest = split(content)
    assert split(changed)[2:] == tuple(rest)
    for part in (first, second):
        assert read(TYPES["json"].extractor(), part, (b"nothing",)) is not None


@pytest.mark.parametrize("path", [(b"3", b"a"), (b"a",), (b"0",), (b"00", b"a"), (b"2", b"a"), (b"-1", b"a")])
def test_fields_that_no_part_can_store(path: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match=r"give /n/field with n from 0 to 2|cannot be written by the server"):
        LOCAL.builder([path])


def test_merged_parts_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="cannot be written by the server"):
        GLOBAL.builder([(b"a",)])


@pytest.mark.parametrize("module", sorted({*MODULES} - {"protobuf"}))
def test_every_type_can_be_a_part(module: str) -> None:
    """A type that composites do not know would count as empty in them."""
    settings = TypeSettings("part", module, parts=("json",), fields=("/a = i",))
    whole = TypeSettings("whole", "composite-global", parts=("part",))
    make_message_types([TypeSettings("json", "json"), settings, whole])["whole"].extractor()


def test_a_type_that_composites_do_not_know_is_refused() -> None:
    class Unknown(BinaryExtractor):
        pass

    class Other(Extractor):
        pass

    CompositeExtractor([Unknown()], True)
    with pytest.raises(TypeError, match=r"_EVIDENCE in messages/composite_scan.pxi lacks Other"):
        CompositeExtractor([Other()], True)


def test_parts_must_exist() -> None:
    with pytest.raises(ValueError, match="has no parts; add MessageType"):
        make_message_types([TypeSettings("c", "composite-local")])
    with pytest.raises(ValueError, match="json, is not known; declare it before c"):
        make_message_types([TypeSettings("c", "composite-local", parts=("json",))])
