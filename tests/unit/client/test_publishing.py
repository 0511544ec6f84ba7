"""Publishing with and without a store, against a scripted peer."""

import pytest

from amps.client import (
    Client,
    DisconnectedException,
    MemoryPublishStore,
    Message,
    StoreException,
    StoreFullException,
    TimedOutException,
)
from tests.unit.client.peer import Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import LoggedOn, wait_for


def test_client_13_publishing_without_and_with_a_store(peer: ScriptedPeer, logged_on: LoggedOn) -> None:
    """client.md §21 13"""
    client, connection = logged_on()
    assert client.publish("t", b"x") == 0
    assert connection.expect().header == {"c": "publish", "t": "t"}
    client.close()
    client, connection = logged_on(seq=41, name="other", publish_store=MemoryPublishStore())
    assert [client.publish("t", b"x") for _ in range(3)] == [42, 43, 44]
    for number in (42, 43, 44):
        frame = connection.expect("publish")
        assert (frame["s"], frame["a"], frame.body) == (number, "persisted", b"x")
    assert client.unpersisted_count == 3
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 44})
    wait_for(lambda: client.unpersisted_count == 0)


def test_publishes_carry_their_fields_and_objects_are_encoded(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    client.publish("t", {"a": 1}, expiration=0, correlation_id="abc=", sow_key="k1")
    frame = connection.expect("publish")
    assert frame.header == {"c": "publish", "t": "t", "e": 0, "x": "abc=", "k": "k1"}
    assert frame.body == b'{"a":1}'
    client.delta_publish("t", "é")
    assert (connection.frames.get(timeout=5) or frame).body == "é".encode()
    buffer = bytearray(b"abc")
    client.publish("t", memoryview(buffer)[1:])
    assert connection.expect().body == b"bc"
    for wrong in ({"correlation_id": "a b"}, {"sow_key": "ä"}):
        with pytest.raises(ValueError, match="Base64"):
            client.publish("t", b"", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="topic"):
        client.publish("", b"")
    connection.expect_nothing()


def test_client_53_unacknowledged_publishes_are_sent_again(peer: ScriptedPeer, logged_on: LoggedOn) -> None:
    """client.md §21 53"""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    for n in range(1, 101):
        client.publish("t", b"%d" % n)
    for _ in range(100):
        connection.expect("publish")
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 60})
    wait_for(lambda: client.unpersisted_count == 40)
    connection.close()
    wait_for(lambda: not client.connected)
    with pytest.raises(DisconnectedException):
        client.publish("t", b"not stored")
    with in_background(client.open):
        connection = peer.accept()
        connection.logon(seq=70)
    frames = [connection.expect("publish") for _ in range(30)]
    assert [(frame["s"], frame.body, frame["a"]) for frame in frames] == [
        (n, b"%d" % n, "persisted") for n in range(71, 101)
    ]
    assert client.publish("t", b"101") == 101
    assert connection.expect("publish")["s"] == 101


def test_a_publish_during_a_lost_connection_is_kept(peer: ScriptedPeer, logged_on: LoggedOn) -> None:
    """A publish either raises and stores nothing, or the message is in the store."""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    published = 0

    def publish_until_disconnected() -> None:
        nonlocal published
        while True:
            client.publish("t", b"x")
            published += 1
            if published == 500:
                connection.close()

    with pytest.raises(DisconnectedException):
        publish_until_disconnected()
    assert client.unpersisted_count == published
    assert client.publish_store is not None
    assert client.publish_store.highest_unpersisted() == published


def test_client_55_publish_flush_waits_for_persisted_acks(logged_on: LoggedOn) -> None:
    """client.md §21 55"""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    client.publish_flush()  # returns at once, since nothing is unacknowledged
    for _ in range(3):
        client.publish("t", b"x")
    with pytest.raises(TimedOutException):
        client.publish_flush(timeout=0.05)
    for _ in range(3):
        connection.expect("publish")
    nudge = connection.expect("flush")
    assert nudge.acks == {"persisted"}
    with in_background(client.publish_flush):
        connection.expect("flush")
        connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 3})
    assert client.unpersisted_count == 0


def test_client_55_publish_flush_does_not_wait_for_later_publishes(logged_on: LoggedOn) -> None:
    """client.md §21 55: it waits for messages published before the call, while another thread publishes."""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    client.publish("t", b"1")
    connection.expect("publish")
    call = Outcome(client.publish_flush, (), {})
    connection.expect("flush")
    client.publish("t", b"2")
    connection.expect("publish")
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    call.result()
    assert client.unpersisted_count == 1


def test_publish_flush_ends_when_the_connection_does(logged_on: LoggedOn) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore())
    client.publish("t", b"x")
    call = Outcome(client.publish_flush, (), {})
    connection.expect("publish")
    connection.close()
    with pytest.raises(DisconnectedException):
        call.result()


def test_client_57_a_full_store_makes_publish_wait(logged_on: LoggedOn) -> None:
    """client.md §21 57: publish waits for room"""
    client, connection = logged_on(publish_store=MemoryPublishStore(max_bytes=1))
    assert client.publish("t", b"1") == 1
    call = Outcome(client.publish, ("t", b"2"), {})
    connection.expect("publish")
    connection.expect_nothing()
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    assert call.result() == 2
    assert connection.expect("publish")["s"] == 2


def test_client_57_a_full_store_may_raise(logged_on: LoggedOn) -> None:
    """client.md §21 57: publish raises and uses no number"""
    client, connection = logged_on(publish_store=MemoryPublishStore(max_bytes=1, on_full="raise"))
    client.publish("t", b"1")
    with pytest.raises(StoreFullException):
        client.publish("t", b"2")
    connection.expect("publish")
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    wait_for(lambda: client.unpersisted_count == 0)
    assert client.publish("t", b"3") == 2


def test_a_publish_waiting_for_room_ends_with_the_connection(logged_on: LoggedOn) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore(max_bytes=1))
    client.publish("t", b"1")
    call = Outcome(client.publish, ("t", b"2"), {})
    connection.expect("publish")
    connection.close()
    with pytest.raises(DisconnectedException):
        call.result()


def test_a_publish_waiting_for_room_ends_with_an_own_disconnect(logged_on: LoggedOn) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore(max_bytes=1))
    client.publish("t", b"1")
    call = Outcome(client.publish, ("t", b"2"), {})
    connection.expect("publish")
    client.disconnect()
    with pytest.raises(DisconnectedException):
        call.result()


def test_a_publish_waiting_for_room_is_not_held_up_by_an_unread_stream(logged_on: LoggedOn) -> None:
    """client.md §19.4: the receive thread does not wait for a full stream while another thread waits for an ack"""
    client, connection = logged_on(publish_store=MemoryPublishStore(max_bytes=1), max_depth=5)
    with in_background(client.subscribe, "t") as subscribing:
        connection.ack(connection.expect("subscribe"))
    stream = subscribing.result()
    client.publish("t", b"1")
    for n in range(100):
        connection.publish(stream.sub_id, b"%d" % n)
    wait_for(lambda: stream.depth == 5)
    call = Outcome(client.publish, ("t", b"2"), {})
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    assert call.result() == 2


def test_client_58_failed_writes(logged_on: LoggedOn) -> None:
    """client.md §21 58"""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    failed: list[tuple[int | None, bytes, str]] = []
    stray: list[Message] = []
    client.set_last_chance_handler(stray.append)
    client.set_failed_write_handler(
        lambda message, reason: failed.append((message.sequence, message.data, reason))
    )
    for n in range(1, 6):
        client.publish("t", b"%d" % n)
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    connection.send({"c": "ack", "a": "persisted", "status": "failure", "s": 3, "reason": "not entitled"})
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 5})
    wait_for(lambda: client.unpersisted_count == 0)
    assert failed == [(3, b"3", "not entitled")]
    assert stray == []
    client.set_failed_write_handler(None)
    client.publish("t", b"6")
    connection.send({"c": "ack", "a": "persisted", "status": "failure", "s": 6, "reason": "not entitled"})
    wait_for(lambda: len(stray) == 1)
    assert stray[0].command == "ack"
    assert client.stats.failed_writes == 2


def test_a_store_belongs_to_one_client_name() -> None:
    store = MemoryPublishStore()
    Client("one", publish_store=store)
    with pytest.raises(StoreException, match="one"):
        Client("two", publish_store=store)
