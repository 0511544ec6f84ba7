"""The log position up to which a process no longer uses pages of the journal.

The core releases pages of the journal to the system (amps/_core/journal/page_release.pxi), but none that a transport or
the replication process is about to read, and none that it has mapped. So each of them publishes a log position from
time to time: it has no pages mapped before that position, and none of its readers is about to read there.

The readers' log positions are known. Readers before the published position are ignored: their pages have been released
already, or will be soon. A replay makes sure itself that the pages it reads are in memory (read_window.py).
"""

from collections.abc import Iterable

from amps._core.shm.memory import ControlPage
from amps.server.shared.journal_view import JournalView

STEP_BYTES = 4 << 20
"""The position is published in steps of at least so many bytes."""


class JournalPages:
    """The published position of one process."""

    def __init__(self, journal: JournalView, control: ControlPage, index: int) -> None:
        """`index`: of the process on the control page."""
        self._directory = journal.directory
        self._control = control
        self._index = index
        self._done = 0

    def look(self, positions: Iterable[int]) -> None:
        """Publish the position again if it has moved enough. `positions`: where readers will continue soon."""
        durable = self._control.durable
        if durable < self._done + STEP_BYTES:
            return
        done = min((position for position in positions if position >= self._done), default=durable)
        done = min(done, durable)
        if done < self._done + STEP_BYTES:
            return
        self._directory.unmap_pages(self._done, done)
        self._done = done
        self._control.set_pages_done(self._index, done)
