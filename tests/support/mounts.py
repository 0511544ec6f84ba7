"""Small file systems, and file systems that are mounted and unmounted. Tests are skipped without
permission to mount.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(*arguments: str | Path) -> None:
    """Run `mount`, or skip the test."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    done = subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {done.stderr.decode().strip()}")


def unmount(directory: Path) -> None:
    """Unmount the file system; files that are open stay usable."""
    subprocess.run(["umount", "-l", str(directory)], check=True)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """Mount a file system of that size at `directory`, which is created."""
    directory.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory)
    try:
        yield directory
    finally:
        unmount(directory)


def resize(directory: Path, size: str) -> None:
    """Give a small disk another size."""
    mount("-o", f"remount,size={size}", directory)
