"""Message queues of the model's instances: ownership, transfers, proxied use (replication.md §§14, 24.8).

A queue's state is what the records of the log make of it, so a restart computes it again. Only leases and requests
are in memory. What an instance decides (a transfer, a claim) is a record of its log, so it reaches the others as
everything else.
"""

from collections import deque
from dataclasses import dataclass

from tests.simulation.group_checks import Lease
from tests.simulation.group_flows import Group
from tests.simulation.group_model import ACKNOWLEDGEMENT, PUBLISH, TRANSFER, Bookmark, Instance, Record


@dataclass
class Waiting:
    """A message in the queue of one instance."""

    owner: str
    ownership: int = 0
    """Rises with each transfer: the higher one wins."""
    proxied: bool = False

    def loses_to(self, transfer: Record) -> bool:
        """True if a transfer takes the message from the owner that is known here (replication.md §24.8)."""
        if transfer.ownership != self.ownership:
            return transfer.ownership > self.ownership
        if transfer.proxied != self.proxied:
            return self.proxied
        return transfer.to < self.owner


class QueueHost:
    """The queue as one instance has it."""

    def __init__(
        self, instance: Instance, origins: dict[Bookmark, set[str]], initial_owner: str | None = None
    ) -> None:
        """`origins`: filled with the instances of the publish. `initial_owner`: of a group local queue; None for a
        queue whose first owner is the instance of the publish.
        """
        self.instance = instance
        self.origins = origins
        self.initial_owner = initial_owner
        self.waiting: dict[Bookmark, Waiting] = {}
        self.gone: set[Bookmark] = set()
        """Acknowledged messages, also those that have not come yet (deferred acknowledgements)."""
        self.leases: dict[Bookmark, Lease] = {}
        self.proxied = False
        instance.listeners.append(self._heard)

    def _heard(self, instance: Instance, number: int) -> None:
        if number >= 0:
            self.apply(instance.log[number])
            return
        self.waiting.clear()
        self.gone.clear()
        self.leases.clear()
        for record in instance.log:
            self.apply(record)

    def apply(self, record: Record) -> None:
        """Apply a record of the log."""
        if record.kind == PUBLISH:
            first = record.path[0].name if record.path else self.instance.name
            self.origins.setdefault(record.bookmark, set()).add(first)
            if record.bookmark not in self.gone:
                self.waiting[record.bookmark] = Waiting(self.initial_owner or first)
        for target in record.targets:
            if record.kind != TRANSFER:
                self.gone.add(target)
                self.waiting.pop(target, None)
            elif (found := self.waiting.get(target)) is not None and found.loses_to(record):
                self.waiting[target] = Waiting(record.to, record.ownership, record.proxied)

    def deliverable(self) -> list[Bookmark]:
        """Messages that this instance may deliver now."""
        name = self.instance.name
        return [b for b, found in self.waiting.items() if found.owner == name and b not in self.leases]


@dataclass
class Consumer:
    """A consumer of the queue, with a number for each of its acknowledgements."""

    name: str
    where: str
    backlog: int = 3
    connected: bool = True
    sequence: int = 0


class Queues:
    """The queue of a group, its consumers, and everything that was delivered."""

    def __init__(self, group: Group, initial_owner: str | None = None) -> None:
        self.group = group
        self.origins: dict[Bookmark, set[str]] = {}
        self.hosts = {
            name: QueueHost(instance, self.origins, initial_owner)
            for name, instance in group.instances.items()
        }
        self.consumers: dict[str, Consumer] = {}
        self.leases: list[Lease] = []
        self.requests: deque[tuple[str, str, Bookmark]] = deque()
        """Transfer requests under way: requester, owner, message."""
        self.unsettled: list[tuple[Lease, str, int]] = []
        """Acknowledged leases whose record is not persisted: with the record's publisher and sequence."""
        self.step = 0

    def add_consumer(self, name: str, where: str, backlog: int = 3) -> Consumer:
        consumer = self.consumers[name] = Consumer(name, where, backlog)
        return consumer

    def held(self, consumer: Consumer) -> list[Lease]:
        return [lease for lease in self.leases if lease.consumer == consumer.name and lease.end is None]

    def _free(self, name: str) -> list[Consumer]:
        """Consumers of an instance that can take a message."""
        if not self.group.instances[name].alive:
            return []
        return [
            consumer
            for consumer in self.consumers.values()
            if consumer.where == name and consumer.connected and len(self.held(consumer)) < consumer.backlog
        ]

    # Steps

    def deliver(self, name: str) -> None:
        """An instance gives its first message to a consumer of its own."""
        self.step += 1
        host = self.hosts[name]
        for bookmark in host.deliverable():
            free = self._free(name)
            if not free:
                return
            lease = Lease(bookmark, name, free[0].name, self.step)
            host.leases[bookmark] = lease
            self.leases.append(lease)
            return

    def acknowledge(self, consumer: Consumer) -> None:
        """A consumer acknowledges the first message that it holds, where it got it."""
        self.step += 1
        for lease in self.held(consumer)[:1]:
            instance = self.group.instances[consumer.where]
            consumer.sequence += 1
            record = Record(consumer.name, consumer.sequence, "t", ACKNOWLEDGEMENT, "", (lease.bookmark,))
            instance.append(record)
            self._end(lease)
            lease.acknowledged = True
            self.unsettled.append((lease, consumer.name, consumer.sequence))

    def settle_acknowledgements(self) -> None:
        """Consumers learn which of their acknowledgements are persisted."""
        self.step += 1
        for entry in list(self.unsettled):
            lease, publisher, sequence = entry
            instance = self.group.instances[lease.instance]
            found = [n for n, r in enumerate(instance.log) if r.bookmark == (publisher, sequence)]
            if not instance.alive or not found:
                self.unsettled.remove(entry)  # lost with the connection
            elif instance.persisted(found[0]):
                lease.persisted = self.step
                self.unsettled.remove(entry)

    def request(self, name: str) -> None:
        """An instance with a free consumer asks the owners of its messages for them (replication.md §14.2)."""
        self.step += 1
        host = self.hosts[name]
        if not self._free(name) or host.deliverable():
            return
        for bookmark, found in host.waiting.items():
            if found.owner == name or not found.owner:
                continue
            if self.reaches(name, found.owner):
                self.requests.append((name, found.owner, bookmark))
            elif host.proxied:
                host.instance.append_transfer("t", bookmark, name, found.ownership + 1, proxied=True)
            return

    def reaches(self, name: str, other: str) -> bool:
        """True if connected flows lead from an instance to another (25.37)."""
        known, found = {name}, [name]
        while found:
            one = found.pop()
            for flow in self.group.flows.values():
                if flow.source == one and flow.sink not in known:
                    known.add(flow.sink)
                    found.append(flow.sink)
        return other in known

    def grant(self, lost: bool = False) -> None:
        """A request arrives. The owner grants it if no consumer of its own can take the message."""
        self.step += 1
        if not self.requests:
            return
        requester, owner, bookmark = self.requests.popleft()
        host = self.hosts[owner]
        found = host.waiting.get(bookmark)
        if lost or not host.instance.alive or found is None or found.owner != owner:
            return
        if bookmark in host.leases or self._free(owner):
            return
        host.instance.append_transfer("t", bookmark, requester, found.ownership + 1)

    def twice_published(self) -> set[Bookmark]:
        """Messages that a publisher sent again to another instance before the first one's copy came there: each of
        the two is the owner of its copy (replication_histories.md, H-9).
        """
        return {bookmark for bookmark, origins in self.origins.items() if len(origins) > 1}

    # Leases end

    def _end(self, lease: Lease) -> None:
        lease.end = self.step
        host = self.hosts[lease.instance]
        if host.leases.get(lease.bookmark) is lease:
            del host.leases[lease.bookmark]

    def give_back(self, consumer: Consumer) -> None:
        """A consumer loses all that it holds: it hangs up, cancels, or its leases expire."""
        self.step += 1
        for lease in self.held(consumer):
            self._end(lease)

    def instance_ended(self, name: str) -> None:
        """An instance died: its leases are broken, and answers to its consumers are lost."""
        self.step += 1
        for lease in self.leases:
            if lease.instance == name and lease.end is None:
                self._end(lease)
        self.unsettled = [entry for entry in self.unsettled if entry[0].instance != name]
        self.hosts[name].proxied = False

    # Quiet

    def drain(self, rounds: int = 20) -> None:
        """Without faults: consumers take and acknowledge everything."""
        for _ in range(rounds):
            for name, host in self.hosts.items():
                for _ in range(len(host.waiting)):
                    self.deliver(name)
                    for consumer in self._consumers_of(name):
                        self.acknowledge(consumer)
            assert self.group.settle(), "the group does not come to rest"
            self.settle_acknowledgements()
            if not any(host.waiting for host in self.hosts.values()):
                return
            for name, host in self.hosts.items():
                for bookmark, found in host.waiting.items():
                    if self._free(name) and found.owner != name:
                        self.requests.append((name, found.owner, bookmark))
            while self.requests:
                self.grant()
            assert self.group.settle(), "the group does not come to rest"

    def _consumers_of(self, name: str) -> list[Consumer]:
        return [consumer for consumer in self.consumers.values() if consumer.where == name]

    def left(self) -> dict[str, list[Bookmark]]:
        return {name: list(host.waiting) for name, host in self.hosts.items()}

    def owners(self) -> dict[str, dict[Bookmark, str]]:
        return {
            name: {bookmark: found.owner for bookmark, found in host.waiting.items()}
            for name, host in self.hosts.items()
        }
