"""Refusing messages while the journal cannot continue, until the next file can be made.

The sequencer decides and the control page informs the transports. This module tries to prepare the next journal again
and again, makes the core leave a journal that was removed (storage_monitor.py), and logs begin and end of the refusal.
"""

import time

from amps._core.sequencer.sequencer import Sequencer
from amps._core.shm.memory import ControlPage
from amps.server import remedies
from amps.server.core.journal_files import JournalFiles
from amps.server.eventlog import EventLog

RETRY_NS = 1_000_000_000


class Refusing:
    """Called by the core's loop after each turn and at each look."""

    def __init__(
        self, sequencer: Sequencer, files: JournalFiles, control: ControlPage, log: EventLog
    ) -> None:
        self._sequencer = sequencer
        self._files = files
        self._control = control
        self._log = log
        self._since_ns: int | None = None  # monotonic; None: no messages are refused
        self._retry_at_ns = 0

    def after_turn(self) -> None:
        """Notice whether messages are refused from now on, or accepted again."""
        if self._sequencer.refuses == (self._since_ns is not None):
            return
        now_ns = time.monotonic_ns()
        self._retry_at_ns = now_ns + RETRY_NS
        if self._since_ns is None:
            self._since_ns = now_ns
            obstacle = self._files.obstacle
            assert obstacle is not None
            reason = f"{obstacle.strerror}; {remedies.for_files(obstacle.errno)}"
            self._log.log("2C-0011", directory=self._files.directory, reason=reason)
        else:
            self._log.log("2C-0012", seconds=(now_ns - self._since_ns) // 1_000_000_000)
            self._since_ns = None

    def look(self) -> None:
        """Try to prepare the next journal again, and leave a journal that was removed. Raises StorageFailure."""
        sequencer, journal = self._sequencer, self._sequencer.journal
        assert journal is not None
        refused = self._since_ns is not None
        if refused and time.monotonic_ns() >= self._retry_at_ns:
            self._retry_at_ns = time.monotonic_ns() + RETRY_NS
            sequencer.try_next_journal()
        if self._files.monitor.lost == journal.number and not sequencer.refuses:
            sequencer.change_journal()
        elif not refused:
            return
        sequencer.publish_watermarks(self._control)
        self.after_turn()
