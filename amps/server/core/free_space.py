"""Watches how much room is left for the log, and says in time when it gets short.

When the disk is full publishers are refused (refusing.py). Whoever reads the log, or has it read, shall know before
that. So once the free part of the journals' file system, or the archive's, falls below `FreeSpaceWarning`, it is said:
once, then each time that half of what was left is gone, and every REMIND_S as long as it lasts. It is over when there
is a tenth more than the threshold. Then the next warning has to wait until AGAIN_S after the last one, unless half is
gone: a log that is cleaned up as fast as it grows does not fill the event log.

This is a chore of the housekeeping thread (journal_files.py), since a device may take long to answer.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from amps.config import FreeSpaceThreshold
from amps.journal.free_space import FreeSpace, free_space

LOOK_S = 2.0
AGAIN_S = 600.0
REMIND_S = 6 * 3600.0


@dataclass(slots=True)
class _FileSystem:
    """What was said about one. `told_bytes`: how much was free then; None: nothing was said yet."""

    is_low: bool = False
    told_bytes: int | None = None
    told_at_s: float = 0.0


class FreeSpaceWatch:
    """The room for one log. `step` is called by one thread."""

    def __init__(
        self,
        directories: Iterable[Path],
        threshold: FreeSpaceThreshold,
        log: Callable[..., None],
        look: Callable[[Path], FreeSpace] = free_space,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`log(id, **values)`. Measure and clock can be replaced for tests."""
        self._directories = tuple(directories)
        self._threshold = threshold
        self._log = log
        self._look = look
        self._now_s = now_s
        self._look_at_s = 0.0
        self._found: dict[int, _FileSystem] = {}  # by device

    def due(self) -> bool:
        """Whether it is time to look again."""
        return self._now_s() >= self._look_at_s

    def step(self) -> bool:
        """Look, if it is time to. False: nothing else has to wait for this."""
        if self.due():
            self._look_at_s = self._now_s() + LOOK_S
            self.look()
        return False

    def look(self) -> None:
        """Look at each file system once, and say what there is to say."""
        seen: set[int] = set()
        for directory in self._directories:
            try:
                device = os.stat(directory).st_dev
                if device in seen:
                    continue
                space = self._look(directory)
            except OSError:  # somebody else's business (storage_monitor.py)
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
