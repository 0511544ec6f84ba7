"""The queues' counters, read from the core's shared memory without a request (queues.md §18).

There is a row of counters per queue, in the order of the configuration. The core may write a counter at any time, so a
row may contain one counter from before a step and another from after it, but never half a number. The depth of a queue
is a counter; different priorities are counted by scanning the messages.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from amps._core.queues.engine import (
    BLOCK_DTYPE,
    BLOCK_SLOT_COUNT,
    BLOCKS_MAX,
    COUNTER_NAMES,
    COUNTERS_BYTES,
    SLOT_DTYPE,
    blocks_bytes,
)

COUNTERS_DTYPE = numpy.dtype([(name, "<u8") for name in COUNTER_NAMES])
NEVER = 2**64 - 1
"""A position or time that does not exist."""
WALKED_BLOCKS_MAX = 1024
"""Priorities are counted among the first million messages of a queue."""
_AVAILABLE, _LEASED, _BARRIER, _WAITING, _ELSEWHERE = 2, 3, 4, 8, 9
_HAS_PRIORITY = 1


class QueueCounters:
    """The counters of all queues. `read` and `read_all` raise OSError if there are none yet."""

    def __init__(self, path: Path, queues: int) -> None:
        assert COUNTERS_DTYPE.itemsize == COUNTERS_BYTES
        self._path = path
        self._queues = queues
        self._mapped: Any = None

    def _rows(self) -> Any:
        if self._mapped is None:
            try:
                self._mapped = numpy.memmap(self._path, COUNTERS_DTYPE, "r", shape=(self._queues,))
            except ValueError:  # it is being made
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA), str(self._path)) from None
        return self._mapped

    def read(self, queue: int) -> dict[str, int]:
        """The counters of one queue by name."""
        return named(self._rows()[queue])

    def read_all(self) -> Any:
        """A copy of all of them: a structured array of COUNTERS_DTYPE, by number of the queue."""
        return numpy.array(self._rows())


def named(row: Any) -> dict[str, int]:
    """A row of COUNTERS_DTYPE as a dictionary."""
    return dict(zip(COUNTER_NAMES, row.item(), strict=True))


def owned(row: Mapping[str, int]) -> int:
    """How many active messages of a queue this instance owns. Its counters count the others in all states, so while
    messages wait for a time or beyond the target depth, the number may be too low, but never negative.
    """
    return max(0, row["depth"] - row["foreign"])


def count_priorities(path: Path, queue: int, first_block_plus_one: int) -> int:
    """How many different priorities the messages of a queue have; those without one count as one more.

    `path`: of the slots; `first_block_plus_one`: the queue's counter. Blocks may change their queue meanwhile: a block
    of another queue ends the scan. Raises OSError.
    """
    blocks = numpy.memmap(path, BLOCK_DTYPE, "r", shape=(BLOCKS_MAX,))
    slots = numpy.memmap(
        path, SLOT_DTYPE, "r", blocks_bytes(BLOCKS_MAX), shape=(BLOCKS_MAX * BLOCK_SLOT_COUNT,)
    )
    found: set[int] = set()
    without = False
    block = first_block_plus_one - 1
    for _ in range(WALKED_BLOCKS_MAX):
        if not 0 <= block < BLOCKS_MAX:
            break
        owner, used, _, following = blocks[block].item()
        if owner != queue + 1:
            break
        begin = block * BLOCK_SLOT_COUNT
        part = slots[begin : begin + min(used, BLOCK_SLOT_COUNT)]
        active = part[numpy.isin(part["state"], (_AVAILABLE, _LEASED, _BARRIER, _WAITING, _ELSEWHERE))]
        has_priority = active["flags"] & _HAS_PRIORITY != 0
        found.update(numpy.unique(active["priority"][has_priority]).tolist())
        without = without or not has_priority.all()
        block = following
    return len(found) + without
