"""HAClient against scripted servers: handlers, slow servers, interrupts and rivals during a recovery."""

import threading
import time

import pytest

from amps.client import (
    AMPSException,
    ConnectionState,
    DisconnectedException,
    HAClient,
    MemoryPublishStore,
    Message,
    TimedOutException,
)
from tests.support.stuck import StuckServer
from tests.unit.client.ha import LONG_S, MakeHA, Recording, connected, welcome
from tests.unit.client.peer import WAIT_S, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import subscribe, wait_for


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
