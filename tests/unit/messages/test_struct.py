"""Struct messages: declarations, and the fields of messages against Python's struct module (expressions.md §12.5)."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.values.fields import FieldSet, FieldValues
from amps.messages.settings import TypeSettings
from amps.messages.struct import StructType
from tests.unit.messages.nested import EXAMPLES, agree
from tests.unit.messages.reading import Path, matches, read

# Names of these types in Python's module, in a layout without alignment.
PYTHON_FORMS = {"l": "i", "L": "I", "n": "q", "N": "Q", "S": "s"}


def declared(*fields: str) -> StructType:
    return StructType(TypeSettings("tick", "struct", fields=fields), {})


ITEM_69 = declared("/id = i", "/skip = 4x", "/px = d", "/n = >H", "/t = 4S")


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("/id = -7 AND /px = 12.5 AND /n = 258 AND /t = 'ab'", True),
        ("/skip IS NULL", True),
        ("/t = 'abcd'", False),
        ("/nope IS NULL AND /id/x IS NULL AND /id[0]/x IS NULL", True),
        ("/id[0] = -7 AND /id[1] IS NULL", True),
    ],
)
def test_filters(text: str, passes: bool) -> None:
    """expressions.md §15 item 69."""
    message = struct.pack("<i4xd", -7, 12.5) + struct.pack(">H", 258) + b"ab\0d" + b"and more"
    assert matches(ITEM_69.extractor(), message, text) is passes


def test_nothing_is_built() -> None:
    """expressions.md §12.1 and §15 item 69"""
    with pytest.raises(ValueError, match="cannot be written"):
        ITEM_69.builder([(b"id",)])


@pytest.mark.parametrize(
    ("field", "content", "found"),
    [
        ("/a = c", b"x", b"x"),
        ("/a = c", b"\0", b"\0"),
        ("/a = 3c", b"x\0y", b"x\0y"),
        ("/a = 3s", b"x\0\0", b"x\0\0"),
        ("/a = 3S", b"x\0y", b"x"),
        ("/a = 3S", b"xyz", b"xyz"),
        ("/a = 3S", b"\0yz", None),
        ("/a = 4p", b"\2xyz", b"xy"),
        ("/a = 4p", b"\0xyz", None),
        ("/a = 4p", b"\xffxyz", b"xyz"),
        ("/a = 1p", b"\xff", None),
        ("/a = ?", b"\0", False),
        ("/a = ?", b"\2", True),
        ("/a = b", b"\xff", -1),
        ("/a = B", b"\xff", 255),
        ("/a = l", b"\xfe\xff\xff\xff", -2),
        ("/a = >L", b"\xff\xff\xff\xfe", 2**32 - 2),
        ("/a = n", b"\xff" * 8, -1),
        ("/a = N", b"\xff" * 8, 2**64 - 1),
        ("/a = Q", b"\xff" * 7 + b"\x7f", 2**63 - 1),
        ("/a = @h", b"\1\0", 1),
        ("/a = =h", b"\1\0", 1),
        ("/a = <h", b"\1\0", 1),
        ("/a=>h", b"\0\1", 1),
        ("  /a  =  >h  ", b"\0\1", 1),
        ("/a = f", struct.pack("<f", 0.1), struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        ("/a = >d", struct.pack(">d", -0.0), -0.0),
    ],
)
def test_specifiers(field: str, content: bytes, found: object) -> None:
    [[value]] = read(declared(field).extractor(), content, [(b"a",)]) or [[]]
    assert agree([value], [found])


KINDS = st.sampled_from([*"cb?BhHiIlLqQnNfdsSpx"])


@EXAMPLES
@given(
    st.lists(st.tuples(KINDS, st.sampled_from(["", "<", ">", "@", "="]), st.integers(1, 9)), min_size=1),
    st.data(),
)
@example([("x", "", 3), ("x", "", 4), ("H", ">", 1), ("p", "", 9)], None)
def test_layouts_are_read_as_python_reads_them(
    fields: list[tuple[str, str, int]], data: st.DataObject | None
) -> None:
    specifiers = [f"{order}{count if kind in 'csSpx' else ''}{kind}" for kind, order, count in fields]
    kind_of = declared(*(f"/f{number} = {specifier}" for number, specifier in enumerate(specifiers)))
    sizes = []
    expected: list[list[object]] = []
    message = (
        bytes(range(256))
        if data is None
        else data.draw(st.binary(min_size=0, max_size=sum(9 for _ in fields)))
    )
    offset = 0
    for kind, order, count in fields:
        form = (">" if order == ">" else "<") + (str(count) if kind in "csSpx" else "")
        form += "s" if kind == "c" else PYTHON_FORMS.get(kind, kind)
        sizes.append(struct.calcsize(form))
        values: list[object] = []
        if kind != "x" and offset + sizes[-1] <= len(message):
            values = list(struct.unpack_from(form, message, offset))
            if kind == "S":
                values = [bytes(value).split(b"\0")[0] for value in values if isinstance(value, bytes)]
        expected.append([None if value == b"" else value for value in values])
        offset += sizes[-1]
    wanted: list[Path] = [(b"f%d" % number,) for number in range(len(fields))]
    found = read(kind_of.extractor(), message, wanted)
    assert found is not None
    for values, wanted_values in zip(found, expected, strict=True):
        assert agree(values, wanted_values)


def test_a_message_too_short_lacks_its_last_fields() -> None:
    """§12.5, interpreted: a field without all its bytes is missing."""
    kind = declared("/a = H", "/b/c = H", "/d = 2x", "/b/e = 2s")
    message = struct.pack("<HH2x2s", 1, 2, b"xy")
    paths: list[Path] = [(b"a",), (b"b",), (b"b", b"c"), (b"b", b"e")]
    assert read(kind.extractor(), message, paths) == [[1], [...], [2], [b"xy"]]
    assert read(kind.extractor(), message[:7], paths) == [[1], [...], [2], []]
    assert read(kind.extractor(), message[:3], paths) == [[1], [], [], []]
    assert read(kind.extractor(), b"", paths) == [[], [], [], []]


def test_messages_too_short_for_wanted_fields_are_counted() -> None:
    """§12.5: missing fields are NULL, and an error is logged."""
    extractor = declared("/a = H", "/b = H").extractor()
    for message, path, count in (
        (b"abcd", b"b", 0),
        (b"abc", b"a", 0),
        (b"abc", b"b", 1),
        (b"", b"a", 2),
        (b"", b"c", 2),
    ):
        assert extractor.read(message, FieldSet([(path,)]), FieldValues())
        assert extractor.messages_cut_short() == count


def test_paths_may_be_nested() -> None:
    kind = declared("/a/b/c = B", "/a/b/d = B", "/a/e = B")
    paths: list[Path] = [
        (b"a",),
        (b"a", b"b"),
        (b"a", b"b", b"c"),
        (b"a", 0, b"b", 0, b"d"),
        (b"a", 1, b"e"),
        (b"b",),
    ]
    assert read(kind.extractor(), b"\1\2\3", paths) == [[...], [...], [1], [2], [], []]


def test_fields_that_are_wanted_later_are_found() -> None:
    extractor = declared("/a = B", "/b = B").extractor()
    fields, values = FieldSet([(b"b",)]), FieldValues()
    assert extractor.read(b"\1\2", fields, values)
    assert values.values_of(0) == [2]
    slot = fields.add((b"a",))
    assert extractor.read(b"\1\2", fields, values)
    assert (values.values_of(slot), values.values_of(0)) == ([1], [2])
    others = FieldSet([(b"a",), (b"b",)])
    assert extractor.read(b"\1\2", others, values)
    assert (values.values_of(0), values.values_of(1)) == ([1], [2])


def test_topics_whose_messages_alternate_keep_their_plans() -> None:
    extractor, values = declared("/a = B", "/b = B").extractor(), FieldValues()
    one, other = FieldSet([(b"a",)]), FieldSet([(b"b",)])
    for _ in range(3):
        assert extractor.read(b"\1\2", one, values)
        assert values.values_of(0) == [1]
        assert extractor.read(b"\1\2", other, values)
        assert values.values_of(0) == [2]
    assert extractor.plans.made == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((), "has no fields"),
        (("id = i",), "is no field"),
        (("/id i",), "is no field"),
        (("/ = i",), "is no field"),
        (("/id = ",), "is no field"),
        (("/id = 4 x",), "is no field"),
        (("/id = i>",), "is no field"),
        (("/a//b = i",), "has no name"),
        (("/id = y",), "there is no type 'y'"),
        (("/id = 2i",), "has no count"),
        (("/id = s",), "needs a count"),
        (("/id = x",), "needs a count"),
        (("/id = 0s",), "not a valid size"),
        (("/id = 99999999999s",), "not a valid size"),
        (("/a = 2000000000s", "/b = 2000000000s"), "no message is longer"),
        (("/id = i", "/id = d"), "declared twice"),
        (("/a = i", "/a/b = d"), "below it"),
        (("/a/b = i", "/a = d"), "below it"),
    ],
)
def test_invalid_declarations_are_refused(fields: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        declared(*fields)


def test_padding_may_repeat_a_name() -> None:
    kind = declared("/pad = 1x", "/a = B", "/pad = 1x", "/b = B")
    assert read(kind.extractor(), b"\1\2\3\4", [(b"a",), (b"b",), (b"pad",)]) == [[2], [4], []]
