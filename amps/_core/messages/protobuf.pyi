from collections.abc import Iterable
from typing import NamedTuple

from amps._core.values.documents import Documents
from amps._core.values.fields import Extractor, FieldPlan, FieldPlans

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

class ProtobufExtractor(Extractor):
    def __init__(self, schema: Iterable[tuple[ProtobufField, ...]]) -> None: ...
    @property
    def plans(self) -> FieldPlans: ...

class ProtobufDocuments(Documents):
    def __init__(self, schema: Iterable[tuple[ProtobufField, ...]]) -> None: ...
