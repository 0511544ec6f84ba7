"""Builders and parsers of FIX, NVFIX and composite bodies (client.md §12). The parsers get arbitrary bytes, too."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps.client import (
    CompositeMessageBuilder,
    CompositeMessageParser,
    FIXBuilder,
    FIXShredder,
    Message,
    NVFIXBuilder,
    NVFIXShredder,
)
from amps.client.payloads.codecs import codec_for

PARTS = st.lists(st.binary(max_size=40), max_size=6)
VALUES = st.text(st.characters(exclude_characters="\x01", exclude_categories=["Cs"]), max_size=20)
NAMES = st.text(
    st.characters(exclude_characters="\x01=", exclude_categories=["Cs"]), min_size=1, max_size=10
)


def test_client_65_parts_and_payload_of_a_composite_message() -> None:
    """client.md §21, 65"""
    body = CompositeMessageBuilder().append('{"id":1}').append(b"\x00\xff").set_payload("xyz").get_data()
    assert body == b'\0\0\0\x08{"id":1}\0\0\0\x02\x00\xffxyz'
    parser = CompositeMessageParser()
    assert parser.parse(body, parts=2) == 2
    assert parser.parts == (b'{"id":1}', b"\x00\xff")
    assert (parser.size(), parser.get_part(1), parser.payload) == (2, b"\x00\xff", b"xyz")


def test_client_65_fix_fields() -> None:
    """client.md §21, 65"""
    assert FIXBuilder().append(1, "a").append(2, "b").get_data() == b"1=a\x012=b\x01"
    assert FIXShredder().to_map(b"1=a\x012=b\x01") == {1: "a", 2: "b"}
    with pytest.raises(ValueError, match="cannot be negative: -1"):
        FIXBuilder().append(-1, "x")


@given(PARTS, st.binary(max_size=20))
def test_a_parser_returns_what_a_builder_was_given(parts: list[bytes], payload: bytes) -> None:
    builder = CompositeMessageBuilder()
    for part in parts:
        builder.append(part)
    body = builder.set_payload(payload).get_data()
    assert builder.size() == len(parts)
    parser = CompositeMessageParser()
    assert parser.parse(body, parts=len(parts)) == len(parts)
    assert (parser.parts, parser.payload) == (tuple(parts), payload)
    assert builder.clear().get_data() == b""


@given(st.binary(max_size=60), st.one_of(st.none(), st.integers(0, 4)))
@example(b"\xff\xff\xff\xff", None)
@example(b"\0\0\0", 1)
@example(b"", 1)
@example(b"\0\0\0\0", 2)
def test_a_composite_body_is_read_exactly_or_refused(body: bytes, count: int | None) -> None:
    """Whatever the bytes are: the parser accounts for each of them, or raises ValueError and keeps its last parts."""
    parser = CompositeMessageParser()
    parser.parse(b"\0\0\0\x01ax", parts=1)
    refused, found = "", 0
    try:
        found = parser.parse(body, parts=count)
    except ValueError as error:
        refused = str(error)
    if refused:
        assert ("pass parts=" in refused) == (count is None)
        assert (parser.parts, parser.payload) == ((b"a",), b"x")
        return
    assert found == parser.size() == (len(parser.parts) if count is None else count)
    builder = CompositeMessageBuilder()
    for part in parser.parts:
        builder.append(part)
    assert builder.set_payload(parser.payload).get_data() == body
    if count is None:
        assert parser.payload == b""


def test_wrong_use_of_the_composite_parser_is_refused() -> None:
    parser = CompositeMessageParser()
    parser.parse(b"\0\0\0\x01a")
    for index in (-1, 1):
        with pytest.raises(IndexError, match="has 1 parts"):
            parser.get_part(index)
    for parts in (-1, True, "2"):
        with pytest.raises(ValueError, match="number of parts"):
            parser.parse(b"", parts=parts)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        parser.parse(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not dict"):
        CompositeMessageBuilder().append({})  # type: ignore[arg-type]


def test_messages_are_read_without_their_header() -> None:
    body = CompositeMessageBuilder().append("x").get_data()
    parser = CompositeMessageParser()
    assert parser.parse(Message(b'{"c":"p","t":"x"}' + body)) == 1
    assert parser.parts == (b"x",)
    assert CompositeMessageBuilder().append(Message(b'{"c":"p"}x')).get_data() == body
    assert FIXShredder().to_map(Message(b'{"c":"p"}8=FIX\x01')) == {8: "FIX"}


@given(st.lists(st.tuples(st.integers(0, 9999), VALUES), max_size=6))
def test_fix_fields_come_back_in_order(fields: list[tuple[int, str]]) -> None:
    builder = FIXBuilder()
    for tag, value in fields:
        builder.append(tag, value)
    body = builder.get_data()
    assert (builder.size(), builder.get_string()) == (len(body), body.decode())
    assert list(FIXShredder().fields(body)) == fields
    assert FIXShredder().to_map(body) == dict(fields)
    assert codec_for("fix").encode(dict(fields)) == codec_for("fix").encode(FIXShredder().to_map(body))
    assert builder.reset().get_data() == b""


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_nvfix_fields_come_back_in_order(fields: list[tuple[str, str]]) -> None:
    builder = NVFIXBuilder()
    for name, value in fields:
        builder.append(name, value)
    assert list(NVFIXShredder().fields(builder.get_data())) == fields
    assert codec_for("nvfix").decode(builder.get_data()) == dict(fields)


@given(st.binary(max_size=60))
@example(b"=\x01")
@example(b"\xb2=1\x01")
@example(b"-1=x\x01")
@example(b" 1=x\x01")
@example(b"1=\xff\x01")
def test_shredders_read_or_refuse_arbitrary_bytes(body: bytes) -> None:
    """Whatever the bytes are: fields that a builder can write again to the same body, or ValueError."""
    for shredder, builder in ((FIXShredder(), FIXBuilder()), (NVFIXShredder(), NVFIXBuilder())):
        try:
            fields = list(shredder.fields(body))
        except ValueError:
            continue
        for key, value in fields:
            builder.append(key, value)  # type: ignore[arg-type]
        normal = b"".join(pair + b"\x01" for pair in body.split(b"\x01") if pair)
        written = builder.get_data()
        if isinstance(builder, FIXBuilder):  # leading zeros of a tag are not kept
            assert list(shredder.fields(written)) == fields
        else:
            assert written == normal


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda: FIXBuilder().append("x", "1"), "numbers for keys, not 'x'"),
        (lambda: FIXBuilder().append(1.5, "1"), "numbers for keys, not 1.5"),  # type: ignore[arg-type]
        (lambda: FIXBuilder().append(True, "1"), "numbers for keys, not True"),
        (lambda: FIXBuilder().append("1_0", "1"), "numbers for keys"),
        (lambda: FIXBuilder().append(1, "a\x01b"), "contains the separator"),
        (lambda: NVFIXBuilder("|").append("a|b", "1"), "contains the separator"),
        (lambda: NVFIXBuilder().append("a=b", "1"), "no usable nvfix name"),
        (lambda: NVFIXBuilder().append("", "1"), "no usable nvfix name"),
        (lambda: FIXBuilder("="), "ends a key"),
        (lambda: FIXBuilder("||"), "one byte"),
        (lambda: FIXShredder(256), "one byte"),
        (lambda: FIXShredder().to_map(b"1=a\x01bare\x01"), "fix field without '=': b'bare'"),
        (lambda: FIXShredder().to_map(b"x=a\x01"), "a fix tag is a number, not b'x'"),
        (lambda: NVFIXShredder().to_map(b"=a\x01"), "without a name"),
    ],
)
def test_fields_that_would_change_the_body_are_refused(act: Callable[[], Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        act()


def test_values_and_separators_of_other_types() -> None:
    builder = NVFIXBuilder("|").append("px", 12.5).append("qty", 250).append("raw", b"\xe9")
    assert builder.get_data() == b"px=12.5|qty=250|raw=\xe9|"
    with pytest.raises(UnicodeDecodeError):
        builder.get_string()
    assert FIXShredder(124).to_map("1=a|1=b|") == {1: "b"}
    assert list(FIXShredder(b"|").fields("1=a|1=b")) == [(1, "a"), (1, "b")]


def test_a_missing_value_leaves_the_field_out() -> None:
    """FIX has no null: a field that is None is absent."""
    assert codec_for("nvfix").encode({"a": 1, "b": None}) == b"a=1\x01"
