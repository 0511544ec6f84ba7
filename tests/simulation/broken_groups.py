"""Groups of the model that lack one precaution each. Some seed of a plan must fail with each of them."""

import dataclasses
from typing import Any

from tests.simulation.group_flows import Group, Link
from tests.simulation.group_model import Flow, Instance, Record


class RecordsLeaveUndurable(Group):
    """A record is sent before it is durable at the source (docs/replication.md, "In one page")."""

    def may_leave(self, source: Instance) -> int:
        return len(source.log)


class UndurableResume(Group):
    """RESUME counts records that the sink may still lose (replication.md §24.5)."""

    def resume_of(self, sink: Instance, source: Instance) -> tuple[int, dict[str, int]]:
        durable, sink.durable = sink.durable, len(sink.log)
        try:
            return super().resume_of(sink, source)
        finally:
            sink.durable = durable


class UndurableAcknowledgements(Group):
    """The sink acknowledges what it has processed, durable or not (replication.md §24.6)."""

    def acknowledge(self, link: Link) -> None:
        flow = self.flows.get(link)
        if flow is not None and flow.processed_txid:
            flow.acks.append((flow.processed_txid, frozenset()))


class NoExceptions(Group):
    """The sink acknowledges only a prefix: nothing after a record that waits for another instance (replication.md
    §24.7).
    """

    def acknowledge(self, link: Link) -> None:
        super().acknowledge(link)
        flow = self.flows.get(link)
        if flow is not None and flow.acks and flow.acks[-1][1]:
            flow.acks[-1] = (min(flow.acks[-1][1]) - 1, frozenset())


class SameEpochAfterWipe(Group):
    """A wiped instance goes on under its old epoch (replication.md §24.2)."""

    def wipe(self, name: str) -> None:
        super().wipe(name)
        self.instances[name].epoch -= 1


class PathsByNameAlone(Group):
    """Rule 9.4 compares names alone, so a wiped instance is not filled again (25.26)."""

    def __init__(self, instances: list[Instance]) -> None:
        super().__init__(_PathsByName(one) for one in instances)


class _PathsByName(Instance):
    def __init__(self, other: Instance) -> None:
        super().__init__(other.name, other.group, other.destinations.values())

    def eligible(self, record: Record, destination: Any, peer: tuple[str, int]) -> bool:
        return super().eligible(record, destination, peer) and all(hop.name != peer[0] for hop in record.path)


class ResumeAcknowledges(Group):
    """RESUME counts as an acknowledgement of all records up to its transaction id."""

    def _resume(self, source: Instance, destination: Any, sink: Instance) -> Flow:
        flow = super()._resume(source, destination, sink)
        destination.pending = {t: n for t, n in destination.pending.items() if n >= flow.next}
        return flow


class FirstArrivalsWaitForNobody(Group):
    """A sink acknowledges first arrivals before its own sync destinations have them (replication.md §24.7)."""

    def exceptions(self, source: Instance, sink: Instance) -> frozenset[int]:
        return frozenset()


class DuplicatesAreLogged(Group):
    """A sink tells repeats of a link, and no duplicates of other ways (replication.md §10)."""

    def take(self, link: Link, most: int) -> None:
        flow = self.flows.get(link)
        if flow is not None:
            sink = self.instances[flow.sink]
            for _, record in list(flow.data)[:most]:
                sink.highest.pop(record.publisher, None)
        super().take(link, most)


class LostOnTheWay(Group):
    """A flow that begins again goes on where the source stopped to send."""

    def __init__(self, instances: list[Instance]) -> None:
        super().__init__(instances)
        self.sent: dict[Link, int] = {}

    def send(self, link: Link, most: int) -> None:
        super().send(link, most)
        if link in self.flows:
            self.sent[link] = self.flows[link].next

    def connect(self, link: Link) -> None:
        if link not in self.flows:
            super().connect(link)
            if link in self.flows:
                self.flows[link].next = max(self.flows[link].next, self.sent.get(link, 0))


class PathsAreLost(Group):
    """A sink stores records as if they had been published there (replication.md §24.6)."""

    def take(self, link: Link, most: int) -> None:
        super().take(link, most)
        flow = self.flows.get(link)
        if flow is not None:
            sink = self.instances[flow.sink]
            sink.log[:] = [dataclasses.replace(record, path=()) for record in sink.log]


BROKEN: tuple[type[Group], ...] = (
    RecordsLeaveUndurable,
    UndurableResume,
    UndurableAcknowledgements,
    NoExceptions,
    SameEpochAfterWipe,
    PathsByNameAlone,
    ResumeAcknowledges,
    FirstArrivalsWaitForNobody,
    DuplicatesAreLogged,
    LostOnTheWay,
)
BROKEN_WITH_QUEUES: tuple[type[Group], ...] = (RecordsLeaveUndurable, PathsAreLost)
