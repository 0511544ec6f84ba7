"""The asyncio client against a scripted server: its connection, its calls and their failures (client.md §19.6)."""

import asyncio

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
    StoreFullException,
    TimedOutException,
    UsageException,
)
from tests.unit.client.aio import bodies, endless, logged_on, run, until
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import Frame


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
