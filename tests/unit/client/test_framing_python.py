"""Frames and headers: the extension module and its equivalent in Python give the same results and the same errors."""

import itertools
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps._core.wire import framing as compiled
from amps.client.protocol import framing_python

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
BOTH = pytest.mark.parametrize("framing", [compiled, framing_python], ids=["compiled", "python"])
SPELLINGS = [*compiled.FIELD_NAMES, "c", "cid", "a", "t", "f", "o", "bm", "bs", "order_by", "k", "e", "s", "x", "pw"]
SPELLINGS += ["mt", "v", "ts", "lp", "l", "unknown", "u", "", "cmd\\u0041", "é"]
SPACES = st.sampled_from(["", "", "", " ", "\t\r\n"])
BARE = st.sampled_from(["0", "-1", "17", "00", "-", "--1", "9" * 20, "9" * 21, "-" + "9" * 20, "1.5", "1e3", "null"])
WORDS = st.sampled_from(["true", "false", "True", "truex", "nan", "1-2", "1 2", ""])
TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["12", "-12", "true", "false", "٣", "²", "a" * 31, "a" * 32, "a" * 33, "b" * 500]),
    st.sampled_from(['\\"', "\\\\", "\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud800", "\\x", "\\", "a" * 31 + "\\n"]),
)


@st.composite
def header_bytes(draw: st.DrawFn) -> bytes:
    """Headers, most of them well-formed, followed by a body."""
    pairs = []
    for _ in range(draw(st.integers(0, 5))):
        value = draw(st.one_of(TEXTS.map(lambda text: f'"{text}"'), BARE, WORDS))
        key = f'"{draw(st.sampled_from(SPELLINGS))}"'
        pairs.append("".join((draw(SPACES), key, draw(SPACES), ":", draw(SPACES), value, draw(SPACES))))
    text = "{" + ",".join(pairs) + draw(SPACES) + "}"
    body = draw(st.sampled_from([b"", b'{"id":1}', b"}", b'"', b"\xff\x00"]))
    return text.encode("utf-8", "surrogatepass") + body


def parsed(framing: ModuleType, payload: bytes | memoryview) -> tuple[Any, ...]:
    """The result of parsing a header, with the types and the order of its values, or the text of the error."""
    try:
        fields, end = framing.parse_header(payload)
    except framing.HeaderError as error:
        return ("error", str(error))
    return ([(name, type(value), value) for name, value in fields.items()], end)


def built(framing: ModuleType, fields: dict[str, Any], body: bytes | bytearray = b"") -> tuple[Any, ...]:
    """The header and the frame of fields, or the type of the error."""
    try:
        return framing.build_header(fields), framing.encode_frame(fields, body)
    except (KeyError, TypeError) as error:
        return ("error", type(error))


@PATIENT
@given(header_bytes())
@example(b"{}")
@example(b"{ \t}x")
@example(b"{,}")
@example(b'{"c":"p",}')
@example(b'{"t":"\xff"}')
@example(b'{"unknown":"\xff","t":"a"}')
@example(b'{"t":"\xff","t":"a"}')
@example(b'{"t":"a\\')
@example(b'{"t":"\\n\n"}')
@example(b'{"s":' + b"9" * 20 + b'}{"s":1}')
@example(b'{"s":' + b"9" * 21 + b"}")
@example(b'{"e":"' + b"9" * 21 + b'"}')
def test_every_header_is_parsed_alike_cut_at_every_byte(payload: bytes) -> None:
    for end in range(len(payload) + 1):
        cut = payload[:end]
        assert parsed(framing_python, cut) == parsed(compiled, cut)
        assert parsed(framing_python, memoryview(b"xy" + cut)[2:]) == parsed(compiled, cut)


@PATIENT
@given(header_bytes(), st.integers(0, 2000), st.integers(0, 255))
def test_every_header_with_a_wrong_byte_is_parsed_alike(payload: bytes, at: int, byte: int) -> None:
    changed = bytearray(payload)
    changed[at % len(changed)] = byte
    assert parsed(framing_python, bytes(changed)) == parsed(compiled, bytes(changed))


@PATIENT
@given(st.binary(max_size=40))
def test_any_bytes_are_parsed_alike(payload: bytes) -> None:
    for start in (b"", b"{", b'{"', b'{"t":"'):
        assert parsed(framing_python, start + payload) == parsed(compiled, start + payload)


@pytest.mark.parametrize("name", compiled.FIELD_NAMES)
def test_both_know_each_field_and_write_it_alike(name: str) -> None:
    for value in ("", "text", "12", "true", 'quote"', "line\n", "é", "\ud800", 0, -7, 2**70, True, False, None):
        assert built(framing_python, {name: value}) == built(compiled, {name: value})
    assert framing_python.FIELD_NAMES == compiled.FIELD_NAMES


@PATIENT
@given(st.dictionaries(st.sampled_from(compiled.FIELD_NAMES), TEXTS | st.integers() | st.booleans() | st.none()))
def test_headers_are_built_alike(fields: dict[str, Any]) -> None:
    for body in (b"body", bytearray(b"body")):
        assert built(framing_python, fields, body) == built(compiled, fields, body)


@BOTH
def test_a_name_that_is_no_field_and_a_value_of_another_type_are_refused(framing: ModuleType) -> None:
    with pytest.raises(KeyError):
        framing.build_header({"no_field": "x"})
    with pytest.raises(TypeError):
        framing.build_header({"topic": b"bytes"})
    with pytest.raises(TypeError):
        framing.build_header({"cmd": 1})


def test_the_limits_are_the_same() -> None:
    assert framing_python.MAX_MESSAGE_BYTES == compiled.MAX_MESSAGE_BYTES
    assert framing_python.MAX_HEADER_BYTES == compiled.MAX_HEADER_BYTES
    assert framing_python.LENGTH_BYTES == compiled.LENGTH_BYTES
    for size in (compiled.MAX_HEADER_BYTES - 8, compiled.MAX_HEADER_BYTES - 7):
        for payload in (b'{"f":"' + b"x" * size + b'"}', b'{"f":"\\n' + b"x" * (size - 2) + b'"}'):
            assert parsed(framing_python, payload) == parsed(compiled, payload)


@BOTH
def test_a_malformed_header_of_the_largest_size_is_refused_in_linear_time(framing: ModuleType) -> None:
    """A backtracking scanner would need hours for these."""
    size = compiled.MAX_HEADER_BYTES
    for payload in (b'{"f":"' + b"x" * size, b'{"f":"' + b"\\n" * size, b'{"' + b"\\\\" * size, b"{" + b" " * size):
        assert parsed(framing, payload)[0] == "error"


def frames_of(framing: ModuleType, chunks: list[bytes], limit: int) -> list[Any]:
    """The results of a decoder after each chunk: payloads, the bytes it holds, an error."""
    decoder = framing.FrameDecoder(limit)
    seen: list[Any] = [decoder.max_frame_bytes]
    for number, chunk in enumerate(chunks):
        decoder.feed((chunk, bytearray(chunk), memoryview(chunk))[number % 3])
        try:
            while (payload := decoder.next_frame()) is not None:
                seen += [type(payload), payload]
        except framing.FrameTooLarge as error:
            return [*seen, str(error), decoder.buffered_bytes]
        seen.append(decoder.buffered_bytes)
    return seen


@PATIENT
@given(
    st.lists(st.binary(max_size=30) | st.just(b"")),
    st.lists(st.integers(0, 400)),
    st.integers(0, 40),
    st.binary(max_size=6),
)
def test_frames_are_cut_alike_from_any_pieces(
    payloads: list[bytes], cuts: list[int], limit: int, rest: bytes
) -> None:
    stream = b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads) + rest
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]
    assert frames_of(framing_python, chunks, limit) == frames_of(compiled, chunks, limit)


@pytest.mark.parametrize(
    ("value", "module"),
    [(None, "amps._core.wire.framing"), ("0", "amps._core.wire.framing"), ("1", "amps.client.protocol.framing_python")],
)
def test_the_environment_selects_the_module(value: str | None, module: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "AMPS_PURE_PYTHON"}
    environment |= {} if value is None else {"AMPS_PURE_PYTHON": value}
    code = "import amps.client.protocol.framing as f; print(f.FrameDecoder.__module__, f.HeaderError.__module__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [module, module]
