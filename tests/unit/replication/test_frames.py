"""The frames of a link (replication.md §24.1): lengths are checked before memory is used."""

import json
import struct
import sys
import zlib
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from amps.server.replication import frames
from amps.server.replication.frames import (
    HEAD_BYTES,
    LONG_BYTES,
    SHORT_BYTES,
    Content,
    Frame,
    Parser,
    ProtocolError,
)
from tests.support.memory_link import received


def _parsed(data: bytes, step: int = 1 << 20, bytes_max: int = frames.FRAME_BYTES_MAX) -> list[Frame]:
    parser = Parser()
    parser.bytes_max = bytes_max
    found: list[Frame] = []
    for at in range(0, len(data), step):
        found += received(parser, data[at : at + step])
    return found


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(frames.NAMES_OF_TYPES)),
            st.binary(max_size=2000),
            st.integers(0, 1),
            st.sampled_from([None, "zlib", "zstd"]),
        )
    ),
    st.integers(1, 5000),
)
def test_frames_arrive_as_they_were_sent_however_they_are_cut(
    sent: list[tuple[int, bytes, int, Any]], step: int
) -> None:
    sent = [
        (kind, payload, stream, None if kind in (frames.HELLO, frames.HELLO_ACK) else compression)
        for kind, payload, stream, compression in sent
    ]
    data = b"".join(frames.encode(*each) for each in sent)
    assert _parsed(data, step) == [Frame(kind, stream, payload) for kind, payload, stream, _ in sent]


def test_a_compressed_frame_is_shorter_and_says_so() -> None:
    """Behaviour 50: the receiver needs no setting."""
    for algorithm in ("zlib", "zstd"):
        frame = frames.encode(frames.DATA, bytes(10_000), 1, algorithm)
        assert len(frame) < 1000
        assert frame[5] == frames.FLAG_COMPRESSED | frames.FLAG_STREAM_1
        assert _parsed(frame) == [Frame(frames.DATA, 1, bytes(10_000))]


@pytest.mark.parametrize("length", [0, 1, frames.STRANGER_FRAME_BYTES_MAX + 1, 0xFFFFFFFF])
def test_a_wrong_length_is_refused_before_the_payload_arrives(length: int) -> None:
    parser = Parser()
    with pytest.raises(ProtocolError, match="bytes"):
        received(parser, struct.pack(">I", length))


def test_a_length_alone_takes_little_memory() -> None:
    """An authenticated instance may announce 256 MiB; the memory grows with what arrives, and is given back."""
    parser = Parser()
    parser.bytes_max = frames.FRAME_BYTES_MAX
    assert received(parser, struct.pack(">IBB", frames.FRAME_BYTES_MAX, frames.DATA, 0)) == []
    assert len(parser.room()) <= LONG_BYTES
    parser = Parser()
    parser.bytes_max = frames.FRAME_BYTES_MAX
    payload = bytes(range(256)) * (5 * LONG_BYTES // 256)
    sent = frames.encode(frames.DATA, payload)
    assert received(parser, sent[: 2 * LONG_BYTES]) == []
    assert len(parser.room()) <= 2 * LONG_BYTES
    assert received(parser, sent[2 * LONG_BYTES :]) == [Frame(frames.DATA, 0, payload)]
    parser.room()
    assert len(parser._long) <= LONG_BYTES


def test_a_stranger_that_sends_byte_by_byte_takes_the_memory_of_its_frame() -> None:
    parser = Parser()
    frame = frames.encode(frames.PING, bytes(20_000))
    assert _parsed(frame, 1) == [Frame(frames.PING, 0, bytes(20_000))]
    received(parser, frame[:-1])
    assert len(parser._short) + len(parser._long) < 2 * len(frame)


def test_a_long_payload_of_records_is_received_where_it_stays() -> None:
    """The sink requires memory at a multiple of 8. The same memory serves the next frame."""
    parser = Parser()
    parser.bytes_max = frames.FRAME_BYTES_MAX
    addresses = set()
    for length in (SHORT_BYTES, 3 * SHORT_BYTES, 2 * SHORT_BYTES):
        sent = frames.encode(frames.DATA, bytes(length))
        while (frame := parser.next()) is None:
            room = parser.room()
            count = min(len(room), len(sent), 1000)
            room[:count], sent = sent[:count], sent[count:]
            parser.filled(count)
        assert isinstance(frame.payload, memoryview)
        addresses.add(np.frombuffer(frame.payload, np.uint8).ctypes.data)
        assert not sent
    assert not any(address % 8 for address in addresses)
    assert len(addresses) < 3
    short = frames.encode(frames.DATA, bytes(SHORT_BYTES - HEAD_BYTES))
    assert received(parser, short) == [Frame(frames.DATA, 0, bytes(SHORT_BYTES - HEAD_BYTES))]


def test_unknown_flags_and_a_compressed_hello_are_refused() -> None:
    with pytest.raises(ProtocolError, match="flags"):
        _parsed(struct.pack(">IBB", 2, frames.PING, 4))
    with pytest.raises(ProtocolError, match="HELLO"):
        _parsed(struct.pack(">IBB", 3, frames.HELLO, frames.FLAG_COMPRESSED) + b"x")


def _compressed_frame(payload: bytes) -> bytes:
    return struct.pack(">IBB", 2 + len(payload), frames.DATA, frames.FLAG_COMPRESSED) + payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\1\0\0\0",
        struct.pack("<BI", 9, 4) + b"abcd",
        struct.pack("<BI", 1, 4) + b"no zlib",
        struct.pack("<BI", 2, 4) + b"no zstd",
        struct.pack("<BI", 1, 99) + zlib.compress(bytes(100)),
        struct.pack("<BI", 1, 101) + zlib.compress(bytes(100)),
        struct.pack("<BI", 1, 100) + zlib.compress(bytes(100))[:-3],
        struct.pack("<BI", 2, 99) + zstandard.compress(bytes(100)),
        struct.pack("<BI", 2, 101) + zstandard.compress(bytes(100)),
        struct.pack("<BI", 1, 20_001) + zlib.compress(bytes(20_001)),
        struct.pack("<BI", 1, 4000) + zlib.compress(bytes(1 << 24)),
        struct.pack("<BI", 2, 4000) + zstandard.compress(bytes(1 << 24)),
    ],
)
def test_a_damaged_or_lying_compressed_payload_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="compressed"):
        _parsed(_compressed_frame(payload), bytes_max=20_000)


def test_lz4_compresses_if_its_package_is_there() -> None:
    """Decision 25.2: lz4 is an extra of the installation."""
    block = pytest.importorskip("lz4.block", reason="lz4 is not installed (pip install 'amps-server[lz4]')")
    assert frames.available("lz4")
    frame = frames.encode(frames.DATA, bytes(10_000), 1, "lz4")
    assert len(frame) < 1000
    assert _parsed(frame) == [Frame(frames.DATA, 1, bytes(10_000))]
    packed = block.compress(bytes(100), store_size=False)
    for length, data in ((99, packed), (101, packed), (100, packed[:-3]), (4, b"no lz4"), (100, b"")):
        with pytest.raises(ProtocolError, match="compressed"):
            _parsed(_compressed_frame(struct.pack("<BI", 3, length) + data))
    with pytest.raises(ProtocolError, match="compressed payload of 4294967295 bytes"):
        _parsed(_compressed_frame(struct.pack("<BI", 3, 0xFFFFFFFF) + packed))


def test_without_its_package_lz4_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.block", None)  # the import fails
    assert not frames.available("lz4")
    with pytest.raises(ProtocolError, match=r"pip install 'amps-server\[lz4\]'"):
        _parsed(_compressed_frame(struct.pack("<BI", 3, 4) + b"abcd"))


def test_an_empty_compressed_payload_is_read() -> None:
    assert _parsed(_compressed_frame(struct.pack("<BI", 1, 0) + zlib.compress(b""))) == [
        Frame(frames.DATA, 0, b"")
    ]


@pytest.mark.parametrize("text", [b"", b"[]", b"nothing", b"\xff", b"[" * 100_000])
def test_a_control_frame_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        Content(Frame(frames.HELLO, 0, text))


def test_values_of_control_frames_are_checked() -> None:
    content = Content(
        Frame(
            frames.HELLO,
            0,
            json.dumps(
                {
                    "text": "a",
                    "long": "x" * 5000,
                    "flag": 1,
                    "big": str(2**64 - 1),
                    "bigger": 2**64,
                    "bad": "\ud800",
                }
            ).encode(),
        )
    )
    assert content.text("text") == "a"
    assert content.number("big") == 2**64 - 1
    assert content.number("missing", 7) == 7
    assert content.optional_text("missing") is None
    for read in (
        lambda: content.text("missing"),
        lambda: content.text("long"),
        lambda: content.text("bad"),
        lambda: content.flag("flag"),
        lambda: content.number("bigger"),
        lambda: content.number("text"),
        lambda: content.number("missing"),
        lambda: content.texts("text"),
    ):
        with pytest.raises(ProtocolError):
            read()


def test_numbers_that_json_readers_may_round_are_texts() -> None:
    assert frames.number(2**53 - 1) == 2**53 - 1
    assert frames.number(2**53) == str(2**53)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "without TLS, and the other side speaks TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "serves no HTTP"),
        (b"POST / HTTP/1.1\r\n\r\n", "serves no HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", "address of an Admin"),
        (struct.pack(">I", 60) + b'{"c":"logon","client_name":"c"}', "is a client of the protocol amps"),
        (bytes(100), "a frame of 0 bytes, allowed are 2 to"),
    ],
)
@pytest.mark.parametrize("step", [5, 1 << 20])
def test_the_protocol_of_a_stranger_is_named(data: bytes, told: str, step: int) -> None:
    """replication.md §4: the transport serves instances only, and says so to others."""
    with pytest.raises(ProtocolError, match=told):
        _parsed(data, step, frames.STRANGER_FRAME_BYTES_MAX)


def test_only_the_first_frame_tells_the_protocol() -> None:
    """Behind it, the same bytes are a fault of an instance."""
    with pytest.raises(ProtocolError, match="a frame of 1195725856 bytes"):
        _parsed(frames.encode(frames.PING) + b"GET / HTTP/1.1")
