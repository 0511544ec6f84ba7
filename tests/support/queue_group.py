"""A queue that spans instances: several engines, each with a log, and links between them that lose, delay and repeat.

All engine code is the server's: the queue manager, and the log adapter with its binary records. Around it is the
least that replication promises. An instance has a log, of which a prefix is durable. A link carries the durable
records of one log to another, in order; a lost link begins again at what the other log has. A record is not sent to an
instance that it has passed. A record whose publisher has a later one in the log is a duplicate. A crash loses what is
not durable, and all leases; the queue is then made again from the log, or from a checkpoint and the log behind it.

The consumers of an instance are one client. It acknowledges what it holds, later. `Watch` notes who holds what.
"""

import random
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy

from amps._core.queues.engine import COUNTER_NAMES, COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import (
    LogAdapter,
    QueueManager,
    copy_messages,
    deferred_acknowledgements,
    early_transfers,
    forget_answered,
    publisher_table,
    restore_messages,
    restore_rest,
    seen_until,
)
from tests.support.queue_engine import EngineSettings
from tests.support.queue_subject import QueueSettings

BLOCKS = 17
CLIENT = 7
RECORD = struct.Struct("<IIQQQQQQIIHHHHHHI")
ACKNOWLEDGEMENT = struct.Struct("<IIQQII")
ENTRY = struct.Struct("<QQQII")
DELIVERY = struct.Struct("<QQIIII")
KIND_ACKNOWLEDGEMENT, KIND_TRANSFER = 4, 6
ACKNOWLEDGE, CANCEL, EXPIRE = 0, 1, 2
MS = 1_000_000

Bookmark = tuple[int, int]


@dataclass(frozen=True)
class Logged:
    """One record of a log. `record` is None for a message. `path`: the instances that it has passed, oldest first."""

    publisher: int
    sequence: int
    record: bytes | None
    path: tuple[str, ...]
    place: tuple[str, int] | None
    """Upstream, and index in its log."""
    timestamp_ns: int


@dataclass
class Checkpoint:
    """A copy of a queue, as a start restores it."""

    length: int
    copy: bytes
    width: int
    ownerships: dict[int, tuple[str, int, bool]]
    publishers: bytes
    until: int
    deferred: list[tuple[int, int, int]]
    early: list[tuple[int, int, str, int, bool, int]]


def position_of(index: int) -> int:
    """The log position of a record."""
    return 8 * (index + 1)


def acknowledgement(
    publisher: int, sequence: int, entries: list[tuple[int, int, int]], action: int, domain: int
) -> bytes:
    """A client's acknowledgement, as the core records it."""
    body = ACKNOWLEDGEMENT.pack(action, len(entries), 0, 0, 0, domain)
    body += b"".join(ENTRY.pack(*entry, 0, 0) for entry in entries)
    length = RECORD.size + len(body)
    return (
        RECORD.pack(
            length, 0, 0, 0, 0, publisher, sequence, 0, 0, 0, KIND_ACKNOWLEDGEMENT, 0, 0, 0, 0, 0, len(body)
        )
        + body
    )


class Watch:
    """Who holds which message, and what was acknowledged."""

    def __init__(self) -> None:
        self.held: dict[Bookmark, set[str]] = {}
        self.deliveries: dict[Bookmark, list[str]] = {}
        self.acknowledged: dict[Bookmark, str] = {}
        """Durably, by the instance at which it was."""
        self.held_twice: list[Bookmark] = []
        self.delivered_after: list[Bookmark] = []

    def delivered(self, bookmark: Bookmark, instance: str) -> None:
        self.deliveries.setdefault(bookmark, []).append(instance)
        holders = self.held.setdefault(bookmark, set())
        if holders - {instance}:
            self.held_twice.append(bookmark)
        if self.acknowledged.get(bookmark, instance) != instance:
            self.delivered_after.append(bookmark)
        holders.add(instance)

    def returned(self, bookmark: Bookmark, instance: str) -> None:
        self.held.get(bookmark, set()).discard(instance)


class Instance:
    """One instance with one queue."""

    def __init__(self, name: str, number: int, settings: EngineSettings, watch: Watch) -> None:
        self.name = name
        self.publisher = 1000 + number
        self.decider = 2000 + number
        self._consumer = 3000 + number
        self._settings = settings
        self._watch = watch
        self.log: list[Logged] = []
        self.durable = 0
        self.checkpoint: Checkpoint | None = None
        self.is_up = True
        self.is_proxied = False
        self.backlog = 0
        self.reachable: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._memory = numpy.zeros(arena_bytes(BLOCKS), "u1")
        self._counters = numpy.zeros(COUNTERS_BYTES, "u1")
        self.manager = QueueManager(
            QueueArena(self._memory, BLOCKS), self._counters.data, [self._settings], 1, self.name
        )
        self.adapter = LogAdapter(self.manager, [("Q", "json")])
        self.adapter.publisher_id = self.decider
        self.last: dict[int, int] = {}
        self.adapter.last_sequence = lambda publisher: self.last.get(publisher, 0)
        self.holds: dict[Bookmark, int] = {}
        """What the client holds: the slots by bookmark."""
        self._unsent: deque[tuple[int, int, Bookmark, int]] = deque()

    # Facts

    def counter(self, name: str) -> int:
        return int(self._counters.view("<u8")[COUNTER_NAMES.index(name)])

    @property
    def queue_state(self) -> list[tuple[Bookmark, int, str, int, bool]]:
        """Bookmark, and owner with its epoch, of each message, in the order of the log."""
        states = dict(self.manager.states(0))
        return [
            (self.bookmark_at(position), states[position], owner, epoch, is_proxied)
            for position, owner, epoch, is_proxied in self.manager.owners(0)
        ]

    def bookmark_at(self, position: int) -> Bookmark:
        entry = self.log[position // 8 - 1]
        return entry.publisher, entry.sequence

    def last_of(self, upstream: str) -> int:
        """Index of the first record of an upstream that is not in the log."""
        return max(
            (entry.place[1] + 1 for entry in self.log if entry.place and entry.place[0] == upstream),
            default=0,
        )

    # The log

    def _append(self, entry: Logged) -> None:
        self.log.append(entry)
        if entry.publisher:
            self.last[entry.publisher] = entry.sequence

    def publish(self, now_ns: int) -> Bookmark:
        bookmark = (self.publisher, self.last.get(self.publisher, 0) + 1)
        self._append(Logged(*bookmark, None, (), None, now_ns))
        self.manager.enqueue(0, position_of(len(self.log) - 1), bookmark, now_ns, None, now_ns)
        return bookmark

    def receive(self, entry: Logged, upstream: str, index: int, now_ns: int) -> None:
        """Take a record of an upstream, unless it is a duplicate."""
        if entry.sequence <= self.last.get(entry.publisher, 0):
            return
        path = (*entry.path, upstream)
        record = entry.record
        if record is not None:
            rewritten = bytearray(record)
            assert self.adapter.replicate(rewritten, 0, now_ns)
            record = bytes(rewritten)
        self._append(Logged(entry.publisher, entry.sequence, record, path, (upstream, index), now_ns))
        if record is None:
            self._enter(len(self.log) - 1, now_ns)
        self._forget_lost_holds()

    def _enter(self, index: int, now_ns: int) -> None:
        entry = self.log[index]
        self.manager.enqueue(
            0,
            position_of(index),
            (entry.publisher, entry.sequence),
            entry.timestamp_ns,
            None,
            now_ns,
            origin=entry.path[0] if entry.path else None,
        )

    def _forget_lost_holds(self) -> None:
        """A lease that has ended holds nothing, whatever its client does."""
        leased = {self.bookmark_at(position) for position, state in self.manager.states(0) if state in (3, 5)}
        for bookmark in [bookmark for bookmark in self.holds if bookmark not in leased]:
            del self.holds[bookmark]
            self._watch.returned(bookmark, self.name)

    # Consumers

    def subscribe(self, backlog: int, now_ns: int) -> None:
        """Begin, change or end (0) the subscription."""
        if backlog:
            self.manager.subscribe(0, 1, CLIENT, {0: None}, backlog)
        elif self.backlog:
            self.manager.unsubscribe(0, 1, now_ns)
            self._unsent.clear()
            for bookmark in self.holds:
                self._watch.returned(bookmark, self.name)
            self.holds.clear()
        self.backlog = backlog

    def acknowledge(self, bookmark: Bookmark, action: int, now_ns: int) -> None:
        """The client acknowledges, cancels or expires a message that it holds."""
        slot = self.holds.pop(bookmark)
        self._watch.returned(bookmark, self.name)
        position = next(
            position_of(index)
            for index, entry in enumerate(self.log)
            if entry.record is None and (entry.publisher, entry.sequence) == bookmark
        )
        _, _, kept = self.manager.acknowledge(0, CLIENT, [(*bookmark, position, slot)], action, 0, now_ns)
        if kept:
            sequence = self.last.get(self._consumer, 0) + 1
            span = self.manager.queues[0].span
            assert span is not None
            record = acknowledgement(self._consumer, sequence, kept, action, span.domain)
            self._append(Logged(self._consumer, sequence, record, (), None, now_ns))

    # Turns

    def turn(self, now_ns: int) -> list[tuple[int, str, bytes, int]]:
        """One turn of the core. Returns its requests to other instances."""
        self.manager.pass_time(now_ns)
        self._record(now_ns)
        self.manager.serve(now_ns)
        removed_until = len(self.log) if self._record(now_ns) else 0
        taken = self.manager.output.take_deliveries(0, 4096)
        for position, _, _, slot, _, flags in DELIVERY.iter_unpack(taken):
            if not flags:
                needed = max(position // 8, removed_until)
                self._unsent.append((needed, position, self.bookmark_at(position), slot))
        return self.manager.take_wishes()

    def _record(self, now_ns: int) -> bool:
        written = False
        while (decision := self.adapter.take_decision()) is not None:
            _, record, is_shared = decision
            sequence = 10**6 + len(self.log) if is_shared else 0
            struct.pack_into("<Q", record, 8, position_of(len(self.log)))
            struct.pack_into("<Q", record, 24, now_ns)
            self._append(Logged(self.decider if is_shared else 0, sequence, bytes(record), (), None, now_ns))
            written = True
        self._forget_lost_holds()
        return written

    def sync(self) -> None:
        """All that was written is durable."""
        for entry in self.log[self.durable :]:
            for publisher, sequence, _, _, _ in entries_of(entry, (ACKNOWLEDGE, EXPIRE)):
                self._watch.acknowledged.setdefault((publisher, sequence), self.name)
        self.durable = len(self.log)
        leased = dict(self.manager.states(0))
        while self._unsent and self._unsent[0][0] <= self.durable:
            _, position, bookmark, slot = self._unsent.popleft()
            if leased.get(position) in (3, 5):
                self._watch.delivered(bookmark, self.name)
                self.holds[bookmark] = slot

    def copy(self) -> None:
        """Make a checkpoint; it counts because the log is durable."""
        self.sync()
        queue = self.manager.queues[0]
        until = seen_until(queue)
        copy, width, _, _, ownerships = copy_messages(queue, 0, until, 1 << 14)
        self.checkpoint = Checkpoint(
            len(self.log),
            copy,
            width,
            ownerships,
            publisher_table(self.manager),
            until,
            deferred_acknowledgements(queue),
            early_transfers(queue),
        )

    def crash(self) -> None:
        """Lose what is not durable, and all leases."""
        self.is_up = False
        self.backlog = 0
        del self.log[self.durable :]
        for bookmark in self.holds:
            self._watch.returned(bookmark, self.name)
        self.holds.clear()

    def start(self, from_checkpoint: bool, now_ns: int) -> None:
        """Make the queue again."""
        self._begin()
        begin = 0
        queue = self.manager.queues[0]
        stored = self.checkpoint if from_checkpoint else None
        if stored is not None:
            restore_messages(queue, stored.copy, stored.width, stored.publishers, 0, stored.ownerships)
            restore_rest(queue, stored.until, stored.deferred, stored.early)
            begin = stored.length
        for index, entry in enumerate(self.log):
            if entry.publisher:
                self.last[entry.publisher] = entry.sequence
            if index < begin:
                continue
            if entry.record is None:
                self._enter(index, entry.timestamp_ns)
            else:
                record = bytearray(entry.record)
                struct.pack_into("<QQQ", record, 8, position_of(index), 0, entry.timestamp_ns)
                self.adapter.repeat(bytes(record), 0)
        forget_answered(queue, lambda publisher: self.last.get(publisher, 0))
        self.adapter.begin()
        self.manager.set_reachable(sorted(self.reachable))
        self.is_up = True
        self.is_proxied = False


def entries_of(entry: Logged, actions: tuple[int, ...]) -> Iterator[tuple[int, int, int, int, int]]:
    """The entries of an acknowledgement with one of these actions."""
    if entry.record is None:
        return
    header = RECORD.unpack_from(entry.record)
    action, count, *_ = ACKNOWLEDGEMENT.unpack_from(entry.record, RECORD.size)
    if header[10] == KIND_ACKNOWLEDGEMENT and action in actions:
        for at in range(count):
            yield ENTRY.unpack_from(entry.record, RECORD.size + ACKNOWLEDGEMENT.size + ENTRY.size * at)


@dataclass
class Link:
    """A flow from one instance to another."""

    source: Instance
    sink: Instance
    is_up: bool = True
    next: int = 0


@dataclass
class Group:
    """The instances, and the links between all of them."""

    names: str
    settings: QueueSettings
    choices: random.Random
    options: Mapping[str, object] = field(default_factory=dict)
    pairs: tuple[str, ...] | None = None
    """Pairs of instances with links both ways; None: all."""

    def __post_init__(self) -> None:
        self.watch = Watch()
        self.now_ns = 10**9
        self.published: set[Bookmark] = set()
        self.instances = {
            name: Instance(name, number, EngineSettings(self.settings, True, **self.options), self.watch)  # type: ignore[arg-type]
            for number, name in enumerate(self.names)
        }
        self.links = [
            Link(self.instances[source], self.instances[sink])
            for source in self.names
            for sink in self.names
            if source != sink
            and (self.pairs is None or source + sink in self.pairs or sink + source in self.pairs)
        ]
        self._requests: list[tuple[str, str, bytes, int]] = []
        self.connect()

    def __getitem__(self, name: str) -> Instance:
        return self.instances[name]

    def connect(self) -> None:
        """Tell each instance which ones it can reach, and let links begin again where the sinks are."""
        near = {name: {name} for name in self.names}
        for link in self.links:
            if link.is_up and link.source.is_up and link.sink.is_up:
                near[link.source.name].add(link.sink.name)
            link.next = link.sink.last_of(link.source.name)
        for _ in self.names:
            near = {name: set().union(*(near[other] for other in found)) for name, found in near.items()}
        for name, instance in self.instances.items():
            instance.reachable = near[name] - {name}
            if instance.is_up:
                instance.manager.set_reachable(sorted(instance.reachable))

    # Steps

    def publish(self, name: str, count: int = 1) -> list[Bookmark]:
        found = [self[name].publish(self.now_ns) for _ in range(count)]
        self.published.update(found)
        return found

    def crash(self, name: str) -> None:
        self[name].crash()
        self.connect()

    def start(self, name: str, from_checkpoint: bool = False) -> None:
        self[name].start(from_checkpoint, self.now_ns)
        self.connect()

    def cut(self, one: str, other: str, is_up: bool = False) -> None:
        for link in self.links:
            if {link.source.name, link.sink.name} == {one, other}:
                link.is_up = is_up
        self.connect()

    def proxy(self, name: str, enabled: bool) -> None:
        self[name].is_proxied = enabled
        assert self[name].manager.set_proxied(0, enabled)

    def turn(self, name: str) -> None:
        instance = self[name]
        if instance.is_up:
            for _, owner, bookmarks, wanted in instance.turn(self.now_ns):
                self._requests.append((name, owner, bookmarks, wanted))

    def carry(self, link: Link, count: int) -> None:
        """Carry some durable records over a link."""
        if not (link.is_up and link.source.is_up and link.sink.is_up):
            return
        for index in range(link.next, min(link.source.durable, link.next + count)):
            entry = link.source.log[index]
            link.next = index + 1
            is_back = entry.place is not None and entry.place[0] == link.sink.name
            if entry.publisher and not is_back and link.sink.name not in entry.path:
                link.sink.receive(entry, link.source.name, index, self.now_ns)

    def ask(self, loss: float = 0.0) -> None:
        """Carry the requests; some are lost, and some arrive twice."""
        requests, self._requests = self._requests, []
        for requester, owner, bookmarks, wanted in requests:
            if self.choices.random() < loss:
                continue
            if self[owner].is_up and owner in self[requester].reachable:
                for _ in range(2 if self.choices.random() < loss else 1):
                    assert self[owner].manager.request(0, requester, bookmarks, wanted)

    def settle(self, rounds: int, step_ns: int = 10 * MS, acknowledges: bool = True) -> None:
        """Let everything happen that can happen; clients acknowledge at once."""
        for _ in range(rounds):
            self.now_ns += step_ns
            for name, instance in self.instances.items():
                self.turn(name)
                if instance.is_up:
                    instance.sync()
                    for bookmark in list(instance.holds) if acknowledges else ():
                        instance.acknowledge(bookmark, ACKNOWLEDGE, self.now_ns)
                    instance.sync()
            self.ask()
            for link in self.links:
                self.carry(link, 10_000)
