"""Connections whose input waits for room in the ring: which ones continue, when, and in which order."""

from types import SimpleNamespace
from typing import Any

import pytest

from amps._core.shm.memory import ControlPage, Ring
from amps._core.wire import ingress as inbound
from amps._core.wire.framing import encode_frame
from amps._core.wire.ingress import PUBLISH_BACKLOG_BYTES, Ingress
from amps._core.wire.topics import TopicTable
from amps.server.shared.core_link import CoreLink
from tests.support.records import RecordParts, padded

RING_BYTES = 8 << 20


class Link(CoreLink):
    """A link to a ring that only the test reads."""

    def __init__(self) -> None:
        self.scheduled = 0
        self.shared = Ring(RING_BYTES)
        runtime = SimpleNamespace(
            ingress=[self.shared],
            egress=[Ring(4096)],
            control=ControlPage(),
            core_wake_up=SimpleNamespace(send=lambda: None),
        )
        super().__init__(runtime, 0, True, self._count)  # type: ignore[arg-type]

    def _count(self) -> None:
        self.scheduled += 1

    def fill(self, size_bytes: int) -> None:
        record = padded(RecordParts(payload=b"x" * 4000).to_bytes())
        for _ in range(size_bytes // len(record) + 1):
            assert self.ring.push(record)


class Waiting:
    """A connection waiting to be released. `refill`: when released, it fills the ring again and waits."""

    def __init__(self, link: Link, name: str, told: list[str], refill: bool = False) -> None:
        self.acks = SimpleNamespace(crowded=False)
        self.link, self.name, self.told, self.refill = link, name, told, refill

    def release(self) -> None:
        self.told.append(self.name)
        if self.refill:
            self.link.fill(PUBLISH_BACKLOG_BYTES)
            self.link.release_when_room(self)  # type: ignore[arg-type]


def waiting(link: Link, names: str, told: list[str], refill: bool = False) -> list[Any]:
    connections = [Waiting(link, name, told, refill) for name in names]
    for connection in connections:
        link.release_when_room(connection)  # type: ignore[arg-type]
    return connections


def test_input_that_waits_for_room_continues_when_half_of_the_backlog_is_read() -> None:
    link, told = Link(), []  # type: ignore[var-annotated]
    link.fill(PUBLISH_BACKLOG_BYTES)
    waiting(link, "ab", told)
    link.push_waiting()
    assert not told
    # The core's reading of the ring brings the next turn, so no turn is scheduled here.
    assert link.scheduled == 0
    link.ring.pop_all()
    link.push_waiting()
    assert told == ["a", "b"]
    link.push_waiting()
    assert told == ["a", "b"]


def test_a_connection_that_fills_the_ring_is_last_the_next_time() -> None:
    link, told = Link(), []  # type: ignore[var-annotated]
    waiting(link, "abc", told, refill=True)
    for _ in range(4):
        link.push_waiting()
        link.ring.pop_all()
    assert told == ["a", "b", "c", "a"]


def test_a_connection_waiting_for_a_turn_does_not_wait_for_room() -> None:
    link, told = Link(), []  # type: ignore[var-annotated]
    link.fill(PUBLISH_BACKLOG_BYTES)
    waiting(link, "a", told)
    link.release_later(Waiting(link, "b", told))  # type: ignore[arg-type]
    assert link.scheduled == 1
    link.push_waiting()
    assert told == ["b"]


def test_a_connection_that_may_not_continue_keeps_its_place() -> None:
    link, told = Link(), []  # type: ignore[var-annotated]
    first, _ = waiting(link, "ab", told)
    first.acks.crowded = True
    link.push_waiting()
    first.acks.crowded = False
    waiting(link, "c", told)
    link.push_waiting()
    assert told == ["b", "a", "c"]


def test_a_connection_held_back_is_due_when_its_acknowledgements_are_sent() -> None:
    """They are sent after the connections had their turn, and no other event would bring another turn."""
    link, told = Link(), []  # type: ignore[var-annotated]
    assert not link.release_is_due
    (held,) = waiting(link, "a", told)
    held.acks.crowded = True
    link.push_waiting()
    assert not link.release_is_due
    held.acks.crowded = False
    assert link.release_is_due
    link.push_waiting()
    assert told == ["a"]
    assert not link.release_is_due
    waiting(link, "b", told)
    link.fill(PUBLISH_BACKLOG_BYTES)
    assert not link.release_is_due


def test_a_connection_that_ends_while_others_continue_is_forgotten() -> None:
    link, told = Link(), []  # type: ignore[var-annotated]
    first, second = waiting(link, "ab", told)
    first.release = lambda: link.forget(second)
    link.push_waiting()
    link.push_waiting()
    assert not told


@pytest.mark.parametrize("size", [10, 3000, 200_000])
def test_publishes_leave_most_of_the_ring_free(size: int) -> None:
    """Acknowledgements and control records find room, with few publishes before them."""
    ring = Ring(RING_BYTES)
    table = TopicTable(lambda topic, message_type: (True, False, None, None))
    table.entry("t", "json").mark_declared()
    ingress = Ingress(0, 1, ring, ControlPage(), table, 1 << 20)
    ingress.log_on("json", 7, 8, b"user", True, True, False, True)
    data = encode_frame({"cmd": "publish", "topic": "t"}, b"." * size)

    def publish() -> int:
        ingress.receive_buffer()[: len(data)] = data
        ingress.received(len(data))
        result = ingress.parse()
        ingress.discard(len(data))
        return result

    taken = 0
    while publish() == inbound.NEED_MORE:
        taken += 1
    assert PUBLISH_BACKLOG_BYTES <= ring.pushed < PUBLISH_BACKLOG_BYTES + size + 1000
    assert publish() == inbound.RING_FULL
    for _ in range(100):
        assert ring.push(padded(RecordParts(payload=b"x" * 4000).to_bytes()))
    ring.publish_pushed()
    assert len(ring.pop_all()) == taken + 100
    assert publish() == inbound.NEED_MORE
