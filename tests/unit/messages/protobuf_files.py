"""Shared parts of the tests of protobuf: .proto files, their types, and messages as the protobuf package reads them."""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from amps.messages.protobuf import ProtobufType
from amps.messages.protoc import compiled
from amps.messages.settings import TypeSettings
from tests.unit.messages.reading import Path

SHARED = """
package shared;
enum Side { NONE = 0; BUY = 3; SELL = -1; }
message Part { optional int32 n = 1; repeated int32 ns = 2; optional string s = 3; }
"""
VERSION_3 = """
syntax = "proto3";
package three;
import "common/shared.proto";
message Leg { int32 n = 1; repeated int32 ns = 2; string s = 3; Leg leg = 4; }
message Empty {}
message All {
  enum Color { RED = 0; GREEN = 1; BLUE = -5; }
  double d = 1; float f = 2; int64 i64 = 3; uint64 u64 = 4; int32 i32 = 5; fixed64 x64 = 6; fixed32 x32 = 7; bool b = 8;
  string s = 9; bytes y = 10; uint32 u32 = 11; Color color = 12; sfixed32 sx32 = 13; sfixed64 sx64 = 14;
  sint32 s32 = 15; sint64 s64 = 16;
  optional int32 maybe = 17; optional string perhaps = 18;
  Leg leg = 19; repeated Leg legs = 20; All all = 21;
  repeated int32 ints = 22; repeated sint64 zigs = 23 [packed = false]; repeated double doubles = 24;
  repeated string texts = 25; repeated Color colors = 26; repeated bool flags = 27;
  oneof choice { int32 one = 28; string two = 29; Leg three = 30; All four = 31; Empty five = 32; }
  oneof other { All six = 33; Leg seven = 34; }
  shared.Part part = 1000; repeated shared.Part parts = 1023; repeated fixed32 high = 1024; int32 highest = 536870911;
  repeated All alls = 35; repeated shared.Part far = 2000;
}
message Maps { map<string, int32> counts = 1; map<int32, Leg> legs = 2; }
"""
VERSION_2 = """
package two;
import public "common/shared.proto";
message All {
  required int32 needed = 1;
  optional double d = 2 [default = -1.5]; optional float f = 3 [default = 0.1]; optional int64 i64 = 4 [default = -7];
  optional uint64 u64 = 5 [default = 18446744073709551615]; optional bool b = 6 [default = true];
  optional string s = 7 [default = "it's \\"é\\""]; optional bytes y = 8 [default = "a\\001'\\"\\\\\\377\\n"];
  optional shared.Side side = 9 [default = SELL]; optional double far = 10 [default = inf];
  optional double none = 11 [default = nan]; optional string bare = 12; optional int32 number = 13;
  repeated int32 packed = 14 [packed = true]; repeated int32 loose = 15;
  optional shared.Part part = 16; repeated All alls = 17;
  optional group Group = 18 { optional int32 n = 1; repeated string texts = 2; optional All all = 3; }
  repeated group Groups = 19 { optional int32 n = 1; }
  oneof choice { int32 one = 20; shared.Part three = 21; group Four = 22 { repeated int32 ns = 1; } }
  extensions 100 to 200;
}
extend All { optional int32 extra = 100; }
"""


SCRATCH = TemporaryDirectory(prefix="amps-proto-")  # removed at the end of the process


@cache
def directories() -> tuple[tuple[str, FilePath], ...]:
    """The files in three places, one without an alias and two with one."""
    root = FilePath(SCRATCH.name)
    for name, text in {"shared": SHARED, "three": VERSION_3, "two": VERSION_2}.items():
        (root / name).mkdir()
        (root / name / f"{name}.proto").write_text(text)
    return (("", root / "three"), ("common", root / "shared"), ("second", root / "two"))


@cache
def kind(file: str, type_name: str) -> ProtobufType:
    settings = TypeSettings(
        "proto", "protobuf", proto_paths=directories(), proto_file=file, proto_type=type_name
    )
    return ProtobufType(settings, {})


@cache
def factory(file: str, type_name: str) -> Any:
    """The protobuf package's class of a type."""
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(compiled(directories(), file)).file:
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(type_name))


def repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def found_in(message: Message, path: Path) -> list[object]:
    """The values that the package finds at a path. Subscripts select elements of repeated fields."""
    name, *rest = path
    assert isinstance(name, bytes)
    field = message.DESCRIPTOR.fields_by_name.get(name.decode("latin-1"))
    if field is None:
        return []
    if field.message_type is None:
        return [] if rest else [plain(value) for value in scalars_of(message, field)]
    parts = getattr(message, field.name)
    parts = list(parts) if repeated(field) else [parts] if message.HasField(field.name) else []
    if rest and isinstance(rest[0], int):
        parts = parts[rest[0] : rest[0] + 1]
        rest = rest[1:]
    if not rest:
        return [...] * len(parts)
    return [value for part in parts for value in found_in(part, tuple(rest))]


def scalars_of(message: Message, field: FieldDescriptor) -> list[object]:
    value = getattr(message, field.name)
    if repeated(field):
        return list(value)
    there = not field.has_presence or field.has_default_value or message.HasField(field.name)
    return [value] if there else []


def plain(value: object) -> object:
    """The value, with the empty string as NULL."""
    value = value.encode() if isinstance(value, str) else value
    return None if value == b"" else value


def some_paths(descriptor: Descriptor) -> list[Path]:
    """All paths of up to two steps, a share of the longer ones, and some that lead to nothing."""
    short = list(dict.fromkeys(paths_of(descriptor, 2)))
    longer = [path for path in paths_of(descriptor, 3) if path not in short]
    return short + longer[:: len(longer) // 60 + 1]


def paths_of(descriptor: Descriptor, steps: int) -> Iterator[Path]:
    """All paths of at most this many names."""
    yield (b"nothing",)
    for field in descriptor.fields:
        name = field.name.encode()
        yield (name,)
        if field.message_type is None:
            yield (name, b"nothing")
        elif steps > 1:
            for below in paths_of(field.message_type, steps - 1):
                yield (name, *below)
                yield (name, field.number % 2, *below)


RANGES = {
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_FIXED64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT64: (-(2**63), 2**63 - 1),
}


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type in RANGES:
        low, high = RANGES[field.type]
        return st.integers(low, high) | st.sampled_from([low, high, 0, 1])
    if field.type == FieldDescriptor.TYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.text(max_size=5)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=5)
    return st.floats(width=32) | st.sampled_from([math.nan, math.inf])


@st.composite
def messages(draw: st.DrawFn, file: str, type_name: str) -> Message:
    made: Message = factory(file, type_name)()
    fill(draw, made, 3)
    return made


def fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    fields = [field for field in message.DESCRIPTOR.fields if depth or field.message_type is None]
    if not fields:
        return
    for field in draw(st.lists(st.sampled_from(fields), max_size=5)):
        if field.message_type is None:
            if repeated(field):
                getattr(message, field.name).extend(draw(st.lists(scalars(field), max_size=3)))
            else:
                setattr(message, field.name, draw(scalars(field)))
        elif repeated(field):
            for _ in range(draw(st.integers(0, 3))):
                fill(draw, getattr(message, field.name).add(), depth - 1)
        else:
            part = getattr(message, field.name)
            part.SetInParent()
            fill(draw, part, depth - 1)
