"""Rings return their records in order, for all sizes: pads, wrap-around, full rings, two processes."""

import os
import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.shm.memory import ControlPage, InstanceView, Ring
from amps._core.wire.framing import encode_frame
from amps._core.wire.ingress import NEED_MORE, RING_FULL, SPILL, Ingress
from amps._core.wire.topics import TopicTable
from tests.support.records import HEADER_BYTES, RecordParts, padded

CAPACITY = 4096


def record(number: int, size: int) -> bytes:
    return RecordParts(payload=bytes([number & 0xFF]) * size, txid=number).to_bytes()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(0, CAPACITY // 2 - HEADER_BYTES), st.none()), max_size=80))
def test_ring_returns_pushed_records(operations: list[int | None]) -> None:
    """Compared with a queue. A step pushes a record of that many payload bytes, or (None) takes all records."""
    ring = Ring(CAPACITY)
    inside: deque[bytes] = deque()
    for number, size in enumerate(operations):
        if size is None:
            assert ring.pop_all() == list(inside)
            inside.clear()
            assert ring.head == ring.tail
            continue
        pushed = record(number, size)
        offset = ring.pushed % CAPACITY
        need = len(padded(pushed))
        pad = CAPACITY - offset if offset + need > CAPACITY else 0
        fits = ring.pushed + pad + need - ring.tail <= CAPACITY
        assert ring.push(pushed) is fits
        if fits:
            inside.append(pushed)
    assert ring.pop_all() == list(inside)


@pytest.mark.parametrize("size", range(0, 400, 4))
def test_ring_every_remainder_before_the_wrap(size: int) -> None:
    """The room left at the end takes every size: none, less than a header, a header and more."""
    ring = Ring(CAPACITY)
    for number in range(200):
        pushed = record(number, size)
        while not ring.push(pushed):
            for taken in ring.pop_all():
                assert taken[HEADER_BYTES:] == bytes([taken[16]]) * size


def test_ring_refuses_malformed_records() -> None:
    ring = Ring(CAPACITY)
    with pytest.raises(ValueError, match="limit"):
        ring.push(record(1, CAPACITY // 2))
    with pytest.raises(ValueError, match="length field"):
        ring.push(record(1, 10)[:-1])
    with pytest.raises(ValueError, match="length field"):
        ring.push(b"short")
    assert ring.head == 0


@pytest.mark.parametrize("capacity", [0, 1024, 5000, 4097])
def test_ring_capacity_must_be_a_power_of_two(capacity: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Ring(capacity)


def test_ring_between_two_processes() -> None:
    """A child pushes as fast as it can. Order and content survive tens of thousands of wraps of a small ring."""
    ring = Ring(CAPACITY)
    total = 30_000
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sizes = random.Random(3)
            for number in range(total):
                pushed = record(number, sizes.randrange(600))
                while not ring.push(pushed):
                    os.sched_yield()
            code = 0
        finally:
            os._exit(code)
    sizes = random.Random(3)
    number = 0
    while number < total:
        for taken in ring.pop_all():
            assert taken == record(number, sizes.randrange(600))
            number += 1
        os.sched_yield()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ring.pop_all() == []


# A producer that dies


def ready_ingress(ring: Ring) -> Ingress:
    table = TopicTable(lambda topic, message_type: (True, False, None, None))
    table.entry("t", "json").mark_declared()
    ingress = Ingress(0, 1, ring, ControlPage(), table, 1 << 20)
    ingress.log_on("json", 7, 8, b"user", True, True, False, True)
    return ingress


def publish(ingress: Ingress, body: bytes) -> int:
    data = encode_frame({"cmd": "publish", "topic": "t", "seq": 1}, body)
    buffer = ingress.receive_buffer()
    buffer[: len(data)] = data
    ingress.received(len(data))
    result = int(ingress.parse())
    ingress.keep()
    return result


def test_ring_unpublished_records_are_not_seen_and_die_with_their_producer() -> None:
    ring = Ring(CAPACITY)
    ingress = ready_ingress(ring)
    assert publish(ingress, b"one") == NEED_MORE
    assert ring.head == 0
    assert ring.pop_all() == []
    assert ring.publish_pushed()
    assert not ring.publish_pushed()
    assert publish(ingress, b"two") == NEED_MORE
    assert ring.pushed > ring.head
    ring.attach_producer()
    assert ring.pushed == ring.head
    assert publish(ready_ingress(ring), b"three") == NEED_MORE
    ring.publish_pushed()
    assert [taken[HEADER_BYTES:].removeprefix(b"user") for taken in ring.pop_all()] == [b"one", b"three"]


def test_ring_a_full_ring_consumes_nothing() -> None:
    """The frame stays where it is and enters the ring when there is room."""
    ring = Ring(CAPACITY)
    ingress = ready_ingress(ring)
    count = 0
    while publish(ingress, b"x" * 300) == NEED_MORE:
        count += 1
    ring.publish_pushed()
    assert ingress.parse() == RING_FULL
    assert len(ring.pop_all()) == count
    assert ingress.parse() == NEED_MORE
    ring.publish_pushed()
    assert len(ring.pop_all()) == 1


def test_ring_large_records_use_spill_files() -> None:
    """A record of more than an eighth of the ring would delay the other connections."""
    ring = Ring(CAPACITY)
    ingress = ready_ingress(ring)
    assert publish(ingress, b"x" * (CAPACITY // 8)) == SPILL
    assert ring.pushed == 0


def test_view_consumed_records_count_only_with_the_answers_taken() -> None:
    """Between release and answers a transport must not take its records for accepted."""
    control, ring, egress = ControlPage(), Ring(CAPACITY), Ring(CAPACITY)
    view = InstanceView(control, ring, egress, 0)
    ring.push(record(1, 10))
    egress.push(record(2, 10))
    ring.pop_all()
    control.set_watermarks(500, 0, 2, 0, 0)
    control.durable = 500
    view.read()
    assert view.has_answers()
    assert (view.consumed, view.journal_written, view.durable) == (0, 500, 500)
    egress.pop_all()
    view.read()
    assert view.consumed == ring.tail > 0


def test_view_no_change_is_missed_when_falling_asleep() -> None:
    """Any progress since the last reading keeps the transport awake."""
    control, ring, egress = ControlPage(), Ring(CAPACITY), Ring(CAPACITY)
    view = InstanceView(control, ring, egress, 0)

    def durable() -> None:
        control.durable = 8

    changes: list[Callable[[], object]] = [
        lambda: control.set_watermarks(8, 0, 2, 0, 0),
        durable,
        lambda: egress.push(record(1, 1)),
        lambda: (ring.push(record(1, 1)), ring.pop_all()),
    ]
    for change in changes:
        view.read()
        assert view.fall_asleep()
        assert control.transport_sleeping(0)
        view.wake()
        assert not control.transport_sleeping(0)
        change()
        assert not view.fall_asleep()
        assert not control.transport_sleeping(0)
        egress.pop_all()
