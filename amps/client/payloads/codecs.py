"""Codecs: they encode objects as message bodies and decode them, by the connection's message type.

Codecs are a convenience around `publish(topic, obj)` and `Message.decode()`. Bodies given as bytes or
text are sent unchanged. Message types without a codec here are carried as bytes (`raw`).
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgpack
import orjson

from amps.client.payloads.bson import decode_bson, encode_bson
from amps.client.payloads.fix import FIXBuilder, FIXShredder, NVFIXBuilder, NVFIXShredder


class Codec(Protocol):
    """Encodes and decodes bodies of one message type."""

    name: str

    def encode(self, obj: Any) -> bytes:
        """The body for an object; TypeError if this type cannot carry it."""

    def decode(self, data: bytes) -> Any:
        """The object in a body; ValueError if the body is malformed."""


def json_loads(data: bytes | memoryview) -> Any:
    """Parse JSON; raise ValueError if `data` is not valid JSON."""
    return orjson.loads(data)


class JsonCodec:
    """json: UTF-8 text; datetimes become ISO-8601, numpy scalars numbers."""

    name = "json"

    def encode(self, obj: Any) -> bytes:
        return orjson.dumps(obj, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)

    def decode(self, data: bytes) -> Any:
        return orjson.loads(data)


class MsgpackCodec:
    """msgpack, with bytes and text kept apart."""

    name = "msgpack"

    def encode(self, obj: Any) -> bytes:
        return bytes(msgpack.packb(obj, use_bin_type=True, datetime=False))

    def decode(self, data: bytes) -> Any:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)


class BsonCodec:
    """bson: a document, so the object must be a mapping."""

    name = "bson"

    def encode(self, obj: Any) -> bytes:
        if not isinstance(obj, Mapping):
            raise TypeError(f"a bson body is a document: pass a mapping, not {type(obj).__name__}")
        return encode_bson(obj)

    def decode(self, data: bytes) -> Any:
        return decode_bson(data)


class FixCodec:
    """fix: `tag=value` fields that each end in 0x01; tags are non-negative integers. None leaves a field out."""

    name = "fix"

    def encode(self, obj: Any) -> bytes:
        builder = FIXBuilder()
        for key, value in _fields(self.name, obj):
            builder.append(key, value)
        return builder.get_data()

    def decode(self, data: bytes) -> Any:
        return FIXShredder().to_map(data)


class NvfixCodec:
    """nvfix: like fix, with names as keys."""

    name = "nvfix"

    def encode(self, obj: Any) -> bytes:
        builder = NVFIXBuilder()
        for key, value in _fields(self.name, obj):
            builder.append(key, value)
        return builder.get_data()

    def decode(self, data: bytes) -> Any:
        return NVFIXShredder().to_map(data)


def _fields(name: str, obj: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(obj, Mapping):
        raise TypeError(f"a {name} body needs a mapping, not {type(obj).__name__}")
    return ((key, value) for key, value in obj.items() if value is not None)


class RawCodec:
    """Bytes in, bytes out."""

    name = "raw"

    def encode(self, obj: Any) -> bytes:
        raise TypeError(
            f"cannot encode {type(obj).__name__}: this message type has no codec; pass bytes, text or codec="
        )

    def decode(self, data: bytes) -> Any:
        return data


_CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (JsonCodec(), MsgpackCodec(), BsonCodec(), FixCodec(), NvfixCodec(), RawCodec())
}


CODEC_NAMES = tuple(_CODECS)


def codec_named(name: str) -> Codec | None:
    """Return the codec of this library with this name, None if there is none."""
    return _CODECS.get(name)


def codec_for(message_type: str | None) -> Codec:
    """The codec of a message type; `raw` for those without one."""
    return _CODECS.get(message_type or "raw", _CODECS["raw"])


def convert(value: Any, type_: Any) -> Any:
    """Convert decoded values to a type with msgspec; `Any` returns them unchanged."""
    if type_ is Any:
        return value
    try:
        msgspec = importlib.import_module("msgspec")
    except ModuleNotFoundError:
        raise TypeError("decode(type) needs the package msgspec: pip install msgspec") from None
    return msgspec.convert(value, type_)
