"""Up to where a worker has done with the pages of the journal.

The core gives pages of the journal back to the system (amps/_core/journal/page_release.pxi), but none that a
transport is about to read, and none that it has mapped. So each transport says now and then: nothing of mine is
mapped before this log position, and nobody here is about to read there.

Who reads is known by its position. Readers behind what was said before are no concern of this: theirs are pages that
were given back, or will be in a moment. A replay sees to it that what it reads is in memory, whatever happens there
(read_window.py).
"""

from collections.abc import Iterable

from amps._core.shm.memory import ControlPage
from amps.server.shared.journal_view import JournalView

STEP_BYTES = 4 << 20
"""Less is not worth the trouble."""


class JournalPages:
    """What one worker says of its pages."""

    def __init__(self, journal: JournalView, control: ControlPage, index: int) -> None:
        """`index`: the worker's."""
        self._directory = journal.directory
        self._control = control
        self._index = index
        self._done = 0

    def look(self, positions: Iterable[int]) -> None:
        """Say it anew. `positions`: where somebody is about to read on."""
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
