"""Types of the scan of whole files; see log_scan.pyx."""

from collections.abc import Callable

from _typeshed import ReadableBuffer

from amps._core.bookmark_index import IndexBuilder
from amps._core.log_file import LogFile

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
