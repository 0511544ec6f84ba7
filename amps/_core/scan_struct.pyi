"""Types of the extractor for struct messages; see scan_struct.pyx."""

from collections.abc import Iterable
from typing import NamedTuple

from amps._core.field_plans import FieldPlan, FieldPlans
from amps._core.fields import Extractor

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
