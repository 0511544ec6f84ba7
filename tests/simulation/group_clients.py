"""Publishers and subscribers of the model's instances, with their stores (replication.md §19, client.md).

A publisher has a publish store: it forgets what is persisted, and sends the rest again wherever it logs on. A
subscriber has a bookmark store: it resumes with one bookmark per publisher, and drops repeats.
"""

import random
from dataclasses import dataclass, field

from tests.simulation.group_flows import Group, record_of
from tests.simulation.group_model import PUBLISH, SYNC, Bookmark, Instance, Record


@dataclass(frozen=True)
class Promise:
    """A persisted acknowledgement: the message is durable on these instances from now on."""

    bookmark: Bookmark
    holders: frozenset[tuple[str, int | str]]
    """Name and epoch of each instance that must hold it: an instance whose disk was replaced owes nothing more."""


@dataclass
class Publisher:
    """A publisher that sends its messages in order, and moves between instances."""

    name: str
    topic: str = "t"
    store: dict[int, Record] = field(default_factory=dict)
    last: int = 0
    acked: int = 0
    where: str | None = None
    home: str | None = None
    """The instance that it logged on to last."""
    next: int = 1
    promises: list[Promise] = field(default_factory=list)
    accepted: set[int] = field(default_factory=set)

    def connect(self, group: Group, name: str) -> None:
        """Log on to an instance. What it has persisted is forgotten, the rest is sent again."""
        self.disconnect(group)
        instance = group.instances[name]
        if not instance.alive:
            return
        self.where = self.home = name
        session = instance.log_on(self.name)
        self.take_ack(group, instance, session.acked)
        self.next = self.acked + 1

    def disconnect(self, group: Group) -> None:
        if self.where is not None:
            group.instances[self.where].sessions.pop(self.name, None)
        self.where = None

    def publish(self, group: Group, count: int) -> None:
        """Send the stored messages that this connection has not sent yet, then new ones."""
        if self.where is None or self.name not in group.instances[self.where].sessions:
            self.where = None
            return
        instance = group.instances[self.where]
        for _ in range(count):
            if self.next > self.last:
                self.last = self.next
                self.store[self.last] = record_of(self.name, self.last, self.topic)
            if self.next in self.store:
                instance.publish(self.store[self.next])
            self.next += 1

    def take_ack(self, group: Group, instance: Instance, sequence: int) -> None:
        """An instance says that everything up to a sequence is persisted."""
        assert sequence <= self.last, f"{self.name} was acknowledged {sequence} and made only {self.last}"
        for number in range(self.acked + 1, sequence + 1):
            self.store.pop(number, None)
            self.promises.append(
                Promise((self.name, number), holders_of(group, instance.name, (self.name, number)))
            )
        self.acked = max(self.acked, sequence)


def holders_of(group: Group, name: str, bookmark: Bookmark) -> frozenset[tuple[str, int | str]]:
    """The instances that a persisted acknowledgement of this instance speaks for: itself, and each destination that
    is in sync mode, is not excused for older messages, and has to get the message (replication.md §7). A destination
    that got the message from here first speaks for its own destinations (replication.md §24.7).
    """
    holders: set[tuple[str, int | str]] = set()
    _add_holders(group, group.instances[name], bookmark, holders)
    return frozenset(holders)


def _add_holders(
    group: Group, instance: Instance, bookmark: Bookmark, holders: set[tuple[str, int | str]]
) -> None:
    holders.add((instance.name, instance.epoch))
    for number, record in enumerate(instance.log):
        if record.bookmark != bookmark:
            continue
        for destination in instance.destinations.values():
            peer = destination.peer
            waits = destination.mode == SYNC and number >= destination.upgraded_at and peer is not None
            if peer is None or not waits or peer in holders:
                continue
            if any((hop.name, hop.epoch) == peer for hop in record.path):
                holders.add(peer)
            elif instance.eligible(record, destination, peer):
                holders.add(peer)
                there = group.instances[peer[0]]
                first_arrival = any(
                    copy.bookmark == bookmark and copy.path and copy.path[-1] == instance.hop
                    for copy in there.log
                )
                if first_arrival and not any(d.ever_downgraded for d in there.destinations.values()):
                    _add_holders(group, there, bookmark, holders)


@dataclass(frozen=True)
class Missed:
    """A message that a resumed subscription did not get, with the reason that the model knows."""

    bookmark: Bookmark
    reason: str


@dataclass
class Subscriber:
    """A bookmark subscriber with `fully_durable`, which resumes on any instance."""

    name: str
    fully_durable: bool = True
    where: str | None = None
    next: int = 0
    replay_end: int = 0
    """History before this number is not held back (replication.md §7)."""
    loose: bool = False
    """True if it got history that was not persisted: another instance may not know the bookmark."""
    seen: dict[str, int] = field(default_factory=dict)
    """For each publisher, the last sequence that it got: its list of bookmarks."""
    received: list[Bookmark] = field(default_factory=list)
    repeats: int = 0
    skipped: list[Missed] = field(default_factory=list)

    def connect(self, group: Group, name: str) -> None:
        """Resume at the oldest of its bookmarks that the instance knows; without any bookmark, at the beginning."""
        instance = group.instances[name]
        if not instance.alive:
            return
        self.where = name
        self.next = self._start(instance)
        self.replay_end = instance.durable
        for record in instance.log[: self.next]:
            if record.kind == PUBLISH and record.sequence > self.seen.get(record.publisher, 0):
                reason = "before the start"
                if record.publisher not in self.seen:
                    reason = "unseen publisher"
                elif self.loose:
                    reason = "history was not held back"
                self.skipped.append(Missed(record.bookmark, reason))

    def _start(self, instance: Instance) -> int:
        if not self.seen:
            return 0
        known = [
            number + 1
            for number, record in enumerate(instance.log[: instance.durable])
            if self.seen.get(record.publisher) == record.sequence
        ]
        # `bookmark_not_found` is `now`: its data is expected to arrive.
        return min(known) if known else len(instance.log)

    def disconnect(self) -> None:
        self.where = None

    def run(self, group: Group, most: int = 1 << 30) -> None:
        if self.where is None or not group.instances[self.where].alive:
            self.where = None
            return
        instance = group.instances[self.where]
        while most > 0 and self.next < instance.durable:
            if self.fully_durable and not instance.persisted(self.next):
                if self.next >= self.replay_end:
                    return
                self.loose = True
            record = instance.log[self.next]
            self.next += 1
            if record.kind != PUBLISH:
                continue
            most -= 1
            if record.sequence <= self.seen.get(record.publisher, 0):
                self.repeats += 1
                continue
            self.seen[record.publisher] = record.sequence
            self.received.append(record.bookmark)


def deliver_acks(group: Group, publishers: dict[str, Publisher], chance: random.Random | None = None) -> None:
    """Each instance sends the acknowledgements that have become true; some may be lost with their connection."""
    for instance in group.instances.values():
        if not instance.alive:
            continue
        for session in instance.newly_acked():
            publisher = publishers.get(session.publisher)
            if publisher is not None and publisher.where == instance.name:
                publisher.take_ack(group, instance, session.acked)
            if chance is not None and chance.random() < 0.02:
                return
