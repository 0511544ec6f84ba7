"""The specification of a group of instances as a small program (replication.md §§7, 9-12, 24.5-24.7).

It has no bytes, files, processes or sockets: an instance is a list of records, a flow is two queues. Each step is one
action that a schedule may choose, so any order of steps, losses and deaths can be run, and a history of the
specification itself can be told apart from a fault of the implementation.

What lives here: instances, flows, publishers' acknowledgements, rules of routing. Queues are in `group_queues`,
subscribers and publishers in `group_clients`, the invariants in `group_checks`.

Invariants of the model: a log only grows, but for the loss of its tail that was not durable, or of the whole disk. A
record leaves an instance only when it is durable there. A name and an epoch stand for one log for ever.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

PUBLISH, ACKNOWLEDGEMENT, TRANSFER, REMOVAL = "publish", "acknowledgement", "transfer", "removal"
ASYNC, SYNC, DOWNGRADED = "async", "sync", "downgraded"
TXIDS_PER_EPOCH = 1_000_000

Bookmark = tuple[str, int]
"""Publisher and sequence."""


@dataclass(frozen=True)
class Hop:
    """An instance that a record has passed."""

    name: str
    group: str
    epoch: int


@dataclass(frozen=True)
class Record:
    """A record of the log of one instance."""

    publisher: str
    sequence: int
    topic: str
    kind: str = PUBLISH
    body: str = ""
    targets: tuple[Bookmark, ...] = ()
    """The queue messages that an acknowledgement, a transfer or a removal is about."""
    to: str = ""
    """The new owner that a transfer names."""
    ownership: int = 0
    """The epoch of ownership that a transfer begins."""
    proxied: bool = False
    path: tuple[Hop, ...] = ()
    """The instances that it passed before this one, the instance of the publish first."""
    upstream: tuple[str, int, int] | None = None
    """Name and epoch of the instance that sent it here, and the epoch of this log; None for a direct publish."""
    upstream_txid: int = 0

    @property
    def bookmark(self) -> Bookmark:
        return self.publisher, self.sequence

    @property
    def content(self) -> tuple[object, ...]:
        """What must be equal on all instances."""
        return (
            self.bookmark,
            self.topic,
            self.kind,
            self.body,
            self.targets,
            self.to,
            self.ownership,
            self.proxied,
        )


@dataclass
class Destination:
    """An outgoing flow's configuration and what the source knows about it."""

    label: str
    candidates: tuple[str, ...]
    """Names of the instances that it may connect to, the preferred one first."""
    configured: str = SYNC
    pass_through: str | None = ".*"
    topics: str = ".*"
    mode: str = SYNC
    ever_downgraded: bool = False
    upgraded_at: int = 0
    """Number of records in the log at the last upgrade: it is not waited for before them."""
    scanned: int = 0
    """Records before this number are known to be acknowledged, pending, or none of its business."""
    pending: dict[int, int] = field(default_factory=dict)
    """Transaction id -> number of the record, of records that are not acknowledged."""
    peer: tuple[str, int] | None = None
    """Name and epoch of the instance that `scanned` and `pending` are about."""
    saved: int = 0
    """Number of acknowledged records as the state file has it."""

    def acked(self) -> int:
        """Number of records at the log's beginning that it has, or is not to get."""
        return min(self.pending.values(), default=self.scanned)


@dataclass
class Flow:
    """A live flow: records on their way to the sink, and acknowledgements on their way back."""

    source: str
    sink: str
    next: int
    """Number of the record at which the source goes on to read."""
    covered: dict[str, int]
    """The vector of the sink: for each publisher, the sequence up to which it holds its records."""
    data: deque[tuple[int, Record]] = field(default_factory=deque)
    acks: deque[tuple[int, frozenset[int]]] = field(default_factory=deque)
    processed_txid: int = 0
    """The last transaction id that the sink has processed."""
    processed_length: int = 0
    """Length of the sink's log at that moment."""
    gap: bool = False


@dataclass
class Session:
    """A publisher's connection to an instance."""

    publisher: str
    received: int
    acked: int


class Instance:
    """One instance: what is on its disk (log, epoch), and what is only in its memory."""

    def __init__(self, name: str, group: str, destinations: Iterable[Destination]) -> None:
        self.name = name
        self.group = group
        self.destinations = {destination.label: destination for destination in destinations}
        self.epoch = 1
        self.log: list[Record] = []
        self.removed = 0
        """Number of records at the log's beginning whose journals were removed."""
        self.durable = 0
        self.alive = True
        self.highest: dict[str, int] = {}
        self.sessions: dict[str, Session] = {}
        self.listeners: list[Callable[[Instance, int], None]] = []
        """Called with the number of each record that is added, and with -1 after a start."""

    @property
    def hop(self) -> Hop:
        return Hop(self.name, self.group, self.epoch)

    def txid(self, number: int) -> int:
        return self.epoch * TXIDS_PER_EPOCH + number + 1

    def number_after(self, txid: int) -> int:
        """Number of the first record whose transaction id is above this one. 0 if it belongs to another epoch."""
        number = txid - self.epoch * TXIDS_PER_EPOCH
        return number if 0 <= number <= len(self.log) else 0

    # Writing

    def append(self, record: Record) -> bool:
        """Add a record, unless it is a duplicate (replication.md §10)."""
        if record.sequence <= self.highest.get(record.publisher, 0):
            return False
        self.highest[record.publisher] = record.sequence
        self.log.append(record)
        for listener in self.listeners:
            listener(self, len(self.log) - 1)
        return True

    def sync(self) -> None:
        self.durable = len(self.log)

    def append_transfer(
        self, topic: str, target: Bookmark, to: str, ownership: int, proxied: bool = False
    ) -> None:
        """Add a transfer, which the instance decides itself, under a name and a number of its own."""
        name, number = f"amps-server: {self.name}/queue", self.txid(len(self.log))
        self.append(
            Record(
                name,
                number,
                topic,
                TRANSFER,
                targets=(target,),
                to=to,
                ownership=ownership,
                proxied=proxied,
            )
        )

    # Routing (replication.md §9)

    def eligible(self, record: Record, destination: Destination, peer: tuple[str, int]) -> bool:
        """True if a record is to be sent to a peer (name and epoch) of this destination."""
        if not re.search(destination.topics, record.topic):
            return False
        if record.path:
            last = record.path[-1]
            if destination.pass_through is None or not re.search(destination.pass_through, last.group):
                return False
        return all((hop.name, hop.epoch) != peer for hop in record.path)

    # Persisted (replication.md §7, §24.7)

    def satisfied(self, number: int, destination: Destination) -> bool:
        """True if a record need not wait for this destination."""
        if destination.mode != SYNC or number < destination.upgraded_at:
            return True
        record = self.log[number]
        peer = destination.peer or (destination.candidates[0], -1)
        if number >= destination.scanned:
            # Before it has been scanned, only what no peer would change counts.
            return not re.search(destination.topics, record.topic)
        return self.txid(number) not in destination.pending or not self.eligible(record, destination, peer)

    def persisted(self, number: int) -> bool:
        return number < self.durable and all(self.satisfied(number, d) for d in self.destinations.values())

    def persisted_sequence(self, publisher: str) -> int:
        """The sequence before a publisher's first record that is not persisted."""
        for number, record in enumerate(self.log):
            if record.publisher == publisher and not self.persisted(number):
                return record.sequence - 1
        return self.highest.get(publisher, 0)

    # Publishers (replication.md §7, §19)

    def log_on(self, publisher: str) -> Session:
        """Begin a session. The publisher learns the last sequence that is persisted."""
        sequence = self.persisted_sequence(publisher)
        session = self.sessions[publisher] = Session(publisher, sequence, sequence)
        return session

    def publish(self, record: Record) -> None:
        session = self.sessions[record.publisher]
        self.append(record)
        session.received = max(session.received, record.sequence)

    def newly_acked(self) -> Iterator[Session]:
        """Give each session whose acknowledgement advances."""
        for session in self.sessions.values():
            sequence = min(session.received, self.persisted_sequence(session.publisher))
            if sequence > session.acked:
                session.acked = sequence
                yield session

    # Faults

    def restart(self) -> None:
        """Begin with what is on the disk: modes are as configured, state files as they were saved last."""
        self.alive = True
        self.durable = len(self.log)
        self.sessions.clear()
        self.highest.clear()
        for record in self.log:
            self.highest[record.publisher] = max(record.sequence, self.highest.get(record.publisher, 0))
        for destination in self.destinations.values():
            destination.mode = destination.configured
            destination.upgraded_at = 0
            destination.scanned = destination.saved
            destination.pending.clear()
        for listener in self.listeners:
            listener(self, -1)

    def lose_tail(self, length: int) -> None:
        """The machine crashed: of the records that were not durable, the last ones are lost."""
        assert length >= self.durable
        del self.log[length:]

    def wipe(self) -> None:
        """The disk was replaced by an empty one."""
        self.log.clear()
        self.removed = self.durable = 0
        self.epoch += 1
        for destination in self.destinations.values():
            destination.saved = 0
            destination.peer = None
