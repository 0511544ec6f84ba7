"""The asyncio client against a scripted server: streams, handlers, acknowledgements (client.md §21, 26 to 32, 40)."""

import asyncio
import logging

import pytest

from amps.aio import AsyncClient
from amps.client import (
    DisconnectedException,
    Message,
    StreamException,
)
from tests.unit.client.aio import WAIT_S, bodies, logged_on, run, until
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import Frame


@run
async def test_streams_give_messages_in_order_by_all_ways_of_reading() -> None:
    async with logged_on() as (client, peer):
        stream = await client.subscribe("t")
        assert stream.sub_id is not None
        for body in bodies(0, 10):
            peer.publish(stream.sub_id, body)
        first = await stream.get(WAIT_S)
        assert first is not None
        assert (first.data, first.topic, first.sub_id) == (b"0", "t", stream.sub_id)
        await until(lambda: stream.depth == 9)
        assert [message.data for message in stream.drain()] == bodies(1, 10)
        peer.publish(stream.sub_id, b"10")
        assert (await anext(stream)).data == b"10"
        assert await stream.get(0) is None
        assert await stream.get(0.05) is None
        await stream.close()
        assert (await peer.expect("unsubscribe"))["sub_id"] == stream.sub_id
        with pytest.raises(EOFError):
            await stream.get()


@run
async def test_a_request_is_awaited_or_used_in_with_or_for() -> None:
    async with logged_on() as (client, peer):
        async with client.subscribe("t") as stream:
            peer.publish(stream.sub_id or "", b"with")
            assert (await anext(stream)).data == b"with"
        assert stream.closed
        await peer.expect("unsubscribe")

        def answer(frame: Frame) -> None:
            peer.acknowledge(frame)
            if frame["c"] == "subscribe":
                peer.publish(frame["sub_id"], b"for")

        peer.answer = answer
        async for message in client.subscribe("t"):
            assert message.data == b"for"
            break
        await peer.expect("unsubscribe", 2)
        assert await (await client.sow("t")).to_list() == []


@run
async def test_client_27_an_idle_stream() -> None:
    """client.md §21, 27"""
    async with logged_on() as (client, peer):
        stream = (await client.subscribe("t")).set_timeout(0.05)
        assert await anext(stream) is None
        assert await anext(stream) is None
        peer.publish(stream.sub_id or "", b"later")
        messages = [await anext(stream) for _ in range(1)]
        assert messages[0].data == b"later"


@run
async def test_client_28_a_full_stream_stops_reading_but_not_while_a_task_waits() -> None:
    """client.md §21, 28"""
    async with logged_on(max_depth=10) as (client, peer):
        stream = await client.subscribe("t")
        for body in bodies(0, 1000):
            peer.publish(stream.sub_id or "", body)
        await until(lambda: stream.depth == 10)
        await asyncio.sleep(0.05)
        assert stream.depth == 10
        assert await client.sow_count("t") == 7
        assert stream.depth == 1000
        assert [message.data for message in stream.drain()] == bodies(0, 1000)
        for body in bodies(1000, 2000):
            peer.publish(stream.sub_id or "", body)
        got = [(await anext(stream)).data for _ in range(1000)]
        assert got == bodies(1000, 2000)
        assert stream.depth == 0


@pytest.mark.parametrize("coroutine", [False, True])
@run
async def test_messages_behind_a_full_stream_keep_their_order(coroutine: bool) -> None:
    async with logged_on(max_depth=5) as (client, peer):
        seen: list[bytes] = []

        async def later(message: Message) -> None:
            await asyncio.sleep(0)
            seen.append(message.data)

        stream = await client.subscribe("t")
        sub_id = await client.subscribe("t", handler=later if coroutine else lambda m: seen.append(m.data))
        for body in bodies(0, 50):
            peer.publish(f"{stream.sub_id},{sub_id}", body)
        got = [(await anext(stream)).data for _ in range(50)]
        await until(lambda: len(seen) == 50)
        assert got == seen == bodies(0, 50)


@run
async def test_a_full_stream_drops_or_raises_if_wanted() -> None:
    async with logged_on() as (client, peer):
        dropping = await client.subscribe("t", max_depth=3, on_full="drop_oldest")
        raising = await client.subscribe("t", max_depth=3, on_full="raise")
        for body in bodies(0, 10):
            peer.publish(f"{dropping.sub_id},{raising.sub_id}", body)
        await until(lambda: dropping.dropped == 7 and raising.error is not None)
        assert [message.data for message in dropping.drain()] == bodies(7, 10)
        with pytest.raises(StreamException, match="buffer of 3 messages is full"):
            await raising.to_list()


@run
async def test_client_29_conflation_keeps_the_newest_of_each_key() -> None:
    """client.md §21, 29"""
    async with logged_on() as (client, peer):
        stream = await client.subscribe("t", conflate=True)
        for at, body in enumerate(bodies(0, 6)):
            peer.publish(stream.sub_id or "", body, k=str(at % 2))
        peer.publish(stream.sub_id or "", b"no key")
        await until(lambda: stream.depth == 3)
        assert [message.data for message in stream.drain()] == [b"4", b"5", b"no key"]


@run
async def test_client_30_a_lost_connection_ends_streams_after_their_messages() -> None:
    """client.md §21, 30"""
    async with logged_on() as (client, peer):
        stream = await client.subscribe("t")
        for body in bodies(0, 3):
            peer.publish(stream.sub_id or "", body)
        await until(lambda: stream.depth == 3)
        peer.kill()
        await until(lambda: not client.connected)
        assert [(await anext(stream)).data for _ in range(3)] == bodies(0, 3)
        with pytest.raises(DisconnectedException):
            await anext(stream)
        with pytest.raises(DisconnectedException):
            await client.publish("t", b"x")
        await client.open()
        await client.flush()


@run
async def test_client_26_handlers_may_await_calls_of_their_client() -> None:
    """client.md §21, 26"""
    async with logged_on() as (client, peer):
        counts: list[int] = []

        async def handler(message: Message) -> None:
            counts.append(await client.sow_count("t"))

        sub_id = await client.subscribe("t", handler=handler)
        peer.publish(sub_id, b"1")
        peer.publish(sub_id, b"2")
        await until(lambda: counts == [7, 7])


@run
async def test_coroutine_handlers_of_one_subscription_run_one_after_the_other() -> None:
    async with logged_on() as (client, peer):
        running = 0
        log: list[tuple[str, bytes, int]] = []

        async def handler(message: Message) -> None:
            nonlocal running
            running += 1
            await asyncio.sleep(0.01 if message.data == b"0" else 0)
            log.append((message.sub_id or "", message.data, running))
            running -= 1

        one = await client.subscribe("t", handler=handler)
        for body in bodies(0, 5):
            peer.publish(one, body)
        await until(lambda: len(log) == 5)
        assert log == [(one, body, 1) for body in bodies(0, 5)]


@run
async def test_client_25_a_handler_that_raises_does_not_end_its_subscription(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """client.md §21, 25"""
    async with logged_on() as (client, peer):
        errors: list[BaseException] = []
        seen: list[bytes] = []

        async def failing(message: Message) -> None:
            seen.append(message.data)
            raise ValueError(message.data)

        sub_id = await client.subscribe("t", handler=failing)
        with caplog.at_level(logging.WARNING):
            peer.publish(sub_id, b"0")
            await until(lambda: len(seen) == 1 and caplog.records)
        client.set_exception_listener(errors.append)
        peer.publish(sub_id, b"1")
        await until(lambda: errors)
        assert seen == bodies(0, 2)
        assert client.stats.handler_errors == 2


@pytest.mark.parametrize("concurrency", [1, 3])
@run
async def test_client_40_consume_acknowledges_after_the_handler_and_returns_what_it_failed_on(
    concurrency: int,
) -> None:
    """client.md §21, 40"""
    async with logged_on() as (client, peer):
        release = asyncio.Event()
        running = 0

        async def handler(message: Message) -> None:
            nonlocal running
            running += 1
            await release.wait()
            if message.data == b"1":
                raise ValueError("not this one")

        sub_id = await client.consume("q", handler, max_backlog=5, concurrency=concurrency)
        subscribed = await peer.expect("subscribe")
        assert subscribed["o"] == "max_backlog=5"
        for at, body in enumerate(bodies(0, 3)):
            peer.publish(sub_id, body, bm=f"1|{at}|", lp="0")
        await until(lambda: running == min(3, concurrency))
        await asyncio.sleep(0.02)
        assert running == min(3, concurrency)
        assert not [frame for frame in peer.frames if frame["c"] == "sow_delete"]
        release.set()
        await peer.expect("sow_delete", 3)
        acks = {frame["bm"]: frame.get("o") for frame in peer.frames if frame["c"] == "sow_delete"}
        assert acks == {"1|0|": None, "1|1|": "cancel", "1|2|": None}


@run
async def test_a_replaced_consumption_has_the_new_handler() -> None:
    """Also a plain function in place of a coroutine function, or of tasks"""
    async with logged_on() as (client, peer):
        got: list[tuple[str, bytes]] = []

        async def old(message: Message) -> None:
            got.append(("old", message.data))

        await client.consume("q", old, sub_id="s", concurrency=2)
        peer.publish("s", b"1", bm="1|1|", lp="0")
        await peer.expect("sow_delete")
        await client.consume(
            "q", lambda message: got.append(("new", message.data)), sub_id="s", options="replace"
        )
        peer.publish("s", b"2", bm="1|2|", lp="0")
        await peer.expect("sow_delete", 2)
        assert got == [("old", b"1"), ("new", b"2")]


@run
async def test_a_handler_that_is_cancelled_by_close_returns_its_message() -> None:
    async with AsyncPeer() as peer:
        client = await AsyncClient("me", peer.uri).open()
        started = asyncio.Event()

        async def handler(message: Message) -> None:
            started.set()
            await asyncio.sleep(1000)

        sub_id = await client.consume("q", handler)
        peer.publish(sub_id, b"x", bm="1|1|", lp="0")
        await started.wait()
        await client.close(timeout=0.05)
        frame = await peer.expect("sow_delete")
        assert (frame["bm"], frame["o"]) == ("1|1|", "cancel")


@run
async def test_close_lets_a_running_handler_finish() -> None:
    async with AsyncPeer() as peer:
        client = await AsyncClient("me", peer.uri).open()
        started = asyncio.Event()

        async def handler(message: Message) -> None:
            started.set()
            await asyncio.sleep(0.05)

        sub_id = await client.consume("q", handler)
        peer.publish(sub_id, b"x", bm="1|1|", lp="0")
        peer.publish(sub_id, b"y", bm="1|2|", lp="0")
        await started.wait()
        await client.close()
        await until(lambda: not peer.connected)
        acks = [(frame["bm"], frame.get("o")) for frame in peer.frames if frame["c"] == "sow_delete"]
        assert acks == [("1|1|", None)]


@run
async def test_a_sync_auto_ack_stream_acknowledges_when_the_next_message_is_wanted() -> None:
    async with logged_on(auto_ack=True) as (client, peer):
        stream = await client.subscribe("q", max_backlog=2)
        for at, body in enumerate(bodies(0, 2)):
            peer.publish(stream.sub_id or "", body, bm=f"1|{at}|", lp="0")
        await anext(stream)
        await client.flush()
        assert not [frame for frame in peer.frames if frame["c"] == "sow_delete"]
        await anext(stream)
        assert (await peer.expect("sow_delete"))["bm"] == "1|0|"
        await stream.close()
        await client.flush()
        assert len([frame for frame in peer.frames if frame["c"] == "sow_delete"]) == 1


@run
async def test_batches_of_acknowledgements_go_by_count_and_time() -> None:
    async with logged_on(ack_batch_size=3, ack_timeout=0.05) as (client, peer):
        stream = await client.subscribe("q", max_backlog=10)
        for at, body in enumerate(bodies(0, 4)):
            peer.publish(stream.sub_id or "", body, bm=f"1|{at}|", lp="0")
        for _ in range(4):
            (await anext(stream)).ack()
        assert (await peer.expect("sow_delete"))["bm"] == "1|0|,1|1|,1|2|"
        assert (await peer.expect("sow_delete", 2))["bm"] == "1|3|"


@run
async def test_a_replaced_subscription_keeps_its_stream_and_handler() -> None:
    async with logged_on() as (client, peer):
        stream = await client.subscribe("t", sub_id="s")
        assert await client.subscribe("t", "/a = 1", sub_id="s", replace=True) is stream
        seen: list[bytes] = []
        await client.subscribe("t", sub_id="h", handler=lambda message: seen.append(message.data))
        await client.subscribe(
            "t", "/a = 2", sub_id="h", replace=True, handler=lambda message: seen.append(b"new")
        )
        peer.publish("h", b"x")
        await until(lambda: seen == [b"new"])


@run
async def test_a_message_that_woke_a_cancelled_consumer_goes_to_the_next() -> None:
    async with logged_on() as (client, _peer):
        stream = await client.subscribe("t")
        first = asyncio.create_task(stream.get())
        second = asyncio.create_task(stream.get())
        await asyncio.sleep(0)
        stream._queue.put([Message(b'{"c":"p"}one', None, "publish")], overfill=False)
        first.cancel()
        message = await second
        assert message is not None
        assert message.data == b"one"
        assert first.cancelled()
