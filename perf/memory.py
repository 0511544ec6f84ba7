"""Memory that processes hold, counted once however many of them share it.

Counted are pages that belong to no file: a program's own memory and shared memory. Pages of files, such as of a mapped
journal, are the kernel's cache. It takes them back when it needs room; servers that read and write instead of mapping
have them as well, and no measure of a process counts those.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

COUNTED = ("Pss_Anon:", "Pss_Shmem:")


def held_bytes(process_ids: Iterable[int]) -> int:
    """Own and shared memory of all these processes; each page of shared memory in equal parts by those who share it."""
    total = 0
    for process_id in process_ids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            total += own_part_bytes(Path(f"/proc/{process_id}/smaps_rollup").read_text())
    return total


def own_part_bytes(smaps_rollup: str) -> int:
    """Of one process, from what the kernel says of it."""
    lines = (line.split() for line in smaps_rollup.splitlines())
    return sum(int(line[1]) * 1024 for line in lines if line[0] in COUNTED)
