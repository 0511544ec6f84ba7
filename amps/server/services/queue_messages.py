"""Reading messages that have left their queues, in any order, from all journals."""

from collections import OrderedDict

from amps._core.journal.reader import LogCursor, LogDamaged, LogRemoved, Record
from amps._core.shm.memory import ControlPage
from amps.server.shared.journal_view import JournalView

JOURNALS_OPEN_MAX = 4
_PUBLISHES = (1, 2)


class QueueMessages:
    """The messages of the log by their positions."""

    def __init__(self, journal: JournalView, control: ControlPage) -> None:
        self._journal = journal
        self._control = control
        self._open: OrderedDict[int, LogCursor] = OrderedDict()

    def read(self, position: int) -> Record:
        """The message at a log position. Raises LogMissing (its journal may be there again later), LogDamaged,
        LogRemoved.
        """
        control, directory = self._control, self._journal.directory
        number = directory.number_at(position, control.first_journal_number, control.watermarks()[3])
        cursor = LogCursor(directory, number, position, True)
        if cursor.position != position:
            raise LogRemoved(f"it was in a journal before {number}, which was removed")
        self._hold(number, cursor)
        record = cursor.step(position + 1)
        if record is None or record.kind not in _PUBLISHES:
            raise LogDamaged(
                directory.path(number), position - directory.start_position(number), "there is no message"
            )
        return record

    def _hold(self, number: int, cursor: LogCursor) -> None:
        """Keep a cursor open, because the next message is likely to be near."""
        self._open[number] = cursor
        self._open.move_to_end(number)
        while len(self._open) > JOURNALS_OPEN_MAX:
            self._open.popitem(last=False)

    def release(self) -> None:
        """Close all journals."""
        self._open.clear()
