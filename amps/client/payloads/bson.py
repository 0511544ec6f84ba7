"""BSON documents in message bodies: the types of the public specification that have an equivalent in Python.

double, string, document, array, binary, ObjectId (as 12 bytes), bool, UTC datetime, null, int32, int64.
Any other type in a document raises ValueError.
"""

import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")


def encode_bson(document: Mapping[Any, Any]) -> bytes:
    """One document."""
    return _document((str(key), value) for key, value in document.items())


def _document(items: Iterable[tuple[str, Any]]) -> bytes:
    parts = [_element(key, value) for key, value in items]
    size = 5 + sum(map(len, parts))
    return _INT32.pack(size) + b"".join(parts) + b"\0"


def _element(key: str, value: Any) -> bytes:
    name = key.encode("utf-8")
    if b"\0" in name:
        raise ValueError(f"a bson name cannot hold a zero byte: {key!r}")
    kind, content = _value(value)
    return kind + name + b"\0" + content


def _value(value: Any) -> tuple[bytes, bytes]:
    match value:
        case None:
            return b"\x0a", b""
        case bool():
            return b"\x08", b"\x01" if value else b"\0"
        case int():
            if -(2**31) <= value < 2**31:
                return b"\x10", _INT32.pack(value)
            if -(2**63) <= value < 2**63:
                return b"\x12", _INT64.pack(value)
            raise ValueError(f"integer outside 64 bits: {value}")
        case float():
            return b"\x01", _DOUBLE.pack(value)
        case str():
            text = value.encode("utf-8") + b"\0"
            return b"\x02", _INT32.pack(len(text)) + text
        case bytes() | bytearray() | memoryview():
            return b"\x05", _INT32.pack(len(value)) + b"\0" + bytes(value)
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return b"\x09", _INT64.pack((moment - _EPOCH) // timedelta(milliseconds=1))
        case Mapping():
            return b"\x03", encode_bson(value)
        case list() | tuple():
            return b"\x04", _document((str(at), item) for at, item in enumerate(value))
    raise TypeError(f"bson has no type for {type(value).__name__}")


def decode_bson(data: bytes) -> dict[str, Any]:
    """Decode one document that fills `data` exactly."""
    try:
        document, end = _read_document(data, 0)
    except (struct.error, IndexError) as error:
        raise ValueError(f"truncated bson document: {error}") from None
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes after the bson document")
    return dict(document)


def _read_document(data: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
    (size,) = _INT32.unpack_from(data, at)
    end = at + size
    if size < 5 or end > len(data) or data[end - 1] != 0:
        raise ValueError("malformed bson document: its length is wrong")
    at += 4
    items: list[tuple[str, Any]] = []
    while data[at] != 0:
        kind = data[at]
        name_end = data.find(b"\0", at + 1, end)
        if name_end < 0:
            raise ValueError("malformed bson document: a name never ends")
        name = data[at + 1 : name_end].decode("utf-8")
        value, at = _read_value(data, kind, name_end + 1)
        items.append((name, value))
    if at != end - 1:
        raise ValueError("malformed bson document: it ends early")
    return items, end


def _read_value(data: bytes, kind: int, at: int) -> tuple[Any, int]:
    if kind == 0x01:
        return _DOUBLE.unpack_from(data, at)[0], at + 8
    if kind == 0x02:
        (size,) = _INT32.unpack_from(data, at)
        end = at + 4 + size
        if size < 1 or end > len(data) or data[end - 1] != 0:
            raise ValueError("malformed bson string")
        return data[at + 4 : end - 1].decode("utf-8"), end
    if kind == 0x03:
        document, end = _read_document(data, at)
        return dict(document), end
    if kind == 0x04:
        document, end = _read_document(data, at)
        return [value for _, value in document], end
    if kind == 0x05:
        (size,) = _INT32.unpack_from(data, at)
        end = at + 5 + size
        if size < 0 or end > len(data):
            raise ValueError("malformed bson binary")
        return data[at + 5 : end], end
    if kind == 0x07:
        return data[at : at + 12], at + 12
    if kind == 0x08:
        return data[at] != 0, at + 1
    if kind == 0x09:
        return _EPOCH + timedelta(milliseconds=_INT64.unpack_from(data, at)[0]), at + 8
    if kind == 0x0A:
        return None, at
    if kind == 0x10:
        return _INT32.unpack_from(data, at)[0], at + 4
    if kind == 0x12:
        return _INT64.unpack_from(data, at)[0], at + 8
    raise ValueError(f"bson type 0x{kind:02x} is not supported")
