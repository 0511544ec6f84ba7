"""The pages of a file in the page cache, as the kernel reports them, and their removal."""

import ctypes
import mmap
import os
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE


def forget(path: Path) -> None:
    """Have the kernel drop the pages of a file, as far as it will."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def resident_pages(path: Path, begin: int = 0, end: int | None = None) -> int:
    """Return how many pages of a part of a file are in memory; only whole pages of that part count."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    first = -(-begin // PAGE_BYTES)
    last = (path.stat().st_size if end is None else end) // PAGE_BYTES
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as mapped:
        found = ctypes.create_string_buffer(max(1, last - first))
        address = ctypes.c_char.from_buffer(mapped)
        try:
            if last > first and mincore(
                ctypes.addressof(address) + first * PAGE_BYTES, (last - first) * PAGE_BYTES, found
            ):
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            del address
        return sum(byte & 1 for byte in found.raw[: last - first])


def pages_can_leave(directory: Path) -> bool:
    """True if the file system stores its files elsewhere than in memory."""
    path = directory / "probe"
    path.write_bytes(bytes(16 * PAGE_BYTES))
    try:
        forget(path)
        return resident_pages(path) == 0
    finally:
        path.unlink()
