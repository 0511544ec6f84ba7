"""Types of the tree of destination paths; see destinations.pyx."""

from collections.abc import Iterable, Sequence

def lasting(paths: Sequence[tuple[bytes, ...]], leaves_only: bool) -> list[int]: ...

class Destinations:
    def __init__(self, paths: Iterable[tuple[bytes, ...]], leaves_only: bool = True) -> None: ...
