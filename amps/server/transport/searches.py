"""Lookups in the journal that may take many turns: where a bookmark subscription begins, where messages are.

One step of one search is done per turn, whoever searches, so that everybody else is served in between; what has to be
read from the disk for it, threads read.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from amps._core.journal.reader import LogDamaged, LogUnreadable
from amps.server.shared.journal_view import PagesMissing
from amps.server.shared.read_ahead import ReadAhead
from amps.server.transport.session import Phase, Session


class Search(Protocol):
    """Something that is looked up in steps of about a millisecond."""

    def step(self) -> bool:
        """Go on. True: that was all. Raises LogDamaged; PagesMissing: call it again when they are there."""


class Searches:
    """The searches of one worker."""

    def __init__(
        self,
        read_ahead: ReadAhead,
        schedule: Callable[[], None],
        damaged: Callable[[Session, LogDamaged], None],
    ) -> None:
        """`schedule`: has a turn of the worker soon. `damaged`: a search met damage, and is given up."""
        self._read_ahead = read_ahead
        self._schedule = schedule
        self._damaged = damaged
        self._waiting: deque[tuple[Search, Session, Callable[[], None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self, search: Search, connection: Session, then: Callable[[], None]) -> None:
        """Begin one for a connection. `then` is run when it has ended, perhaps at once; not if the connection ends."""
        if connection.phase is Phase.CLOSED:
            return
        try:
            finished = search.step()
        except PagesMissing as pages:
            missing = pages.with_traceback(None)  # which would hold it, and the file with it
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
        """The next step of the one whose turn it is."""
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
