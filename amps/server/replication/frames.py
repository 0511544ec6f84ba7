"""The frames of a link: types, limits, encoding, compression (replication.md §24.1).

A frame is the length of the rest (4 bytes, big-endian), a type, flags, and the payload. The length is checked before
the payload is read, and the length of a compressed payload before it is decompressed. So a stranger cannot make this
process allocate more than a few kilobytes, and an authenticated instance no more than one frame.
"""

import importlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import zstandard

FRAME_BYTES_MAX = 256 << 20
"""Largest length field of a frame: type, flags and payload."""
STRANGER_FRAME_BYTES_MAX = 64 << 10
"""The same before the logon."""
CONTROL_BYTES_MAX = 16 << 20
"""Longest JSON of a control frame; that of a CONFIG with many topics."""
SHORT_BYTES = 4096
"""Read at once where a frame begins."""
LONG_BYTES = 1 << 20
"""The memory for long payloads that a connection keeps, at most."""
COMPRESSED_BYTES_MIN = 512
"""Shorter payloads are sent as they are."""

HELLO = 0x01
HELLO_ACK = 0x02
AUTH = 0x03
AUTH_RESULT = 0x04
CONFIG = 0x05
CONFIG_RESULT = 0x06
RESUME = 0x07
RESUME_ACK = 0x08
DATA = 0x10
ACK = 0x11
REJECT = 0x12
XFER_REQ = 0x13
CREDIT = 0x14
PING = 0x15
PONG = 0x16
RESYNC_DONE = 0x17
MODE = 0x18
LINKSTATE = 0x19
NAMES = 0x1A
RESUME_VECTOR = 0x1B
OPEN = 0x1C
COMPLETE = 0x1D
BYE = 0x1F

NAMES_OF_TYPES: Mapping[int, str] = {
    HELLO: "HELLO",
    HELLO_ACK: "HELLO_ACK",
    AUTH: "AUTH",
    AUTH_RESULT: "AUTH_RESULT",
    CONFIG: "CONFIG",
    CONFIG_RESULT: "CONFIG_RESULT",
    RESUME: "RESUME",
    RESUME_ACK: "RESUME_ACK",
    DATA: "DATA",
    ACK: "ACK",
    REJECT: "REJECT",
    XFER_REQ: "XFER_REQ",
    CREDIT: "CREDIT",
    PING: "PING",
    PONG: "PONG",
    RESYNC_DONE: "RESYNC_DONE",
    MODE: "MODE",
    LINKSTATE: "LINKSTATE",
    NAMES: "NAMES",
    RESUME_VECTOR: "RESUME_VECTOR",
    OPEN: "OPEN",
    COMPLETE: "COMPLETE",
    BYE: "BYE",
}

FLAG_COMPRESSED = 1
FLAG_STREAM_1 = 2
_FLAGS = FLAG_COMPRESSED | FLAG_STREAM_1

Algorithm = Literal["zlib", "zstd", "lz4"]
Buffer = bytes | memoryview
_ALGORITHM_BYTES: Mapping[str, int] = {"zlib": 1, "zstd": 2, "lz4": 3}
_COMPRESSION_HEAD = struct.Struct("<BI")
_HEAD = struct.Struct(">IBB")
HEAD_BYTES = _HEAD.size
LENGTH_BYTES = 4
_EXACT_INTEGER_MAX = 1 << 53


class ProtocolError(Exception):
    """The other side violated the protocol; the text says how. The link is closed with BYE `PROTOCOL`."""


class Frame(NamedTuple):
    """One frame as it was received, decompressed. `stream` is 0 or 1.

    The payload of a DATA frame may be memory of the connection, which is used again after the frame.
    """

    type: int
    stream: int
    payload: bytes | memoryview

    @property
    def name(self) -> str:
        """The name of its type, for error texts."""
        return NAMES_OF_TYPES.get(self.type, f"type {self.type:02X}")


def encode(kind: int, payload: bytes = b"", stream: int = 0, compression: Algorithm | None = None) -> bytes:
    """One frame. With `compression`, the payload is compressed if that makes it shorter."""
    return b"".join(encode_parts(kind, (payload,), stream, compression))


def encode_parts(
    kind: int, payload: Sequence[Buffer], stream: int = 0, compression: Algorithm | None = None
) -> tuple[Buffer, ...]:
    """As `encode`, for a payload in parts, and in parts: so a long payload need not be copied."""
    flags = FLAG_STREAM_1 if stream else 0
    length = sum(map(len, payload))
    if compression is not None and length >= COMPRESSED_BYTES_MIN:
        packed = _COMPRESSION_HEAD.pack(_ALGORITHM_BYTES[compression], length) + _compressed(
            b"".join(payload), compression
        )
        if len(packed) < length:
            payload, length, flags = (packed,), len(packed), flags | FLAG_COMPRESSED
    return _HEAD.pack(length + 2, kind, flags), *payload


def encode_json(kind: int, content: Mapping[str, Any], stream: int = 0) -> bytes:
    """One control frame."""
    return encode(kind, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), stream)


def number(value: int) -> int | str:
    """A number for JSON: a decimal string if other programs could lose digits."""
    return value if value < _EXACT_INTEGER_MAX else str(value)


class Parser:
    """Cuts the bytes of a connection into frames. Put bytes into `room`, say how many (`filled`), then take frames with
    `next` until it returns None.

    `bytes_max` limits the length field of the next frames; the owner raises it after the logon.

    A long payload is received where it stays: the system copies it there, and nobody else does. So that its records
    are aligned, the memory begins with it. It grows as bytes arrive, so a length alone makes nothing large.
    """

    def __init__(self) -> None:
        self.bytes_max = STRANGER_FRAME_BYTES_MAX
        self._short = bytearray(SHORT_BYTES)
        """The head of the next frame, and what came with it: short frames, or the beginning of a long payload."""
        self._at = 0
        self._end = 0
        self._head: tuple[int, int] | None = None
        """Type and flags of the frame whose payload is received into `_long`."""
        self._long = bytearray()
        self._long_end = 0
        self._payload_bytes = 0
        self._is_first = True

    def _violation(self, problem: str) -> ProtocolError:
        """The error for a frame. For the first one it names the protocol that the other side probably speaks."""
        first = bytes(self._short[self._at : min(self._end, self._at + HINT_BYTES)])
        foreign = foreign_protocol(first) if self._is_first else None
        return ProtocolError(foreign or problem)

    def room(self) -> memoryview:
        """The memory for the next bytes. The payload of the last frame is no longer valid from now on."""
        if self._head is None:
            if len(self._long) > LONG_BYTES:
                self._long = bytearray()
            if self._at:
                left = self._short[self._at : self._end]
                self._short[: len(left)] = left
                self._at, self._end = 0, len(left)
            return memoryview(self._short)[self._end :]
        if self._long_end == len(self._long):
            grown = bytearray(min(self._payload_bytes, max(2 * self._long_end, LONG_BYTES)))
            grown[: self._long_end] = memoryview(self._long)[: self._long_end]
            self._long = grown
        return memoryview(self._long)[self._long_end : self._payload_bytes]

    @property
    def in_payload(self) -> bool:
        """Whether `room` is for the rest of a long payload, and for nothing else."""
        return self._head is not None

    def filled(self, count: int) -> None:
        """So many bytes are in the memory that `room` returned."""
        if self._head is None:
            self._end += count
        else:
            self._long_end += count

    def next(self) -> Frame | None:
        """The next frame, None if it is not complete. The payload of a DATA frame is valid until the next call of
        `room`. Raises ProtocolError.
        """
        if self._head is None:
            there = self._end - self._at
            if there < LENGTH_BYTES:
                return None
            length = int.from_bytes(self._short[self._at : self._at + LENGTH_BYTES], "big")
            if length < 2 or length > self.bytes_max:
                raise self._violation(f"a frame of {length} bytes, allowed are 2 to {self.bytes_max}")
            if there < HEAD_BYTES:
                return None
            kind, flags = self._short[self._at + LENGTH_BYTES : self._at + HEAD_BYTES]
            if flags & ~_FLAGS:
                raise self._violation(f"unknown flags {flags:02X} in a frame of type {kind:02X}")
            self._is_first = False
            self._at += HEAD_BYTES
            self._payload_bytes = length - (HEAD_BYTES - LENGTH_BYTES)
            there = min(self._end - self._at, self._payload_bytes)
            begin = memoryview(self._short)[self._at : self._at + there]
            self._at += there
            if there == self._payload_bytes:
                return _frame(kind, flags, bytes(begin), self.bytes_max)
            self._head = kind, flags
            if len(self._long) < min(self._payload_bytes, LONG_BYTES):
                self._long = bytearray(min(self._payload_bytes, LONG_BYTES))
            self._long[:there] = begin
            self._long_end = there
        if self._long_end < self._payload_bytes:
            return None
        kind, flags = self._head
        self._head = None
        payload = memoryview(self._long)[: self._payload_bytes]
        return _frame(kind, flags, payload if kind == DATA else bytes(payload), self.bytes_max)


_HTTP_METHODS = tuple(
    f"{method} ".encode()
    for method in ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI")
)
HINT_BYTES = 8


def foreign_protocol(first: bytes) -> str | None:
    """What to tell of these first bytes of a connection, which are no frame of a link; None: they are unknown."""
    if first.startswith(b"\x16\x03"):
        return (
            "this is a replication transport without TLS, and the other side speaks TLS; give it the Type "
            "amps-replication-secure here, or write amps-replication there"
        )
    if first.startswith(_HTTP_METHODS):
        return "this is a replication transport, which serves no HTTP; see Admin for the port that does"
    if first.startswith(b"HTTP/"):
        return "the other side answers with HTTP: this is the address of an Admin, not of a replication transport"
    if first[4:6] == b'{"':
        return (
            "this is a replication transport, and the other side is a client of the protocol amps; it must connect to "
            "another Transport"
        )
    return None


def _frame(kind: int, flags: int, payload: bytes | memoryview, bytes_max: int) -> Frame:
    """A received frame. Raises ProtocolError."""
    if flags & FLAG_COMPRESSED:
        if kind in (HELLO, HELLO_ACK):
            raise ProtocolError("a compressed HELLO")
        payload = decompressed(payload, bytes_max)
    return Frame(kind, 1 if flags & FLAG_STREAM_1 else 0, payload)


# --- compression ------------------------------------------------------------------------------------------------


def available(algorithm: str) -> bool:
    """Whether this installation has a compression algorithm; `lz4` needs the extra of that name."""
    if algorithm == "lz4":
        return _lz4() is not None
    return algorithm in _ALGORITHM_BYTES


def _lz4() -> Any:
    try:
        return importlib.import_module("lz4.block")
    except ImportError:
        return None


def _compressed(payload: bytes, algorithm: Algorithm) -> bytes:
    if algorithm == "zlib":
        return zlib.compress(payload, 1)
    if algorithm == "zstd":
        return zstandard.ZstdCompressor(level=1, write_content_size=True).compress(payload)
    packed: bytes = _lz4().compress(payload, store_size=False)
    return packed


def decompressed(payload: Buffer, bytes_max: int) -> bytes:
    """The plain payload. Raises ProtocolError if it is longer than `bytes_max`, or damaged."""
    if len(payload) < _COMPRESSION_HEAD.size:
        raise ProtocolError("a compressed payload without its head")
    algorithm, length = _COMPRESSION_HEAD.unpack_from(payload)
    if length > bytes_max:
        raise ProtocolError(f"a compressed payload of {length} bytes, allowed are {bytes_max}")
    data = payload[_COMPRESSION_HEAD.size :]
    try:
        plain = _plain(algorithm, data, length)
    except (zlib.error, zstandard.ZstdError, ValueError, RuntimeError) as problem:
        raise ProtocolError(f"a compressed payload cannot be read: {problem}") from None
    if len(plain) != length:
        raise ProtocolError(f"a compressed payload has {len(plain)} bytes, its head says {length}")
    return plain


def _plain(algorithm: int, data: Buffer, length: int) -> bytes:
    if algorithm == 1:
        inflater = zlib.decompressobj()
        plain = inflater.decompress(data, length + 1)
        if inflater.decompress(inflater.unconsumed_tail, 1) or not inflater.eof:
            raise ValueError("it has another length than its head says")
        return plain
    if algorithm == 2:
        # The content size in the data is the sender's word, too. It must not make zstandard allocate more.
        if zstandard.frame_content_size(data) not in (length, -1):
            raise ValueError("its two lengths differ")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
    if algorithm == 3:
        block = _lz4()
        if block is None:
            raise ValueError("it needs a package that is not installed here: pip install 'amps-server[lz4]'")
        try:
            return bytes(block.decompress(data, uncompressed_size=length))
        except block.LZ4BlockError as problem:
            raise ValueError(str(problem)) from None
    raise ValueError(f"algorithm {algorithm} is unknown here")


# --- JSON of control frames -------------------------------------------------------------------------------------


class Content:
    """The JSON object of a control frame. Each reader raises ProtocolError if the value has another type."""

    def __init__(self, frame: Frame) -> None:
        self._name = frame.name
        if len(frame.payload) > CONTROL_BYTES_MAX:
            raise ProtocolError(f"a {self._name} of {len(frame.payload)} bytes")
        try:
            values = json.loads(bytes(frame.payload))
        except (ValueError, RecursionError):
            raise ProtocolError(f"the {self._name} is not JSON") from None
        if not isinstance(values, dict):
            raise ProtocolError(f"the {self._name} is no JSON object")
        self.values: dict[str, Any] = values

    def text(self, key: str, default: str | None = None, chars_max: int = 4096) -> str:
        """A text; without `default` it must be there."""
        value = self.values.get(key, default)
        if not isinstance(value, str) or len(value) > chars_max:
            raise self._wrong(key, f"a text of at most {chars_max} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._wrong(key, "a valid text") from None
        return value

    def optional_text(self, key: str, chars_max: int = 4096) -> str | None:
        """A text, or None if it is absent or null."""
        return None if self.values.get(key) is None else self.text(key, chars_max=chars_max)

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str, default: int | None = None, highest: int = (1 << 64) - 1) -> int:
        """A whole number from 0, as a number or a decimal string."""
        value = self.values.get(key, default)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
            raise self._wrong(key, f"a whole number from 0 to {highest}")
        return value

    def texts(self, key: str, count_max: int = 1024, chars_max: int = 4096) -> list[str]:
        """A list of texts; empty if it is absent."""
        values = self.values.get(key, [])
        if not isinstance(values, list) or len(values) > count_max:
            raise self._wrong(key, f"a list of at most {count_max} texts")
        if not all(isinstance(value, str) and len(value) <= chars_max for value in values):
            raise self._wrong(key, f"a list of texts of at most {chars_max} characters")
        return values

    def _wrong(self, key: str, wanted: str) -> ProtocolError:
        return ProtocolError(f"{key} of the {self._name} is not {wanted}")
