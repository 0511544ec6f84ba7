"""Codecs: they encode objects as message bodies and decode them, by the connection's message type.

Codecs are a convenience around `publish(topic, obj)` and `Message.decode(type)`: they know the formats. What becomes of
models, such as dataclasses, is in `plain` (publishing) and `models` (decoding). Bodies given as bytes or
text are sent unchanged. Message types without a codec here are carried as bytes (`raw`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, get_origin

from amps.client.payloads import json_text
from amps.client.payloads.bson import decode_bson, encode_bson
from amps.client.payloads.fix import FIXBuilder, FIXShredder, NVFIXBuilder, NVFIXShredder
from amps.client.payloads.models import convert, convert_json
from amps.client.payloads.plain import binary_value, is_pydantic_model, plain, unsupported


class Codec(Protocol):
    """Encodes and decodes bodies of one message type."""

    name: str
    """The message type, such as `json`."""

    def encode(self, obj: Any) -> bytes:
        """The body for an object; TypeError if this type cannot carry it."""

    def decode(self, data: bytes) -> Any:
        """The object in a body; ValueError if the body is malformed."""


def json_loads(data: bytes | memoryview) -> Any:
    """Parse JSON; raise ValueError if `data` is not valid JSON."""
    return json_text.loads(data)


class JsonCodec:
    """json: UTF-8 text; numpy scalars become numbers, other types what `amps.client.payloads.plain` says.

    orjson writes and reads it if it is installed, else the standard library (`amps.client.payloads.json_text`).
    """

    name = "json"

    def encode(self, obj: Any) -> bytes:
        try:
            return json_text.dumps(obj)
        except TypeError as error:
            raise TypeError(unsupported(obj) or str(error)) from None

    def decode(self, data: bytes) -> Any:
        return json_text.loads(data)


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError:
        raise ImportError("bodies of the type msgpack need the package msgpack: pip install msgpack") from None
    return msgpack


class MsgpackCodec:
    """msgpack, with bytes and text kept apart. ImportError if the package msgpack is not installed."""

    name = "msgpack"

    def encode(self, obj: Any) -> bytes:
        try:
            return bytes(_msgpack().packb(obj, default=binary_value, use_bin_type=True, datetime=False))
        except TypeError as error:
            raise TypeError(unsupported(obj) or str(error)) from None

    def decode(self, data: bytes) -> Any:
        return _msgpack().unpackb(data, raw=False, strict_map_key=False)


class BsonCodec:
    """bson: a document, so the object must be a mapping or a model."""

    name = "bson"

    def encode(self, obj: Any) -> bytes:
        document = obj if type(obj) is dict else plain(obj, binary_value, datetimes=True)
        if not isinstance(document, Mapping):
            raise TypeError(f"a bson body is a document: pass a mapping, not {type(obj).__name__}")
        try:
            return encode_bson(document)
        except TypeError:  # a value inside is a model, or of a type that bson does not have
            return encode_bson(plain(document, binary_value, datetimes=True))

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
    """The fields of a flat body. None is left out: there is no null."""
    document = plain(obj)
    if not isinstance(document, Mapping):
        raise TypeError(f"a {name} body needs a mapping, not {type(obj).__name__}")
    for key, value in document.items():
        if isinstance(value, dict | list):
            raise TypeError(f"{key}: a {name} body is flat, it cannot carry a {type(value).__name__}")
        if isinstance(value, bool):
            yield key, "Y" if value else "N"
        elif value is not None:
            yield key, value


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


def decode_body(codec: Codec, data: bytes, type_: Any = Any) -> Any:
    """Decode a body with a codec and convert the result to a type; `Any` returns it as decoded.

    Raises ValueError if the body is malformed or does not fit the type (DecodeError, with the path of the wrong value).
    """
    if type(codec) is JsonCodec and is_pydantic_model(type_):
        return convert_json(data, type_)
    decoded = codec.decode(data)
    if type_ is Any:
        return decoded
    if codec.name == "fix" and isinstance(decoded, dict) and get_origin(type_) is None and type_ is not dict:
        decoded = {str(tag): value for tag, value in decoded.items()}  # names of fields and aliases are texts
    return convert(decoded, type_, lax=codec.name in ("fix", "nvfix"))
