"""Types of the core's placement; see placement.pyx."""

from amps._core.shared import ControlPage

MOVE_INTERVAL_NS: int

class Placement:
    @property
    def moves(self) -> int: ...
    def __init__(self, control: ControlPage, transports: int) -> None: ...
    def keep_apart(self, now_ns: int) -> bool: ...
