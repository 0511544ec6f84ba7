"""When a sink sends its acknowledgements (replication.md §24.6), and what it believes of the source."""

import asyncio
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps._core.replication.stream import TxidSet
from amps.server.replication import frames, hello
from amps.server.replication.completeness import Questions
from amps.server.replication.frames import Frame, ProtocolError
from amps.server.replication.hello import Flow, Identity, Refused
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


def test_an_answer_about_a_log_counts_only_behind_all_that_was_sent_before() -> None:
    """25.94: what could not be taken whole is missing here, whatever the source says behind it."""
    asyncio.run(_hear_answers())


async def _hear_answers() -> None:
    told: list[Any] = []
    sent: list[int] = []
    ends: list[Refused] = []
    room = True

    def take(kind: int, payload: bytes) -> bool:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return True

    around = SimpleNamespace(
        core=SimpleNamespace(
            tell_complete=lambda session, *statement: told.append(statement),
            refuses=False,
            link=SimpleNamespace(publish_pushed=lambda: None),
        ),
        partners=lambda: ["B"],
    )
    channel = SimpleNamespace(stream=0, send=lambda kind, payload=b"": sent.append(kind), end_flow=ends.append)
    flow = Flow("A", "B!A!sync!amps-replication", True, INTERVAL_MS)
    peer = Identity("B", "G", "u", "e", "r")
    incoming = Incoming(cast(Any, around), cast(Any, channel), peer, flow, cast(Any, None))
    incoming._session = cast(Any, object())
    incoming._sink = cast(Any, SimpleNamespace(take=take, take_rejections=list, taken_bytes=0))
    answer, data = Frame(frames.COMPLETE, 0, b""), Frame(frames.DATA, 0, b"")
    with pytest.raises(ProtocolError):
        await incoming._take(answer)
    incoming.look()
    incoming.look()
    assert sent == [frames.COMPLETE]
    await incoming._take(data)
    await incoming._take(answer)
    ((name, age_s, partners),) = told
    assert (name, partners) == ("B", ["B"])
    assert age_s >= 0
    incoming._questions = Questions()
    incoming.look()
    room = False
    await incoming._take(data)
    await incoming._take(data)
    await incoming._take(answer)
    assert len(told) == 1
    assert [end.code for end in ends] == [hello.STORAGE]
