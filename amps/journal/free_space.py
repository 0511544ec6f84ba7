"""The free space of a file system, counted as `df` does: without the blocks reserved for root."""

import os
from pathlib import Path
from typing import NamedTuple


class FreeSpace(NamedTuple):
    """The space of one file system. size_bytes: used and free bytes, without the blocks reserved for root."""

    free_bytes: int
    size_bytes: int

    @property
    def percent(self) -> float:
        """The free percentage, 0 to 100."""
        return 100 * self.free_bytes / self.size_bytes if self.size_bytes else 0.0


def free_space(path: Path) -> FreeSpace:
    """The free space of the file system that holds `path`. The call may wait for the device. Raises OSError."""
    found = os.statvfs(path)
    used_blocks = found.f_blocks - found.f_bfree
    return FreeSpace(found.f_bavail * found.f_frsize, (used_blocks + found.f_bavail) * found.f_frsize)
