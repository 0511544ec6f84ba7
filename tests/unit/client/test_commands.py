"""Commands, acknowledgements, publishing with and without a store, against a scripted peer."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from amps.client import (
    EPOCH,
    AckType,
    BadFilterException,
    Client,
    Command,
    DefaultAuthenticator,
    DisconnectedException,
    InvalidSubIdException,
    MemoryPublishStore,
    Message,
    MessageStream,
    StoreException,
    StoreFullException,
    TimedOutException,
    UnknownException,
)
from tests.unit.client.peer import Connection, Outcome, ScriptedPeer, in_background

LoggedOn = Callable[..., tuple[Client, Connection]]


def subscribe(client: Client, connection: Connection, handler: Any, topic: str = "t", **options: Any) -> str:
    """Subscribe with a handler and let the peer accept it."""
    with in_background(client.subscribe, topic, handler=handler, **options) as call:
        connection.ack(connection.expect("subscribe"))
    return str(call.result())


def test_client_10_subscribe_headers(logged_on: LoggedOn) -> None:
    """client.md §21 10"""
    client, connection = logged_on()
    with in_background(client.subscribe, "t", handler=print) as call:
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert frame.acks == {"processed"}
    assert "o" not in frame.header
    assert frame["sub_id"] == call.value
    with in_background(client.subscribe, "t", handler=print, ack_type="completed"):
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert frame.acks == {"processed", "completed"}


@pytest.mark.parametrize(
    ("reason", "error"),
    [("bad filter", BadFilterException), ("not supported yet: content filters", UnknownException)],
)
def test_client_11_a_refused_subscription(logged_on: LoggedOn, reason: str, error: type[Exception]) -> None:
    """client.md §21 11"""
    client, connection = logged_on()
    got: list[Message] = []
    call = Outcome(client.subscribe, ("t", "/a >"), {"handler": got.append})
    frame = connection.expect("subscribe")
    assert frame["f"] == "/a >"
    connection.ack(frame, status="failure", reason=reason)
    with pytest.raises(error) as caught:
        call.result()
    assert caught.value.reason == reason  # type: ignore[attr-defined]
    sub_id = subscribe(client, connection, got.append)
    connection.publish(sub_id, b"works")
    wait_for(lambda: [message.data for message in got] == [b"works"])


def wait_for(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)


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


def test_client_15_queries_have_a_batch_size(logged_on: LoggedOn) -> None:
    """client.md §21 15, [P] part"""
    client, connection = logged_on()
    with in_background(client.sow, "t", order_by="/id DESC", top_n=3) as call:
        frame = connection.expect("sow")
        connection.ack(frame)
    assert (frame["bs"], frame["orderby"], frame["o"]) == (10, "/id DESC", "top_n=3")
    with call.result() as stream:
        assert stream.query_id == frame["query_id"]
        for header in ({"c": "group_begin"}, {"c": "group_end"}):
            connection.send({**header, "query_id": frame["query_id"]})
        assert stream.to_list() == []


def test_client_16_timeouts_cancel_the_command(logged_on: LoggedOn) -> None:
    """client.md §21 16"""
    client, connection = logged_on()
    stray: list[Message] = []
    client.set_last_chance_handler(stray.append)
    with pytest.raises(TimedOutException) as caught:
        client.subscribe("t", handler=print, timeout=0.1)
    frame = connection.expect("subscribe")
    assert caught.value.command_id == frame["cid"]
    cancel = connection.expect("unsubscribe")
    assert (cancel["sub_id"], cancel.get("query_id")) == (frame["sub_id"], None)
    with pytest.raises(TimedOutException):
        client.sow("t", timeout=0.1)
    frame = connection.expect("sow")
    assert connection.expect("unsubscribe")["query_id"] == frame["query_id"]
    connection.ack(frame)
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")
    assert stray == []


def test_client_17_one_message_for_two_handlers(logged_on: LoggedOn) -> None:
    """client.md §21 17"""
    client, connection = logged_on()
    got: list[tuple[str, str | None, bytes]] = []
    for name in "AB":
        handler = lambda message, name=name: got.append((name, message.sub_id, message.data))  # noqa: E731
        assert subscribe(client, connection, handler, sub_id=name) == name
    connection.publish("A,B", b"x")
    wait_for(lambda: len(got) == 2)
    assert got == [("A", "A", b"x"), ("B", "B", b"x")]


def test_client_18_late_messages(logged_on: LoggedOn) -> None:
    """client.md §21 18"""
    client, connection = logged_on()
    late: list[bytes] = []
    got: list[bytes] = []
    sub_id = subscribe(client, connection, lambda message: got.append(message.data))
    with in_background(client.unsubscribe, sub_id):
        frame = connection.expect("unsubscribe")
        assert frame["sub_id"] == sub_id
        connection.publish(sub_id, b"lost")
        connection.ack(frame)
    client.set_last_chance_handler(lambda message: late.append(message.data))
    connection.publish(sub_id, b"late")
    wait_for(lambda: late == [b"late"])
    with in_background(client.unsubscribe):
        frame = connection.expect("unsubscribe")
        connection.ack(frame)
    assert frame["sub_id"] == "all"
    assert got == []


def test_client_20_sow_delete(logged_on: LoggedOn) -> None:
    """client.md §21 20, [P] part"""
    client, connection = logged_on()
    for arguments, header, body in (
        ({"filter": "1=1"}, {"f": "1=1"}, b""),
        ({"keys": ["1", "2"]}, {"sow_keys": "1,2"}, b""),
        ({"data": {"id": 1}}, {}, b'{"id":1}'),
    ):
        with in_background(client.sow_delete, "t", **arguments) as call:
            frame = connection.expect("sow_delete")
            assert frame.acks == {"processed", "stats"}
            connection.ack(frame)
            connection.ack(frame, "stats", records_deleted=2)
        assert frame.header | header == frame.header
        assert frame.body == body
        assert call.value.records_deleted == 2
    with in_background(client.sow_delete, "t", filter="1=1", stats=False) as call:
        frame = connection.expect("sow_delete")
        assert frame.acks == {"processed"}
        connection.ack(frame)
    assert call.value.ack_type == AckType.PROCESSED
    for wrong in ({"filter": "1=1", "keys": ["1"]}, {}, {"data": b""}):
        with pytest.raises(ValueError, match="sow_delete"):
            client.sow_delete("t", **wrong)
    connection.expect_nothing()


def test_sow_count_asks_for_counters_only(logged_on: LoggedOn) -> None:
    """client.md §21 23, [P] part"""
    client, connection = logged_on()
    stray: list[Message] = []
    client.set_last_chance_handler(stray.append)
    with in_background(client.sow_count, "t", "/a = 1") as call:
        frame = connection.expect("sow")
        assert (frame["o"], frame["f"], frame.acks) == ("top_n=0", "/a = 1", {"processed", "stats"})
        connection.ack(frame)
        connection.send({"c": "group_begin", "query_id": frame["query_id"]})
        connection.send({"c": "group_end", "query_id": frame["query_id"]})
        connection.ack(frame, "stats", matches=7, topic_matches=9, records_returned=0)
    assert call.value == 7
    assert stray == []


def test_client_22_conflated_acks(logged_on: LoggedOn) -> None:
    """client.md §21 22"""
    client, connection = logged_on()
    seen: dict[str, list[Message]] = {"global": [], "last": [], "publish": []}
    client.set_last_chance_handler(seen["last"].append)
    command = Command("publish", "t", data=b"x", ack_type="processed,persisted")
    client.execute_async(command, seen["publish"].append)
    frame = connection.expect("publish")
    assert frame.acks == {"processed", "persisted"}
    connection.ack(frame)
    wait_for(lambda: len(seen["publish"]) == 1)
    assert seen["publish"][0].ack_type == AckType.PROCESSED
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    wait_for(lambda: len(seen["last"]) == 1)
    client.set_global_handler("ack", seen["global"].append)
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    wait_for(lambda: len(seen["global"]) == 1)
    assert len(seen["publish"]) == 1


def test_client_24_messages_may_come_before_the_ack(logged_on: LoggedOn) -> None:
    """client.md §21 24"""
    client, connection = logged_on()
    got: list[bytes] = []
    command = Command("subscribe", "t")
    with in_background(client.execute_async, command, lambda message: got.append(message.data)) as call:
        frame = connection.expect("subscribe")
        for n in range(5):
            connection.publish(frame["sub_id"], b"%d" % n)
        connection.ack(frame)
        call.wait()
        assert got == [b"0", b"1", b"2", b"3", b"4"]
    assert command.command_id is None  # the caller's command was copied


def test_client_43_44_bookmarks(logged_on: LoggedOn) -> None:
    """client.md §21 43, 44"""
    client, connection = logged_on()
    with in_background(client.bookmark_subscribe, "t", handler=print):
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert (frame["bm"], frame.acks) == ("0", {"processed"})
    with in_background(client.bookmark_subscribe, "t", EPOCH, "/a = 1", handler=print, top_n=3, sub_id="S"):
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert (frame["bm"], frame["f"], frame["top_n"], frame["sub_id"]) == ("0", "/a = 1", 3, "S")
    with pytest.raises(TypeError):
        client.delta_subscribe("t", bookmark="0")


def test_client_52_pause_and_resume(logged_on: LoggedOn) -> None:
    """client.md §21 52, [P] part: one frame each"""
    client, connection = logged_on()
    for name in "AB":
        subscribe(client, connection, print, sub_id=name, bookmark=EPOCH, pause=True)
    with in_background(client.resume, "A", "B"):
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert (frame["sub_id"], frame["o"]) == ("A,B", "resume")
    with in_background(client.pause, "A"):
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert (frame["sub_id"], frame["o"]) == ("A", "pause")


def test_pausing_an_unknown_subscription_names_it_and_sends_nothing(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    subscribe(client, connection, print, sub_id="A", bookmark=EPOCH)
    for call in (client.pause, client.resume):
        with pytest.raises(InvalidSubIdException, match="no subscription 'zz'"):
            call("A", "zz")
    connection.expect_nothing()


LONE = "\ud800"


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.publish(LONE, b"x"),
        lambda client: client.publish("t", LONE),
        lambda client: client.publish("t", b"x", expiration=-1),
        lambda client: client.publish("t", b"x", expiration=2**32),
        lambda client: client.publish("t", b"x", correlation_id=LONE),
        lambda client: client.publish("t", b"x", sow_key=LONE),
        lambda client: client.delta_publish(LONE, b"x"),
        lambda client: client.delta_publish("t", b"x", expiration=-1),
        lambda client: client.subscribe(LONE),
        lambda client: client.subscribe("t", LONE),
        lambda client: client.subscribe("t", sub_id=LONE),
        lambda client: client.subscribe("t", options=LONE),
        lambda client: client.subscribe("t", select=[LONE]),
        lambda client: client.subscribe("t", handler=print, filter=LONE),
        lambda client: client.bookmark_subscribe("t", LONE),
        lambda client: client.sow("t", order_by=LONE),
        lambda client: client.sow("t", query_id=LONE),
        lambda client: client.sow("t", sow_keys=[LONE]),
        lambda client: client.sow("t", batch_size=-1),
        lambda client: client.sow_count("t", LONE),
        lambda client: client.sow_delete("t", keys=[LONE]),
        lambda client: client.unsubscribe(LONE),
        lambda client: client.ack(LONE, "1|1|"),
        lambda client: client.ack("q", LONE),
        lambda client: client.ack("q", "1|1|", LONE),
        lambda client: client.execute(Command("subscribe", LONE)),
        lambda client: client.execute_async(Command("subscribe", "t", command_id=LONE), print),
        lambda client: client.send(Command("publish", LONE)),
        lambda client: client.send(Command("publish", "t", expiration=-1)),
        lambda client: client.logon(options=LONE),
    ],
)
@pytest.mark.parametrize("stored", [False, True], ids=["plain", "with a store"])
def test_what_no_server_could_read_is_refused_before_anything_is_sent(
    logged_on: LoggedOn, call: Callable[[Client], object], stored: bool
) -> None:
    store = MemoryPublishStore() if stored else None
    client, connection = logged_on(publish_store=store)
    with pytest.raises(ValueError, match=r"lone surrogate|surrogates not allowed|must lie|Base64"):
        call(client)
    assert client.unpersisted_count == 0
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")  # nothing came before it


def test_names_and_passwords_no_server_could_read_are_refused(
    peer: ScriptedPeer, make_client: Callable[..., Client]
) -> None:
    for options in ({"name": LONE}, {"logon_options": LONE}, {"logon_correlation": LONE}):
        with pytest.raises(ValueError, match=r"surrogate|Base64"):
            make_client(**options)

    class Tokens(DefaultAuthenticator):
        def authenticate(self, username: str, password: str) -> str:
            return f"secret{LONE}"

    client = make_client(authenticator=Tokens())
    with pytest.raises(ValueError, match="password has a lone surrogate at 6") as raised:
        client.open()
    assert "secret" not in str(raised.value)
    peer.accept().expect_close()


def test_replace_keeps_the_handler(logged_on: LoggedOn) -> None:
    """client.md §21 19, [P] part"""
    client, connection = logged_on()
    got: list[bytes] = []
    sub_id = subscribe(client, connection, lambda message: got.append(message.data))
    command = Command("subscribe", "t", filter="/b", sub_id=sub_id, options="replace")
    with in_background(client.execute_async, command) as call:
        frame = connection.expect("subscribe")
        connection.ack(frame)
    assert (frame["sub_id"], frame["f"], call.value) == (sub_id, "/b", sub_id)
    connection.publish(sub_id, b"x")
    wait_for(lambda: got == [b"x"])


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


def test_a_publish_with_the_connection_lost_under_it_is_kept(peer: ScriptedPeer, logged_on: LoggedOn) -> None:
    """Publishing never half-succeeds: it raises and has stored nothing, or the message is in the store."""
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
    client.publish_flush()  # nothing to wait for
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


def test_publish_flush_ends_when_the_connection_does(logged_on: LoggedOn) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore())
    client.publish("t", b"x")
    call = Outcome(client.publish_flush, (), {})
    connection.expect("publish")
    connection.close()
    with pytest.raises(DisconnectedException):
        call.result()


def test_client_57_a_full_store_makes_publish_wait(logged_on: LoggedOn) -> None:
    """client.md §21 57"""
    client, connection = logged_on(publish_store=MemoryPublishStore(max_bytes=1))
    assert client.publish("t", b"1") == 1
    call = Outcome(client.publish, ("t", b"2"), {})
    connection.expect("publish")
    connection.expect_nothing()
    connection.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    assert call.result() == 2
    assert connection.expect("publish")["s"] == 2


def test_client_57_a_full_store_may_raise(logged_on: LoggedOn) -> None:
    """client.md §21 57: no number is used"""
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
    """client.md §19.4: push-back stops while a thread of the client waits for an ack"""
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


def test_send_neither_waits_nor_routes(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    stray: list[Message] = []
    client.set_last_chance_handler(stray.append)
    command_id = client.send(Command("flush", ack_type="completed"))
    frame = connection.expect("flush")
    assert (frame["cid"], frame.acks) == (command_id, {"completed"})
    connection.ack(frame, "completed")
    wait_for(lambda: len(stray) == 1)


def test_commands_without_results_give_an_ended_stream(logged_on: LoggedOn) -> None:
    """client.md §5.1"""
    client, connection = logged_on()
    stream = client.execute(Command("publish", "t", data=b"x"))
    assert isinstance(stream, MessageStream)
    assert list(stream) == []
    assert connection.expect("publish").body == b"x"


def test_acks_of_other_threads_do_not_mix(logged_on: LoggedOn) -> None:
    """client.md §1: acks may come in another order than the commands"""
    client, connection = logged_on()
    calls = [Outcome(client.sow_count, (f"t{n}",), {}) for n in range(8)]
    frames = {frame["t"]: frame for frame in (connection.expect("sow") for _ in range(8))}
    for n in reversed(range(8)):
        connection.ack(frames[f"t{n}"])
        connection.ack(frames[f"t{n}"], "stats", matches=n)
    assert [call.result() for call in calls] == list(range(8))


def test_large_messages_pass_both_ways(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    body = bytes(20 * 2**20)
    got = threading.Event()
    sizes: list[int] = []

    def handler(message: Message) -> None:
        sizes.append(len(message.data))
        got.set()

    sub_id = subscribe(client, connection, handler)
    client.publish("t", body)
    assert len(connection.expect("publish").body) == len(body)
    connection.publish(sub_id, body)
    assert got.wait(10)
    assert sizes == [len(body)]
