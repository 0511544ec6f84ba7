"""Types of conflation on replays; see conflation.pyx."""

from collections.abc import Iterable

from amps._core.filter_set import FilterBench

HELD_BYTES_MAX: int
AUTO_INTERVAL_MIN_S: float
AUTO_INTERVAL_MAX_S: float
AUTO_INTERVAL_BEGIN_S: float

class Held: ...

class Conflation:
    def __init__(
        self,
        bench: FilterBench,
        paths: Iterable[tuple[bytes | int, ...]],
        interval_s: float | None,
        held_bytes_max: int = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def interval_ns(self) -> int: ...
    @property
    def adapts(self) -> bool: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def due_ns(self) -> int | None: ...
    @property
    def before_first(self) -> tuple[int, int] | None: ...
    def adapt(self, behind: bool) -> None: ...
