"""Types of finding what has left queues; see removal_scan.pyx."""

from typing import Literal

from amps._core.log_reader import LogCursor

ENTRY_BYTES: int

class RemovalScan:
    def __init__(self, cursor: LogCursor) -> None: ...
    @property
    def position(self) -> int: ...
    def next(
        self, limit: int, bytes_max: int
    ) -> tuple[int, object, bool, list[tuple[int, int]]] | Literal[False] | None: ...
