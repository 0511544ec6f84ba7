"""Types of the state of groups of messages; see aggregates.pyx."""

from collections.abc import Sequence
from typing import Final

from amps._core.expression_vm import Program
from amps._core.fields import FieldSet, FieldValues
from amps._core.message_builder import MessageBuilder
from amps._core.message_context import MessageContext
from amps._core.value import Scalar

GROUP_BYTES_MAX: Final[int]

class GroupTooLarge(Exception): ...

class BoundProjection:
    def __init__(
        self,
        fields: FieldSet,
        parts: Sequence[tuple[tuple[bytes | int, ...], str | None, str, Program, bytes, bool]],
        outputs: Sequence[tuple[Program, bool]],
        limit_bytes: int = ...,
    ) -> None: ...
    @property
    def limit_bytes(self) -> int: ...

class Group:
    def __init__(self, projection: BoundProjection) -> None: ...
    @property
    def projection(self) -> BoundProjection: ...
    @property
    def records(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    def add(self, values: FieldValues, message: MessageContext | None = None) -> None: ...
    def remove(self, values: FieldValues, message: MessageContext | None = None) -> None: ...
    def values(self) -> list[Scalar]: ...
    def build(self, builder: MessageBuilder) -> bytes: ...
