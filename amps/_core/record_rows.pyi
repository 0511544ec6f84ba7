"""Types of rows of columns; see record_rows.pyx."""

from collections.abc import Iterable, Mapping

from amps._core.field_columns import FieldColumns

COLUMNS: tuple[str, ...]
KINDS: dict[int, str]

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
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    def add_reader(self, reader: FieldColumns) -> int: ...
    def places(self) -> Memory | None: ...
    def take(self) -> tuple[int, dict[str, tuple[Memory | None, Memory | None, Memory]]]: ...
