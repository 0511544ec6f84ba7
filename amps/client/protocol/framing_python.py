"""Frames and headers in Python: the same interface and results as `amps._core.wire.framing`.

It serves installations without a compiler. A frame is a 4-byte big-endian length and that many bytes of payload; a
payload is a header followed directly by a body (protocol.md §2). A header is a flat subset of JSON with abbreviated
keys (protocol.md §3). Invariants: the scanner reads at most MAX_HEADER_BYTES, in time proportional to them. A frame
longer than the decoder's limit is refused before memory is allocated for it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_MESSAGE_BYTES = 200 * 2**20
MAX_HEADER_BYTES = 4 << 20
LENGTH_BYTES = 4

_STRINGS = {
    "cmd": ("c",),
    "cmd_id": ("cid",),
    "ack_type": ("a",),
    "topic": ("t",),
    "filter": ("f",),
    "opts": ("o",),
    "sub_id": (),
    "sids": (),
    "query_id": (),
    "bookmark": ("bm",),
    "orderby": ("orderby", "order_by"),
    "sow_key": ("k",),
    "sow_keys": (),
    "correlation_id": ("x",),
    "client_name": (),
    "user_id": (),
    "password": ("pw",),
    "message_type": ("mt",),
    "version": ("version", "v"),
    "status": (),
    "reason": (),
    "timestamp": ("ts",),
    "leaseperiod": ("lp",),
    "heartbeat": (),
    "src": (),
    "use_ns": (),
    "detail": (),
}
_INTEGERS = {
    "batch_size": ("bs",),
    "top_n": (),
    "expiration": ("e",),
    "seq": ("s",),
    "msg_len": ("l",),
    "gseq": (),
    "matches": (),
    "topic_matches": (),
    "records_returned": (),
    "records_inserted": (),
    "records_updated": (),
    "records_deleted": (),
    "timeout_interval": (),
    "max_msgs": (),
    "position": (),
    "delay": (),
    "not_before": (),
}
_BOOLEANS: dict[str, tuple[str, ...]] = {
    "data_only": (),
    "send_empty": (),
    "send_keys": (),
    "send_oof": (),
    "send_matching_ids": (),
}
FIELD_NAMES = (
    "cmd", "cmd_id", "ack_type", "topic", "filter", "opts", "sub_id", "sids", "query_id", "bookmark", "batch_size",
    "top_n", "orderby", "sow_key", "sow_keys", "expiration", "seq", "correlation_id", "client_name", "user_id",
    "password", "message_type", "version", "status", "reason", "timestamp", "leaseperiod", "msg_len", "gseq",
    "matches", "topic_matches", "records_returned", "records_inserted", "records_updated", "records_deleted",
    "data_only", "send_empty", "send_keys", "send_oof", "send_matching_ids", "heartbeat", "timeout_interval",
    "max_msgs", "src", "use_ns", "detail", "position", "delay", "not_before",
)  # fmt: skip

# Spellings after the long name: the first is written, all are read.
_SPELLINGS = _STRINGS | _INTEGERS | _BOOLEANS
_ABBREVIATIONS = {name: (_SPELLINGS[name] or (name,))[0] for name in FIELD_NAMES}
_NUMBERS = {
    spelling.encode(): number
    for number, name in enumerate(FIELD_NAMES)
    for spelling in (name, *_SPELLINGS[name])
}

# Possessive repetition: a malformed header is refused in linear time.
_SPACE = rb"[ \t\r\n]*+"
_TEXT = rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_EMPTY = re.compile(rb"\{" + _SPACE + rb"\}")
_PAIR = re.compile(
    _SPACE + _TEXT + _SPACE + b":" + _SPACE + b"(?:" + _TEXT + rb"|(-?[0-9]++|true|false))" + _SPACE + b"([,}])",
    re.DOTALL,
)
_OPENING = ord("{")
_INTEGER_CHARACTERS = 20


class HeaderError(ValueError):
    """The bytes at the start of a payload are not a header (protocol.md §3)."""


class FrameTooLarge(ValueError):
    """A frame's length is over the limit; no memory was allocated for it (protocol.md §2)."""


def parse_header(payload: bytes | bytearray | memoryview) -> tuple[dict[str, Any], int]:
    """Parse the header at the start of a payload.

    Returns a dictionary of long field names (protocol.md §3.1) and the offset of the body. The value of a numeric field
    is an int if its text is a number, the value of a Boolean field a bool if its text is true or false. Unknown keys
    are omitted; of a repeated key, the last value counts. Raises HeaderError.
    """
    if len(payload) == 0:
        raise HeaderError("empty payload where a header is expected")
    values, end = _scan(payload)
    fields: dict[str, Any] = {}
    try:
        for number in sorted(values):
            name, raw = FIELD_NAMES[number], values[number]
            fields[name] = raw.decode() if name in _STRINGS and b"\\" not in raw else _value(name, raw)
        return fields, end
    except ValueError as error:
        raise HeaderError(f"malformed header text: {error}") from None


def _scan(payload: bytes | bytearray | memoryview) -> tuple[dict[int, bytes], int]:
    """The undecoded values of known fields by number, and the offset of the body."""
    empty = _EMPTY.match(payload, 0, MAX_HEADER_BYTES)
    if empty is not None:
        return {}, empty.end()
    values: dict[int, bytes] = {}
    at = 1 if payload[0] == _OPENING else len(payload)
    match = _PAIR.match
    while (pair := match(payload, at, MAX_HEADER_BYTES)) is not None:
        key, text, bare, end = pair.groups()
        number = _NUMBERS.get(key)
        if number is not None:
            values[number] = bare if text is None else text
        at = pair.end()
        if end == b"}":
            return values, at
    raise HeaderError("malformed header: " + repr(bytes(payload[:80])))


def _value(name: str, raw: bytes) -> Any:
    """The value of a field. Raises ValueError if its text is malformed."""
    text = raw.decode()
    if "\\" in text:
        text = json.loads(f'"{text}"', strict=False)
    if name in _INTEGERS:
        if len(raw) <= _INTEGER_CHARACTERS and text.isascii() and text.removeprefix("-").isdigit():
            return int(text)
    elif name in _BOOLEANS:
        return {"true": True, "false": False}.get(text, text)
    return text


def _quoted(value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a header field is a str, an int or a bool, not {type(value).__name__}")
    if value.isascii() and '"' not in value and "\\" not in value and value.isprintable():
        return f'"{value}"'
    return json.dumps(value, ensure_ascii=False)


def build_header(fields: Mapping[str, str | int | bool | None]) -> bytes:
    """Build a header from long field names. `cmd` is first; integers and Booleans are bare, other values quoted (D2).

    None values are omitted. Raises KeyError for a name that is no header field.
    """
    parts = []
    command = fields.get("cmd")
    if command is not None:
        parts.append(f'"c":{_quoted(command)}')  # type: ignore[arg-type]
    for name, value in fields.items():
        if value is None or name == "cmd":
            continue
        key = _ABBREVIATIONS[name]
        if value is True:
            parts.append(f'"{key}":true')
        elif value is False:
            parts.append(f'"{key}":false')
        elif isinstance(value, int):
            parts.append(f'"{key}":{value}')
        else:
            parts.append(f'"{key}":{_quoted(value)}')
    return ("{" + ",".join(parts) + "}").encode("utf-8", "surrogatepass")


def encode_frame(
    fields: Mapping[str, str | int | bool | None], body: bytes | bytearray | memoryview = b""
) -> bytes:
    """One whole frame: length, header from long field names, body (bytes-like)."""
    header = build_header(fields)
    return (len(header) + len(body)).to_bytes(LENGTH_BYTES, "big") + header + bytes(body)


class FrameDecoder:
    """Cuts a byte stream into payloads. Bytes may arrive split or joined in any way.

    `feed` takes received bytes; `next_frame` returns the payload of the next whole frame as bytes, or None.
    Frames of length 0 are skipped. FrameTooLarge is raised as soon as an oversize length is read.
    """

    __slots__ = ("_at", "_buffer", "_max_frame_bytes", "_waiting", "_waiting_bytes", "_wanted_bytes")

    def __init__(self, max_frame_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._buffer = b""
        self._at = 0
        self._waiting: list[bytes] = []  # chunks of an incomplete frame
        self._waiting_bytes = 0
        self._wanted_bytes = 0
        self._max_frame_bytes = max_frame_bytes

    @property
    def max_frame_bytes(self) -> int:
        """The limit of a frame's length, in bytes."""
        return self._max_frame_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take received bytes (copied unless `data` is a bytes object)."""
        chunk = data if type(data) is bytes else bytes(data)
        if not chunk:
            return
        if self._waiting_bytes:
            self._waiting.append(chunk)
            self._waiting_bytes += len(chunk)
            if self._waiting_bytes < self._wanted_bytes:
                return
            chunk = b"".join(self._waiting)
            self._waiting = []
            self._waiting_bytes = 0
        elif self._at < len(self._buffer):
            chunk = self._buffer[self._at :] + chunk
        self._buffer = chunk
        self._at = 0

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes taken and not yet returned in a frame."""
        return self._waiting_bytes + len(self._buffer) - self._at

    def next_frame(self) -> bytes | None:
        """The payload of the next whole frame, or None while the frame is incomplete. Raises FrameTooLarge."""
        buffer = self._buffer
        while True:
            start = self._at + LENGTH_BYTES
            if start > len(buffer):
                return None
            length = int.from_bytes(buffer[self._at : start], "big")
            if length > self._max_frame_bytes:
                raise FrameTooLarge(f"frame of {length} bytes is over the limit of {self._max_frame_bytes}")
            end = start + length
            if end > len(buffer):
                # Collect the rest in a list, so that a large frame is joined once, not at each chunk.
                self._waiting = [buffer[self._at :]]
                self._waiting_bytes = len(self._waiting[0])
                self._wanted_bytes = LENGTH_BYTES + length
                self._buffer = b""
                self._at = 0
                return None
            self._at = end
            if length:
                return buffer[start:end]
