"""Types of the builders of messages; see message_builder.pyx."""

from collections.abc import Iterable, Sequence
from typing import Final

from _typeshed import ReadableBuffer

from amps._core.fields import FieldValues
from amps._core.value import Scalar

OMIT: Final[object]

class ByteBuffer: ...

class MessageBuilder:
    def __init__(self, paths: Iterable[tuple[bytes, ...]]) -> None: ...
    @property
    def paths(self) -> tuple[tuple[bytes, ...], ...]: ...
    def build(self, values: Sequence[Scalar | object]) -> bytes: ...
    def merge(self, message: ReadableBuffer, values: Sequence[Scalar | object]) -> bytes: ...
    def project(self, found: FieldValues) -> bytes: ...
