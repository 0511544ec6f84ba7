"""Types of what is looked for in protobuf messages; see protobuf_plan.pyx."""

from collections.abc import Iterable
from typing import NamedTuple

class ProtobufField(NamedTuple):
    name: bytes
    number: int
    kind: int
    repeated: bool
    message: int
    oneof: int
    has_default: bool
    default: bool | int | float | bytes | None

class Plan:
    def __init__(self) -> None: ...

class Plans:
    def __init__(self, schema: Iterable[tuple[ProtobufField, ...]]) -> None: ...
    @property
    def made(self) -> int: ...
