from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy
from _typeshed import ReadableBuffer
from numpy.typing import NDArray

from amps._core.journal.reader import LogFile

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

COLUMNS: tuple[str, ...]
STATE_COLUMNS: tuple[str, ...]
KINDS: dict[int, str]

class Memory:
    def __buffer__(self, flags: int) -> memoryview: ...
    def __len__(self) -> int: ...

class RecordRows:
    def __init__(
        self,
        columns: Iterable[str] = ...,
        rows_max: int = ...,
        bytes_max: int = ...,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    def add_reader(self, reader: FieldColumns) -> int: ...
    def places(self) -> Memory | None: ...
    def take(self) -> tuple[int, dict[str, tuple[Memory | None, Memory | None, Memory]]]: ...

STOPPED_AT_END: int
STOPPED_FULL: int
STOPPED_FINISHED: int
STOPPED_AT_DAMAGE: int
NO_LIMIT: int
ALL_KINDS: int

class RecordColumns:
    def __init__(
        self,
        batch: RecordRows,
        topic_wanted: Callable[[bytes, bytes], int | None],
        kinds: int = ...,
        first_position: int = ...,
        end_position: int = ...,
        first_time_us: int = ...,
        last_time_us: int = ...,
        takes_unnamed: bool = ...,
    ) -> None: ...
    @property
    def batch(self) -> RecordRows: ...
    @property
    def file(self) -> LogFile: ...
    @property
    def offset(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def records_read(self) -> int: ...
    @property
    def unnamed_records(self) -> int: ...
    @property
    def durable_position(self) -> int: ...
    def open(
        self,
        file: LogFile,
        topics: Iterable[tuple[int, bytes, bytes]] = ...,
        last_topic_offset: int = ...,
        last_name_offset: int = ...,
    ) -> None: ...
    def seek(self, offset: int, end: int) -> None: ...
    def advance(self) -> int: ...
    def search(self) -> bool: ...

class PlacedRecords:
    def __init__(
        self, batch: RecordRows, topics: Iterable[tuple[bytes, bytes, int]], publishers: Mapping[int, bytes]
    ) -> None: ...
    @property
    def batch(self) -> RecordRows: ...
    def add_from_file(
        self,
        file: LogFile,
        offsets: NDArray[numpy.uint64],
        topics: NDArray[numpy.uint32],
        txids: NDArray[numpy.uint64],
        first: int,
    ) -> int: ...
    def add_record(self, data: ReadableBuffer, topic: int) -> bool: ...
