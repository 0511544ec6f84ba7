"""Types of log files, cursors and scans; see log_reader.pyx."""

from collections.abc import Callable, Sequence
from typing import Protocol

from _typeshed import ReadableBuffer

from amps._core.bookmark_index import IndexBuilder
from amps._core.frames import FrameCache, FrameMap
from amps._core.frames import LogDamaged as LogDamaged

FILE_HEADER_SIZE: int
RECORD_HEADER_SIZE: int
END_OF_FILE_KIND: int
FORMAT_VERSION: int
MAGIC: bytes
EMPTY: bytes

class LogRemoved(LookupError): ...

def build_file_header(
    file_number: int,
    file_size: int,
    start_position: int,
    first_txid: int,
    created_ns: int,
    instance_name_hash: int,
    instance_name: str,
    in_use: bool,
) -> bytes: ...
def read_file_header(page: bytes | memoryview, path: str) -> tuple[int, int, int, int, str, bool] | None: ...
def checksum(data: ReadableBuffer) -> int: ...

class MappedRange:
    def __init__(self, file: LogFile, offset: int, length: int) -> None: ...
    def __buffer__(self, flags: int) -> memoryview: ...

class LogFile:
    def __init__(self, path: str, number: int | None = None, cache: FrameCache | None = None) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def start_position(self) -> int: ...
    @property
    def instance_name(self) -> str: ...
    @property
    def frames(self) -> FrameMap | None: ...
    @property
    def compressed(self) -> bool: ...
    def read(self, offset: int, length: int) -> bytes: ...
    def memory_view(self, offset: int, length: int) -> memoryview: ...
    def learn_topics_before(self, last_topic_offset: int, resolver: Callable[[str, str], object]) -> None: ...

class _Guard(Protocol):
    def enter(self, number: int) -> None: ...
    def check(self, number: int) -> None: ...
    def release(self, lowest: int | None) -> None: ...

class LogDirectory:
    resolver: Callable[[str, str], object]
    def __init__(
        self,
        prefix: str,
        suffix: str,
        resolver: Callable[[str, str], object],
        more_places: Sequence[tuple[str, str]] = (),
        cache: FrameCache | None = None,
        guard: _Guard | None = None,
    ) -> None: ...
    def path(self, number: int) -> str: ...
    def file(self, number: int) -> LogFile: ...
    def release_unused(self) -> int | None: ...
    def start_position(self, number: int) -> int: ...
    def number_at(self, position: int, first_number: int, last_number: int) -> int: ...

class _Files(Protocol):
    resolver: Callable[[str, str], object]
    def file(self, number: int) -> LogFile: ...

class LogCursor:
    def __init__(self, directory: _Files, number: int, position: int, verify: bool) -> None: ...
    @property
    def file(self) -> LogFile: ...
    @property
    def position(self) -> int: ...
    @property
    def verify(self) -> bool: ...
    def directory_of(self) -> _Files: ...
    def place(self) -> tuple[int, int]: ...
    def step(self, limit: int) -> Record | None: ...
    def skip_to(self, position: int) -> tuple[int, int] | None: ...
    def find(self, publisher_id: int, sequence: int, limit: int) -> int | None: ...
    def skip_before(self, time_us: int, limit: int) -> bool: ...
    def last_record(self, limit: int) -> int | None: ...

class Record:
    correlation_id: bytes
    durable_position: int
    expiration_s: int | None
    flags: int
    kind: int
    length: int
    payload: bytes
    position: int
    publisher_id: int
    sequence: int
    sow_key: bytes
    timestamp_ns: int
    topic: object
    txid: int
    user_id: bytes

class ScanResult:
    damaged: bool
    durable_position: int
    end_offset: int
    finished: bool
    last_bookmark: tuple[int, int]
    last_txid: int
    record_count: int
    topics: list[tuple[str, str]]
    valid_after: int

def scan_file(
    source: LogFile | ReadableBuffer,
    start_position: int,
    index: IndexBuilder | None = None,
    progress: Callable[[int], object] | None = None,
) -> ScanResult: ...
def check_records(file: LogFile, offset: int, bytes_max: int) -> tuple[int, bool]: ...
def intact_record(
    source: LogFile | ReadableBuffer, start_position: int, offset: int
) -> tuple[int, int] | None: ...
