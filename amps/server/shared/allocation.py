"""Settings of the C library's allocator for this process: output chunks are allocated thousands of times a second.

By default glibc returns the top of the heap to the system as soon as a few chunks are free. The next turn allocates it
again, with a page fault for every 4 KiB: about 10,000 faults for a replay of a million small messages. So the heap
keeps a few megabytes. Large blocks are mappings of their own, as before: the memory of a large message is returned at
once.
"""

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEEP_BYTES = 8 << 20
LARGE_BYTES = 1 << 20


def keep_chunk_memory() -> None:
    """Apply the settings to the calling process. C libraries without `mallopt` stay as they are."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
