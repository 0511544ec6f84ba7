"""The highly available asyncio client: client.md §9, §19.5, §19.6; §21, 30, 42, 46, 53, 59, 61, 62 and 64."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amps.aio import AsyncHAClient
from amps.client import (
    AuthenticationException,
    BadFilterException,
    Command,
    ConnectionException,
    ConnectionState,
    DefaultServerChooser,
    DisconnectedException,
    FixedDelayStrategy,
    MemoryPublishStore,
    TimedOutException,
    UsageException,
)
from tests.unit.client.aio import run, until
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import Frame

DEAD = "tcp://127.0.0.1:1/amps/json"


class Slow:
    """Connects at once, and reconnects after a time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked = 0

    def get_connect_wait_duration(self, uri: str) -> float:
        self.asked += 1
        return self.seconds if self.asked > 1 else 0.0

    def reset(self) -> None:
        pass


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[AsyncHAClient, AsyncPeer]]:
    options.setdefault("delay_strategy", FixedDelayStrategy(0.01))
    async with AsyncPeer() as peer, AsyncHAClient("me", peer.uri, **options) as client:
        yield client, peer


async def recovered(client: AsyncHAClient, peer: AsyncPeer, connections: int = 2) -> None:
    await until(lambda: peer.connections >= connections and not client.reconnecting and client.connected)


def sent(peer: AsyncPeer, *commands: str) -> list[Frame]:
    return [frame for frame in peer.frames if frame["c"] in commands]


@run
async def test_client_59_the_chooser_is_told_about_failures_and_success() -> None:
    """client.md §21, 59"""
    async with AsyncPeer() as peer:
        chooser = DefaultServerChooser(DEAD, peer.uri)
        client = AsyncHAClient("me", chooser, delay_strategy=FixedDelayStrategy(0))
        assert client.disconnected
        await client.connect_and_logon()
        assert (client.connection_info.uri, client.connection_info.attempts) == (peer.uri, 2)
        assert not client.reconnecting
        await client.close()
    empty = AsyncHAClient("me")
    with pytest.raises(ConnectionException):
        await empty.open()
    await empty.close()


@run
async def test_client_53_61_62_everything_is_restored_in_order_after_a_lost_connection() -> None:
    """client.md §21, 42, 53, 61 and 62"""
    store = MemoryPublishStore()
    async with connected(publish_store=store, heartbeat=100, ack_batch_size=10) as (client, peer):
        states: list[ConnectionState] = []
        seen: list[bytes] = []
        await client.subscribe("t", sub_id="handler", handler=lambda message: seen.append(message.data))
        stream = await client.subscribe("t", sub_id="stream")
        await client.execute_async_no_resubscribe(Command("subscribe", "t", sub_id="once"), lambda message: None)
        await client.consume("q", lambda message: None, sub_id="q")
        peer.publish("q", b"x", bm="1|7|", lp="0")
        peer.persisting = False
        for at in range(3):
            await client.publish("t", b"%d" % at)
        await until(lambda: len(sent(peer, "publish")) == 3)
        client.add_connection_state_listener(states.append)
        peer.frames.clear()
        peer.logon_seq = 1
        peer.persisting = True
        peer.kill()
        await recovered(client, peer)
        commands = [
            (frame["c"], frame.get("s") or frame.get("sub_id") or frame.get("bm") or frame.get("o"))
            for frame in peer.frames
        ]
        assert commands[0][0] == "logon"
        assert commands[1:] == [
            ("heartbeat", "start,100"), ("publish", 2), ("publish", 3), ("sow_delete", 4),
            ("subscribe", "handler"), ("subscribe", "stream"), ("subscribe", "q"),
        ]  # fmt: skip
        assert states == [
            ConnectionState.DISCONNECTED,
            ConnectionState.CONNECTED,
            ConnectionState.LOGGED_ON,
            ConnectionState.HEARTBEAT_INITIATED,
            ConnectionState.PUBLISH_REPLAYED,
            ConnectionState.RESUBSCRIBED,
        ]
        peer.publish("handler,stream", b"after")
        message = await stream.get(5)
        assert message is not None
        assert (message.data, seen) == (b"after", [b"after"])
        await client.publish_flush()
        assert client.stats.reconnects == 1


@run
async def test_client_46_a_bookmark_subscription_has_no_gap_and_no_duplicate() -> None:
    """client.md §21, 46"""
    async with connected() as (client, peer):
        stream = await client.bookmark_subscribe("t", "0", sub_id="s")
        for at in (1, 2, 3):
            peer.publish("s", b"%d" % at, bm=f"9|{at}|")
        for _ in (1, 2):
            message = await stream.get(5)
            assert message is not None
            message.discard()
        peer.kill()
        await recovered(client, peer)
        assert sent(peer, "subscribe")[-1]["bm"] == "9|2|"
        for at in (3, 4):
            peer.publish("s", b"%d" % at, bm=f"9|{at}|")
        got = [await stream.get(5), await stream.get(5)]
        assert [message and message.data for message in got] == [b"3", b"4"]


@run
async def test_client_64_publishing_without_a_connection() -> None:
    """client.md §21, 64"""
    async with connected(publish_store=MemoryPublishStore(), delay_strategy=Slow(0.3)) as (client, peer):
        peer.kill()
        await until(lambda: client.reconnecting and client.disconnected)
        assert await client.publish("t", b"stored") == 1
        assert client.publish_nowait("t", b"too") == 2
        await recovered(client, peer)
        await client.publish_flush()
        assert [frame.body for frame in sent(peer, "publish")] == [b"stored", b"too"]
    async with connected(delay_strategy=Slow(0.3)) as (client, peer):
        peer.kill()
        await until(lambda: client.reconnecting and client.disconnected)
        with pytest.raises(DisconnectedException):
            await client.publish("t", b"x", timeout=0.05)
        await client.publish("t", b"waits")
        await peer.expect("publish")
    async with connected(retry_on_disconnect=False, delay_strategy=Slow(0.3)) as (client, peer):
        peer.kill()
        await until(lambda: client.reconnecting and client.disconnected)
        with pytest.raises(DisconnectedException):
            await client.publish("t", b"x")


@run
async def test_a_command_that_waits_is_sent_again() -> None:
    async with connected() as (client, peer):
        peer.answering = False
        counting = asyncio.create_task(client.sow_count("t"))
        await peer.expect("sow")
        peer.answering = True
        peer.kill()
        assert await counting == 7
        assert len(sent(peer, "sow")) == 2


@run
async def test_a_call_between_two_connections_keeps_its_timeout() -> None:
    async with connected(delay_strategy=Slow(30)) as (client, peer):
        await client.subscribe("t", handler=lambda message: None)
        peer.kill()
        await until(lambda: client.reconnecting and client.disconnected)
        with pytest.raises(TimedOutException):
            await client.sow_count("t", timeout=0.05)
        with pytest.raises(DisconnectedException):
            await client.publish("t", b"x", timeout=0.05)


@run
async def test_connecting_ends_in_time_or_when_it_is_cancelled() -> None:
    client = AsyncHAClient("me", DEAD, delay_strategy=FixedDelayStrategy(0.01))
    with pytest.raises(TimedOutException, match="no connection in time: cannot connect"):
        await client.open(timeout=0.1)
    assert not client.reconnecting
    opening = asyncio.create_task(client.open())
    await asyncio.sleep(0.03)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not client.reconnecting
    gives_up = AsyncHAClient("me", DEAD, delay_strategy=FixedDelayStrategy(0.01, 0.05))
    with pytest.raises(ConnectionException):
        await gives_up.open()
    async with AsyncPeer() as peer:
        client.server_chooser = DefaultServerChooser(peer.uri)
        await client.open()
        await client.flush()
        await client.close()


@run
async def test_a_server_that_hangs_during_logon_is_left_after_the_attempt_timeout() -> None:
    async with AsyncPeer() as silent, AsyncPeer() as peer:
        silent.answering = False
        client = AsyncHAClient(
            "me", [silent.uri, peer.uri], attempt_timeout=0.1, delay_strategy=FixedDelayStrategy(0)
        )
        await client.open()
        assert client.connection_info.uri == peer.uri
        await client.close()


@run
async def test_close_and_disconnect_end_reconnecting_at_once() -> None:
    async with connected(delay_strategy=Slow(30)) as (client, peer):
        await client.subscribe("t", sub_id="s", handler=lambda message: None)
        stream = await client.subscribe("t", sub_id="stream")
        peer.kill()
        await until(lambda: client.reconnecting and client.disconnected)
        waiting = asyncio.create_task(client.sow_count("t"))
        await asyncio.sleep(0.01)
        await client.disconnect()
        assert not client.reconnecting
        with pytest.raises(DisconnectedException):
            await waiting
        with pytest.raises((DisconnectedException, EOFError)):
            await stream.get(1)
    assert client.state is ConnectionState.SHUTDOWN


@run
async def test_a_refused_subscription_counts_against_the_server_or_is_left_out() -> None:
    refused: list[str | None] = []

    def accept(command: Command, error: Exception) -> bool:
        assert isinstance(error, BadFilterException)
        refused.append(command.sub_id)
        return True

    async with connected(failed_resubscribe_handler=accept) as (client, peer):
        stream = await client.subscribe("t", sub_id="bad")
        await client.subscribe("t", sub_id="good", handler=lambda message: None)

        def answer(frame: Frame) -> None:
            if frame.get("sub_id") == "bad":
                peer.ack(frame, status="failure", reason="bad filter")
            else:
                peer.acknowledge(frame)

        peer.answer = answer
        peer.kill()
        await recovered(client, peer)
        assert refused == ["bad"]
        assert peer.connections == 2
        with pytest.raises(BadFilterException):
            await stream.get(1)
    async with AsyncPeer() as peer, AsyncPeer() as other:
        client = AsyncHAClient("me", [peer.uri, other.uri], delay_strategy=FixedDelayStrategy(0.01))
        await client.open()
        await client.subscribe("t", sub_id="s", handler=lambda message: None)
        peer.answer = lambda frame: (
            peer.ack(frame, status="failure", reason="bad filter")
            if frame["c"] == "subscribe"
            else peer.acknowledge(frame)
        )
        peer.kill()
        await recovered(client, other, 1)
        assert client.connection_info.uri == other.uri
        await client.close()


@run
async def test_streams_resume_only_if_wanted() -> None:
    async with connected(resume_streams=False) as (client, peer):
        stream = await client.subscribe("t")
        peer.kill()
        await recovered(client, peer)
        with pytest.raises(DisconnectedException):
            await stream.get(1)


@run
async def test_handlers_may_call_their_client_while_it_recovers() -> None:
    async with connected(publish_store=MemoryPublishStore()) as (client, peer):
        counts: list[int] = []

        async def handler(message: object) -> None:
            await client.publish("t", b"from the handler")
            counts.append(await client.sow_count("t"))

        sub_id = await client.subscribe("t", handler=handler)
        peer.answering = False
        peer.publish(sub_id, b"x")
        await peer.expect("sow")
        peer.answering = True
        peer.kill()
        await until(lambda: counts == [7])


@run
async def test_what_is_not_for_this_client_says_so() -> None:
    client = AsyncHAClient.memory_backed("me", DEAD)
    assert client.publish_store is not None
    with pytest.raises(UsageException, match="connect_and_logon"):
        await client.connect()
    with pytest.raises(UsageException, match="connect_and_logon"):
        await client.logon()
    with pytest.raises(UsageException, match="state_listener"):
        client.set_disconnect_handler(None)


@run
async def test_a_refused_logon_is_tried_again_until_the_strategy_gives_up() -> None:
    async with AsyncPeer() as peer:
        peer.answer = lambda frame: peer.ack(frame, status="failure", reason="auth failure")
        client = AsyncHAClient("me", peer.uri, delay_strategy=FixedDelayStrategy(0.01, 0.05))
        with pytest.raises(ConnectionException):
            await client.open()
        assert isinstance(client.connection_info.last_error, AuthenticationException)
        assert peer.connections > 1


@run
async def test_client_54_a_client_with_stores_in_files_goes_on_where_it_was(tmp_path: Path) -> None:
    """client.md §19.5, §21 54: the second client has the unacknowledged message and the place of the first."""
    paths: dict[str, Any] = {"publish_path": tmp_path / "p", "bookmark_path": tmp_path / "b"}
    async with AsyncPeer() as peer:
        async with AsyncHAClient.file_backed("me", peer.uri, **paths) as client:
            peer.persisting = False
            await client.publish("t", b"kept")
            stream = await client.bookmark_subscribe("t", "0", sub_id="s")
            peer.publish("s", b"1", bm="9|1|")
            message = await stream.get(5)
            assert message is not None
            message.discard()
        peer.persisting = True
        async with AsyncHAClient.file_backed("me", peer.uri, **paths) as client:
            await client.publish_flush()
            assert [frame["s"] for frame in sent(peer, "publish") if frame.body == b"kept"][-1] == 1
            await client.bookmark_subscribe("t", sub_id="s", handler=lambda message: None)
            assert sent(peer, "subscribe")[-1]["bm"] == "9|1|"
