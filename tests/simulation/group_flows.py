"""The flows of the model: connecting with RESUME, sending, taking, acknowledging (replication.md §§12, 24.5-24.7).

`Group` has one method per step that a schedule may choose. A step that makes no sense now does nothing.
"""

import dataclasses
from collections.abc import Iterable

from tests.simulation.group_model import DOWNGRADED, SYNC, Destination, Flow, Instance, Record

Link = tuple[str, str]
"""Name of the source and label of its destination."""


class Group:
    """Instances and the flows between them."""

    def __init__(self, instances: Iterable[Instance]) -> None:
        self.instances = {instance.name: instance for instance in instances}
        self.flows: dict[Link, Flow] = {}
        self.cut: set[frozenset[str]] = set()
        """Pairs of instances between which nothing passes."""
        self.gaps = 0

    def links(self) -> list[Link]:
        """All that are configured, in a fixed order."""
        return [(name, label) for name, instance in self.instances.items() for label in instance.destinations]

    def destination(self, link: Link) -> Destination:
        return self.instances[link[0]].destinations[link[1]]

    def reachable(self, one: str, other: str) -> bool:
        return (
            self.instances[one].alive
            and self.instances[other].alive
            and frozenset((one, other)) not in self.cut
        )

    # A flow's life

    def connect(self, link: Link) -> None:
        """Connect a destination to the first of its candidates that can be reached."""
        if link in self.flows:
            return
        source = self.instances[link[0]]
        destination = self.destination(link)
        for name in destination.candidates:
            if self.reachable(source.name, name):
                self.flows[link] = self._resume(source, destination, self.instances[name])
                return

    def _resume(self, source: Instance, destination: Destination, sink: Instance) -> Flow:
        peer = sink.name, sink.epoch
        if destination.peer != peer:
            destination.peer, destination.scanned, destination.saved = peer, 0, 0
            destination.pending.clear()
        last_txid, covered = self.resume_of(sink, source)
        start = source.number_after(last_txid)
        if start == 0:
            last_txid = 0
        flow = Flow(source.name, sink.name, max(start, source.removed), dict(covered))
        flow.processed_txid, flow.processed_length = last_txid, sink.durable
        if start < source.removed:
            flow.gap = True
            self.gaps += 1
        # Records that the state file does not count: they wait for an acknowledgement, or to be sent.
        for number in range(destination.acked(), flow.next):
            self._scan(source, destination, number)
        for txid, number in list(destination.pending.items()):
            record = source.log[number]
            if number >= start and record.sequence <= covered.get(record.publisher, 0):
                del destination.pending[txid]
        return flow

    def resume_of(self, sink: Instance, source: Instance) -> tuple[int, dict[str, int]]:
        """What a sink says in RESUME: the last transaction id of this source, and its vector; both from durable records
        only.
        """
        upstream = source.name, source.epoch, sink.epoch
        last_txid, covered = 0, dict[str, int]()
        for record in sink.log[: sink.durable]:
            covered[record.publisher] = max(record.sequence, covered.get(record.publisher, 0))
            if record.upstream == upstream:
                last_txid = max(last_txid, record.upstream_txid)
        return last_txid, covered

    def _scan(self, source: Instance, destination: Destination, number: int) -> bool:
        """Note a record as pending if the destination is to get it."""
        assert destination.peer is not None
        destination.scanned = max(destination.scanned, number + 1)
        eligible = source.eligible(source.log[number], destination, destination.peer)
        if eligible:
            destination.pending[source.txid(number)] = number
        return eligible

    def break_flow(self, link: Link) -> None:
        """End a connection: everything under way on it is lost."""
        self.flows.pop(link, None)

    # Steps

    def send(self, link: Link, most: int) -> None:
        """The source reads some records of its log, and sends those that the destination is to get."""
        flow = self.flows.get(link)
        if flow is None:
            return
        source, destination = self.instances[flow.source], self.destination(link)
        for number in range(flow.next, min(self.may_leave(source), flow.next + most)):
            record = source.log[number]
            flow.next = number + 1
            # What was acknowledged and is not there any more is sent again: the sink's disk has lost it.
            if not self._scan(source, destination, number):
                continue
            if record.sequence <= flow.covered.get(record.publisher, 0):
                destination.pending.pop(source.txid(number), None)
                continue
            flow.data.append((source.txid(number), record))

    def may_leave(self, source: Instance) -> int:
        """Number of records that may leave an instance."""
        return source.durable

    def take(self, link: Link, most: int) -> None:
        """The sink's core takes some records: it drops repeats and duplicates, and logs the others."""
        flow = self.flows.get(link)
        if flow is None:
            return
        source, sink = self.instances[flow.source], self.instances[flow.sink]
        upstream = source.name, source.epoch, sink.epoch
        for _ in range(min(most, len(flow.data))):
            txid, record = flow.data.popleft()
            if txid <= flow.processed_txid:
                continue
            path = (*record.path, source.hop)
            sink.append(dataclasses.replace(record, path=path, upstream=upstream, upstream_txid=txid))
            flow.processed_txid, flow.processed_length = txid, len(sink.log)

    def acknowledge(self, link: Link) -> None:
        """The sink acknowledges what it has processed, once that is durable, with exceptions."""
        flow = self.flows.get(link)
        if flow is None:
            return
        source, sink = self.instances[flow.source], self.instances[flow.sink]
        if flow.processed_length > sink.durable or not flow.processed_txid:
            return
        ack = flow.processed_txid, self.exceptions(source, sink)
        if not flow.acks or flow.acks[-1] != ack:
            flow.acks.append(ack)

    def exceptions(self, source: Instance, sink: Instance) -> frozenset[int]:
        """Transaction ids of first arrivals from a source that are not fully persisted at the sink."""
        upstream = source.name, source.epoch, sink.epoch
        return frozenset(
            record.upstream_txid
            for number, record in enumerate(sink.log)
            if record.upstream == upstream and not sink.persisted(number)
        )

    def take_ack(self, link: Link) -> None:
        """The source takes an acknowledgement."""
        flow = self.flows.get(link)
        if flow is None or not flow.acks:
            return
        txid, exceptions = flow.acks.popleft()
        destination = self.destination(link)
        for pending in [t for t in destination.pending if t <= txid and t not in exceptions]:
            del destination.pending[pending]

    def save_state(self, name: str) -> None:
        """Write the state files of an instance's destinations."""
        for destination in self.instances[name].destinations.values():
            destination.saved = min(destination.acked(), self.instances[name].durable)

    # Modes (replication.md §8)

    def downgrade(self, link: Link) -> None:
        destination = self.destination(link)
        if destination.mode == SYNC:
            destination.mode = DOWNGRADED
            destination.ever_downgraded = True

    def upgrade(self, link: Link) -> None:
        destination = self.destination(link)
        if destination.mode == DOWNGRADED and link in self.flows:
            destination.mode = SYNC
            destination.upgraded_at = len(self.instances[link[0]].log)

    # Faults

    def kill(self, name: str) -> None:
        """End an instance's processes."""
        self.instances[name].alive = False
        self._break_flows_of(name)

    def crash(self, name: str, kept: int) -> None:
        """Crash an instance's machine: `kept` of the records that are not durable survive."""
        instance = self.instances[name]
        instance.lose_tail(min(len(instance.log), instance.durable + kept))
        self.kill(name)

    def start(self, name: str) -> None:
        instance = self.instances[name]
        if not instance.alive:
            instance.restart()

    def wipe(self, name: str) -> None:
        """Replace an instance's disk by an empty one; it must be dead."""
        assert not self.instances[name].alive
        self.instances[name].wipe()

    def partition(self, one: str, other: str) -> None:
        self.cut.add(frozenset((one, other)))
        for link in [link for link, flow in self.flows.items() if {flow.source, flow.sink} == {one, other}]:
            self.break_flow(link)

    def heal(self) -> None:
        self.cut.clear()

    def _break_flows_of(self, name: str) -> None:
        for link in [link for link, flow in self.flows.items() if name in (flow.source, flow.sink)]:
            self.break_flow(link)

    # Quiet

    def settle(self, rounds: int = 200) -> bool:
        """Without faults: let everything run until nothing changes. Return False if it does not end."""
        for _ in range(rounds):
            before = self._state()
            for instance in self.instances.values():
                if instance.alive:
                    instance.sync()
            for link in self.links():
                self.connect(link)
                self.send(link, 1 << 30)
                self.take(link, 1 << 30)
            for instance in self.instances.values():
                if instance.alive:
                    instance.sync()
            for link in self.links():
                self.acknowledge(link)
                while (flow := self.flows.get(link)) is not None and flow.acks:
                    self.take_ack(link)
            if self._state() == before:
                return True
        return False

    def _state(self) -> object:
        return (
            [len(instance.log) for instance in self.instances.values()],
            [(sorted(self.destination(link).pending), link in self.flows) for link in self.links()],
            [(flow.next, flow.processed_txid) for flow in self.flows.values()],
        )


def record_of(publisher: str, sequence: int, topic: str = "t", **values: object) -> Record:
    """A publish whose body follows from its number, so that a changed body is found."""
    return Record(publisher, sequence, topic, body=f"{publisher}:{sequence}", **values)  # type: ignore[arg-type]
