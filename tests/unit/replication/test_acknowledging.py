"""When a sink sends its acknowledgements (replication.md §24.6), and what it believes of the source."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps._core.replication.stream import TxidSet
from amps.server.replication import frames
from amps.server.replication.frames import Content, Frame, ProtocolError
from amps.server.replication.hello import Flow, Identity
from amps.server.replication.incoming import Incoming

EARLY_S = 0.03
INTERVAL_MS = 50


class _EarlyLoop(asyncio.SelectorEventLoop):
    """Its timers fire a moment before the time that was asked for."""

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when - EARLY_S, callback, *arguments, context=context)


class _Tracker:
    """Everything up to `through` is fully persisted."""

    through = 1

    def reach(self, txid: int, written: int) -> None:
        pass

    def scan(self, durable: int, bytes_max: int) -> bool:
        return True

    def acknowledged(self) -> TxidSet:
        return TxidSet(self.through)


def test_a_timer_that_is_early_delays_no_acknowledgement() -> None:
    """Timers have the resolution of the loop: they may fire while its time is before the one that was asked for."""
    with asyncio.Runner(loop_factory=_EarlyLoop) as runner:
        runner.run(_acknowledge_three_times())


async def _acknowledge_three_times() -> None:
    sent: list[bytes] = []
    link = SimpleNamespace()
    channel = SimpleNamespace(link=link, stream=0)
    flow = Flow("A", "B!A!sync!amps-replication", True, INTERVAL_MS)
    incoming = Incoming(
        cast(Any, SimpleNamespace()), cast(Any, channel), Identity("B", "G", "u", "e", "r"), flow, cast(Any, None)
    )
    arrived = asyncio.Event()

    def wake() -> None:
        if frames := list(incoming._produce()):
            sent.extend(frames)
            arrived.set()

    link.wake = wake
    tracker = _Tracker()
    incoming.began = True
    incoming._tracker = cast(Any, tracker)
    incoming._sink = cast(Any, SimpleNamespace(consumed=lambda consumed: consumed, taken_bytes=0))
    for _ in range(3):
        arrived.clear()
        tracker.through += 1
        incoming.step(0, 0, 0)
        await asyncio.wait_for(arrived.wait(), 5)
    assert len(sent) == 3


@pytest.mark.parametrize("value", [-1, "x", 1.5, True, 1 << 41])
def test_a_hostile_statement_about_a_log_is_a_violation(value: object) -> None:
    """25.94: the age is told to the core in ns, as a word of 64 bits."""
    told: list[object] = []
    around = SimpleNamespace(
        core=SimpleNamespace(tell_complete=lambda session, *statement: told.append(statement)),
        partners=lambda: ["B"],
    )
    flow = Flow("A", "B!A!sync!amps-replication", True, INTERVAL_MS)
    peer = Identity("B", "G", "u", "e", "r")
    incoming = Incoming(cast(Any, around), cast(Any, None), peer, flow, cast(Any, None))
    incoming._session = cast(Any, object())
    incoming._take_mode(_mode(1 << 40))
    assert told == [("B", (1 << 40) / 1000, ["B"])]
    with pytest.raises(ProtocolError):
        incoming._take_mode(_mode(value))
    incoming._take_mode(Content(Frame(frames.MODE, 0, b'{"mode": "sync"}')))
    assert len(told) == 1


def _mode(complete_ms: object) -> Content:
    return Content(Frame(frames.MODE, 0, json.dumps({"mode": "sync", "complete_ms": complete_ms}).encode()))
