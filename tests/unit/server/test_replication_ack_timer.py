"""When a sink acknowledges (replication.md §7, `AckConflationInterval`): at once, then at most once per interval."""

import asyncio
import math
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from amps._core.replication.stream import TxidSet
from amps.server.replication import frames
from amps.server.replication.incoming import Incoming
from tests.support.memory_link import received


class Loop:
    """A loop whose time the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, call: Callable[..., None], *arguments: object) -> object:
        self.timers.append((when_s, partial(call, *arguments)))
        return object()


class Sink:
    """The end of a flow without a link: what it would send, and how often it asked to send."""

    taken_bytes = 0

    def __init__(self, interval_ms: int) -> None:
        self.woken = 0
        link = SimpleNamespace(wake=self._wake)
        channel: Any = SimpleNamespace(stream=0, link=link)
        flow: Any = SimpleNamespace(ack_interval_ms=interval_ms, client_name="A!B!sync!amps-replication")
        nothing: Any = SimpleNamespace()
        self.incoming = Incoming(nothing, channel, nothing, flow, nothing)
        self.incoming.began = True
        own: Any = self
        self.incoming._sink = self.incoming._tracker = own
        self.txid = 0

    def _wake(self) -> None:
        self.woken += 1

    def consumed(self, consumed: int) -> int:
        return consumed

    def reach(self, txid: int, written: int) -> None:
        pass

    def scan(self, durable: int, bytes_max: int) -> bool:
        return True

    def acknowledged(self) -> TxidSet:
        return TxidSet.from_payload(struct.pack("<QII", self.txid, 0, 0))

    def persisted(self, txid: int) -> None:
        self.txid = txid
        self.incoming.step(0, 0, 0)

    def sent(self) -> list[int]:
        sent = received(frames.Parser(), b"".join(self.incoming._produce()))
        return [TxidSet.from_payload(frame.payload).through for frame in sent]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


def test_an_acknowledgement_is_sent_although_its_timer_fires_a_moment_early(loop: Loop) -> None:
    """Otherwise it would wait for the next event, such as the PING of a link that is silent for 5 s."""
    sink = Sink(50)
    sink.persisted(1)
    when_s, fire = loop.timers.pop()
    assert when_s == loop.now_s
    fire()
    assert sink.sent() == [1]
    sink.persisted(2)
    when_s, fire = loop.timers.pop()
    assert when_s == pytest.approx(loop.now_s + 0.05)
    assert sink.sent() == []
    loop.now_s = math.nextafter(when_s, 0.0)
    woken = sink.woken
    fire()
    assert sink.woken == woken + 1
    assert sink.sent() == [2]


def test_a_timer_that_fires_behind_its_acknowledgement_does_not_shorten_the_interval(loop: Loop) -> None:
    sink = Sink(50)
    sink.persisted(1)
    assert sink.sent() == [1], "another reason to write came first"
    loop.timers.pop()[1]()
    sink.persisted(2)
    assert sink.sent() == []
    when_s, fire = loop.timers.pop()
    assert when_s == pytest.approx(loop.now_s + 0.05)
    assert not loop.timers
    loop.now_s = when_s
    fire()
    assert sink.sent() == [2]


def test_there_is_one_acknowledgement_per_interval(loop: Loop) -> None:
    sink = Sink(50)
    sink.persisted(1)
    loop.timers.pop()[1]()
    assert sink.sent() == [1]
    for txid in (2, 3, 4):
        sink.persisted(txid)
        assert sink.sent() == []
    assert len(loop.timers) == 1
    when_s, fire = loop.timers.pop()
    loop.now_s = when_s
    fire()
    assert sink.sent() == [4]
    assert sink.sent() == []


def test_without_an_interval_each_is_sent_at_once(loop: Loop) -> None:
    sink = Sink(0)
    for txid in (1, 2):
        sink.persisted(txid)
        assert sink.sent() == [txid]
    assert not loop.timers
