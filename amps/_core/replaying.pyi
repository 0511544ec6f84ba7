"""Types of replays on terms; see replaying.pyx."""

from amps._core.conflation import Conflation
from amps._core.delivery import Group, JournalTailer
from amps._core.log_reader import LogCursor
from amps._core.outlet import Outlet
from amps._core.pace import Pace
from amps._core.replay_bounds import ReplayBounds

REPLAY_REACHED: int
REPLAY_UNFINISHED: int
REPLAY_DUE_LATER: int
REPLAY_ENDED: int

class ReplayTailer(JournalTailer):
    def __init__(
        self,
        cursor: LogCursor,
        group: Group,
        last_publisher_id: int,
        last_sequence: int,
        bounds: ReplayBounds | None = None,
        pace: Pace | None = None,
        conflation: Conflation | None = None,
        messages_max: int | None = None,
    ) -> None: ...
    @property
    def bounds(self) -> ReplayBounds | None: ...
    @property
    def pace(self) -> Pace | None: ...
    @property
    def conflation(self) -> Conflation | None: ...
    @property
    def messages_left(self) -> int: ...
    @property
    def safe_bookmark(self) -> tuple[int, int]: ...
    def run_on_terms(
        self,
        limit: int,
        log_bytes_max: int,
        outlet: Outlet,
        output_bytes_max: int,
        now_ns: int,
        clock_ns: int,
    ) -> int: ...
    def flush(self, outlet: Outlet, output_bytes_max: int, now_ns: int) -> int: ...
    def release_all(self, outlet: Outlet) -> None: ...
