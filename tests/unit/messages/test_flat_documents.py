"""Deltas and select lists of FIX, NVFIX and BFlat messages (sow.md §14, §17, §18), against plain Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.values.documents import Selection
from amps.messages.bflat import BflatType
from amps.messages.fix import FixType, NvfixType
from amps.messages.settings import TypeSettings
from tests.unit.messages.document_models import Checked
from tests.unit.messages.nested import EXAMPLES

Fields = list[tuple[bytes, bytes]]


def fix_of(fields: Fields) -> bytes:
    return b"".join(b"%b=%b|" % field for field in fields)


def fields_of_fix(message: bytes) -> Fields:
    found = [field.split(b"=", 1) for field in message.rstrip(b"|").split(b"|") if field]
    return [(tag, value) for tag, value in found]


def bflat_field(tag: bytes, value: bytes) -> bytes:
    """A string; the empty one as null."""
    head = bytes([(8 if value else 0) | len(tag)]) + tag
    return head + (bytes([len(value)]) + value if value else b"")


def bflat_of(fields: Fields) -> bytes:
    return b"".join(bflat_field(*field) for field in fields)


def fields_of_bflat(message: bytes) -> Fields:
    found: Fields = []
    at = 0
    while at < len(message):
        head = message[at]
        tag = message[at + 1 : at + 1 + (head & 7)]
        at += 1 + len(tag)
        value = message[at + 1 : at + 1 + message[at]] if head & 8 else b""
        at += 1 + len(value) if head & 8 else 0
        found.append((tag, value))
    return found


@dataclass(frozen=True)
class Format:
    checked: Checked
    packed: Callable[[Fields], bytes]
    unpacked: Callable[[bytes], Fields]


PIPES = {"field_separator": ord("|")}
FIX = Format(
    Checked(FixType(TypeSettings("fix", "fix", field_separator=124), {}).documents()), fix_of, fields_of_fix
)
NVFIX = Format(
    Checked(NvfixType(TypeSettings("nvfix", "nvfix", field_separator=124), {}).documents()), fix_of, fields_of_fix
)
BFLAT = Format(Checked(BflatType(TypeSettings("bflat", "bflat"), {}).documents()), bflat_of, fields_of_bflat)
FORMAT = st.sampled_from([FIX, NVFIX, BFLAT])
FIELDS = st.lists(
    st.tuples(st.sampled_from([b"1", b"2", b"37", b"39"]), st.sampled_from([b"", b"x", b"1.0", b"yz"])), max_size=7
)


# --- examples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "delta", "merged"),
    [
        # sow.md §25 item 29.
        (b"37=A|38=5|39=1|", b"37=A|39=2|", b"37=A|38=5|39=2|"),
        # A separator behind the last field stays, and is not added.
        (b"1=a|2=b", b"3=c|", b"1=a|2=b|3=c"),
        (b"1=a|2=b|", b"3=c", b"1=a|2=b|3=c|"),
        (b"1=a", b"1=b|", b"1=b"),
        (b"", b"1=a|2=|", b"1=a|"),
        (b"1=a|", b"", b"1=a|"),
        # NULLs of a delta are ignored; those of an array are not.
        (b"1=a|2=b|", b"1=|3=|", b"1=a|2=b|"),
        (b"1=a|", b"1=|1=|", b"1=a|"),
        (b"1=a|", b"1=|1=z|", b"1=|1=z|"),
        # Repeated tags are an array, which is replaced whole, in the place of its first field.
        (b"1=a|2=b|1=c|3=d|", b"1=z|", b"1=z|2=b|3=d|"),
        (b"2=b|1=a|3=d|", b"1=x|1=y|1=z|", b"2=b|1=x|1=y|1=z|3=d|"),
        (b"2=b|", b"1=x|3=c|1=y|", b"2=b|1=x|3=c|1=y|"),
        (b"1=a|1=b|1=c", b"1=z|", b"1=z"),
        # Only the bytes of values count.
        (b"38=1.50|", b"38=1.5|", b"38=1.5|"),
        (b"1=a=b|", b"2==|", b"1=a=b|2==|"),
    ],
)
def test_merging_a_delta_of_fix(stored: bytes, delta: bytes, merged: bytes) -> None:
    for kind in (FIX, NVFIX):
        assert kind.checked.merge(stored, delta) == merged


@pytest.mark.parametrize(
    ("old", "new", "body", "changed"),
    [
        (b"37=A|38=5|39=1|", b"37=A|38=5|39=2|", b"37=A|39=2|", True),
        (b"37=A|38=5|", b"37=A|38=5|", b"37=A|", False),
        # D10: NULL is an empty value.
        (b"37=A|38=5|39=1|", b"37=A|", b"37=A|38=|39=|", True),
        (b"37=A|38=|", b"37=A|39=|", b"37=A|", False),
        (b"37=A|1=a|1=b|", b"37=A|1=a|1=c|", b"37=A|1=a|1=c|", True),
        (b"37=A|1=a|1=b|", b"1=a|37=A|1=b|", b"37=A|", False),
        (b"37=A|1=a|1=b|", b"37=A|1=a|", b"37=A|1=a|", True),
        (b"37=A|1=a|1=b|", b"37=A|", b"37=A|1=|", True),
        (b"1=a|", b"1=a|", b"", False),
        (b"1=a|", b"", b"1=|", True),
    ],
)
def test_the_difference_of_two_states_of_fix(old: bytes, new: bytes, body: bytes, changed: bool) -> None:
    assert FIX.checked.difference(old, new, "/37") == (body, changed)


@pytest.mark.parametrize(
    ("message", "directives", "body"),
    [
        (b"1=a|2=b|3=c|", "[-/,+/2]", b"2=b|"),
        (b"1=a|2=b|3=c|", "[-/2]", b"1=a|3=c|"),
        (b"1=a|2=b|3=c|", "[-/3]", b"1=a|2=b|"),
        (b"1=a|2=b|3=c", "[-/3]", b"1=a|2=b"),
        (b"1=a|2=b|3=c", "[-/1,-/2]", b"3=c"),
        (b"1=a|2=b|1=c|", "[-/1]", b"2=b|"),
        (b"1=a|2=b|", "[-/]", b""),
        (b"1=a|", "[-/1/2]", b"1=a|"),
        (b"1=a|", "[-/,+/1/2]", b""),
        (b"", "[-/]", b""),
    ],
)
def test_select_lists_of_fix(message: bytes, directives: str, body: bytes) -> None:
    assert FIX.checked.select(message, directives) == body


def test_bflat_types_and_arrays() -> None:
    stored = b"\x19a\x05" + b"\x09b\x03xyz" + b"\x99l\x02\x01\x02"  # int8, string, array of int8
    assert BFLAT.checked.merge(stored, b"\x39a" + b"\0" * 8) == b"\x39a" + b"\0" * 8 + stored[3:]
    # A null, an empty string and an empty binary are NULL; an empty array is a value.
    for null in (b"\x01a", b"\x09a\0", b"\x11a\0"):
        assert BFLAT.checked.merge(stored, null) == stored
    assert BFLAT.checked.merge(stored, b"\x99l\x00") == stored[:-5] + b"\x99l\x00"
    # An array of several runs.
    runs = b"\x99l\x01\x07\x89l\x01\x01q"
    assert BFLAT.checked.merge(stored, runs) == stored[:-5] + runs
    assert BFLAT.checked.merge(stored[:-5] + runs, b"\x19l\x01") == stored[:-5] + b"\x19l\x01"
    assert BFLAT.checked.difference(stored, stored[:-5], "/a") == (b"\x19a\x05\x01l", True)
    long_name = b"\x18\x09long name\x01"
    assert BFLAT.checked.difference(long_name, b"") == (b"\x00\x09long name", True)


@pytest.mark.parametrize(
    ("kind", "malformed"),
    [(FIX, b"1"), (FIX, b"=1|"), (FIX, b"1=a||2=b"), (FIX, b"|"),
     (BFLAT, b"\x19a"), (BFLAT, b"\x78a"), (BFLAT, b"\x08\x00")],
)  # fmt: skip
def test_malformed_messages_are_refused(kind: Format, malformed: bytes) -> None:
    good = kind.packed([(b"1", b"a")])
    for first, second in ((malformed, good), (good, malformed)):
        with pytest.raises(ValueError, match="cannot be parsed"):
            kind.checked.merge(first, second)
        with pytest.raises(ValueError, match="cannot be parsed"):
            kind.checked.difference(first, second)
    with pytest.raises(ValueError, match="cannot be parsed"):
        kind.checked.select(malformed, "-/1")


def test_messages_of_many_fields() -> None:
    stored = fix_of([(b"%d" % tag, b"1") for tag in range(100_000)])
    delta = fix_of([(b"%d" % tag, b"2") for tag in reversed(range(100_000))])
    assert FIX.checked.merge(stored, delta) == stored.replace(b"=1", b"=2")
    assert FIX.checked.difference(delta, FIX.checked.merge(stored, delta)) == (b"", False)


# --- random messages --------------------------------------------------------------------------------------------


def groups_of(fields: Fields) -> dict[bytes, list[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for tag, value in fields:
        groups.setdefault(tag, []).append(value)
    return groups


def merged_by(stored: Fields, delta: Fields) -> Fields:
    groups = {tag: values for tag, values in groups_of(delta).items() if any(values)}
    made: Fields = []
    replaced = set()
    for tag, value in stored:
        if tag not in groups:
            made.append((tag, value))
        elif tag not in replaced:
            made += [(tag, each) for each in groups[tag]]
        replaced.add(tag)
    return made + [(tag, value) for tag, value in delta if tag in groups and tag not in replaced]


def compared(old: Fields, new: Fields, keys: set[bytes]) -> tuple[Fields, bool]:
    before, after = groups_of(old), groups_of(new)
    changed = {
        tag
        for tag in {**before, **after}
        if before.get(tag) != after.get(tag) and any(before.get(tag, []) + after.get(tag, []))
    }
    made = [(tag, value) for tag, value in new if tag in changed or tag in keys]
    return made + [(tag, b"") for tag in before if tag in changed and tag not in after], bool(changed)


@EXAMPLES
@given(FORMAT, FIELDS, FIELDS, st.booleans())
@example(FIX, [], [(b"1", b""), (b"2", b"x")], True)
def test_random_deltas(kind: Format, stored: Fields, delta: Fields, cut: bool) -> None:
    message = kind.packed(stored)
    if cut and kind is not BFLAT:
        message = message[:-1]
    merged = kind.checked.merge(message, kind.packed(delta))
    assert kind.unpacked(merged) == merged_by(stored, delta)
    if stored and kind is not BFLAT:
        assert merged.endswith(b"|") is message.endswith(b"|")


@EXAMPLES
@given(FORMAT, FIELDS, FIELDS, st.sets(st.sampled_from([b"1", b"37", b"99"])))
def test_random_differences(kind: Format, old: Fields, new: Fields, keys: set[bytes]) -> None:
    for after in (new, merged_by(old, new)):
        expected, changed = compared(old, after, keys)
        body, found = kind.checked.difference(kind.packed(old), kind.packed(after), *[(key,) for key in keys])
        assert (kind.unpacked(body), found) == (expected, changed)


@EXAMPLES
@given(FORMAT, FIELDS, st.lists(st.tuples(st.booleans(), st.sampled_from([(), (b"1",), (b"2",), (b"37",)]))))
def test_random_select_lists(
    kind: Format, fields: Fields, directives: Sequence[tuple[bool, tuple[bytes, ...]]]
) -> None:
    chosen: dict[tuple[bytes, ...], bool] = {}
    for included, path in directives:
        chosen.setdefault(path, included)
    left = [(tag, value) for tag, value in fields if chosen.get((tag,), chosen.get((), True))]
    assert kind.unpacked(kind.checked.select(kind.packed(fields), Selection(directives))) == left
