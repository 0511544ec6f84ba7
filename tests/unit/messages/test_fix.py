"""Fields of FIX and NVFIX messages (expressions.md §12.3, §12.4), and the examples of both there."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amps.messages.base import MessageType
from amps.messages.fix import FixType, NvfixType
from amps.messages.settings import TypeSettings
from tests.unit.messages.reading import Found, matches, read

FIX = FixType(TypeSettings("fix", "fix"), {})
NVFIX = NvfixType(TypeSettings("nvfix", "nvfix"), {})
PIPED = NvfixType(TypeSettings("pipe-nvfix", "nvfix", field_separator=124), {})

N = b"sym=ACME\x01qty=250\x01px=12.50\x01memo=\x01code=0042\x01"
F = b"35=D\x0155=ACME\x0138=250\x0144=12.5\x01"


def passes(kind: MessageType, message: bytes, text: str) -> bool:
    return matches(kind.extractor(), message, text)


@pytest.mark.parametrize(
    ("kind", "message", "text", "wanted"),
    [
        # expressions.md §13 row 104
        (NVFIX, N, "/qty = 250 AND /px = 12.5 AND /memo IS NULL", True),
        # expressions.md §13 row 105
        (NVFIX, N, "/code = 42", True),
        (NVFIX, N, "/code = '0042'", True),
        (NVFIX, N, "/code = '42'", False),
        # expressions.md §13 row 106
        (FIX, F, "/55 = 'ACME' AND /38 > 100 AND /38 > /44 * 10", True),
        # expressions.md §15 item 37
        (NVFIX, b"a=1\x01b=\x01", "/a = 1 AND /b IS NULL", True),
        (NVFIX, b"code=0042\x01", "/code = 42", True),
        (NVFIX, b"code=0042\x01", "/code = '0042'", True),
        (NVFIX, b"code=0042\x01", "/code = '42'", False),
        # expressions.md §15 item 38
        (FIX, b"38=200\x0144=7\x0199=7\x01", "/38 > 100 AND /44 == /99", True),
        (FIX, b"38=200\x0144=7\x0199=7\x01", "/Name = 1", False),
        (FIX, b"38=200\x01Name=1\x01", "/Name = 1", False),
        (FIX, b"58=a\x0158=b\x01", "/58 = 'b'", True),
        (FIX, b"58=a\x0158=b\x01", "/58[1] = 'b'", True),
        (FIX, b"58=a\x0158=b\x01", "/58[0] = 'b'", False),
        # expressions.md §15 item 66
        (PIPED, b"a=1|b=2|", "/a = 1 AND /b = 2", True),
        # An empty message has no fields and is no error (§12.3).
        (NVFIX, b"", "/a IS NULL", True),
        # Paths of several steps are accepted and lead to nothing (§3).
        (NVFIX, b"a=1\x01", "/a/b IS NULL AND /a[0]/b IS NULL", True),
    ],
)
def test_filters(kind: MessageType, message: bytes, text: str, wanted: bool) -> None:
    assert passes(kind, message, text) is wanted


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b"a=1\x01b=x\x01", [[1], [b"x"]]),
        (b"a=1\x01b=x", [[1], [b"x"]]),
        (b"a=1\x01b=", [[1], [None]]),
        (b"a=\x01b=\x01", [[None], [None]]),
        (b"b=x=y=\x01a==\x01", [[b"="], [b"x=y="]]),
        (b"a=1.50\x01a=-7\x01a=18446744073709551615\x01a=1e3\x01", [[1.5, -7, 2**64 - 1, 1e3], []]),
        (b"a=1 \x01b= x", [[b"1 "], [b" x"]]),
        (b"\xff\x00=\x01a=\xc3\xa9\xff\x00", [[b"\xc3\xa9\xff\x00"], []]),
        (b"A=1\x01a =2\x01", [[], []]),
        # A field without an equals sign, or without a tag, is an error (§12.3), wherever it stands.
        (b"a", None),
        (b"a=1\x01b", None),
        (b"a=1\x01b\x01", None),
        (b"a=1\x01=x\x01", None),
        (b"=\x01", None),
        (b"\x01", None),
        (b"a=1\x01\x01b=2\x01", None),
    ],
)
def test_fields(message: bytes, found: list[Found] | None) -> None:
    assert read(NVFIX.extractor(), message, [(b"a",), (b"b",)]) == found


def test_nothing_is_parsed_when_no_field_is_wanted() -> None:
    """expressions.md §12.3: a message is parsed only if something needs its fields."""
    assert read(NVFIX.extractor(), b"no fields at all", []) == []


@pytest.mark.parametrize("numeric", [True, False])
def test_tags_of_fix_are_numbers(numeric: bool) -> None:
    kind = FIX if numeric else NVFIX
    found = read(kind.extractor(), b"1=a\x011x=b\x01-1=c\x01", [(b"1",), (b"1x",), (b"-1",)])
    assert found == ([[b"a"], [], []] if numeric else [[b"a"], [b"b"], [b"c"]])


@pytest.mark.parametrize(
    ("kind", "separator", "said"),
    [
        (NvfixType, 256, "is not a byte"),
        (NvfixType, -1, "is not a byte"),
        (NvfixType, 61, "give another"),
        (FixType, 48, "'0'"),
    ],
)
def test_invalid_separators(kind: type[NvfixType], separator: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(TypeSettings("x", "fix", field_separator=separator), {})


def expected(message: bytes, separator: bytes, tags: list[bytes]) -> list[list[bytes | None]] | None:
    """The fields found by plain splitting."""
    fields = message.split(separator)
    if not fields[-1]:
        fields.pop()
    pairs = [field.partition(b"=") for field in fields]
    if any(not equals or not tag for tag, equals, _ in pairs):
        return None
    return [[value or None for tag, _, value in pairs if tag == wanted] for wanted in tags]


texts = st.one_of(
    st.text(alphabet="ab=|\x01", max_size=6).map(str.encode),
    st.sampled_from([b"a=x|", b"b=y|", b"a=|", b"long tag=" + b"v" * 70 + b"|", b"c=" + b"=" * 63 + b"|"]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(texts, max_size=40).map(b"".join), st.sampled_from([b"|", b"\x01", b"a"]))
@example(b"a=" + b"x" * 61 + b"|b=y|", b"|")
@example(b"a=" + b"x" * 62 + b"|b=y|", b"|")
@example(b"a=" + b"x" * 60 + b"|b=y|", b"|")
def test_messages_are_split_at_separators_and_equals_signs(message: bytes, separator: bytes) -> None:
    """Any bytes, compared with plain splitting; blocks of 64 bytes begin and end everywhere."""
    tags = [b"a", b"b", b"c", b"long tag"]
    extractor = NvfixType(TypeSettings("x", "nvfix", field_separator=separator[0]), {}).extractor()
    for begin in (0, 1):  # with another alignment
        found = read(extractor, message[begin:], [(tag,) for tag in tags])
        assert found == expected(message[begin:], separator, tags)


def test_one_extractor_reads_many_messages() -> None:
    extractor = FIX.extractor()
    for number in range(300):
        message = b"".join(b"%d=%d\x01" % (tag, tag * number) for tag in range(number))
        assert read(extractor, message, [(b"7",), (b"250",)]) == [
            [7 * number] if number > 7 else [],
            [250 * number] if number > 250 else [],
        ]


@pytest.mark.parametrize("separator", [0, 255])
def test_any_byte_may_be_the_separator(separator: int) -> None:
    """expressions.md §12.2"""
    kind = NvfixType(TypeSettings("own", "nvfix", field_separator=separator), {})
    assert passes(kind, b"a=1%cb=2" % separator, "/a = 1 AND /b = 2")
