"""Types of the extractor for protobuf; see scan_protobuf.pyx."""

from collections.abc import Iterable

from amps._core.field_plans import FieldPlans
from amps._core.fields import Extractor
from amps._core.protobuf_plan import ProtobufField

class ProtobufExtractor(Extractor):
    def __init__(self, schema: Iterable[tuple[ProtobufField, ...]]) -> None: ...
    @property
    def plans(self) -> FieldPlans: ...
