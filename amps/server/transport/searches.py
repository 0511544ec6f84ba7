"""Lookups in the journal that may take many turns: the start of a bookmark subscription, the places of messages.

Per turn one step of one search is done, in rotation, so that other work is done in between. Threads read the required
pages from the disk.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from amps._core.journal.reader import LogDamaged, LogUnreadable
from amps.server.shared.journal_view import PagesMissing
from amps.server.shared.read_ahead import ReadAhead
from amps.server.transport.session import Phase, Session


class Search(Protocol):
    """A lookup in steps of about a millisecond."""

    def step(self) -> bool:
        """Continue. True: complete. Raises LogDamaged, or PagesMissing: call it again when the pages are in memory."""


class Searches:
    """The searches of one worker."""

    def __init__(
        self,
        read_ahead: ReadAhead,
        schedule: Callable[[], None],
        damaged: Callable[[Session, LogDamaged], None],
    ) -> None:
        """`schedule` requests a turn of the worker. `damaged` is called for a search that ended at damage."""
        self._read_ahead = read_ahead
        self._schedule = schedule
        self._damaged = damaged
        self._waiting: deque[tuple[Search, Session, Callable[[], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self, search: Search, connection: Session, then: Callable[[], None]) -> None:
        """Begin a search for a connection. `then` is called at its end, perhaps at once; not if the connection ends."""
        if connection.phase is Phase.CLOSED:
            return
        try:
            finished = search.step()
        except PagesMissing as pages:
            missing = pages.with_traceback(
                None
            )  # the traceback would keep this frame, and so the file, alive
            self._read_ahead.ask(
                missing.file,
                missing.offset,
                missing.length,
                lambda problem: self._was_read(search, connection, then, missing, problem),
            )
            return
        except LogDamaged as damage:
            self._damaged(connection, damage)
            return
        if finished:
            then()
        else:
            self._go_on_later(search, connection, then)

    def run(self) -> None:
        """Run the next step of the first waiting search."""
        if self._waiting:
            self.begin(*self._waiting.popleft())

    def _was_read(
        self,
        search: Search,
        connection: Session,
        then: Callable[[], None],
        missing: PagesMissing,
        problem: LogUnreadable | None,
    ) -> None:
        missing.problem = problem
        if problem is not None and missing.needed_until is not None and problem.offset < missing.needed_until:
            self._damaged(connection, problem)
        else:
            self._go_on_later(search, connection, then)

    def _go_on_later(self, search: Search, connection: Session, then: Callable[[], None]) -> None:
        self._waiting.append((search, connection, then))
        self._schedule()
