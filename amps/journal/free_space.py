"""How much room a file system has for more, as `df` counts it: what is kept for root is not there."""

import os
from pathlib import Path
from typing import NamedTuple


class FreeSpace(NamedTuple):
    """Of one file system. `size_bytes`: what is in use and what is free, without what is kept for root."""

    free_bytes: int
    size_bytes: int

    @property
    def percent(self) -> float:
        """The free part, 0 to 100."""
        return 100 * self.free_bytes / self.size_bytes if self.size_bytes else 0.0


def free_space(path: Path) -> FreeSpace:
    """Of the file system that holds `path`. It may take as long as the device does. Raises OSError."""
    found = os.statvfs(path)
    used_blocks = found.f_blocks - found.f_bfree
    return FreeSpace(found.f_bavail * found.f_frsize, (used_blocks + found.f_bavail) * found.f_frsize)
