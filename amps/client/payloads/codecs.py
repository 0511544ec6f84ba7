"""Codecs: they encode objects as message bodies and decode them, by the connection's message type.

Codecs are a convenience around `publish(topic, obj)` and `Message.decode()`. Bodies given as bytes or
text are sent unchanged. Message types without a codec here are carried as bytes (`raw`).
"""

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

import msgpack
import orjson

from amps.client.payloads.bson import decode_bson, encode_bson


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
    """fix: `tag=value` pairs that each end in 0x01; tags are non-negative integers."""

    name = "fix"
    separator = b"\x01"

    def encode(self, obj: Any) -> bytes:
        if not isinstance(obj, Mapping):
            raise TypeError(f"a {self.name} body needs a mapping, not {type(obj).__name__}")
        return b"".join(
            self.key_text(key) + b"=" + str(value).encode("utf-8") + self.separator
            for key, value in obj.items()
        )

    def decode(self, data: bytes) -> Any:
        result: dict[Any, str] = {}
        for pair in data.split(self.separator):
            if pair:
                key, equals, value = pair.partition(b"=")
                if not equals:
                    raise ValueError(f"{self.name} field without '=': {pair[:40]!r}")
                result[self.key_value(key)] = value.decode("utf-8")
        return result

    def key_text(self, key: Any) -> bytes:
        """The key as written."""
        try:
            tag = int(key)
        except (TypeError, ValueError):
            raise ValueError(f"a fix body has numbers for keys, not {key!r}; names are for nvfix") from None
        if tag < 0:
            raise ValueError(f"a fix tag cannot be negative: {tag}")
        return b"%d" % tag

    def key_value(self, key: bytes) -> Any:
        """The key as read."""
        return int(key)


class NvfixCodec(FixCodec):
    """nvfix: like fix, with names as keys."""

    name = "nvfix"

    def key_text(self, key: Any) -> bytes:
        text = str(key).encode("utf-8")
        if b"=" in text or self.separator in text or not text:
            raise ValueError(f"no usable nvfix name: {key!r}")
        return text

    def key_value(self, key: bytes) -> Any:
        return key.decode("utf-8")


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
