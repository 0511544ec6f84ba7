"""How this process asks the C library to keep memory: output chunks come and go thousands of times a second.

By itself glibc gives the top of the heap back to the system as soon as a few chunks are free, and the next turn takes
it again, with a page fault for every 4 KiB: about 10,000 faults for a replay of a million small messages. So the heap
keeps a few megabytes. Large blocks are mappings of their own, as before: what a large message took goes back at once.
"""

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEEP_BYTES = 8 << 20
LARGE_BYTES = 1 << 20


def keep_chunk_memory() -> None:
    """Apply this to the calling process. C libraries without these settings stay as they are."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
