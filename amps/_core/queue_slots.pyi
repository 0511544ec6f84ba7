from collections.abc import Callable
from typing import Any

SLOT_DTYPE: Any
BLOCK_DTYPE: Any
BLOCK_SLOT_COUNT: int
BLOCKS_MAX: int

class QueueMemoryFull(MemoryError): ...

def blocks_bytes(block_capacity: int) -> int: ...
def arena_bytes(block_capacity: int) -> int: ...

class QueueArena:
    @property
    def block_capacity(self) -> int: ...
    @property
    def blocks_used(self) -> int: ...
    def __init__(
        self, memory: object, block_capacity: int, make_room: Callable[[int, int], object] | None = None
    ) -> None: ...
