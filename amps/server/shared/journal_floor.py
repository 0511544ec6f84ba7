"""A transport's word about journals: the oldest journal that it may read, which must not be removed.

See amps/server/core/journal_retention.py for the remover's side, and for why the order of the steps matters. The word
is lowered before a file is opened. It may be raised late, and is raised from time to time to the oldest file that is
still open. Cursors hold files: those of replays, waiting or not, of searches, and of the shared tailers.
"""

from amps._core.journal.reader import LogRemoved
from amps._core.shm.memory import NO_JOURNAL, ControlPage


class JournalFloor:
    """The guard of a LogDirectory."""

    def __init__(self, control: ControlPage, index: int) -> None:
        """`index`: of the transport. The floor must be made before the transport counts as alive."""
        self._control = control
        self._index = index
        self._floor = NO_JOURNAL
        control.set_journal_floor(index, NO_JOURNAL)

    def enter(self, number: int) -> None:
        """Lower the word, because a journal is about to be opened. Raises LogRemoved if it is too late for that."""
        if number >= self._floor:
            return
        self._control.set_journal_floor(self._index, number)
        if number < self._control.first_journal_number:
            self._control.set_journal_floor(self._index, self._floor)
            self.check(number)
        self._floor = number

    def check(self, number: int) -> None:
        """Raise LogRemoved if the log now begins behind a journal."""
        first = self._control.first_journal_number
        if number < first:
            raise LogRemoved(f"journal {number} was removed, the log begins with {first}")

    def release(self, lowest: int | None) -> None:
        """Raise the word to the oldest journal that is open now; None: no journal is open."""
        floor = NO_JOURNAL if lowest is None else lowest
        if floor != self._floor:
            self._floor = floor
            self._control.set_journal_floor(self._index, floor)


class SharedFloor:
    """The floor of a process with several views of the journals. Each view has a share; the word is the lowest."""

    def __init__(self, floor: JournalFloor) -> None:
        self._floor = floor
        self._shares: list[FloorShare] = []

    def share(self) -> "FloorShare":
        """The guard of one more view."""
        made = FloorShare(self)
        self._shares.append(made)
        return made

    def enter(self, number: int) -> None:
        """See JournalFloor."""
        self._floor.enter(number)

    def check(self, number: int) -> None:
        """See JournalFloor."""
        self._floor.check(number)

    def release(self) -> None:
        """Raise the word to the oldest journal that is open in any view."""
        self._floor.release(
            min((share.lowest for share in self._shares if share.lowest is not None), default=None)
        )


class FloorShare:
    """The guard of one LogDirectory among several. `lowest`: the oldest journal that it may have open; None: none."""

    def __init__(self, shared: SharedFloor) -> None:
        self._shared = shared
        self.lowest: int | None = None

    def enter(self, number: int) -> None:
        """See JournalFloor. Raises LogRemoved."""
        self._shared.enter(number)
        if self.lowest is None or number < self.lowest:
            self.lowest = number

    def check(self, number: int) -> None:
        """See JournalFloor. Raises LogRemoved."""
        self._shared.check(number)

    def release(self, lowest: int | None) -> None:
        """Note the oldest journal that is open in this view; None: no journal is open."""
        self.lowest = lowest
        self._shared.release()
