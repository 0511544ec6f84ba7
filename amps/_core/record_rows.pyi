"""Types of rows of columns; see record_rows.pyx."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

COLUMNS: tuple[str, ...]
KINDS: dict[int, str]

class _PayloadReader(Protocol):
    def add_payload(self, payload: bytes, /) -> object: ...

class Memory:
    def __buffer__(self, flags: int) -> memoryview: ...
    def __len__(self) -> int: ...

class RecordRows:
    def __init__(
        self,
        columns: Iterable[str] = ...,
        publisher_names: Mapping[int, bytes] | None = None,
        rows_max: int = ...,
        bytes_max: int = ...,
        kept: Iterable[str] = ...,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    def add_fields(self, readers: Sequence[_PayloadReader]) -> Memory | None: ...
    def take(self) -> tuple[int, dict[str, tuple[Memory | None, Memory | None, Memory]]]: ...
