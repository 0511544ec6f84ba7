"""Bookmark subscribers of real instances, with `fully_durable`, that resume on another instance of a group.

A subscriber has a bookmark store: its list of bookmarks is the last message that it got of each publisher. It resumes
behind the oldest bookmark of the list that the instance knows, and drops what it has. Behind the history a message
waits for the destinations of the instance, as its watermarks and pending tables say (`Destinations`, the server's own
code; the tailer around it is not run).

Invariants: a subscriber that moves misses nothing, but for the histories H-6 and H-7 of
docs/spec/replication_histories.md. On one connection it gets nothing twice. What it gets behind the history is a
promise like a persisted acknowledgement: it is durable on the instance and on its sync destinations.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from amps._core.journal.reader import LogCursor
from amps._core.shm.memory import MODE_SYNC
from amps._core.wire.persisted import Destinations
from amps.server.shared.journal_view import at_once
from tests.simulation.checks import Entry, steps
from tests.simulation.group_clients import Promise
from tests.simulation.group_instance import GroupInstance
from tests.simulation.group_model import SYNC
from tests.simulation.group_topologies import Topology

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
        """What it may have missed (H-6, H-7, H-15)."""
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
        removed = {entry.bookmark for entry in instance.removed}
        for entry in instance.messages(durable) if self._seen or removed else ():
            left_out = entry.position < start if self._seen else entry.bookmark in removed
            if left_out and entry.sequence > self._seen.get(entry.publisher_id, 0):
                if not removed:
                    self._may_miss(entry, instance)
                self.excused.add(entry.bookmark)
        self._connection = _Connection(instance, instance.core, cursor)
        self.moves += self.last not in (None, instance.name)
        self.last = instance.name

    def _may_miss(self, entry: Entry, instance: GroupInstance) -> None:
        assert entry.publisher_id not in self._seen or self._seen.items() & self.loose, (
            f"{self.name} resumes on {instance.name} behind {entry.bookmark} without having seen it"
        )

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


class World(Protocol):
    """What subscribers need of their world."""

    instances: dict[str, GroupInstance]
    topology: Topology
    promises: list[Promise]

    def trace(self, text: str) -> None: ...
    def may_move(self) -> bool: ...
    def is_filled(self, name: str) -> bool: ...


class Readers:
    """The subscribers of a world. They have a chance of their own, so that all else of a seed is as without them."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = chance = random.Random(f"readers {seed}")
        moves = world.topology.moves
        self.subscribers = [
            GroupSubscriber(f"subscriber-{n}", sorted(chance.choice(moves)), self._delivered, self._is_whole)
            for n in range(chance.choice([1, 2]))
        ]

    def step(self) -> None:
        """Sometimes a subscriber gets messages, or moves by the rules for clients that do."""
        if self._chance.random() > 0.15:
            return
        subscriber = self._chance.choice(self.subscribers)
        where = subscriber.where
        if where is None or self._chance.random() < 0.05:
            name = self._chance.choice(subscriber.homes)
            instance = self._world.instances[name]
            if not instance.alive or instance.paused or not self._world.is_filled(name):
                return
            if subscriber.last in (None, name) or self._world.may_move():
                self._world.trace(f"{subscriber.name} subscribes at {name}")
                subscriber.connect(instance)
        elif not where.paused:
            self._run(subscriber, self._chance.choice([1, 5, 100]))

    @staticmethod
    def _run(subscriber: GroupSubscriber, most: int) -> bool:
        """Return whether it has got all that is durable where it is."""
        where = subscriber.where
        transports = [] if where is None else [one for one in where.transports if one is not None]
        return bool(transports) and subscriber.run(transports[0].destinations, most)

    def got_all(self) -> bool:
        """All subscribers go on, wherever they are. Return whether they have got all."""
        for subscriber in self.subscribers:
            if subscriber.where is None:
                subscriber.connect(self._world.instances[subscriber.last or subscriber.homes[0]])
        done = [self._run(subscriber, 1 << 30) for subscriber in self.subscribers]
        return all(done)

    def check(self, anywhere: set[Point]) -> None:
        """At the end each one has got everything that any log has."""
        for subscriber in self.subscribers:
            missed = anywhere - subscriber.got - subscriber.excused
            assert not missed, f"{subscriber.name} never got {sorted(missed)[:10]}"
            unknown = subscriber.got - anywhere - subscriber.loose
            assert not unknown, f"{subscriber.name} got what nobody has: {sorted(unknown)[:10]}"

    def _is_whole(self, instance: GroupInstance, position: int) -> bool:
        ways = [way for way in self._world.topology.ways if way.source == instance.name]
        found = [instance.runtime.control.destination(number) for number in range(len(ways))]
        return all(
            way.mode != SYNC or (mode == MODE_SYNC and position >= upgraded_at)
            for way, (mode, _, upgraded_at, *_) in zip(ways, found, strict=True)
        )

    def _delivered(self, instance: GroupInstance, entry: Entry) -> None:
        """The message is a promise of the instance and of its sync destinations."""
        holders: set[tuple[str, int | str]] = {(instance.name, instance.epoch())}
        destinations = instance.replication.destinations if instance.replication is not None else []
        for index, destination in enumerate(destinations):
            saved = destination.saved()
            if instance.runtime.control.destination(index)[0] == MODE_SYNC and saved.peer_name:
                holders.add((saved.peer_name, saved.peer_epoch))
        self._world.promises.append(Promise((str(entry.publisher_id), entry.sequence), frozenset(holders)))
