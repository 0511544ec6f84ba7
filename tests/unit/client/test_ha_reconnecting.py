"""HAClient against scripted servers: what survives the loss of a server, and when it gives up."""

import gc
import threading

import pytest

from amps.client import (
    EPOCH,
    AMPSException,
    Command,
    ConnectionException,
    ConnectionState,
    DefaultServerChooser,
    DisconnectedException,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    Message,
    NotEntitledException,
    UsageException,
)
from tests.unit.client.ha import LONG_S, MakeHA, Recording, connected, welcome
from tests.unit.client.peer import WAIT_S, ScriptedPeer, in_background
from tests.unit.client.talk import subscribe, wait_for


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
