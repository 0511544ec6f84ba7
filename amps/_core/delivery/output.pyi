from collections.abc import Callable

from _typeshed import ReadableBuffer

WANT_BOOKMARK: int
WANT_TIMESTAMP: int
PACED: int
WANT_LEASE: int
WANT_SOW_KEY: int
WANT_OUT_OF_FOCUS: int
WANT_DELTA: int
WANT_NO_EMPTIES: int

class OutputBuffer:
    def __init__(self, on_first: Callable[[], object]) -> None: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def unpaced_bytes(self) -> int: ...
    def append(self, data: ReadableBuffer) -> None: ...
    def close(self) -> None: ...
    def take(self) -> list[bytes | memoryview]: ...
