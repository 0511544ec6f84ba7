from collections.abc import Iterable
from typing import NamedTuple

from amps._core.values.fields import Extractor, FieldPlan, FieldPlans

class StructField(NamedTuple):
    path: tuple[bytes, ...]
    kind: str
    big_endian: bool
    offset: int
    size: int

class StructPlan(FieldPlan):
    def __init__(self, layout: tuple[StructField, ...]) -> None: ...

class StructExtractor(Extractor):
    def __init__(self, layout: Iterable[StructField]) -> None: ...
    @property
    def first_field_end(self) -> int: ...
    @property
    def plans(self) -> FieldPlans: ...

class BinaryExtractor(Extractor): ...
