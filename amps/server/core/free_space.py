"""Monitors the free space for the log, and warns in time when it gets short.

When the disk is full, publishers are refused (refusing.py). Operators must be warned before that. So once the free part
of the journals' file system, or the archive's, falls below `FreeSpaceWarning`, a warning is logged: once, then each
time that half of the remaining space is used, and every REMIND_S as long as it lasts. The state ends when there is a
tenth more than the threshold. The next warning then follows at the earliest AGAIN_S after the last one, unless half is
used: a log that is cleaned up as fast as it grows does not fill the event log.

This is a chore of the housekeeping thread (journal_files.py), since a device may take long to answer.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from amps.config import FreeSpaceThreshold
from amps.journal.free_space import FreeSpace, free_space
from amps.server.eventlog import Report

LOOK_S = 2.0
AGAIN_S = 600.0
REMIND_S = 6 * 3600.0


@dataclass(slots=True)
class _FileSystem:
    """The last warning about a file system. `told_bytes`: the free space at that time; None: there was no warning."""

    is_low: bool = False
    told_bytes: int | None = None
    told_at_s: float = 0.0


class FreeSpaceWatch:
    """The free space for one log. Only one thread calls `step`."""

    def __init__(
        self,
        directories: Iterable[Path],
        threshold: FreeSpaceThreshold,
        log: Report,
        look: Callable[[Path], FreeSpace] = free_space,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`log(id, **values)` logs. Measure and clock can be replaced for tests."""
        self._directories = tuple(directories)
        self._threshold = threshold
        self._log = log
        self._look = look
        self._now_s = now_s
        self._look_at_s = 0.0
        self._found: dict[int, _FileSystem] = {}  # by device

    def due(self) -> bool:
        """Whether it is time to check again."""
        return self._now_s() >= self._look_at_s

    def step(self) -> bool:
        """Check, if it is time. Returns False: no other chore has to wait for this."""
        if self.due():
            self._look_at_s = self._now_s() + LOOK_S
            self.look()
        return False

    def look(self) -> None:
        """Check each file system once, and log warnings that are due."""
        seen: set[int] = set()
        for directory in self._directories:
            try:
                device = os.stat(directory).st_dev
                if device in seen:
                    continue
                space = self._look(directory)
            except OSError:  # storage_monitor.py reports this
                continue
            seen.add(device)
            self._judge(directory, self._found.setdefault(device, _FileSystem()), space)

    def _judge(self, directory: Path, state: _FileSystem, space: FreeSpace) -> None:
        now_s = self._now_s()
        limit_bytes = self._threshold.bytes_of(space.size_bytes)
        if state.is_low and space.free_bytes >= limit_bytes + limit_bytes // 10:
            state.is_low = False
            self._log("1D-0024", directory=directory, free=_described(space))
        if space.free_bytes >= limit_bytes:
            return
        told_bytes = state.told_bytes
        wait_s = REMIND_S if state.is_low else AGAIN_S
        half_is_gone = told_bytes is not None and told_bytes > 0 and space.free_bytes <= told_bytes // 2
        if told_bytes is not None and not half_is_gone and now_s < state.told_at_s + wait_s:
            return
        state.is_low, state.told_bytes, state.told_at_s = True, space.free_bytes, now_s
        self._log("1D-0023", directory=directory, free=_described(space), threshold=self._threshold)


def _described(space: FreeSpace) -> str:
    return f"{space.free_bytes / 2**20:,.0f} MiB ({space.percent:.1f} %)"
