"""The world of an instance to which two others replicate, and the sink that stands for its replication process.

Each upstream has messages of its own publishers in its log, and, later, those of the other one. So each message comes
on two ways. The sink follows the rules of docs/replication.md: it waits until an answer is durable, sends in the order
of the upstream's log from the answered transaction id on, and acknowledges what is consumed and durable.

Invariants, besides those of `World`: what was acknowledged to an upstream is in the log; the last transaction id that
a start finds for an upstream is not ahead of its records; in the end all messages are there once.
"""

import dataclasses
import itertools
import random
from collections import deque
from collections.abc import Callable

from amps._core.shm.memory import NO_JOURNAL, InstanceView
from amps._core.values.value import publisher_id
from amps.server.records import (
    KIND_DECLARE_NAME,
    KIND_DECLARE_TOPIC,
    KIND_DISCONNECT,
    KIND_REPLICATION_FLOW,
    KIND_SPILLED_PUBLISH,
    control_payload,
    control_record,
    raw_control_record,
)
from amps.server.runtime import Runtime
from tests.simulation.checks import Entry
from tests.simulation.server import TRANSPORTS, Settings, configured
from tests.simulation.transports import Transport
from tests.simulation.world import World
from tests.support.records import PATH, SOURCE, RecordParts, element, padded, ring_position

SINK = TRANSPORTS - 1
"""The place of the sink among the processes that push to the core."""
TOPIC = b"orders"
NAMES = ("B", "C")


@dataclasses.dataclass(frozen=True)
class Sent:
    """A record in the log of an upstream."""

    txid: int
    publisher: str
    sequence: int
    body: bytes
    path: str


class Upstream:
    """An instance that replicates to the simulated one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.publishers = [f"{name}-{number}" for number in range(2)]
        self.log: list[Sent] = []
        self.last: dict[str, int] = dict.fromkeys(self.publishers, 0)
        self.copied = 0  # of the other's log
        self.promised = 0  # transaction id up to which it was told that everything is stored

    @property
    def session_name(self) -> str:
        return f"amps-server: from {self.name} e{self.name} ea"

    @property
    def id(self) -> int:
        return publisher_id(self.session_name)

    def publish(self, chance: random.Random) -> None:
        publisher = chance.choice(self.publishers)
        self.last[publisher] += chance.choice([1, 1, 5])
        size = 40_000 if chance.random() < 0.003 else chance.randrange(300)
        body = b"%s %d " % (publisher.encode(), self.last[publisher]) + b"." * size
        self._add(chance, publisher, self.last[publisher], body, f"{self.name}\tG\te{self.name}")

    def copy(self, chance: random.Random, other: "Upstream") -> None:
        """Take the next message of the other instance."""
        own = f"{self.name}\tG\te{self.name}"
        while self.copied < len(other.log):
            found = other.log[self.copied]
            self.copied += 1
            if own not in found.path:
                self._add(chance, found.publisher, found.sequence, found.body, f"{found.path}\n{own}")
                return

    def _add(self, chance: random.Random, publisher: str, sequence: int, body: bytes, path: str) -> None:
        txid = (self.log[-1].txid if self.log else 0) + chance.choice([1, 1, 7])
        self.log.append(Sent(txid, publisher, sequence, body, path))


class Flow:
    """The session of an upstream."""

    def __init__(self, upstream: Upstream, slot: int, serial: int) -> None:
        self.upstream = upstream
        self.slot = slot
        self.serial = serial
        self.next: int | None = None  # index in its log; None: the answer is not there, or not durable
        self.answer: tuple[int, int] | None = None  # last transaction id, log position
        self.under_way: deque[tuple[int, int]] = deque()  # ring position, transaction id
        self.consumed: deque[tuple[int, int]] = deque()  # log position, transaction id


class Sink(Transport):
    """The replication process, stepped by hand like a transport."""

    def __init__(self, runtime: Runtime, upstreams: list[Upstream], chance: random.Random) -> None:
        self.index = SINK
        self.sessions = {}
        self._runtime = runtime
        self._chance = chance
        self._ring = runtime.ingress[SINK]
        self._egress = runtime.egress[SINK]
        self._ring.attach_producer()
        self._view = InstanceView(runtime.control, self._ring, self._egress, SINK)
        self._tokens = itertools.count()
        self._declared: set[str] = set()
        self._waiting: deque[bytes] = deque([control_record((TOPIC, b"json"), KIND_DECLARE_TOPIC, topic=0)])
        self.flows = {slot: self._begin(upstream, slot) for slot, upstream in enumerate(upstreams)}
        runtime.control.set_journal_floor(SINK, NO_JOURNAL)
        runtime.control.set_transport_alive(SINK, True)

    def connect(self, wire: object) -> bool:
        """Refuse clients."""
        return False

    def die(self) -> None:
        """End as by SIGKILL: there is nothing to release."""

    def _begin(self, upstream: Upstream, slot: int) -> Flow:
        flow = Flow(upstream, slot, next(self.serials) & 0xFFFFFFFF)
        self._waiting.append(
            control_record([upstream.session_name], KIND_REPLICATION_FLOW, slot, flow.serial)
        )
        return flow

    def begin_again(self, slot: int) -> None:
        """End a flow, and begin a new one of its upstream."""
        flow = self.flows[slot]
        self._waiting.append(control_record(None, KIND_DISCONNECT, slot, flow.serial))
        self.flows[slot] = self._begin(flow.upstream, slot)

    def receive(self) -> None:
        """Push some records of each upstream."""
        for flow in self.flows.values():
            for _ in range(self._chance.choice([1, 4, 30])):
                if self._waiting or flow.next is None or flow.next >= len(flow.upstream.log):
                    break
                if not self._send(flow, flow.upstream.log[flow.next]):
                    break
                flow.next += 1

    def _send(self, flow: Flow, sent: Sent) -> bool:
        for name_class, text in ((1, sent.publisher), (3, sent.path)):
            if text not in self._declared:
                names = [name_class, publisher_id(text), text.encode()]
                if not self._ring.push(control_record(names, KIND_DECLARE_NAME)):
                    return False
                self._declared.add(text)
        source = element(SOURCE, flow.upstream.id, sent.txid) + element(PATH, publisher_id(sent.path))
        record = RecordParts(
            sent.body,
            publisher_id=publisher_id(sent.publisher),
            sequence=sent.sequence,
            position=ring_position(flow.slot, flow.serial),
            extension=source,
        ).to_bytes()
        if len(record) > self._ring.capacity // 8:
            token = f"{SINK}.{flow.serial}.{next(self._tokens)}"
            self._runtime.spill_path(token).write_bytes(padded(record))
            spill = raw_control_record(token.encode(), KIND_SPILLED_PUBLISH, flow.slot, flow.serial)
            if not self._ring.push(spill):
                self._runtime.spill_path(token).unlink()
                return False
        elif not self._ring.push(record):
            return False
        flow.under_way.append((self._ring.pushed, sent.txid))
        return True

    def publish(self) -> None:
        """Do nothing: a pushed record is visible."""

    def flush(self, session: object) -> None:
        """Do nothing: there are no clients."""

    def work(self) -> None:
        """Take answers, then what the core has consumed, then what is durable."""
        for record in self._egress.pop_all():
            message = control_payload(record)
            assert isinstance(message, list)
            kind, slot, serial, *rest = message
            flow = self.flows[slot]
            if flow.serial != serial:
                continue
            if kind == "replication_flow":
                flow.answer = (rest[0], rest[1])
            else:
                assert kind == "refused", kind
                self.begin_again(slot)
        self._view.read()
        consumed, durable, written = self._view.consumed, self._view.durable, self._view.journal_written
        while self._waiting and self._ring.push(self._waiting[0]):
            self._waiting.popleft()
        for flow in self.flows.values():
            if flow.answer is not None and durable >= flow.answer[1]:
                last, flow.answer = flow.answer[0], None
                flow.upstream.promised = max(flow.upstream.promised, last)
                flow.next = sum(sent.txid <= last for sent in flow.upstream.log)
            while flow.under_way and flow.under_way[0][0] <= consumed:
                flow.consumed.append((written, flow.under_way.popleft()[1]))
            while flow.consumed and flow.consumed[0][0] <= durable:
                flow.upstream.promised = max(flow.upstream.promised, flow.consumed.popleft()[1])


class UpstreamWorld(World):
    """A world with two upstreams."""

    def _make_settings(self, journal_bytes: int, preallocated: int, ring_bytes: int) -> Settings:
        self.upstreams = [Upstream(name) for name in NAMES]
        self.others = {publisher_id(name) for one in self.upstreams for name in one.publishers}
        config = configured(journal_bytes, preallocated)
        config = dataclasses.replace(config, replication_transport=config.transports[0])
        return Settings(config, ring_bytes, lambda: self._clock_ns, self.trace)

    def _make_transport(self, index: int) -> Transport:
        if index != SINK:
            return super()._make_transport(index)
        return Sink(self.server.runtime, self.upstreams, self.chance)

    def _actions(self) -> list[tuple[Callable[[], None], float]]:
        return [*super()._actions(), (self._grow, 40), (self._cut_link, 3)]

    def _bustle(self) -> None:
        self._grow()
        super()._bustle()

    def _grow(self) -> None:
        """Let the upstreams have more messages."""
        first, second = self.chance.sample(self.upstreams, 2)
        for _ in range(self.chance.choice([1, 3, 10])):
            first.publish(self.chance)
            if self.chance.random() < 0.7:
                second.copy(self.chance, first)

    def _cut_link(self) -> None:
        """Let a link end, and begin again at once."""
        sink = self._transports[SINK]
        if isinstance(sink, Sink):
            sink.begin_again(self.chance.choice(list(sink.flows)))

    def _check(self) -> list[Entry]:
        entries = super()._check()
        found = {entry.bookmark: entry.body for entry in entries if entry.publisher_id in self.others}
        for upstream in self.upstreams:
            # What the core knows of an upstream must be in the log, now as at the start that has recovered it.
            last = self.server.core.sequencer.last_sequence(upstream.id)
            for sent in upstream.log:
                body = found.get((publisher_id(sent.publisher), sent.sequence))
                assert body is None or body == sent.body, f"{sent} changed"
                if sent.txid <= max(upstream.promised, last):
                    assert body is not None, f"{upstream.name}: {sent.txid} of {last} is missing"
        return entries

    def _settled(self) -> None:
        sink = self._transports[SINK]
        assert sink is not None
        for _ in range(100_000):
            if all(not one.log or one.promised >= one.log[-1].txid for one in self.upstreams):
                break
            sink.receive()
            self.server.core.turn()
            self._flush_step()
            self._housekeeping()
            sink.work()
        for upstream in self.upstreams:
            assert not upstream.log or upstream.promised == upstream.log[-1].txid
        self._check()
