"""Types of the core's turns; see core_turns.pyx."""

from collections.abc import Callable, Sequence, Set

from amps._core.sequencer import Sequencer
from amps._core.shared import ControlPage, Ring

WOKEN_BY_BELL: int

class CoreTurns:
    sequencer: Sequencer
    def __init__(
        self,
        control: ControlPage,
        egress: Sequence[Ring],
        bells: Sequence[int],
        bell: int,
        supervisor: int,
        requests: int,
        bytes_max: int,
        as_record: Callable[[object], bytes],
    ) -> None: ...
    @property
    def blocked(self) -> Set[int]: ...
    @property
    def replacing(self) -> set[int]: ...
    def begin(
        self,
        sequencer: Sequencer,
        may_take: Callable[[], bool],
        written: Callable[[int, int], None] | None,
        after: Callable[[], None],
    ) -> None: ...
    def turn(self, now_ns: int) -> bool: ...
    def linger(self, limit_ns: int) -> bool: ...
    def sleeps(self) -> None: ...
    def wakes(self) -> None: ...
    def wait(self, timeout_ms: int, orphaned: bool, answers_wait: bool) -> int: ...
