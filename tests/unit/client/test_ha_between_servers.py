"""HAClient against scripted servers: calls made between two servers."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from amps.client import (
    EPOCH,
    AlreadyConnectedException,
    Client,
    Command,
    DefaultServerChooser,
    DisconnectedException,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    RetryOperationException,
    TimedOutException,
    UsageException,
)
from tests.unit.client.ha import LONG_S, SOON_S, MakeHA, Recording, connected, welcome
from tests.unit.client.peer import WAIT_S, Connection, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import wait_for


@pytest.fixture
def between(make_ha: MakeHA, peer: ScriptedPeer, dead: str) -> Callable[..., HAClient]:
    """Make a client that has lost its server and finds no other."""

    def make(**options: Any) -> HAClient:
        options.setdefault("timeout", SOON_S)
        client = make_ha(**options)
        connection = connected(client, peer)
        client.server_chooser = DefaultServerChooser(dead)
        connection.close()
        wait_for(lambda: client.reconnecting and client.disconnected)
        return client

    return make


def back(client: HAClient, peer: ScriptedPeer) -> Connection:
    client.server_chooser = DefaultServerChooser(peer.uri)
    return welcome(peer)


WAITING_CALLS: dict[str, Callable[[Client], object]] = {
    "flush": lambda client: client.flush(),
    "subscribe": lambda client: client.subscribe("t"),
    "sow": lambda client: client.sow("t"),
    "sow_count": lambda client: client.sow_count("t"),
    "sow_delete": lambda client: client.sow_delete("t", filter="1=1"),
    "execute_async": lambda client: client.execute_async(Command("subscribe", "t"), print),
    "publish_flush": lambda client: client.publish_flush(),
}


@pytest.mark.parametrize("call", WAITING_CALLS)
def test_every_waiting_call_keeps_its_timeout(call: str, between: Callable[..., HAClient]) -> None:
    client = between()
    began = time.monotonic()
    with pytest.raises(TimedOutException):
        WAITING_CALLS[call](client)
    assert time.monotonic() - began >= SOON_S * 0.9
    assert client.reconnecting


@pytest.mark.parametrize("call", ["flush", "subscribe", "sow_count"])
def test_a_waiting_call_succeeds_when_a_server_is_back(
    call: str, between: Callable[..., HAClient], peer: ScriptedPeer
) -> None:
    """client.md §9.5: it is sent after the recovery"""
    client = between(timeout=LONG_S)
    with in_background(WAITING_CALLS[call], client):
        connection = back(client, peer)
        frame = connection.expect()
        connection.ack(frame, "completed" if call == "flush" else "processed")
        if call == "sow_count":
            connection.ack(frame, "stats", matches=3)


def test_pausing_between_servers(make_ha: MakeHA, peer: ScriptedPeer, dead: str) -> None:
    """client.md §9.5: it keeps its timeout, and is sent after the subscription is entered again"""
    client = make_ha(timeout=LONG_S)
    connection = connected(client, peer)
    with in_background(client.bookmark_subscribe, "t", EPOCH, sub_id="s", handler=print):
        connection.ack(connection.expect("subscribe"))
    client.server_chooser = DefaultServerChooser(dead)
    connection.close()
    wait_for(lambda: client.reconnecting)
    with pytest.raises(TimedOutException):
        client.pause("s", timeout=0.05)
    with in_background(client.pause, "s"):
        connection = back(client, peer)
        frame = connection.expect("subscribe")
        assert frame.get("o") is None
        connection.ack(frame)
        frame = connection.expect("subscribe")
        assert (frame["sub_id"], frame["o"]) == ("s", "pause")
        connection.ack(frame)


def test_client_64_publishing_between_servers(between: Callable[..., HAClient], peer: ScriptedPeer) -> None:
    """client.md §21 64: with a store at once; without one DisconnectedException after the timeout, or at once"""
    stored = between(publish_store=MemoryPublishStore(), timeout=LONG_S)
    assert stored.publish("t", b"1") == 1
    assert back(stored, peer).expect("publish").body == b"1"
    plain = between()
    began = time.monotonic()
    with pytest.raises(DisconnectedException):
        plain.publish("t", b"1")
    with pytest.raises(DisconnectedException):
        plain.send(Command("publish", "t"))
    assert time.monotonic() - began >= 2 * SOON_S * 0.9
    hasty = between(retry_on_disconnect=False, timeout=LONG_S)
    began = time.monotonic()
    with pytest.raises(DisconnectedException):
        hasty.publish("t", b"1")
    with pytest.raises(DisconnectedException):
        hasty.flush()
    assert time.monotonic() - began < WAIT_S


def test_client_64_a_publish_waits_for_the_next_server(
    between: Callable[..., HAClient], peer: ScriptedPeer
) -> None:
    """client.md §19.5: without a store, it is sent once when a server is back in time"""
    client = between(timeout=LONG_S)
    with in_background(client.publish, "t", b"late"):
        connection = back(client, peer)
        assert connection.expect("publish").body == b"late"
    connection.expect_nothing()


def test_client_64_a_store_that_is_full_between_servers(between: Callable[..., HAClient]) -> None:
    """A publish waits for room, at most its timeout"""
    client = between(publish_store=MemoryPublishStore(max_bytes=100))
    client.publish("t", bytes(200))
    with pytest.raises(TimedOutException):
        client.publish("t", b"1")
    with pytest.raises(TimedOutException):
        client.publish_flush()


def test_publish_flush_over_a_reconnect(between: Callable[..., HAClient], peer: ScriptedPeer) -> None:
    client = between(publish_store=MemoryPublishStore(), timeout=LONG_S)
    client.publish("t", b"1")
    with in_background(client.publish_flush):
        connection = back(client, peer)
        connection.expect("publish")
        connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    assert client.unpersisted_count == 0


def test_without_retry_a_waiting_call_is_cut_off(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §19.5: RetryOperationException"""
    client = make_ha(retry_on_disconnect=False, timeout=LONG_S)
    connection = connected(client, peer)
    flushing = Outcome(client.flush, (), {})
    connection.expect("flush")
    connection.close()
    with pytest.raises(RetryOperationException):
        flushing.result()
    welcome(peer).expect_nothing()


@pytest.mark.parametrize("end", ["close", "disconnect"])
@pytest.mark.parametrize("where", ["delay", "dial", "logon"])
def test_leaving_ends_reconnecting_at_once(
    end: str, where: str, make_ha: MakeHA, peer: ScriptedPeer, dead: str
) -> None:
    """In a wait, while a connection is made, and while a server does not answer; waiting calls end, too"""
    client = make_ha(delay_strategy=FixedDelayStrategy(LONG_S), timeout=LONG_S, attempt_timeout=LONG_S)
    connection = connected(client, peer)
    full: list[socket.socket] = []
    if where == "delay":
        chooser = Recording(dead)
        client.server_chooser = chooser
        connection.close()
        wait_for(lambda: len(chooser.failures) == 1)
    elif where == "dial":
        listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        full.append(listener)
        for _ in range(4):  # the queue of connections is full: further ones are not answered
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
            full.append(sock)
        client.server_chooser = DefaultServerChooser(f"tcp://127.0.0.1:{listener.getsockname()[1]}/amps/json")
        connection.close()
        wait_for(lambda: client.reconnecting)
        time.sleep(0.1)
    else:
        connection.close()
        peer.accept().expect("logon")
    flushing = Outcome(client.flush, (), {})
    wait_for(lambda: bool(client._engine._tickets))
    began = time.monotonic()
    getattr(client, end)()
    assert time.monotonic() - began < WAIT_S
    with pytest.raises(DisconnectedException):
        flushing.result()
    assert not client.reconnecting
    assert client.disconnected
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "amps-rx:tester"])
    for sock in full:
        sock.close()
    if end == "disconnect":
        client.server_chooser = DefaultServerChooser(peer.uri)
        client.delay_strategy = FixedDelayStrategy(0.01)
        connected(client, peer)


def test_closing_ends_a_first_connection_attempt(make_ha: MakeHA, dead: str) -> None:
    client = make_ha(dead, delay_strategy=FixedDelayStrategy(LONG_S))
    connecting = Outcome(client.connect_and_logon, (), {})
    wait_for(lambda: client.connection_info.last_error is not None)
    client.close()
    with pytest.raises(DisconnectedException):
        connecting.result()
    with pytest.raises(UsageException):
        client.connect_and_logon()


def test_several_threads_may_connect(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """The second one waits for the first"""
    client = make_ha()
    calls = [Outcome(client.connect_and_logon, (), {"timeout": WAIT_S}) for _ in range(2)]
    connection = welcome(peer)
    errors = []
    for call in calls:
        call.wait()
        errors.append(call.error)
    assert [
        error for error in errors if error is not None and type(error) is not AlreadyConnectedException
    ] == []
    connection.expect_nothing()
