"""Types of conflation of ordinary subscriptions; see live_conflation.pyx."""

from collections.abc import Callable

from amps._core.conflation import Conflation
from amps._core.outlet import Outlet

class LiveConflation:
    def __init__(
        self,
        conflation: Conflation,
        outlet: Outlet,
        sub_id: bytes | None,
        flags: int,
        flags_if_recorded: int,
        holds: Callable[[LiveConflation], object],
    ) -> None: ...
    @property
    def due_ns(self) -> int | None: ...
    def run(self, now_ns: int, behind: bool) -> None: ...
    def send_held(self) -> None: ...
