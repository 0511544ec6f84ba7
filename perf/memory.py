"""Memory of processes; shared memory is counted once.

Pages that belong to no file count: a program's own memory and shared memory. Pages of files, such as those of a mapped
journal, belong to the kernel's cache and do not count. The kernel drops them when it needs memory. Servers that read
and write instead of mapping use the cache as well, and no figure of a process includes it.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

COUNTED = ("Pss_Anon:", "Pss_Shmem:")


def held_bytes(process_ids: Iterable[int]) -> int:
    """Own and shared memory of all these processes; a shared page counts in equal parts for each of its processes."""
    total = 0
    for process_id in process_ids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            total += own_part_bytes(Path(f"/proc/{process_id}/smaps_rollup").read_text())
    return total


def own_part_bytes(smaps_rollup: str) -> int:
    """Memory of one process, from the kernel's `smaps_rollup`."""
    lines = (line.split() for line in smaps_rollup.splitlines())
    return sum(int(line[1]) * 1024 for line in lines if line[0] in COUNTED)
