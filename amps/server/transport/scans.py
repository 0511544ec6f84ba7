"""Scans of SOW topics that may take many turns: the records of queries, and the keys of deletions.

In a turn, each scan makes a step of about a millisecond, in rotation, until the time for scans is over. A scan stops
while its client does not take output, while the log is not written far enough, and while a thread reads missing pages
of the journal from the disk (searches.py does the same for other lookups).
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from amps._core.delivery.results import SCAN_DONE, SCAN_FULL, SCAN_WAITS
from amps._core.journal.reader import LogDamaged, LogUnreadable
from amps.server.shared.core_link import CoreLink
from amps.server.shared.journal_view import PagesMissing
from amps.server.shared.read_ahead import ReadAhead
from amps.server.transport.session import Phase, Session
from amps.server.transport.sow_state import SowStates

STEP_NS = 1_000_000
TURN_NS = 3_000_000
WAIT_S = 0.001
"""Until the log is looked at again. It moves on within that time, unless its disk is slow."""

PERIOD_S = 1.0
"""How long a part of the journal counts as in memory after it was."""


class Run(Protocol):
    """Something that is done in steps."""

    def step(self, written: int, until_ns: int) -> int:
        """Go on until that monotonic time, with the log written up to a position. Returns a constant of
        `amps._core.delivery.results`. Raises LogDamaged, PagesMissing.
        """


class Scans:
    """The scans of one worker."""

    def __init__(
        self,
        core: CoreLink,
        states: SowStates,
        read_ahead: ReadAhead,
        schedule: Callable[[], None],
        schedule_after: Callable[[float], None],
        damaged: Callable[[Session, LogDamaged], None],
    ) -> None:
        """`schedule` requests a turn of the worker, `schedule_after` one after so many seconds. `damaged` is called for
        a scan that ended at damage.
        """
        self._core = core
        self._states = states
        self._read_ahead = read_ahead
        self._schedule = schedule
        self._schedule_after = schedule_after
        self._damaged = damaged
        self._waiting: deque[tuple[Run, Session, Callable[[], None]]] = deque()
        self._unread: dict[Session, list[tuple[Run, Session, Callable[[], None]]]] = {}
        self._unwritten: list[tuple[Run, Session, Callable[[], None]]] = []  # waiting for the log to be written further
        self._next_period_s = 0.0

    def begin(self, run: Run, connection: Session, then: Callable[[], None]) -> None:
        """Begin a scan for a connection. `then` is called at its end, perhaps at once; not if the connection ends."""
        self._step(run, connection, then)

    def run(self) -> bool:
        """Run one turn. True: there is more work to do at once."""
        if self._unwritten:
            self._waiting.extend(self._unwritten)
            self._unwritten.clear()
        until_ns = time.monotonic_ns() + TURN_NS
        for _ in range(len(self._waiting)):
            if time.monotonic_ns() >= until_ns:
                break
            self._step(*self._waiting.popleft())
        return bool(self._waiting)

    def look_around(self, now_s: float) -> None:
        """Let pages of the journal that were in memory be looked at again. Called from time to time."""
        if now_s >= self._next_period_s and self._states.places is not None:
            self._next_period_s = now_s + PERIOD_S
            self._states.places.begin_period()

    def reads_again(self, connection: Session) -> None:
        """Go on with the scans of a client that has read its output."""
        self._waiting.extend(self._unread.pop(connection, ()))
        self._schedule()

    def forget(self, connection: Session) -> None:
        """Remove a connection that has ended."""
        self._unread.pop(connection, None)

    def _step(self, run: Run, connection: Session, then: Callable[[], None]) -> None:
        if connection.phase is Phase.CLOSED:
            return
        try:
            state = run.step(self._core.view.journal_written, time.monotonic_ns() + STEP_NS)
        except PagesMissing as pages:
            self._read(run, connection, then, pages.with_traceback(None))
            return
        except LogDamaged as damage:
            self._damaged(connection, damage)
            return
        if state == SCAN_DONE:
            then()
            return
        if state == SCAN_WAITS:
            self._unwritten.append((run, connection, then))
            self._schedule_after(WAIT_S)
            return
        if state == SCAN_FULL:
            connection.flush_result()
            if not connection.takes_results:
                self._unread.setdefault(connection, []).append((run, connection, then))
                return
        self._later(run, connection, then)

    def _read(self, run: Run, connection: Session, then: Callable[[], None], missing: PagesMissing) -> None:
        """Have missing pages read, and go on after that."""

        def was_read(problem: LogUnreadable | None) -> None:
            missing.problem = problem
            if (
                problem is not None
                and missing.needed_until is not None
                and problem.offset < missing.needed_until
            ):
                self._damaged(connection, problem)
            else:
                self._later(run, connection, then)

        self._read_ahead.ask(missing.file, missing.offset, missing.length, was_read)

    def _later(self, run: Run, connection: Session, then: Callable[[], None]) -> None:
        self._waiting.append((run, connection, then))
        self._schedule()
