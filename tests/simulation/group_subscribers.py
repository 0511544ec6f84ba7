"""Bookmark subscribers of real instances, with `fully_durable`, that resume on another instance of a group.

A subscriber has a bookmark store: its list of bookmarks is the last message that it got of each publisher. It resumes
behind the oldest bookmark of the list that the instance knows, and drops what it has. Behind the history a message
waits for the destinations of the instance, as its watermarks and pending tables say (`Destinations`, the server's own
code; the tailer around it is not run).

Invariants: a subscriber that moves misses nothing, but for the histories H-6 and H-7 of
docs/spec/replication_histories.md. On one connection it gets nothing twice. What it gets behind the history is a
promise like a persisted acknowledgement: it is durable on the instance and on its sync destinations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from amps._core.journal.reader import LogCursor
from amps._core.wire.persisted import Destinations
from amps.server.shared.journal_view import at_once
from tests.simulation.checks import Entry, steps
from tests.simulation.group_instance import GroupInstance

Point = tuple[int, int]
"""Publisher id and sequence."""


@dataclass
class _Connection:
    """A subscription on one instance, from its begin until one of the two ends."""

    instance: GroupInstance
    run: object
    """The core that the instance had then."""
    cursor: LogCursor
    history_end: int | None = None
    """Log position up to which messages did not wait for destinations; None: the replay has not got there."""
    last: dict[int, int] = field(default_factory=dict)
    """By publisher: the last sequence that came on this connection."""
    next: Entry | None = None
    """It was read, and waits for destinations."""

    @property
    def alive(self) -> bool:
        return self.instance.core is self.run


class GroupSubscriber:
    """See the module. `promised` is called with each message that waited for destinations.

    `is_whole` tells whether all links of an instance that are configured sync are so, for a log position.
    """

    def __init__(
        self,
        name: str,
        homes: list[str],
        promised: Callable[[GroupInstance, Entry], None],
        is_whole: Callable[[GroupInstance, int], bool],
    ) -> None:
        self.name = name
        self.homes = homes
        """The instances between which it may move."""
        self.last: str | None = None
        """The one that it was connected to last."""
        self.got: set[Point] = set()
        self.loose: set[Point] = set()
        """What it got although another instance may not know it (H-2, H-4, H-7)."""
        self.excused: set[Point] = set()
        """What it may have missed (H-6, H-7)."""
        self.moves = 0
        self.held_back = 0
        """How often a message had to wait."""
        self._seen: dict[int, int] = {}
        self._promised = promised
        self._is_whole = is_whole
        self._connection: _Connection | None = None

    @property
    def where(self) -> GroupInstance | None:
        """The instance that it is connected to."""
        connection = self._connection
        return connection.instance if connection is not None and connection.alive else None

    def connect(self, instance: GroupInstance) -> None:
        """Subscribe with the list of bookmarks, or resume. Raises AssertionError if it would miss a message."""
        view = instance.log.view
        found = [at_once(view.find(*point, {})) for point in self._seen.items()]
        known = [place[1] for place in found if place is not None]
        durable = instance.runtime.control.durable
        # Without a bookmark that is known, `bookmark_not_found` is `now`: what it has seen is expected to come.
        start = min(known) if known else durable
        cursor = at_once(view.cursor_at(start, True)) if self._seen else instance.log.cursor()
        for entry in instance.log.read(limit=durable) if self._seen else ():
            if entry.position < start and entry.sequence > self._seen.get(entry.publisher_id, 0):
                self._may_miss(instance, entry)
        self._connection = _Connection(instance, instance.core, cursor)
        self.moves += self.last not in (None, instance.name)
        self.last = instance.name

    def _may_miss(self, instance: GroupInstance, entry: Entry) -> None:
        assert entry.publisher_id not in self._seen or self._seen.items() & self.loose, (
            f"{self.name} resumes on {instance.name} behind {entry.bookmark} without having seen it"
        )
        self.excused.add(entry.bookmark)

    def run(self, destinations: Destinations | None, most: int) -> bool:
        """Get some messages from the instance. Return whether all that is durable there has come."""
        connection = self._connection
        assert connection is not None
        durable = connection.instance.runtime.control.durable
        for _ in range(most):
            if connection.next is None:
                connection.next = next(iter(steps(connection.cursor, durable)), None)
            entry = connection.next
            if entry is None:
                if connection.history_end is None:
                    connection.history_end = durable
                return True
            is_history = connection.history_end is None or entry.position < connection.history_end
            persisted = self._is_persisted(destinations, entry)
            if not persisted and not is_history:
                self.held_back += 1
                return False
            connection.next = None
            self._take(connection, entry, persisted, is_history)
        return False

    @staticmethod
    def _is_persisted(destinations: Destinations | None, entry: Entry) -> bool:
        """Whether all destinations that are sync have a message: the rule of a fully durable replay."""
        return destinations is None or destinations.are_persisted(entry.publisher_id, entry.position + 1)

    def _take(self, connection: _Connection, entry: Entry, persisted: bool, is_history: bool) -> None:
        before = connection.last.get(entry.publisher_id, 0)
        assert entry.sequence > before, f"{self.name} got {entry.bookmark} twice, or behind {before}"
        connection.last[entry.publisher_id] = entry.sequence
        if entry.sequence <= self._seen.get(entry.publisher_id, 0):
            return
        self._seen[entry.publisher_id] = entry.sequence
        self.got.add(entry.bookmark)
        if not persisted or not self._is_whole(connection.instance, entry.position):
            self.loose.add(entry.bookmark)
        elif not is_history:
            self._promised(connection.instance, entry)
