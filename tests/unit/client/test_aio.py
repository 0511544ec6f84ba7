"""The asyncio client against a scripted server: client.md §19.6; §21, 26 to 32 and 40."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amps.aio import AsyncClient
from amps.client import (
    AckType,
    AlreadyConnectedException,
    AuthenticationException,
    BadFilterException,
    Command,
    ConnectionRefusedException,
    ConnectionState,
    DisconnectedException,
    InvalidUriException,
    MemoryPublishStore,
    Message,
    StoreFullException,
    StreamException,
    TimedOutException,
    UsageException,
)
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import Frame

Test = Callable[[], Coroutine[Any, Any, None]]
WAIT_S = 10.0


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    """A test that is a coroutine function, on a loop of its own; nothing may be left running on it."""

    async def whole(**arguments: Any) -> None:
        async with asyncio.timeout(60):
            await test(**arguments)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.sleep(0.05)
        left = {task for task in left if not task.done()}
        assert not left, left

    def call(**arguments: Any) -> None:
        asyncio.run(whole(**arguments))

    call.__name__, call.__doc__ = test.__name__, test.__doc__
    call.__signature__ = __import__("inspect").signature(test)  # type: ignore[attr-defined]
    call.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return call


@asynccontextmanager
async def logged_on(**options: Any) -> AsyncIterator[tuple[AsyncClient, AsyncPeer]]:
    async with AsyncPeer() as peer, AsyncClient("me", peer.uri, **options) as client:
        yield client, peer


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def endless(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Repeat a call until it raises."""
    while True:
        await call()


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % at for at in range(first, last)]


@run
async def test_a_client_logs_on_publishes_and_closes() -> None:
    async with logged_on(publish_store=MemoryPublishStore()) as (client, peer):
        assert (client.connected, client.logged_on, client.server_version) == (True, True, "9.9.9")
        assert [await client.publish("t", {"a": 1}), await client.publish("t", "text")] == [1, 2]
        assert client.publish_nowait("t", b"bytes", expiration=5) == 3
        assert await client.delta_publish("t", b"delta") == 4
        await client.publish_flush()
        assert client.unpersisted_count == 0
        sent = [frame for frame in peer.frames if "publish" in frame["c"]]
        assert [frame.body for frame in sent] == [b'{"a":1}', b"text", b"bytes", b"delta"]
        assert [frame["s"] for frame in sent] == [1, 2, 3, 4]
        assert sent[2]["e"] == 5
    assert client.state is ConnectionState.SHUTDOWN
    with pytest.raises(UsageException, match="closed"):
        await client.publish("t", b"x")


@run
async def test_publishes_of_one_step_are_sent_together_and_in_order() -> None:
    async with logged_on() as (client, peer):
        for at in range(1000):
            client.publish_nowait("t", b"%d" % at)
        await client.flush()
        assert [frame.body for frame in peer.frames if frame["c"] == "publish"] == bodies(0, 1000)
        assert client.stats.messages_out == 1002


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
async def test_client_25_a_handler_that_raises_does_not_end_its_subscription(caplog: pytest.LogCaptureFixture) -> None:
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
async def test_client_40_consume_acknowledges_after_the_handler_and_returns_what_it_failed_on(concurrency: int) -> None:
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
        await client.consume("q", lambda message: got.append(("new", message.data)), sub_id="s", options="replace")
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
async def test_refusals_and_timeouts_are_raised_and_leave_the_client_usable() -> None:
    async with logged_on() as (client, peer):
        peer.answer = lambda frame: peer.ack(frame, status="failure", reason="bad filter")
        with pytest.raises(BadFilterException):
            await client.subscribe("t", "/a >", handler=lambda message: None)
        peer.answering = False
        with pytest.raises(TimedOutException):
            await client.subscribe("t", timeout=0.05)
        unsubscribed = await peer.expect("unsubscribe")
        assert unsubscribed["sub_id"] == peer.frames[-2]["sub_id"]
        with pytest.raises(TimedOutException):
            await client.flush(timeout=0.05)
        peer.answering, peer.answer = True, peer.acknowledge
        await client.flush(AckType.COMPLETED)
        assert client._engine.routes() == []


@run
async def test_a_server_that_reads_nothing_holds_no_call_longer_than_its_timeout() -> None:
    async with logged_on() as (client, peer):
        peer.read(False)
        body = b"x" * 50_000
        with pytest.raises(TimedOutException, match="does not read"):
            await endless(lambda: client.publish("t", body, timeout=0.1))
        count = client.stats.messages_out
        with pytest.raises(BufferError):
            client.publish_nowait("t", body)
        with pytest.raises(TimedOutException):
            await client.flush(timeout=0.05)
        with pytest.raises(TimedOutException):
            await client.subscribe("t", timeout=0.05)
        assert client.stats.messages_out == count
        peer.read(True)
        await client.flush()
        assert len([frame for frame in peer.frames if frame["c"] == "publish"]) == count - 1


@run
async def test_close_drops_what_a_server_does_not_read_after_its_timeout() -> None:
    async with logged_on() as (client, peer):
        peer.read(False)

        async def publish() -> None:
            client.publish_nowait("t", b"x" * 50_000)
            await asyncio.sleep(0)

        with pytest.raises(BufferError):
            await endless(publish)
        await client.close(timeout=0.05)
        assert not client.connected


@run
async def test_client_57_a_full_store_waits_or_raises() -> None:
    """client.md §21, 57"""
    async with logged_on(publish_store=MemoryPublishStore(max_bytes=100)) as (client, peer):
        peer.persisting = False
        await client.publish("t", b"x" * 100)
        with pytest.raises(TimedOutException, match="no room in time, 1 messages"):
            await client.publish("t", b"y", timeout=0.05)
        with pytest.raises(StoreFullException):
            client.publish_nowait("t", b"y")
        with pytest.raises(TimedOutException, match="1 messages not persisted"):
            await client.publish_flush(timeout=0.05)
        waiting = asyncio.create_task(client.publish("t", b"z"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        peer.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
        assert await waiting == 2
    async with logged_on(publish_store=MemoryPublishStore(max_bytes=100, on_full="raise")) as (client, peer):
        peer.persisting = False
        await client.publish("t", b"x" * 100)
        with pytest.raises(StoreFullException):
            await client.publish("t", b"y")


@run
async def test_heartbeats_are_sent_and_a_silent_server_is_left() -> None:
    async with logged_on(heartbeat=0.05, heartbeat_timeout=0.3) as (client, peer):
        await peer.expect("heartbeat", 3)
        assert peer.frames[1]["o"] == "start,1"
        await until(lambda: not client.connected)
        with pytest.raises(DisconnectedException, match="nothing received from the server"):
            await client.flush()


@run
async def test_authenticators_may_be_coroutines_and_answer_challenges() -> None:
    asked: list[tuple[str, ...]] = []

    class Authenticator:
        async def authenticate(self, username: str, password: str) -> str:
            asked.append(("authenticate", username, password))
            return "first"

        async def retry(self, username: str, password: str) -> str:
            asked.append(("retry", username, password))
            return "second"

        async def completed(self, username: str, password: str, reason: str) -> None:
            asked.append(("completed", username, password))

    async with AsyncPeer() as peer:

        def answer(frame: Frame) -> None:
            if frame["pw"] == "first":
                peer.ack(frame, status="retry", user_id="u2", password="challenge", pw="challenge")
            else:
                peer.acknowledge(frame)

        peer.answer = answer
        uri = peer.uri.replace("//", "//u:p@")
        async with AsyncClient("me", uri, authenticator=Authenticator()):  # type: ignore[arg-type]
            pass
    assert asked == [
        ("authenticate", "u", "p"),
        ("retry", "u2", "challenge"),
        ("completed", "u2", "second"),
    ]


@run
async def test_a_refused_logon_closes_the_connection() -> None:
    async with AsyncPeer() as peer:
        peer.answer = lambda frame: peer.ack(frame, status="failure", reason="auth failure")
        client = AsyncClient("me", peer.uri)
        with pytest.raises(AuthenticationException):
            await client.open()
        assert not client.connected
        peer.answer = peer.acknowledge
        await client.open()
        with pytest.raises(AlreadyConnectedException):
            await client.connect()
        await client.close()
        await client.close()


@run
async def test_connection_errors_say_what_is_wrong() -> None:
    with pytest.raises(ConnectionRefusedException, match=r"cannot connect to tcp://127\.0\.0\.1:1/amps/json"):
        await AsyncClient("me", "tcp://127.0.0.1:1/amps/json").open()
    with pytest.raises(InvalidUriException, match="first argument is the client's name"):
        await AsyncClient("tcp://127.0.0.1:1/amps/json").open()
    with pytest.raises(DisconnectedException, match="call open"):
        await AsyncClient("me", "tcp://h:1/amps/json").publish("t", {"a": 1})
    with pytest.raises(DisconnectedException, match="call open"):
        AsyncClient("me", "tcp://h:1/amps/json").publish_nowait("t", b"x")


def test_a_client_belongs_to_the_loop_on_which_it_was_opened() -> None:
    async def use() -> None:
        async with AsyncPeer() as peer, AsyncClient("me", peer.uri) as client:

            async def elsewhere() -> None:
                with pytest.raises(UsageException, match="another event loop"):
                    await client.flush()
                with pytest.raises(UsageException, match="another event loop"):
                    client.publish_nowait("t", {"a": 1})

            await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(elsewhere()))
            await client.flush()

    asyncio.run(use())


def test_a_closed_connection_may_be_opened_again_on_another_loop() -> None:
    client: AsyncClient | None = None

    async def use() -> None:
        nonlocal client
        async with AsyncPeer() as peer:
            client = client or AsyncClient("me")
            client.uri = peer.uri
            await client.open()
            await client.flush()
            await client.disconnect()

    asyncio.run(use())
    asyncio.run(use())


@run
async def test_states_and_the_disconnect_handler() -> None:
    async with AsyncPeer() as peer:
        client = AsyncClient("me", peer.uri)
        states: list[ConnectionState] = []
        told: list[str] = []
        client.add_connection_state_listener(states.append)

        async def lost(client: AsyncClient, error: Exception) -> None:
            told.append(str(error))
            await client.open()

        client.set_disconnect_handler(lost)
        await client.open()
        peer.kill()
        await until(lambda: peer.connections == 2 and client.logged_on)
        assert len(told) == 1
        await client.close()
        assert states == [
            ConnectionState.CONNECTED,
            ConnectionState.LOGGED_ON,
            ConnectionState.DISCONNECTED,
            ConnectionState.CONNECTED,
            ConnectionState.LOGGED_ON,
            ConnectionState.DISCONNECTED,
            ConnectionState.SHUTDOWN,
        ]


@run
async def test_a_replaced_subscription_keeps_its_stream_and_handler() -> None:
    async with logged_on() as (client, peer):
        stream = await client.subscribe("t", sub_id="s")
        assert await client.subscribe("t", "/a = 1", sub_id="s", replace=True) is stream
        seen: list[bytes] = []
        await client.subscribe("t", sub_id="h", handler=lambda message: seen.append(message.data))
        await client.subscribe("t", "/a = 2", sub_id="h", replace=True, handler=lambda message: seen.append(b"new"))
        peer.publish("h", b"x")
        await until(lambda: seen == [b"new"])


@run
async def test_commands_of_all_kinds() -> None:
    async with logged_on() as (client, peer):
        assert await client.sow_count("t") == 7
        assert (await client.sow_delete("t", filter="1=1")).ack_type == AckType.STATS
        await client.subscribe("t", sub_id="s", handler=lambda message: None)
        await client.pause("s")
        await client.resume("s")
        await client.unsubscribe("s")
        assert client.send(Command("flush")).isdigit()
        stream = await client.execute(Command("sow", "t"), control=True)
        assert [message.command for message in await stream.to_list()] == ["group_begin", "group_end"]
        assert (await client.execute_async(Command("subscribe", "t"), lambda message: None)).isdigit()
        await client.set_heartbeat(5)
        assert (await peer.expect("heartbeat"))["o"] == "start,5"


@run
async def test_a_lost_connection_ends_waits_for_room_at_once() -> None:
    async with logged_on(publish_store=MemoryPublishStore(max_bytes=100), timeout=None) as (client, peer):
        peer.persisting = False
        await client.publish("t", b"x" * 100)
        waits = [
            asyncio.create_task(client.publish("t", b"y")),
            asyncio.create_task(client.publish_flush()),
        ]
        await asyncio.sleep(0.02)
        peer.kill()
        for wait in waits:
            with pytest.raises((DisconnectedException, StoreFullException)):
                await wait
    async with logged_on(timeout=None) as (client, peer):
        peer.read(False)
        publishing = asyncio.create_task(endless(lambda: client.publish("t", b"x" * 50_000)))
        await until(lambda: client._link.outbox.blocked)
        peer.kill()
        with pytest.raises(DisconnectedException):
            await publishing


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
