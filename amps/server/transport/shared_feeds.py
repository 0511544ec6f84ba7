"""The two tailers that many subscriptions of a worker share, and the commands that wait to take effect there.

A command that adds a subscription, or changes one, takes effect at one place of the log: the written (or durable)
watermark when the command arrived. A tailer whose members have costly filters may be minutes away from there, and
moving it there at once would stop all other work meanwhile. So, unless one step is enough, the command becomes an
*entry*. The tailer stops at the place of the first entry, and carries it out there, in a later turn.

Invariants: entries are carried out in their order, each at exactly its place; places only grow, as the watermarks do.
There is a tailer while there are members or entries. The work in one turn, and between two, is bounded in time.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from amps._core.delivery.delivery import JournalTailer, LiveTailer
from amps._core.journal.reader import LogCursor, LogDirectory
from amps.server.shared.core_link import CoreLink
from amps.server.shared.journal_view import JournalView, at_once
from amps.server.transport.session import Phase, Place, Session, Subscription
from amps.server.transport.sow_state import StateFloor
from amps.server.transport.subscriptions import SubscriptionSet

LOG_BYTES_PER_TURN = 4 << 20
TURN_S = 0.02  # a step is not interrupted: its last message may take longer

TailerT = TypeVar("TailerT", LiveTailer, JournalTailer)


class SharedFeed(ABC, Generic[TailerT]):
    """A tailer, its members and its entries."""

    PLACE: ClassVar[Place]
    STEP_BYTES: ClassVar[int]

    def __init__(
        self,
        members: SubscriptionSet,
        core: CoreLink,
        schedule: Callable[[], None],
        flush: Callable[[], None],
    ) -> None:
        """`schedule` requests a turn of the worker. `flush` passes output to the event loop."""
        self.tailer: TailerT | None = None
        self._members = members
        self._core = core
        self._schedule = schedule
        self._flush = flush
        self._entries: deque[tuple[tuple[int, ...], Session, Callable[[], None]]] = deque()
        self._spare_s = TURN_S  # for steps until the next turn

    @abstractmethod
    def _watermark(self) -> tuple[int, ...]:
        """The position up to which it may read, as last read from shared memory."""

    @abstractmethod
    def _advance(self, place: tuple[int, ...], bytes_max: int) -> bool:
        """Let the tailer make a step. True: it is at the place."""

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, which gets everything behind the tailer's current place."""
        subscription.place = self.PLACE
        self._members.add(subscription)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, which gets nothing more from here."""
        self._members.remove(subscription)
        self.end_if_idle()

    def replace(self, existing: Subscription, replacement: Subscription) -> None:
        """Replace a subscription at the tailer's current place. Messages that conflation holds are sent."""
        if existing.conflation is not None:
            existing.conflation.send_held()
        self._members.remove(existing)
        existing.become(replacement)
        self._members.add(existing)

    def enter(self, connection: Session, action: Callable[[], None]) -> None:
        """Call `action` when the tailer is at the current watermark: at once or in a later turn. It is not called if
        the connection ends before.
        """
        if self.is_at_watermark():
            action()
        else:
            self._entries.append((self._watermark(), connection, action))
            self._schedule()

    def is_at_watermark(self) -> bool:
        """Whether the tailer is at the watermark, if necessary after a step, and there are no entries."""
        if self._entries or self._spare_s <= 0:
            return False
        begin_s = time.monotonic()
        reached = self._advance(self._watermark(), self.STEP_BYTES)
        self._spare_s -= time.monotonic() - begin_s
        return reached

    def run(self) -> bool:
        """Run one turn. True: there is no more work. Output is passed on between steps, so that a client that does not
        keep up is detected in time.
        """
        self._spare_s = TURN_S
        until_s = time.monotonic() + TURN_S
        steps_left = LOG_BYTES_PER_TURN // self.STEP_BYTES
        while self.tailer is not None:
            place = self._entries[0][0] if self._entries else self._watermark()
            if not self._advance(place, self.STEP_BYTES):
                steps_left -= 1
                self._flush()
            elif self._entries:
                self._carry_out()
            else:
                return True
            if steps_left == 0 or time.monotonic() >= until_s:
                return False
        return True

    def _carry_out(self) -> None:
        _, connection, action = self._entries.popleft()
        if connection.phase is not Phase.CLOSED:
            action()
        self.end_if_idle()

    def end_if_idle(self) -> None:
        """End the tailer if nobody needs it any more."""
        if not self._members and not self._entries and self.tailer is not None:
            self.tailer = None
            self._ended()

    def _ended(self) -> None:
        """Called when there is no tailer any more."""


class LiveFeed(SharedFeed[LiveTailer]):
    """The tailer of journal and transient log, up to the written watermark. It follows links of records of SOW topics,
    so it holds its next transaction id.
    """

    PLACE = Place.LIVE
    STEP_BYTES = LOG_BYTES_PER_TURN

    def __init__(
        self,
        members: SubscriptionSet,
        core: CoreLink,
        schedule: Callable[[], None],
        flush: Callable[[], None],
        floor: StateFloor | None = None,
    ) -> None:
        """`floor`: of the worker; None: there are no SOW topics."""
        super().__init__(members, core, schedule, flush)
        self._floor = floor
        self._held: int | None = None

    def hold(self) -> None:
        """Hold the transaction id of the watermarks as last read, before they are read again for `begin`. Subscriptions
        that follow links may only enter a tailer that holds one from before its place.
        """
        if self._floor is not None and self._held is None:
            self._held = self._floor.hold(self._core.view.next_txid)

    def begin(self, journal: JournalView | None, transient: LogDirectory) -> None:
        """Make the tailer, at the watermark."""
        view = self._core.view
        self.hold()
        recorded = None if journal is None else at_once(journal.cursor_at(view.journal_written, False))
        passing = LogCursor(transient, view.transient_number, 0, False)
        passing.skip_to(view.transient_written)
        self.tailer = LiveTailer(recorded, passing, self._members.group)
        view.set_transient_read(self.tailer.transient_position)

    @property
    def position(self) -> int | None:
        """Position in the journal; None if there is no tailer or no journal."""
        recorded = None if self.tailer is None else self.tailer.journal
        return None if recorded is None else recorded.position

    def where(self, journal: JournalView) -> tuple[LogCursor, tuple[int, int]]:
        """The start of a replay that continues from here: a cursor, and the bookmark of the last message before it."""
        assert self.tailer is not None
        assert self.tailer.journal is not None
        cursor = _copy_of(self.tailer.journal, True)
        return cursor, at_once(journal.last_bookmark_before(cursor.position))

    def _watermark(self) -> tuple[int, ...]:
        return self._core.view.journal_written, self._core.view.transient_written

    def _advance(self, place: tuple[int, ...], bytes_max: int) -> bool:
        assert self.tailer is not None
        journal_limit, transient_limit = place
        reached = self.tailer.run(journal_limit, transient_limit, bytes_max)
        if reached and self._floor is not None and self._held is not None and place == self._watermark():
            self._floor.move(self._held, self._core.view.next_txid)
        return reached

    def _ended(self) -> None:
        if self._floor is not None and self._held is not None:
            self._floor.release(self._held)
            self._held = None


class DurableFeed(SharedFeed[JournalTailer]):
    """The tailer of the journal, up to the durable watermark."""

    PLACE = Place.DURABLE
    STEP_BYTES = 256 << 10

    def begin(self, caught_up: JournalTailer) -> None:
        """Make the tailer at the place of a replay's tailer, which is at the watermark."""
        self.tailer = JournalTailer(
            _copy_of(caught_up.cursor, False), self._members.group, *_bookmark(caught_up)
        )

    @property
    def position(self) -> int | None:
        """Position in the journal; None if there is no tailer."""
        return None if self.tailer is None else self.tailer.cursor.position

    def where(self) -> tuple[LogCursor, tuple[int, int]]:
        """The start of a replay that continues from here: a cursor, and the bookmark of the last message evaluated."""
        assert self.tailer is not None
        return _copy_of(self.tailer.cursor, True), _bookmark(self.tailer)

    @property
    def last_bookmark(self) -> tuple[int, int] | None:
        """Bookmark of the last message evaluated; None if there is no tailer."""
        return None if self.tailer is None else _bookmark(self.tailer)

    def _watermark(self) -> tuple[int, ...]:
        return (self._core.view.durable,)

    def _advance(self, place: tuple[int, ...], bytes_max: int) -> bool:
        assert self.tailer is not None
        return self.tailer.run(place[0], bytes_max)


def _copy_of(cursor: LogCursor, verify: bool) -> LogCursor:
    return LogCursor(cursor.directory_of(), *cursor.place(), verify)


def _bookmark(tailer: JournalTailer) -> tuple[int, int]:
    return tailer.last_publisher_id, tailer.last_sequence
