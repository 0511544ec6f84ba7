"""Building and changing FIX and NVFIX messages (expressions.md §11)."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.values.fields import OMIT
from amps.messages.fix import FixType, NvfixType
from amps.messages.settings import TypeSettings
from tests.unit.messages.reading import merge as merge_into
from tests.unit.messages.reading import read

FIX = FixType(TypeSettings("fix", "fix"), {})
PIPED = NvfixType(TypeSettings("pipe-nvfix", "nvfix", field_separator=124), {})
BLANKS = NvfixType(TypeSettings("blanks", "nvfix", field_separator=32), {})


def merge(message: bytes, tags: Sequence[bytes], *values: object) -> bytes:
    return merge_into(PIPED.builder([(tag,) for tag in tags]), message, values)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1, b"1"),
        (-5, b"-5"),
        (2**64 - 1, b"18446744073709551615"),
        (1.5, b"1.5"),
        (24.0, b"24.0"),
        (True, b"1"),
        (False, b"0"),
        # NULL is written (expressions.md §11), and NaN is 0 (§10.12, §15 item 53).
        (None, b""),
        (b"", b""),
        (float("nan"), b"0"),
        (float("inf"), b"0"),
        (b"0042", b"0042"),
        (b"a=b", b"a=b"),
        # A value cannot contain further fields.
        (b"x|b=9|", b"x b=9 "),
        (b"|", b" "),
        (b"\x01\xff", b"\x01\xff"),
    ],
)
def test_values(value: object, written: bytes) -> None:
    assert PIPED.builder([(b"a",)]).build([value]) == b"a=" + written + b"|"
    assert merge(b"z=1|a=5|b=2", [b"a"], value) == b"z=1|a=" + written + b"|b=2"


def test_a_separator_that_is_a_blank_is_not_used_as_replacement() -> None:
    assert BLANKS.builder([(b"a",)]).build([b"x b=9"]) == b"a=x_b=9 "


def test_new_messages() -> None:
    assert FIX.builder([(b"35",), (b"58",), (b"44",)]).build([b"D", OMIT, 1.5]) == b"35=D\x0144=1.5\x01"
    assert FIX.builder([]).build([]) == b""
    # Of two fields with one destination, the later one wins (expressions.md §11).
    assert FIX.builder([(b"1",), (b"2",), (b"1",)]).build([7, 8, 9]) == b"2=8\x011=9\x01"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ((b"Name",), "give a number"),
        ((b"",), "give a number"),
        ((b"-1",), "give a number"),
        ((b"1", b"2"), "/1/2 has several steps"),
        ((b"1", 0), r"/1\[0\] has several steps"),
        ((), "several steps"),
    ],
)
def test_paths_that_fix_cannot_store(path: tuple[bytes, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FIX.builder([path])


@pytest.mark.parametrize("tag", [b"a=b", b"a|b", b"="])
def test_tags_that_nvfix_cannot_store(tag: bytes) -> None:
    with pytest.raises(ValueError, match="no tag can"):
        PIPED.builder([(tag,)])


def test_an_empty_tag_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        PIPED.builder([(b"",)])


@pytest.mark.parametrize(
    ("message", "tags", "values", "merged"),
    [
        (b"", [b"a"], [1], b"a=1|"),
        (b"a=1", [b"a"], [2], b"a=2"),
        (b"a=1", [b"b"], [2], b"a=1|b=2|"),
        (b"a=1|", [b"b", b"c"], [2, 3], b"a=1|b=2|c=3|"),
        (b"a=1|b=2|c=3|", [b"c", b"b"], [7, 8], b"a=1|b=8|c=7|"),
        (b"a=1|b=2|c=3|", [b"b"], [OMIT], b"a=1|c=3|"),
        (b"a=1|b=2|c=3", [b"c", b"d"], [OMIT, 4], b"a=1|b=2|d=4|"),
        (b"a=1|b=2|", [b"a", b"b"], [OMIT, OMIT], b""),
        (b"a=1|b=2", [b"d"], [OMIT], b"a=1|b=2"),
        # Of a repeated tag one field remains, in the place of the first one.
        (b"a=1|k=0|a=2|b=2|a=3|", [b"a"], [9], b"a=9|k=0|b=2|"),
        (b"k= 1 |a=x=y|", [b"a"], [b"z"], b"k= 1 |a=z|"),
    ],
)
def test_changed_messages(message: bytes, tags: list[bytes], values: list[object], merged: bytes) -> None:
    assert merge(message, tags, *values) == merged


@pytest.mark.parametrize("message", [b"a", b"a=1|b", b"a=1||", b"=1|", b"|"])
def test_messages_that_cannot_be_changed(message: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be parsed"):
        merge(message, [b"c"], 1)


TAGS = st.sampled_from([b"a", b"b", b"c", b"tag"])
MESSAGES = st.lists(st.tuples(TAGS, st.text("xyz=01", max_size=70).map(str.encode)), max_size=12)


@settings(max_examples=300, deadline=None)
@given(
    MESSAGES,
    st.dictionaries(TAGS, st.none() | st.just(OMIT) | st.sampled_from([b"x|y", b"v"])),
    st.booleans(),
)
def test_changed_messages_are_read_back(
    pairs: list[tuple[bytes, bytes]], wanted: dict[bytes, object], closed: bool
) -> None:
    message = b"|".join(b"%b=%b" % pair for pair in pairs)
    if closed and pairs:
        message += b"|"
    merged = merge(message, list(wanted), *wanted.values())
    tags = [b"a", b"b", b"c", b"tag"]
    before = read(PIPED.extractor(), message, [(tag,) for tag in tags])
    after = read(PIPED.extractor(), merged, [(tag,) for tag in tags])
    assert before is not None
    assert after == [
        found
        if tag not in wanted
        else []
        if wanted[tag] is OMIT
        else [value.replace(b"|", b" ") if isinstance(value := wanted[tag], bytes) else value]
        for tag, found in zip(tags, before, strict=True)
    ]
    # The fields that are not named keep their order.
    untouched = [b"%b=%b" % pair for pair in pairs if pair[0] not in wanted]
    assert [
        field for field in merged.split(b"|") if field and field.split(b"=")[0] not in wanted
    ] == untouched
