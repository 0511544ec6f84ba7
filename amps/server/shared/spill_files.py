"""Writing messages that are too large for the ring to files of shared memory, one message per file.

Such a file belongs to its writer until its name is pushed into the ring; then the core removes it.
"""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

from amps._core.wire.ingress import Ingress


def write_spill(ingress: Ingress, path: Path) -> None:
    """Write the current frame's record to a file. Raises OSError; then there is no file."""
    _write(path, ingress.spill_length(), ingress.write_spill)


def write_spilled_record(record: bytes, path: Path) -> None:
    """Write a whole record to a file. Raises OSError; then there is no file."""

    def fill(memory: mmap.mmap) -> None:
        memory[: len(record)] = record

    _write(path, len(record), fill)


def _write(path: Path, length: int, fill: Callable[[mmap.mmap], None]) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, length)
        with mmap.mmap(descriptor, length) as memory:
            fill(memory)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)
