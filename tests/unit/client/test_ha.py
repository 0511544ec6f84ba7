"""HAClient against scripted servers: choosing, reconnecting, and calls made between two servers."""

import gc
import inspect
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.client import (
    EPOCH,
    AlreadyConnectedException,
    AMPSException,
    AuthenticationException,
    Client,
    Command,
    ConnectionException,
    ConnectionInfo,
    ConnectionState,
    DefaultServerChooser,
    DisconnectedException,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    Message,
    NotEntitledException,
    PublishStoreGapException,
    RetryOperationException,
    TimedOutException,
    UsageException,
)
from amps.client.blocking.ha import ClientArgs
from tests.support.stuck import StuckServer
from tests.unit.client.peer import WAIT_S, Connection, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import subscribe, wait_for

SOON_S = 0.2
LONG_S = 60.0
MakeHA = Callable[..., HAClient]


@pytest.fixture
def make_ha(peer: ScriptedPeer) -> Iterator[MakeHA]:
    """Make clients of the peer (or of other servers), which are closed at the end of the test."""
    made: list[HAClient] = []

    def make(servers: Any = None, **options: Any) -> HAClient:
        options.setdefault("delay_strategy", FixedDelayStrategy(0.01))
        client = HAClient("tester", servers or peer.uri, **options)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close(timeout=1)


def welcome(peer: ScriptedPeer, seq: int = 0, **fields: Any) -> Connection:
    """Accept the client's connection and its logon."""
    connection = peer.accept()
    connection.logon(seq, **fields)
    return connection


def connected(client: HAClient, peer: ScriptedPeer, seq: int = 0) -> Connection:
    with in_background(client.connect_and_logon, timeout=WAIT_S):
        return welcome(peer, seq)


class Recording(DefaultServerChooser):
    """A chooser that notes its reports."""

    def __init__(self, *uris: str) -> None:
        super().__init__(*uris)
        self.failures: list[tuple[Exception, ConnectionInfo]] = []
        self.successes: list[ConnectionInfo] = []

    def report_failure(self, error: Exception, info: ConnectionInfo) -> None:
        self.failures.append((error, info))
        super().report_failure(error, info)

    def report_success(self, info: ConnectionInfo) -> None:
        self.successes.append(info)
        super().report_success(info)


@pytest.fixture
def dead() -> str:
    """The connection string of a port at which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"tcp://127.0.0.1:{port}/amps/json"


# Connecting


def test_client_59_the_next_server_is_tried(make_ha: MakeHA, peer: ScriptedPeer, dead: str) -> None:
    """client.md §21 59: one failure, one success"""
    chooser = Recording(dead, peer.uri)
    client = make_ha(chooser)
    connected(client, peer)
    ((error, failed),) = chooser.failures
    assert isinstance(error, ConnectionException)
    assert (failed.uri, failed.attempts, failed.client_name) == (dead, 1, "tester")
    assert [(info.uri, info.attempts) for info in chooser.successes] == [(peer.uri, 2)]
    info = client.connection_info
    assert (info.uri, info.last_error, info.server_version) == (peer.uri, error, "9.9.9")
    assert abs((info.since or 0) - time.time()) < WAIT_S
    assert not client.disconnected
    assert not client.reconnecting
    with pytest.raises(AlreadyConnectedException):
        client.connect_and_logon()


def test_client_59_no_server_at_all(make_ha: MakeHA) -> None:
    """client.md §21 59: the text of get_error()"""

    class Empty(Recording):
        def get_error(self) -> str:
            return "all servers are being maintained"

    client = make_ha(Empty())
    with pytest.raises(ConnectionException, match="all servers are being maintained"):
        client.connect_and_logon()
    assert client.disconnected
    assert not client.reconnecting


def test_client_60_the_strategy_ends_connecting(make_ha: MakeHA, dead: str) -> None:
    """client.md §21 60: gives up after the longest retry time; the waits are kept"""
    client = make_ha(dead, delay_strategy=FixedDelayStrategy(0.05, 0.2))
    began = time.monotonic()
    with pytest.raises(ConnectionException, match=r"within 0\.2 s"):
        client.connect_and_logon()
    assert time.monotonic() - began >= 0.2


def test_connecting_keeps_its_timeout(make_ha: MakeHA, peer: ScriptedPeer, dead: str) -> None:
    """Against no server, and against one that never answers a logon"""
    client = make_ha(dead)
    with pytest.raises(TimedOutException, match="refused"):
        client.connect_and_logon(timeout=SOON_S)
    client.server_chooser = DefaultServerChooser(peer.uri)
    with pytest.raises(TimedOutException):
        client.connect_and_logon(timeout=SOON_S)
    assert client.disconnected
    peer.accept().expect_close()
    connected(client, peer)


def test_an_attempt_keeps_its_timeout(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """A server that accepts connections but never answers is given up for the next"""
    client = make_ha(attempt_timeout=SOON_S)
    with in_background(client.connect_and_logon, timeout=WAIT_S):
        peer.accept().expect_close()
        welcome(peer)
    assert isinstance(client.connection_info.last_error, TimedOutException)


def test_a_refused_logon_is_a_failure_of_that_server(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §9.1 4; the authenticator of the chooser is used"""

    class Secretive:
        def authenticate(self, username: str, password: str) -> str:
            return "sesame"

        def retry(self, username: str, password: str) -> str:
            raise AssertionError

        def completed(self, username: str, password: str, reason: str) -> None:
            pass

    class Choosing(Recording):
        def get_current_authenticator(self) -> Secretive:
            return Secretive()

    chooser = Choosing(peer.uri)
    client = make_ha(chooser)
    with in_background(client.connect_and_logon, timeout=WAIT_S):
        first = peer.accept()
        frame = first.expect("logon")
        assert frame["pw"] == "sesame"
        first.ack(frame, status="failure", reason="auth failure")
        welcome(peer)
    assert [type(error) for error, _ in chooser.failures] == [AuthenticationException]


def test_client_56_a_server_that_lags_behind_is_passed_over(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 56: error_on_publish_gap"""
    other = ScriptedPeer()
    try:
        chooser = Recording(peer.uri, other.uri)
        client = make_ha(chooser, publish_store=MemoryPublishStore(error_on_publish_gap=True))
        first = connected(client, peer, seq=10)
        first.close()
        welcome(peer, seq=9)
        welcome(other, seq=10)
        wait_for(lambda: client.state == ConnectionState.RESUBSCRIBED)
        assert [type(error) for error, _ in chooser.failures] == [PublishStoreGapException]
    finally:
        client.close()
        other.close()


def test_a_chooser_that_raises_ends_connecting(make_ha: MakeHA) -> None:
    class Broken(Recording):
        def get_current_uri(self) -> str:
            raise ZeroDivisionError("broken chooser")

    with pytest.raises(ZeroDivisionError):
        make_ha(Broken()).connect_and_logon()


def test_calls_that_an_ha_client_does_not_have(make_ha: MakeHA) -> None:
    """client.md §19.5"""
    client = make_ha()
    with pytest.raises(UsageException):
        client.connect()
    with pytest.raises(UsageException):
        client.logon()
    with pytest.raises(UsageException):
        client.set_disconnect_handler(None)
    with pytest.raises(DisconnectedException):
        client.flush()


# Reconnecting


def test_client_61_states_are_told_in_order(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 61"""
    client = make_ha(heartbeat=LONG_S, publish_store=MemoryPublishStore())
    states: list[ConnectionState] = []
    client.add_connection_state_listener(states.append)
    connection = connected(client, peer)
    connection.expect("heartbeat")
    subscribe(client, connection, print)
    client.publish("t", b"1")
    for _ in range(3):
        states.clear()
        connection.close()
        connection = welcome(peer)
        connection.expect("heartbeat")
        connection.expect("publish")
        connection.ack(connection.expect("subscribe"))
        wait_for(lambda: ConnectionState.RESUBSCRIBED in states)
        assert [state.name for state in states] == [
            "DISCONNECTED", "CONNECTED", "LOGGED_ON", "HEARTBEAT_INITIATED", "PUBLISH_REPLAYED", "RESUBSCRIBED",
        ]  # fmt: skip
    assert client.stats.reconnects == 3


def test_client_62_subscriptions_survive(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 62: with their ids and handlers; execute_async_no_resubscribe does not"""
    client = make_ha()
    connection = connected(client, peer)
    got: list[tuple[str | None, bytes]] = []
    kept = subscribe(client, connection, lambda m: got.append((m.sub_id, m.data)))
    with in_background(client.execute_async_no_resubscribe, Command("subscribe", "t"), got.append) as call:
        connection.ack(connection.expect("subscribe"))
    connection.close()
    connection = welcome(peer)
    frame = connection.expect("subscribe")
    assert frame["sub_id"] == kept != call.value
    connection.ack(frame)
    connection.expect_nothing()
    connection.publish(kept, b"after")
    wait_for(lambda: got == [(kept, b"after")])


def test_client_30_a_stream_goes_on(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 30: also a bookmark stream, which leaves out what it has seen"""
    client = make_ha()
    connection = connected(client, peer)
    with in_background(client.bookmark_subscribe, "t", EPOCH, sub_id="s") as call:
        connection.ack(connection.expect("subscribe"))
    stream = call.result()
    connection.publish("s", b"1", bm="7|1|")
    assert stream.get(WAIT_S).data == b"1"
    connection.publish("s", b"2", bm="7|2|")
    wait_for(lambda: stream.depth == 1)
    connection.close()
    connection = welcome(peer)
    frame = connection.expect("subscribe")
    assert frame["bm"] == "7|2|"
    connection.publish("s", b"2", bm="7|2|")
    connection.publish("s", b"3", bm="7|3|")
    connection.ack(frame)
    assert [stream.get(WAIT_S).data for _ in (2, 3)] == [b"2", b"3"]
    assert client.stats.duplicates_dropped == 1


def test_client_30_a_stream_ends_without_resume(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 30: resume_streams=False, after the buffered messages"""
    client = make_ha(resume_streams=False)
    connection = connected(client, peer)
    with in_background(client.subscribe, "t", sub_id="s") as call:
        connection.ack(connection.expect("subscribe"))
    stream = call.result()
    connection.publish("s", b"1")
    connection.close()
    assert stream.get(WAIT_S).data == b"1"
    with pytest.raises(DisconnectedException):
        stream.get(WAIT_S)
    welcome(peer).expect_nothing()


def test_client_42_leftover_acks_go_out_first(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 42: after logon and before any subscribe"""
    client = make_ha(ack_batch_size=10, ack_timeout=0)
    connection = connected(client, peer)
    got: list[Message] = []
    subscribe(client, connection, got.append)
    for n in (1, 2):
        connection.publish("1", b"x", topic="q", bm=f"7|{n}|", lp="20300101T000000Z")
    connection.publish((got and "1") or "2", b"x", topic="q", bm="7|1|", lp="20300101T000000Z")
    connection.publish("2", b"x", topic="q", bm="7|2|", lp="20300101T000000Z")
    wait_for(lambda: len(got) == 2)
    for message in got:
        message.ack()
    connection.close()
    connection = welcome(peer)
    assert connection.expect("sow_delete")["bm"] == "7|1|,7|2|"
    connection.expect("subscribe")


def test_client_53_the_store_is_sent_again(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 53: 100 publishes, 60 acknowledged, the server has 70"""
    client = make_ha(publish_store=MemoryPublishStore())
    connection = connected(client, peer)
    for n in range(1, 101):
        client.publish("t", b"%d" % n)
    for _ in range(100):
        connection.expect("publish")
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 60})
    wait_for(lambda: client.unpersisted_count == 40)
    connection.close()
    connection = welcome(peer, seq=70)
    frames = [connection.expect("publish") for _ in range(30)]
    assert [(frame["s"], frame.body) for frame in frames] == [(n, b"%d" % n) for n in range(71, 101)]
    assert client.publish("t", b"new") == 101
    assert connection.expect("publish")["s"] == 101


def test_client_63_a_silent_server_is_left(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 63: the start and a beat, then silence"""
    client = make_ha(heartbeat=0.5, heartbeat_timeout=0.6)
    connection = connected(client, peer)
    assert connection.expect("heartbeat")["o"] == "start,1"
    connection.send({"c": "heartbeat"})
    assert connection.expect("heartbeat")["o"] == "beat"
    again = welcome(peer)
    assert again.expect("heartbeat")["o"] == "start,1"
    assert isinstance(client.connection_info.last_error, ConnectionException)
    assert "nothing received" in str(client.connection_info.last_error)


def test_a_subscription_refused_by_the_next_server(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §9.1 9: that server counts as failed, unless the handler accepts it"""
    asked: list[tuple[str | None, AMPSException]] = []

    def refused(command: Command, error: AMPSException) -> bool:
        asked.append((command.sub_id, error))
        with pytest.raises(UsageException):
            client.flush()
        return len(asked) > 1

    chooser = Recording(peer.uri)
    client = make_ha(chooser, failed_resubscribe_handler=refused)
    connection = connected(client, peer)
    subscribe(client, connection, print, sub_id="a")
    with in_background(client.subscribe, "t", sub_id="b") as call:
        connection.ack(connection.expect("subscribe"))
    stream = call.result()
    connection.close()
    for _ in range(2):
        connection = welcome(peer)
        connection.ack(connection.expect("subscribe"))
        connection.ack(connection.expect("subscribe"), status="failure", reason="not entitled")
    wait_for(lambda: client.state == ConnectionState.RESUBSCRIBED)
    assert [(sub_id, type(error)) for sub_id, error in asked] == [("b", NotEntitledException)] * 2
    assert [type(error) for error, _ in chooser.failures] == [NotEntitledException]
    with pytest.raises(NotEntitledException):
        stream.get(WAIT_S)


def test_a_connection_lost_again_and_again_during_recovery(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """At each step: after the connection, the logon, and the subscriptions"""
    client = make_ha(publish_store=MemoryPublishStore())
    connection = connected(client, peer)
    got: list[bytes] = []
    subscribe(client, connection, lambda m: got.append(m.data), sub_id="s")
    client.publish("t", b"kept")
    connection.close()
    peer.accept().close()
    connection = peer.accept()
    connection.expect("logon")
    connection.close()
    connection = welcome(peer)
    connection.expect("publish")
    connection.close()
    connection = welcome(peer)
    connection.expect("publish")
    connection.expect("subscribe")
    connection.close()
    connection = welcome(peer)
    assert connection.expect("publish").body == b"kept"
    connection.ack(connection.expect("subscribe"))
    connection.publish("s", b"1")
    wait_for(lambda: got == [b"1"])
    wait_for(lambda: not client.reconnecting)


def test_giving_up_in_the_background_is_reported(make_ha: MakeHA, peer: ScriptedPeer, dead: str) -> None:
    """client.md §9.1 1: to the exception listener; streams and waiting calls end, and the client may connect again"""
    client = make_ha(delay_strategy=FixedDelayStrategy(0.05, 0.5))
    told: list[BaseException] = []
    client.set_exception_listener(told.append)
    connection = connected(client, peer)
    with in_background(client.subscribe, "t", sub_id="b") as call:
        connection.ack(connection.expect("subscribe"))
    stream = call.result()
    client.server_chooser = DefaultServerChooser(dead)
    connection.close()
    wait_for(lambda: client.reconnecting)
    with pytest.raises(ConnectionException, match=r"within 0\.5 s"):
        client.flush(timeout=LONG_S)
    with pytest.raises(ConnectionException, match=r"within 0\.5 s"):
        stream.get(WAIT_S)
    wait_for(lambda: bool(told))
    assert "within 0.5 s" in str(told[0])
    assert not client.reconnecting
    with pytest.raises(DisconnectedException, match=r"within 0\.5 s"):
        client.publish("t", b"")
    client.server_chooser = DefaultServerChooser(peer.uri)
    connected(client, peer)


def test_a_dropped_client_stops_reconnecting(peer: ScriptedPeer, dead: str) -> None:
    """While it waits for its next attempt, the thread does not keep the client alive"""
    client: HAClient | None = HAClient("dropped", peer.uri, delay_strategy=FixedDelayStrategy(LONG_S))
    assert client is not None
    connection = connected(client, peer)
    chooser = Recording(dead)
    client.server_chooser = chooser
    connection.close()
    wait_for(lambda: len(chooser.failures) == 1)
    with pytest.warns(ResourceWarning, match="never closed"):  # noqa: PT031
        del client
        gc.collect()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "amps-rx:dropped"])


# Calls between two servers


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
    assert [error for error in errors if error is not None and type(error) is not AlreadyConnectedException] == []
    connection.expect_nothing()


# Handlers


@pytest.mark.parametrize("dispatch", ["inline", "thread"])
def test_handlers_may_call_the_client_during_recovery(
    dispatch: str, make_ha: MakeHA, peer: ScriptedPeer
) -> None:
    """State listeners and message handlers publish, acknowledge and end subscriptions without a deadlock"""
    client = make_ha(dispatch=dispatch, timeout=LONG_S)
    outcomes: list[str] = []

    def listen(state: ConnectionState) -> None:
        for name, call in {
            "publish": lambda: client.publish("s", state.name.encode()),
            "flush": lambda: client.flush(timeout=0.05),
            "ack": lambda: client.ack("q", "7|1|"),
        }.items():
            try:
                call()
            except AMPSException as error:
                outcomes.append(f"{name} {type(error).__name__}")
            else:
                outcomes.append(name)

    connection = connected(client, peer)
    got: list[bytes] = []

    def handle(message: Message) -> None:
        client.publish("copy", message.data)
        got.append(message.data)

    sub_id = subscribe(client, connection, handle)
    client.add_connection_state_listener(listen)
    connection.close()
    connection = welcome(peer)
    while (frame := connection.expect())["c"] != "subscribe":
        assert frame["c"] == "sow_delete"
    connection.publish(sub_id, b"early")
    if dispatch == "inline":  # a separate thread waits for the end of the recovery
        wait_for(lambda: got == [b"early"])
    connection.ack(frame)
    while (frame := connection.expect()).get("t") != "copy":
        if frame["c"] == "flush":
            connection.ack(frame, "completed")
    assert frame.body == b"early"
    wait_for(lambda: not client.reconnecting)
    wait_for(lambda: len(outcomes) >= 12)
    assert outcomes.count("ack") == 4
    client.clear_connection_state_listeners()


def test_a_listener_may_close_the_client(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """On the thread that reconnects, and on the receive thread"""
    for at in (ConnectionState.DISCONNECTED, ConnectionState.CONNECTED, ConnectionState.LOGGED_ON):
        client = make_ha()
        connection = connected(client, peer)

        def listen(state: ConnectionState, client: HAClient = client, at: ConnectionState = at) -> None:
            if state == at:
                client.close()

        client.add_connection_state_listener(listen)
        connection.close()
        if at != ConnectionState.DISCONNECTED:
            again = peer.accept()
            if at == ConnectionState.LOGGED_ON:
                again.logon()
            again.expect_close()
        wait_for(lambda client=client: client.state == ConnectionState.SHUTDOWN)  # type: ignore[misc]
        assert not client.reconnecting


def test_recovery_is_not_stopped_by_a_full_stream(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """Messages of the first subscription fill its buffer before the second one is accepted"""
    client = make_ha(max_depth=2)
    connection = connected(client, peer)
    streams = []
    for name in ("a", "b"):
        with in_background(client.subscribe, "t", sub_id=name) as call:
            connection.ack(connection.expect("subscribe"))
        streams.append(call.result())
    connection.close()
    connection = welcome(peer)
    first, second = connection.expect("subscribe"), connection.expect("subscribe")
    connection.ack(first)
    for n in range(10):
        connection.publish("a", b"%d" % n)
    connection.ack(second)
    wait_for(lambda: client.state == ConnectionState.RESUBSCRIBED)
    assert [streams[0].get(WAIT_S).data for _ in range(10)] == [b"%d" % n for n in range(10)]


def test_a_long_recovery_may_take_longer_than_an_attempt(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §19.5: the limit begins again with each step"""
    client = make_ha(attempt_timeout=0.5)
    connection = connected(client, peer)
    for n in range(6):
        subscribe(client, connection, print, sub_id=f"s{n}")
    connection.close()
    connection = welcome(peer)
    for _ in range(6):
        frame = connection.expect("subscribe")
        time.sleep(0.2)
        connection.ack(frame)
    wait_for(lambda: not client.reconnecting)
    assert client.connection_info.attempts == 1


def test_arguments_match_those_of_the_client() -> None:
    """ClientArgs lists every keyword of Client"""
    keywords = set(inspect.signature(Client).parameters) - {"name", "uri"}
    assert set(ClientArgs.__annotations__) == keywords


def test_a_slow_handler_does_not_end_a_recovery(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """The receive thread runs it, so the next acknowledgement is read later"""
    client = make_ha(attempt_timeout=0.3)
    connection = connected(client, peer)
    running = threading.Event()

    def handle(message: Message) -> None:
        running.set()
        time.sleep(1)

    for name in ("a", "b"):
        subscribe(client, connection, handle, sub_id=name)
    connection.close()
    connection = welcome(peer)
    first, second = connection.expect("subscribe"), connection.expect("subscribe")
    connection.ack(first)
    connection.publish("a", b"1")
    assert running.wait(WAIT_S)
    connection.ack(second)
    wait_for(lambda: not client.reconnecting)
    assert client.connection_info.attempts == 1


def test_an_interrupt_ends_connecting(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """Ctrl-C in connect_and_logon leaves no connection and no attempt behind"""
    client = make_ha(heartbeat=LONG_S)

    def interrupt(state: ConnectionState) -> None:
        if state == ConnectionState.HEARTBEAT_INITIATED:
            raise KeyboardInterrupt

    client.add_connection_state_listener(interrupt)
    connecting = Outcome(client.connect_and_logon, (), {"timeout": WAIT_S})
    welcome(peer).expect_close()
    with pytest.raises(KeyboardInterrupt):
        connecting.result()
    assert client.disconnected
    assert not client.reconnecting
    client.clear_connection_state_listeners()
    connected(client, peer)


def test_a_server_that_stops_reading_during_recovery_is_left(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """The replay fills the connection, so the subscription is never accepted"""
    stuck = StuckServer()
    chooser = Recording(peer.uri)
    client = make_ha(chooser, publish_store=MemoryPublishStore(), attempt_timeout=6.0)
    try:
        connection = connected(client, peer)
        subscribe(client, connection, print, sub_id="s")
        chooser.add(stuck.uri)
        chooser.next()
        stuck.let_in()
        for _ in range(8):
            client.publish("t", bytes(1 << 20))
        connection.close()
        connection = welcome(peer)
        assert [type(error) for error, _ in chooser.failures] == [TimedOutException]
        assert [connection.expect("publish")["s"] for _ in range(8)] == list(range(1, 9))
        connection.ack(connection.expect("subscribe"))
        wait_for(lambda: not client.reconnecting)
    finally:
        stuck.close()


def test_a_chooser_that_exits_ends_reconnecting(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """Waiting calls fail; none waits for a thread that has ended"""

    class Exiting(Recording):
        def get_current_uri(self) -> str | None:
            if self.successes:
                raise SystemExit("enough")
            return super().get_current_uri()

    client = make_ha(Exiting(peer.uri), timeout=LONG_S)
    told: list[BaseException] = []
    client.set_exception_listener(told.append)
    connected(client, peer).close()
    wait_for(lambda: bool(told))
    with pytest.raises(DisconnectedException, match="enough"):
        client.flush()
    assert not client.reconnecting


def test_a_connection_after_an_attempt_that_was_ended(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """The thread of the old attempt does not touch the new connection"""
    entered, proceed, calls = threading.Event(), threading.Event(), list[int]()

    class Slow:
        def authenticate(self, username: str, password: str) -> str:
            calls.append(1)
            if len(calls) == 2:
                entered.set()
                assert proceed.wait(WAIT_S)
            return password

        def retry(self, username: str, password: str) -> str:
            raise AssertionError

        def completed(self, username: str, password: str, reason: str) -> None:
            pass

    client = make_ha(authenticator=Slow())
    connected(client, peer).close()
    old = peer.accept()
    assert entered.wait(WAIT_S)
    client.disconnect()
    old.expect_close()
    connection = connected(client, peer)
    proceed.set()
    wait_for(lambda: len([t for t in threading.enumerate() if t.name == "amps-rx:tester"]) == 1)
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")


def test_memory_backed() -> None:
    client = HAClient.memory_backed("me", ["tcp://h:1/amps/json"], timeout=3)
    assert isinstance(client.publish_store, MemoryPublishStore)
    assert client.bookmark_store is not None
    assert client.timeout == 3
    client.close()


def test_a_rival_with_the_same_name_is_given_time(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """Two clients of one name must not end each other's connections without a pause"""
    client = make_ha()
    connection = connected(client, peer)
    connection.send(
        {"c": "ack", "a": "processed", "status": "failure", "reason": "name in use", "client_name": "tester"}
    )
    began = time.monotonic()
    connection.close()
    welcome(peer)
    assert time.monotonic() - began >= 0.5
    assert client.connection_info.last_error is not None
    assert "name in use" in str(client.connection_info.last_error)


def test_a_dropped_client_is_collected(peer: ScriptedPeer) -> None:
    """While it is connected: without a cycle of references, at once"""
    client = HAClient("collected", peer.uri)
    connection = connected(client, peer)
    with pytest.warns(ResourceWarning, match="never closed"):
        del client
    connection.expect_close()
