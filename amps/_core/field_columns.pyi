"""Types of the columns of payload fields; see field_columns.pyx."""

from collections.abc import Iterable
from typing import Any

from _typeshed import ReadableBuffer

MESSAGE_TYPES: tuple[str, ...]

_Type = str | tuple[Any, ...]

def arrow_type_of(of: _Type) -> Any: ...

class FieldColumns:
    def __init__(
        self, message_type: str, fields: Iterable[tuple[str, _Type]], field_separator: int = 1
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def malformed(self) -> int: ...
    @property
    def arrow_type(self) -> Any: ...
    def add_payload(self, payload: ReadableBuffer) -> None: ...
    def finish(self) -> Any: ...
