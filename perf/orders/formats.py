"""Orders in the formats of the message types, written as their publishers would, without this server's code.

Flat formats join the steps of a path; FIX numbers the fields. A struct has its fields in the order of its layout, all
others in the order of the record.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path as FilePath
from xml.sax.saxutils import escape

import msgpack
import orjson

from amps.messages import TypeSettings
from perf.orders.records import Fields, Path, Scalar, as_dict, leaves, orders

FIX_FIRST_TAG = 5000
STRUCT_TEXT_BYTES = {"note": 160}
STRUCT_TEXT_BYTES_OTHERS = 20
PROTO_FILE = "order.proto"
COMPOSITE_SECOND_PART = "n"
"""Fields whose names begin with this letter, or a later one, are in the second part."""


def known_fields() -> dict[Path, Scalar]:
    """Every field of a record, with an example, in the order of their paths."""
    return dict(sorted(leaves(next(orders(1)).fields)))


class Format(ABC):
    """One format. `name` is the name of the message type, declared or standard."""

    name: str

    def settings(self, directory: FilePath) -> TypeSettings:
        """The configuration of the type; files that it names are in `directory`."""
        return TypeSettings(self.name, self.name)

    def files(self) -> dict[str, str]:
        """The files that `settings` names, with their contents."""
        return {}

    def path(self, path: Path) -> str:
        """The path of a field in a filter."""
        return "/" + "/".join(path)

    @abstractmethod
    def encode(self, fields: Fields) -> bytes:
        """A record as a message."""


class Json(Format):
    name = "json"

    def encode(self, fields: Fields) -> bytes:
        return orjson.dumps(as_dict(fields))


class OrderedJson(Json):
    """JSON with the fields in the same order in every message, as most publishers write them."""

    name = "json-ordered"

    def settings(self, directory: FilePath) -> TypeSettings:
        return TypeSettings(self.name, "json")

    def encode(self, fields: Fields) -> bytes:
        return orjson.dumps(as_dict(fields), option=orjson.OPT_SORT_KEYS)


class MessagePack(Format):
    name = "msgpack"

    def encode(self, fields: Fields) -> bytes:
        packed: bytes = msgpack.packb(as_dict(fields))
        return packed


class Nvfix(Format):
    name = "nvfix"

    def path(self, path: Path) -> str:
        return f"/{self.tag(path)}"

    def tag(self, path: Path) -> str:
        return "_".join(path)

    def encode(self, fields: Fields) -> bytes:
        return "".join(f"{self.tag(path)}={text_of(value)}\x01" for path, value in leaves(fields)).encode()


class Fix(Nvfix):
    name = "fix"

    def __init__(self) -> None:
        self._tags = {path: str(FIX_FIRST_TAG + number) for number, path in enumerate(known_fields())}

    def tag(self, path: Path) -> str:
        return self._tags[path]


class Xml(Format):
    name = "xml"

    def path(self, path: Path) -> str:
        return "/order/" + "/".join(path)

    def encode(self, fields: Fields) -> bytes:
        return f"<order>{self._inside(fields)}</order>".encode()

    def _inside(self, fields: Fields) -> str:
        return "".join(
            f"<{name}>{self._inside(value) if isinstance(value, list) else escape(text_of(value))}</{name}>"
            for name, value in fields
        )


def text_of(value: Scalar) -> str:
    """A value in text formats; empty for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Bson(Format):
    name = "bson"

    def encode(self, fields: Fields) -> bytes:
        elements = b"".join(self._element(name.encode() + b"\0", value) for name, value in fields)
        return struct.pack("<i", len(elements) + 5) + elements + b"\0"

    def _element(self, name: bytes, value: Scalar | Fields) -> bytes:
        match value:
            case list():
                return b"\x03" + name + self.encode(value)
            case None:
                return b"\x0a" + name
            case bool():
                return b"\x08" + name + bytes([value])
            case int() if -(2**31) <= value < 2**31:
                return b"\x10" + name + struct.pack("<i", value)
            case int():
                return b"\x12" + name + struct.pack("<q", value)
            case float():
                return b"\x01" + name + struct.pack("<d", value)
            case str():
                data = value.encode()
                return b"\x02" + name + struct.pack("<i", len(data) + 1) + data + b"\0"


class Bflat(Format):
    """Each value in the smallest type that holds it."""

    name = "bflat"

    def path(self, path: Path) -> str:
        return "/" + "_".join(path)

    def encode(self, fields: Fields) -> bytes:
        return b"".join(self._tag("_".join(path).encode(), value) for path, value in leaves(fields))

    def _tag(self, tag: bytes, value: Scalar) -> bytes:
        kind, data = self._value(value)
        if len(tag) < 8:
            return bytes([kind | len(tag)]) + tag + data
        return bytes([kind]) + leb128(len(tag)) + tag + data

    def _value(self, value: Scalar) -> tuple[int, bytes]:
        match value:
            case None:
                return 0x00, b""
            case bool():
                return 0x18, bytes([value])
            case int():
                for kind, code, bits in (
                    (0x18, "<b", 7),
                    (0x20, "<h", 15),
                    (0x28, "<i", 31),
                    (0x30, "<q", 63),
                ):
                    if -(1 << bits) <= value < 1 << bits:
                        return kind, struct.pack(code, value)
                raise ValueError(f"{value} takes more than 64 bits")
            case float():
                return 0x38, struct.pack("<d", value)
            case str():
                data = value.encode()
                return 0x08, leb128(len(data)) + data


def leb128(value: int) -> bytes:
    """An unsigned integer in LEB128."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Struct(Format):
    """Numbers take eight bytes, texts the length of their field; a null is a text of zeros."""

    name = "struct"

    def __init__(self) -> None:
        codes = {path: self._code(path, example) for path, example in known_fields().items()}
        self._layout = struct.Struct("<" + "".join(codes.values()).replace("S", "s"))
        self._fields = tuple(f"{self.path(path)} = {code}" for path, code in codes.items())

    def settings(self, directory: FilePath) -> TypeSettings:
        return TypeSettings(self.name, self.name, fields=self._fields)

    def _code(self, path: Path, example: Scalar) -> str:
        match example:
            case bool():
                return "?"
            case int():
                return "q"
            case float():
                return "d"
            case _:
                return f"{STRUCT_TEXT_BYTES.get(path[-1], STRUCT_TEXT_BYTES_OTHERS)}S"

    def encode(self, fields: Fields) -> bytes:
        values = sorted(leaves(fields))
        return self._layout.pack(
            *(value if isinstance(value, int | float) else (value or "").encode() for _, value in values)
        )


class Protobuf(Format):
    """proto3; fields are numbered in the order of their names, a null is not written."""

    name = "protobuf"

    def __init__(self) -> None:
        self._messages: dict[Path, dict[str, Scalar | Fields]] = {(): {}}
        """By path: the fields of each protobuf message with examples."""
        for path, example in known_fields().items():
            if len(path) > 1:
                self._messages[()][path[0]] = []
                self._messages.setdefault(path[:1], {})[path[1]] = example
            else:
                self._messages[()][path[0]] = example
        self._numbers = {
            (*above, name): number
            for above, fields in self._messages.items()
            for number, name in enumerate(fields, start=1)
        }

    def settings(self, directory: FilePath) -> TypeSettings:
        return TypeSettings(
            self.name, self.name, proto_paths=(("", directory),), proto_file=PROTO_FILE, proto_type="Order"
        )

    def files(self) -> dict[str, str]:
        lines = ['syntax = "proto3";']
        for above, fields in self._messages.items():
            lines.append(f"message {above[0].capitalize() if above else 'Order'} {{")
            lines += [
                f"  {self._type(name, example)} {name} = {self._numbers[*above, name]};"
                for name, example in fields.items()
            ]
            lines.append("}")
        return {PROTO_FILE: "\n".join(lines) + "\n"}

    def _type(self, name: str, example: Scalar | Fields) -> str:
        match example:
            case list():
                return name.capitalize()
            case bool():
                return "bool"
            case int():
                return "int64"
            case float():
                return "double"
            case _:
                return "string"

    def encode(self, fields: Fields, above: Path = ()) -> bytes:
        return b"".join(self._field((*above, name), value) for name, value in fields)

    def _field(self, path: Path, value: Scalar | Fields) -> bytes:
        key = self._numbers[path] << 3
        match value:
            case None:
                return b""
            case int():  # bool as well
                return leb128(key) + leb128(value)
            case float():
                return leb128(key | 1) + struct.pack("<d", value)
        data = value.encode() if isinstance(value, str) else self.encode(value, path)
        return leb128(key | 2) + leb128(len(data)) + data


class CompositeLocal(Format):
    """Two parts of JSON with half of the fields each, those of the filter in both."""

    name = "composite-local"

    def settings(self, directory: FilePath) -> TypeSettings:
        return TypeSettings(self.name, self.name, parts=("json", "json"))

    def path(self, path: Path) -> str:
        return f"/{self._part(path[0])}{super().path(path)}"

    def encode(self, fields: Fields) -> bytes:
        parts: tuple[Fields, Fields] = [], []
        for name, value in fields:
            parts[self._part(name)].append((name, value))
        messages = [orjson.dumps(as_dict(part)) for part in parts]
        return b"".join(struct.pack(">I", len(message)) + message for message in messages)

    def _part(self, name: str) -> int:
        return int(name >= COMPOSITE_SECOND_PART)


class CompositeGlobal(CompositeLocal):
    """The same messages; a filter does not name the part of a field."""

    name = "composite-global"

    def path(self, path: Path) -> str:
        return Format.path(self, path)


FORMATS: dict[str, Callable[[], Format]] = {
    made.name: made
    for made in (
        Json,
        OrderedJson,
        MessagePack,
        Bson,
        Bflat,
        Nvfix,
        Fix,
        Xml,
        Struct,
        Protobuf,
        CompositeLocal,
        CompositeGlobal,
    )
}
