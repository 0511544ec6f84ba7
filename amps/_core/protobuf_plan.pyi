"""Types of what is looked for in protobuf messages; see protobuf_plan.pyx."""

from typing import NamedTuple

from amps._core.field_plans import FieldPlan

class ProtobufField(NamedTuple):
    name: bytes
    number: int
    kind: int
    repeated: bool
    message: int
    oneof: int
    has_default: bool
    default: bool | int | float | bytes | None

class Plan(FieldPlan):
    def __init__(self, schema: tuple[tuple[ProtobufField, ...], ...]) -> None: ...
