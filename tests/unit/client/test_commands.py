"""Commands and their acknowledgements, against a scripted peer."""

import threading
from collections.abc import Callable

import pytest

from amps.client import (
    EPOCH,
    AckType,
    BadFilterException,
    Client,
    Command,
    DefaultAuthenticator,
    InvalidSubIdException,
    MemoryPublishStore,
    Message,
    MessageStream,
    TimedOutException,
    UnknownException,
)
from tests.unit.client.peer import Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import LoggedOn, subscribe, synchronise, wait_for


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


def test_sow_count_requests_counters_only(logged_on: LoggedOn) -> None:
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
    """client.md §21 52, [P] part: one frame for each command"""
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


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.flush(timeout="1"),
        lambda client: client.publish_flush(timeout="1"),
        lambda client: client.subscribe("t", timeout=float("nan")),
        lambda client: client.subscribe("t", handler="print"),
        lambda client: client.execute_async(Command("subscribe", "t"), 5),
        lambda client: client.subscribe("t", max_depth=-1),
        lambda client: client.subscribe("t", on_full="wait"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    logged_on: LoggedOn, call: Callable[[Client], object]
) -> None:
    client, connection = logged_on()
    with pytest.raises((TypeError, ValueError), match=r"number of seconds|callable|max_depth|on_full"):
        call(client)
    synchronise(client, connection)


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
def test_an_argument_no_server_could_read_is_refused_before_anything_is_sent(
    logged_on: LoggedOn, call: Callable[[Client], object], stored: bool
) -> None:
    store = MemoryPublishStore() if stored else None
    client, connection = logged_on(publish_store=store)
    with pytest.raises(ValueError, match=r"lone surrogate|surrogates not allowed|must lie|Base64"):
        call(client)
    assert client.unpersisted_count == 0
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")  # no frame was sent before it


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
    """client.md §1: acks may arrive in another order than the commands"""
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
