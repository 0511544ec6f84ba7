"""Types of the walk that makes rows of records; see record_columns.pyx."""

from collections.abc import Callable, Iterable

from amps._core.log_file import LogFile
from amps._core.record_rows import RecordRows

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
        self, file: LogFile, topics: Iterable[tuple[int, bytes, bytes]] = ..., last_topic_offset: int = ...
    ) -> None: ...
    def seek(self, offset: int, end: int) -> None: ...
    def advance(self) -> int: ...
    def search(self) -> bool: ...
