"""Links (replication.md §24.1, §24.6, decision 25.30): states of flows, silence, and how a link ends."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from amps.server.replication import frames, hello
from amps.server.replication.frames import Frame, ProtocolError
from amps.server.replication.hello import Refused
from amps.server.replication.link import CONTROL_FRAMES_MAX, DEAD_AFTER_S, PING_AFTER_S
from tests.support.memory_link import Ends


class _Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes only when nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0

    def time(self) -> float:
        return getattr(self, "_now", 0.0)

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def _run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=_Clock) as runner:
        runner.run(test())


def test_a_channel_gets_the_frames_of_its_stream_in_order() -> None:
    async def test() -> None:
        ends = Ends().start()
        for stream in (0, 1):
            ends.dialling.channels[stream].send(frames.RESUME, bytes([stream]))
            ends.dialling.channels[stream].send(frames.RESUME_VECTOR, b"v")
        for stream in (0, 1):
            channel = ends.accepting.channels[stream]
            assert await channel.expect(frames.RESUME) == Frame(frames.RESUME, stream, bytes([stream]))
            assert (await channel.expect(frames.RESUME_VECTOR)).payload == b"v"
        assert ends.dialling.source_channel is ends.dialling.channels[0]
        assert ends.accepting.source_channel is ends.accepting.channels[1]

    _run(test)


def test_a_frame_that_is_not_due_is_a_violation() -> None:
    async def test() -> None:
        ends = Ends().start()
        ends.dialling.channels[0].send(frames.DATA, b"")
        with pytest.raises(ProtocolError, match="DATA where HELLO"):
            await ends.accepting.channels[0].expect(frames.HELLO)

    _run(test)


@pytest.mark.parametrize(
    "data",
    [
        frames.encode(0x77),
        frames.encode(frames.LINKSTATE, b"{}"),
        frames.encode(frames.CONFIG, b"{}"),
        frames.encode(frames.BYE, b"[]"),
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
    ],
)
def test_garbage_of_a_stranger_ends_the_link_with_a_word(data: bytes) -> None:
    async def test() -> None:
        ends = Ends().start()
        ends.there.write(data)
        await ends.settle(lambda: ends.accepting.end_reason is not None)
        assert ends.accepting.end_reason is not None
        assert ends.accepting.end_reason.code == hello.PROTOCOL
        await ends.settle(lambda: ends.dialling.end_reason is not None)
        reason = ends.dialling.end_reason
        assert reason is not None
        assert reason.by_peer
        assert reason.code == hello.PROTOCOL
        assert not ends.failures

    _run(test)


def test_a_stream_without_a_flow_takes_no_frames_and_one_whose_flow_has_ended_ignores_them() -> None:
    async def test() -> None:
        ends = Ends()
        for link in (ends.dialling, ends.accepting):
            link.start()
        channel = ends.accepting.channels[0]
        channel.begin()
        channel.finish(None)
        ends.there.write(frames.encode(frames.ACK))
        await ends.settle()
        assert ends.accepting.end_reason is None
        ends.there.write(frames.encode(frames.ACK, b"", 1))
        await ends.settle(lambda: ends.accepting.end_reason is not None)
        assert ends.accepting.end_reason is not None
        assert ends.accepting.end_reason.code == hello.PROTOCOL

    _run(test)


def test_bye_of_a_flow_ends_only_that_flow() -> None:
    async def test() -> None:
        ends = Ends().start()
        ends.dialling.channels[0].finish(Refused(hello.VALIDATION, "no"))
        with pytest.raises(Refused) as refused:
            await ends.accepting.channels[0].expect(frames.RESUME)
        assert refused.value.code == hello.VALIDATION
        assert refused.value.by_peer
        assert ends.accepting.end_reason is None
        ends.dialling.channels[1].send(frames.RESUME)
        assert (await ends.accepting.channels[1].expect(frames.RESUME)).type == frames.RESUME

    _run(test)


def test_the_end_of_a_link_reaches_all_who_wait() -> None:
    async def test() -> None:
        ends = Ends().start()
        waiting = [asyncio.ensure_future(channel.wait_end()) for channel in ends.accepting.channels]
        await asyncio.sleep(0)
        ends.dialling.end(Refused(hello.STOPPING, "stop"))
        for end in await asyncio.gather(*waiting):
            assert end.code == hello.STOPPING
            assert end.by_peer
        assert ends.ended == [ends.dialling, ends.accepting]
        with pytest.raises(Refused):
            await ends.accepting.channels[0].expect(frames.HELLO)

    _run(test)


def test_a_closed_connection_ends_the_link() -> None:
    async def test() -> None:
        ends = Ends().start()
        ends.there.close()
        await ends.settle(lambda: ends.accepting.end_reason is not None)
        assert ends.accepting.end_reason is not None
        assert ends.accepting.end_reason.code == hello.LOST

    _run(test)


def test_an_idle_link_pings_and_lives() -> None:
    """Decision 25.30."""

    async def test() -> None:
        ends = Ends().start()
        await asyncio.sleep(10 * DEAD_AFTER_S)
        assert ends.dialling.end_reason is None
        assert ends.accepting.end_reason is None

    _run(test)


def test_a_link_pings_although_it_is_woken_all_the_time() -> None:
    """Decision 25.30: the core works, and nothing of that is for the other side."""

    async def test() -> None:
        ends = Ends().start()
        for link in (ends.dialling, ends.accepting):
            link.channels[0].produce = list
        for _ in range(100):
            await asyncio.sleep(1)
            ends.dialling.wake()
            ends.accepting.wake()
        assert ends.dialling.end_reason is None
        assert ends.accepting.end_reason is None

    _run(test)


def test_a_silent_peer_is_dead_after_fifteen_seconds() -> None:
    """Decision 25.30: a half-open connection."""

    async def test() -> None:
        ends = Ends()
        ends.dialling.start()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while ends.dialling.end_reason is None:
            await asyncio.sleep(0.5)
        assert DEAD_AFTER_S <= loop.time() - began_s <= DEAD_AFTER_S + 2
        assert ends.dialling.end_reason.code == hello.LOST
        assert frames.encode(frames.PING) in bytes(ends.there.data)

    _run(test)


def test_the_silence_of_this_side_is_not_that_of_the_other() -> None:
    async def test() -> None:
        ends = Ends().start()
        released = asyncio.Event()

        async def slow(frame: Frame) -> None:
            await released.wait()

        channel = ends.accepting.channels[0]
        channel.handler = slow
        ends.dialling.channels[0].send(frames.DATA, b"x")
        # The accepting side works on a frame, and reads no PONG meanwhile.
        await asyncio.sleep(2 * DEAD_AFTER_S)
        assert ends.accepting.end_reason is None
        released.set()
        await asyncio.sleep(PING_AFTER_S)
        assert ends.accepting.end_reason is None

    _run(test)


def test_data_is_produced_only_as_the_connection_takes_it() -> None:
    async def test() -> None:
        ends = Ends().start()
        produced = 0

        def produce() -> list[bytes]:
            nonlocal produced
            produced += 1
            if produced < 9:
                ends.dialling.wake()  # there is more
            return [frames.encode(frames.DATA, b"x")]

        ends.there.blocked = True
        ends.dialling.channels[0].produce = produce
        ends.dialling.wake()
        await ends.settle()
        assert produced == 1
        ends.dialling.send(frames.encode(frames.PING))
        await ends.settle()
        assert produced == 1
        ends.there.unblock()
        await ends.settle(lambda: produced >= 9)
        await ends.settle()
        assert produced == 9

    _run(test)


def test_a_peer_that_asks_and_does_not_read_is_given_up() -> None:
    async def test() -> None:
        ends = Ends()
        ends.accepting.start()
        ends.back.blocked = True
        ends.there.write(frames.encode(frames.PING) * (CONTROL_FRAMES_MAX + 10))
        await ends.settle(lambda: ends.accepting.end_reason is not None)
        assert ends.accepting.end_reason is not None
        assert "does not read" in ends.accepting.end_reason.reason

    _run(test)


def test_a_failure_of_a_handler_ends_the_link_and_is_reported() -> None:
    async def test() -> None:
        ends = Ends().start()

        async def broken(frame: Frame) -> None:
            raise KeyError("broken")

        ends.accepting.channels[0].handler = broken
        ends.dialling.channels[0].send(frames.DATA)
        await ends.settle(lambda: ends.accepting.end_reason is not None)
        assert ends.accepting.end_reason is not None
        assert "KeyError" in ends.failures[0]

    _run(test)


def test_link_frames_pass_after_the_logon() -> None:
    async def test() -> None:
        ends = Ends().start()
        ends.accepting.trust()
        ends.dialling.send(frames.encode_json(frames.LINKSTATE, {"name": "A"}))
        await ends.settle(lambda: bool(ends.received))
        link, frame = ends.received[0]
        assert link is ends.accepting
        assert json.loads(bytes(frame.payload)) == {"name": "A"}

    _run(test)


def test_skipped_frames_are_those_of_an_earlier_flow() -> None:
    async def test() -> None:
        ends = Ends().start()
        for kind in (frames.ACK, frames.CREDIT, frames.HELLO_ACK):
            ends.dialling.channels[1].send(kind, b"{}")
        frame = await ends.accepting.channels[1].expect(frames.HELLO_ACK, skip_others=True)
        assert frame.type == frames.HELLO_ACK

    _run(test)
