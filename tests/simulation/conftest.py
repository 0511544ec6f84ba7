"""Simulated disks are files; in memory, their thousands of calls wait for no real disk."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30


def _has_room(directory: Path) -> bool:
    try:
        room = os.statvfs(directory)
    except OSError:
        return False
    return os.access(directory, os.W_OK) and room.f_bavail * room.f_frsize >= ROOM_BYTES


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory if there is room for it."""
    with tempfile.TemporaryDirectory(
        prefix="amps-simulation-", dir=MEMORY if _has_room(MEMORY) else tmp_path_factory.getbasetemp()
    ) as directory:
        yield Path(directory)
