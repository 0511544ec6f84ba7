"""What the application is told when its connection is lost, and what is accepted while there is none."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from amps.aio import AsyncClient, AsyncHAClient
from amps.client import (
    Client,
    ConnectionState,
    DisconnectedException,
    FixedDelayStrategy,
    HAClient,
    StreamException,
)
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.harness import Harness
from tests.unit.client.peer import WAIT_S, Connection, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import LoggedOn, log_on, stream_of, subscribe, wait_for

CORRUPT = b"\x00\x00\x00\x04abcd"


def lose(connection: Connection, corrupt: bool) -> None:
    if corrupt:
        connection.socket.sendall(CORRUPT)
    else:
        connection.close()


@pytest.mark.parametrize("corrupt", [False, True])
def test_a_loss_is_logged_if_only_handlers_would_learn_of_it(
    logged_on: LoggedOn, caplog: pytest.LogCaptureFixture, corrupt: bool
) -> None:
    client, connection = logged_on()
    subscribe(client, connection, print)
    lose(connection, corrupt)
    wait_for(lambda: "lost the connection to tcp://127.0.0.1" in caplog.text)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert ("corrupt data" in caplog.text) is corrupt


@pytest.mark.parametrize("corrupt", [False, True])
def test_a_loss_is_told_to_the_exception_listener(
    logged_on: LoggedOn, caplog: pytest.LogCaptureFixture, corrupt: bool
) -> None:
    """client.md §10: exceptions on the receive thread"""
    client, connection = logged_on()
    errors: list[BaseException] = []
    client.set_exception_listener(errors.append)
    lose(connection, corrupt)
    wait_for(lambda: bool(errors))
    wait_for(lambda: client.state is ConnectionState.DISCONNECTED)
    assert [type(error) for error in errors] == [StreamException if corrupt else DisconnectedException]
    assert not caplog.records


@pytest.mark.parametrize("corrupt", [False, True])
def test_a_loss_that_a_disconnect_handler_gets_is_told_once(
    logged_on: LoggedOn, caplog: pytest.LogCaptureFixture, corrupt: bool
) -> None:
    client, connection = logged_on()
    errors, handled = list[BaseException](), list[Exception]()
    client.set_exception_listener(errors.append)
    client.set_disconnect_handler(lambda _, error: handled.append(error))
    subscribe(client, connection, print)
    lose(connection, corrupt)
    wait_for(lambda: bool(handled))
    assert [type(error) for error in handled] == [StreamException if corrupt else DisconnectedException]
    assert [type(error) for error in errors] == ([StreamException] if corrupt else [])
    assert not caplog.records


def test_a_loss_that_calls_and_streams_get_is_not_logged(
    logged_on: LoggedOn, caplog: pytest.LogCaptureFixture
) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection)
    connection.close()
    with pytest.raises(DisconnectedException):
        stream.get(WAIT_S)
    with pytest.raises(DisconnectedException):
        client.publish("t", b"x")
    client.close()
    assert not caplog.records


def test_an_own_disconnect_is_not_told(logged_on: LoggedOn, caplog: pytest.LogCaptureFixture) -> None:
    client, connection = logged_on()
    errors: list[BaseException] = []
    subscribe(client, connection, print)
    client.set_exception_listener(errors.append)
    client.close()
    assert not errors
    assert not caplog.records


def make_ha(peer: ScriptedPeer, **options: Any) -> HAClient:
    return HAClient("me", peer.uri, timeout=WAIT_S, delay_strategy=FixedDelayStrategy(0), **options)


def test_corrupt_data_is_told_to_the_listener_of_a_client_that_reconnects(peer: ScriptedPeer) -> None:
    client, errors = make_ha(peer), list[BaseException]()
    client.set_exception_listener(errors.append)
    lose(log_on(client, peer), True)
    peer.accept().logon()
    lose(peer.connections[-1], False)
    peer.accept().logon()
    assert [type(error) for error in errors] == [StreamException]
    client.close()


@pytest.mark.parametrize("kind", ["listener", "log"])
@pytest.mark.parametrize("corrupt", [False, True])
@pytest.mark.parametrize("coroutine", [False, True])
def test_a_loss_in_the_event_loop(
    caplog: pytest.LogCaptureFixture, corrupt: bool, kind: str, coroutine: bool
) -> None:
    errors: list[BaseException] = []

    async def awaited(message: object) -> None:
        """Never called."""

    async def run() -> None:
        async with AsyncPeer() as peer, AsyncClient("me", peer.uri, timeout=WAIT_S) as client:
            if kind == "listener":
                client.set_exception_listener(errors.append)
            await client.subscribe("t", handler=awaited if coroutine else print)
            if corrupt:
                assert peer._writer is not None
                peer._writer.write(CORRUPT)
            else:
                peer.kill()
            async with asyncio.timeout(WAIT_S):
                while client.state is not ConnectionState.DISCONNECTED:
                    await asyncio.sleep(0.01)

    asyncio.run(run())
    assert [type(error) for error in errors] == (
        [] if kind == "log" else [StreamException if corrupt else DisconnectedException]
    )
    assert caplog.text.count("lost the connection") == (kind == "log")


def test_a_call_right_after_corrupt_data_has_the_reason() -> None:
    """The front end has not handled the end of the connection yet."""
    h = Harness().ready()
    h.engine.receive(CORRUPT, h.now)
    with pytest.raises(DisconnectedException, match="publish: not connected: corrupt data from the server"):
        h.engine.check_connected("publish")


# Publishing without a publish store


def between(client: HAClient, peer: ScriptedPeer) -> Connection:
    """Cut the first connection; return the second one, on which the logon is not answered."""
    log_on(client, peer).close()
    connection = peer.accept()
    connection.expect("logon")
    return connection


CALLS: dict[str, Callable[[Client], object]] = {
    "publish": lambda client: client.publish("t", b"x", timeout=0.1),
    "fields": lambda client: client.publish("t", b"x", expiration=1, timeout=0.1),
    "delta_publish": lambda client: client.delta_publish("t", b"x", timeout=0.1),
}


@pytest.mark.parametrize("call", CALLS)
def test_client_19_5_a_publish_before_the_logon_is_refused(peer: ScriptedPeer, call: str) -> None:
    """client.md §19.5: the client would drop it when it is closed."""
    client = make_ha(peer)
    connection = between(client, peer)
    with pytest.raises(DisconnectedException):
        CALLS[call](client)
    client.close()
    connection.expect_close()
    assert b"publish" not in connection.raw


def test_client_19_5_a_publish_before_the_logon_waits_for_the_reconnection(peer: ScriptedPeer) -> None:
    client = make_ha(peer)
    connection = between(client, peer)
    publishing = Outcome(client.publish, ("t", b"x"), {})
    connection.expect_nothing(0.1)
    assert publishing._thread.is_alive()
    connection.send({"c": "ack", "cid": "2", "a": "processed", "status": "success"})
    publishing.result()
    assert connection.expect("publish").body == b"x"
    client.close()


def test_commands_dropped_by_the_end_of_reconnecting_are_counted(
    peer: ScriptedPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """They were accepted while subscriptions were entered again."""
    client = make_ha(peer)
    connection = log_on(client, peer)
    subscribe(client, connection, print)
    connection.close()
    connection = peer.accept()
    connection.logon()
    connection.expect("subscribe")
    client.publish("t", b"1")
    client.publish("t", b"2")
    client.close()
    assert "drops 2 commands that were accepted" in caplog.text


def test_client_19_5_asyncio_a_publish_before_the_logon_is_refused() -> None:
    """The text does not ask for `open`, which was called."""

    async def run() -> None:
        async with AsyncPeer() as peer:
            client = AsyncHAClient("me", peer.uri, delay_strategy=FixedDelayStrategy(0), attempt_timeout=WAIT_S)
            await client.open()
            peer.answering = False
            peer.kill()
            await peer.expect("logon", 2)
            with pytest.raises(DisconnectedException, match="being recovered") as refused:
                await client.publish("t", b"x", timeout=0.1)
            assert "open()" not in str(refused.value)
            with pytest.raises(DisconnectedException, match="being recovered"):
                client.publish_nowait("t", b"x")
            await client.close()

    asyncio.run(run())


def test_a_client_that_is_connecting_does_not_ask_for_open() -> None:
    h = Harness()
    h.engine.recovers = True
    with pytest.raises(DisconnectedException, match="the client is still connecting"):
        h.engine.check_connected("publish")


def test_a_subscription_waits_as_before(peer: ScriptedPeer) -> None:
    client = make_ha(peer)
    connection = between(client, peer)
    with in_background(client.subscribe, "t", handler=print):
        connection.send({"c": "ack", "cid": "2", "a": "processed", "status": "success"})
        connection.ack(connection.expect("subscribe"))
    client.close()
