"""Reading a FileDescriptorSet: message types and their fields, in the form that the extractor needs.

Descriptors are protobuf messages themselves, and only a few of their fields are needed. They are decoded here, so that
no library is needed at run time. The compiler creates them and has checked names, numbers and references.
"""

import ast
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from amps._core.messages.protobuf import ProtobufField

DOUBLE, FLOAT, BOOL, STRING, GROUP, MESSAGE, BYTES, ENUM = 1, 2, 8, 9, 10, 11, 12, 14
REPEATED: Final = 3
Default = bool | int | float | bytes | None
# The fields of a descriptor: numbers, or bytes that are a text or an inner descriptor.
Parts = list[tuple[int, int | bytes]]


@dataclass(slots=True)
class FieldDescription:
    name: str = ""
    number: int = 0
    kind: int = 0
    repeated: bool = False
    type_name: str = ""
    default_text: str | None = None
    oneof: int = -1
    implicit: bool = False
    """Whether an absent field counts as present, with the default of its type."""


@dataclass(slots=True)
class MessageDescription:
    fields: list[FieldDescription] = field(default_factory=list)
    is_map_entry: bool = False


@dataclass(slots=True)
class Descriptions:
    """All message types and enums by their full names, and the syntax of the last file, the one that was compiled."""

    messages: dict[str, MessageDescription] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    top_level: list[str] = field(default_factory=list)
    syntax: str = "proto2"


def descriptions(descriptor_set: bytes) -> Descriptions:
    made = Descriptions()
    for number, file in parts(descriptor_set):
        if number == 1 and isinstance(file, bytes):
            _read_file(file, made)
    return made


def schema(described: Descriptions, type_name: str) -> tuple[tuple[ProtobufField, ...], ...]:
    """The message type with this name, followed by all types that it refers to."""
    order = [type_name]
    numbers = {type_name: 0}
    made = []
    for name in order:  # the loop appends to it
        fields = []
        for one in described.messages[name].fields:
            message = -1
            if one.kind in (MESSAGE, GROUP):
                message = numbers.setdefault(one.type_name, len(order))
                if message == len(order):
                    order.append(one.type_name)
            default = None if one.repeated else _default(one, described)
            fields.append(
                ProtobufField(
                    one.name.encode(),
                    one.number,
                    one.kind,
                    one.repeated,
                    message,
                    one.oneof,
                    default is not None,
                    default,
                )
            )
        made.append(tuple(fields))
    return tuple(made)


def _default(described: FieldDescription, all_described: Descriptions) -> Default:
    """The value of an absent field; None: it stays absent."""
    text = described.default_text
    if text is None:
        if not described.implicit or described.kind in (MESSAGE, GROUP):
            return None
        zeros: dict[int, Default] = {DOUBLE: 0.0, FLOAT: 0.0, BOOL: False, STRING: b"", BYTES: b""}
        if described.kind == ENUM:
            # The first value. In an enum whose first value must be zero, it is zero.
            return next(iter(all_described.enums[described.type_name].values()), 0)
        return zeros.get(described.kind, 0)
    if described.kind == BOOL:
        return text == "true"
    if described.kind == STRING:
        return text.encode()
    if described.kind == BYTES:
        # Escaped as in C, also quotes. The escapes that the compiler writes are the same in Python.
        return bytes(ast.literal_eval(f"b'{text}'"))
    if described.kind == ENUM:
        return all_described.enums[described.type_name][text]
    if described.kind == DOUBLE:
        return float(text)
    if described.kind == FLOAT:
        number = float(text)
        return float(struct.unpack("<f", struct.pack("<f", number))[0]) if math.isfinite(number) else number
    return int(text)


# The numbers below are those of google/protobuf/descriptor.proto.


def _read_file(descriptor: bytes, into: Descriptions) -> None:
    package = ""
    into.syntax = "proto2"
    held = list(parts(descriptor))
    for number, content in held:
        if number == 2 and isinstance(content, bytes):
            package = f".{content.decode()}"
        elif number == 12 and isinstance(content, bytes):
            into.syntax = content.decode()
    into.top_level = []
    for number, content in held:
        if number == 4 and isinstance(content, bytes):
            into.top_level.append(_read_message(content, package, into).removeprefix("."))
        elif number == 5 and isinstance(content, bytes):
            _read_enum(content, package, into)


def _read_message(descriptor: bytes, scope: str, into: Descriptions) -> str:
    made = MessageDescription()
    held = list(parts(descriptor))
    name = scope + "." + _text(held, 1)
    for number, content in held:
        if not isinstance(content, bytes):
            continue
        if number == 2:
            made.fields.append(_read_field(content, into.syntax))
        elif number == 3:
            _read_message(content, name, into)
        elif number == 4:
            _read_enum(content, name, into)
        elif number == 7:
            made.is_map_entry = (7, 1) in parts(content)
    if made.is_map_entry:
        for one in made.fields:  # a missing field of an entry has its default, in every syntax
            one.implicit = True
    into.messages[name] = made
    return name


def _read_field(descriptor: bytes, syntax: str) -> FieldDescription:
    made = FieldDescription()
    alone = False  # proto3's `optional` is a oneof with one member
    for number, content in parts(descriptor):
        if isinstance(content, bytes):
            if number == 1:
                made.name = content.decode()
            elif number == 6:
                made.type_name = content.decode()
            elif number == 7:
                made.default_text = content.decode()
        elif number == 3:
            made.number = content
        elif number == 4:
            made.repeated = content == REPEATED
        elif number == 5:
            made.kind = content
        elif number == 9:
            made.oneof = content
        elif number == 17:
            alone = bool(content)
    made.implicit = syntax == "proto3" and made.oneof < 0
    if alone:
        made.oneof = -1
    return made


def _read_enum(descriptor: bytes, scope: str, into: Descriptions) -> None:
    held = list(parts(descriptor))
    values: dict[str, int] = {}
    for number, content in held:
        if number == 2 and isinstance(content, bytes):
            value = list(parts(content))
            [bits] = [content for number, content in value if number == 2 and isinstance(content, int)] or [0]
            values[_text(value, 1)] = bits - (1 << 64) if bits >> 63 else bits
    into.enums[scope + "." + _text(held, 1)] = values


def _text(held: Parts, wanted: int) -> str:
    return next(
        content.decode() for number, content in held if number == wanted and isinstance(content, bytes)
    )


def parts(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message that contains only numbers and bytes, as all descriptors do, apart from their options."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        content, at = _varint(message, at) if key & 7 in (0, 2) else (0, at)
        if key & 7 == 0:
            yield key >> 3, content
            continue
        length = {1: 8, 2: content, 5: 4}[key & 7]
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (message[at] & 0x7F) << shift
        at += 1
        shift += 7
        if message[at - 1] < 0x80:
            return number, at
