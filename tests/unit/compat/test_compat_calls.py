"""What the calls of `amps.compat` put on the wire, and its small types, without a server."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import amps.compat as AMPS
from amps.client import errors
from tests.unit.client.peer import Connection, Frame, ScriptedPeer, in_background
from tests.unit.client.talk import wait_for

LoggedOn = tuple[AMPS.Client, Connection]


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    scripted = ScriptedPeer()
    yield scripted
    scripted.close()


def log_on(client: AMPS.Client, peer: ScriptedPeer, seq: int = 0) -> Connection:
    client.connect(peer.uri)
    with in_background(client.logon):
        connection = peer.accept()
        connection.logon(seq)
    return connection


@pytest.fixture
def logged_on(peer: ScriptedPeer) -> Iterator[LoggedOn]:
    client = AMPS.Client("tester")
    yield client, log_on(client, peer)
    client.close()


def ignore(message: AMPS.Message) -> None:
    pass


def sent(connection: Connection, call: Callable[..., Any], *arguments: Any, **named: Any) -> Frame:
    """The frame that a call sends; it is acknowledged."""
    with in_background(call, *arguments, **named):
        frame = connection.expect()
        connection.ack(frame)
    return frame


def fields(frame: Frame) -> dict[str, Any]:
    """The header without the generated ids and the acknowledgement types that the library adds."""
    return {name: value for name, value in frame.header.items() if name not in ("cid", "sub_id", "query_id", "a")}


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ("subscribe", (ignore, "t", "/a=1", "conflation=1s,"), {}, {"t": "t", "f": "/a=1", "o": "conflation=1s"}),
    ("subscribe", (ignore, "t"), {"options": "oof,"}, {"t": "t", "o": "oof"}),
    ("subscribe", (), {"handler": ignore, "topic": "t"}, {"t": "t"}),
    ("delta_subscribe", (ignore, "t", "/a=1"), {}, {"t": "t", "f": "/a=1"}),
    ("bookmark_subscribe", (ignore, "t", "0", "S", "/a=1", "live,"), {},
     {"t": "t", "bm": "0", "f": "/a=1", "o": "live"}),
    ("sow", (ignore, "t", "/a=1", "/a DESC", "20240101T000000", 5, 7, "no_sowkey,", 1000), {},
     {"t": "t", "f": "/a=1", "orderby": "/a DESC", "bm": "20240101T000000", "bs": 5, "top_n": 7, "o": "no_sowkey"}),
    ("sow", (ignore, "t"), {}, {"t": "t", "bs": 10}),
    ("sow_and_subscribe", (ignore, "t", "/a=1"), {"oof_enabled": True}, {"t": "t", "f": "/a=1", "bs": 10, "o": "oof"}),
    ("sow_and_delta_subscribe", (ignore, "t"), {"oof_enabled": True, "send_empties": False, "options": "timestamp,"},
     {"t": "t", "bs": 10, "o": "oof,no_empties,timestamp"}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments", "named", "header"), CALLS)
def test_named_calls_take_the_documented_order(
    logged_on: LoggedOn,
    method: str,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    header: dict[str, Any],
) -> None:
    """client.md §19.12: the handler is first, and the rest in the order of §3.6 and §3.7."""
    client, connection = logged_on
    frame = sent(connection, getattr(client, method), *arguments, **named)
    long_name = "subscribe" if method == "bookmark_subscribe" else method
    found = {{"opts": "o", "topic": "t"}.get(name, name): value for name, value in fields(frame).items()}
    assert found == {"c": long_name, **header}


def test_arguments_that_do_not_fit_are_refused(logged_on: LoggedOn) -> None:
    client, _ = logged_on
    for arguments, named, told in (
        ((), {}, "needs a topic"),
        (("t",), {"topic": "u"}, "multiple values for argument 'topic'"),
        (("t",), {"nonsense": 1}, "unexpected keyword argument 'nonsense'"),
        (("t", "", "", 0, "S", "more"), {}, "at most 5 positional arguments, 6 were given"),
        (("t",), {"handler": 1}, "must be callable"),
    ):
        with pytest.raises(TypeError, match=told):
            client.subscribe(*arguments, **named)
    with pytest.raises(TypeError, match="needs a bookmark"):
        client.bookmark_subscribe("t")
    with pytest.raises(TypeError, match="needs keys"):
        client.sow_delete_by_keys("t")


def test_deletes_return_the_stats_acknowledgement(logged_on: LoggedOn) -> None:
    client, connection = logged_on
    calls: list[tuple[str, Any, str, Any]] = [
        ("sow_delete", "1=1", "f", "1=1"),
        ("sow_delete_by_keys", "1,2", "sow_keys", "1,2"),
        ("sow_delete_by_keys", ["1", "2"], "sow_keys", "1,2"),
    ]
    for method, selector, name, value in calls:
        with in_background(getattr(client, method), "t", selector) as call:
            frame = connection.expect("sow_delete")
            assert frame[name] == value
            connection.ack(frame)
            connection.ack(frame, "stats", records_deleted=3)
        assert call.result().get_records_deleted() == 3
    got: list[AMPS.Message] = []
    with in_background(client.sow_delete_by_data, got.append, "t", '{"id":1}') as call:
        frame = connection.expect("sow_delete")
        assert frame.body == b'{"id":1}'
        connection.ack(frame)
        connection.ack(frame, "stats")
    assert call.result() == frame["cid"]
    assert [message.get_ack_type() for message in got] == ["stats"]


def test_a_sow_stream_has_markers_and_requested_acknowledgements(logged_on: LoggedOn) -> None:
    """client.md §5.1, §19.12"""
    client, connection = logged_on
    with in_background(client.execute, AMPS.Command("sow").set_topic("t").add_ack_type("stats")) as call:
        frame = connection.expect("sow")
        connection.ack(frame)
    query = {"query_id": frame["query_id"]}
    connection.send({"c": "group_begin", **query})
    body = b'{"k":"1","l":1}a{"k":"2","l":1}b'
    connection.send({"c": "sow", "t": "t", "bs": 2, **query}, body=body)
    connection.send({"c": "group_end", **query})
    connection.ack(frame, "stats", records_returned=2)
    messages = list(call.result())
    assert [m.get_command() for m in messages] == ["group_begin", "sow", "sow", "group_end", "ack"]
    assert [(m.get_data(), m.get_sow_key()) for m in messages[1:3]] == [("a", "1"), ("b", "2")]
    assert messages[-1].get_records_returned() == 2


def test_times_are_milliseconds_and_zero_is_no_limit(logged_on: LoggedOn) -> None:
    client, connection = logged_on
    began_s = time.monotonic()
    with pytest.raises(AMPS.TimedOutException):
        client.subscribe(ignore, "t", timeout=50)
    assert time.monotonic() - began_s < 10  # 50 seconds otherwise
    connection.expect("subscribe")
    connection.expect("unsubscribe")
    command = AMPS.Command("subscribe").set_topic("t").set_timeout(50)
    assert command.get_timeout() == 50
    with pytest.raises(AMPS.TimedOutException):
        client.execute_async(command, ignore)
    with pytest.raises(ValueError, match="milliseconds"):
        command.set_timeout(-1)
    assert AMPS.Command("subscribe").set_timeout(0).timeout is None
    assert AMPS.Command("sow").get_timeout() == 0


def test_client_30_a_stream_ends_with_its_connection(logged_on: LoggedOn) -> None:
    """client.md §21, 30: buffered messages are read, then the stream raises."""
    client, connection = logged_on
    with in_background(client.subscribe, "t") as call:
        frame = connection.expect("subscribe")
        connection.ack(frame)
    for number in range(3):
        connection.publish(frame["sub_id"], b"%d" % number)
    connection.close()
    stream = call.result()
    assert [message.get_data() for message in itertools.islice(stream, 3)] == ["0", "1", "2"]
    with pytest.raises(AMPS.DisconnectedException):
        next(stream)


def test_a_stream_times_out_with_none_and_has_settings(logged_on: LoggedOn) -> None:
    client, connection = logged_on
    client.set_default_max_depth(7)
    with in_background(client.subscribe, "t") as call:
        frame = connection.expect("subscribe")
        connection.ack(frame)
    stream = call.result().timeout(20)
    assert next(stream) is None
    assert (stream.get_timeout(), stream.get_max_depth(), stream.getDepth()) == (20, 7, 0)
    assert stream.max_depth(0).get_max_depth() == 0
    assert stream.get_sub_id() == frame["sub_id"]
    stream.conflate().setTimeout(20000)
    connection.publish(frame["sub_id"], b"x")
    assert next(stream).get_data_raw() == b"x"
    stream.close()
    connection.expect("unsubscribe")


def test_the_failed_write_handler_gets_message_and_reason(peer: ScriptedPeer) -> None:
    failed: list[tuple[str, str]] = []
    client = AMPS.Client("tester")
    client.set_publish_store(AMPS.MemoryPublishStore(10))
    client.set_failed_write_handler(lambda message, reason: failed.append((message.get_data(), reason)))
    connection = log_on(client, peer)
    assert client.publish("t", "x") == 1
    frame = connection.expect("publish")
    assert client.get_unpersisted_count() == 1
    connection.send({"c": "ack", "a": "persisted", "s": frame["s"], "status": "failure", "reason": "not entitled"})
    wait_for(lambda: failed == [("x", "not entitled")])
    client.close()


def test_a_full_store_asks_the_resize_handler(peer: ScriptedPeer) -> None:
    """client.md §8.2, §19.12: True = grow, False = wait and ask again."""
    asked: list[int] = []
    store = AMPS.MemoryPublishStore(1)  # 2048 bytes

    def resize(which: AMPS.MemoryPublishStore, size: int) -> bool:
        assert which is store
        asked.append(size)
        return len(asked) >= 3

    store.setResizeHandler(resize)  # type: ignore[attr-defined]
    client = AMPS.Client("tester")
    client.set_publish_store(store)
    log_on(client, peer)
    for _ in range(3):
        client.publish("t", "x" * 1500)
    assert asked == [4096, 4096, 4096]
    assert client.get_unpersisted_count() == 3
    client.close()


def test_the_disconnect_handler_may_connect_again(peer: ScriptedPeer) -> None:
    """client.md §9.8"""
    client = AMPS.Client("tester")
    back: list[bool] = []

    def reconnect(lost: AMPS.Client) -> None:
        assert lost is client
        lost.connect(peer.uri)
        lost.logon(10000)
        back.append(True)

    client.set_disconnect_handler(reconnect)
    log_on(client, peer).close()
    peer.accept().logon()
    wait_for(lambda: back == [True])
    client.set_disconnect_handler(None)
    client.disconnect()
    client.close()


def test_settings_before_and_after_connecting(peer: ScriptedPeer) -> None:
    client = AMPS.Client("tester")
    client.set_logon_correlation_data("abc=")
    client.add_http_preflight_header("Cookie", "a=1")
    client.add_http_preflight_header("X: y")
    client.set_heartbeat(5)
    assert client.get_logon_correlation_data() == "abc="
    assert (client.get_name(), client.getUri(), client.get_server_version()) == ("tester", "", "")  # type: ignore[attr-defined]
    assert client._arguments["http_headers"] == ["Cookie: a=1", "X: y"]
    client.clear_http_preflight_headers()
    client.connect(peer.uri)
    with in_background(client.logon, 10000, None, "ack_conflation=50ms,"):
        connection = peer.accept()
        frame = connection.expect("logon")
        assert (frame["x"], frame["opts"] if "opts" in frame.header else frame["o"]) == ("abc=", "ack_conflation=50ms")
        connection.ack(frame, version="1.2.3.4")
    assert connection.expect("heartbeat").header.get("o", connection) in ("start,5",)
    assert client.get_server_version() == "1.2.3.4"
    with pytest.raises(AMPS.UsageException, match="before the client connects"):
        client.set_publish_store(None)
    client.close()
    client.close()
    AMPS.Client("never-connected").close()
    assert AMPS.Client().get_name()


def test_timers_are_local(logged_on: LoggedOn) -> None:
    client, connection = logged_on
    got: list[AMPS.Message] = []
    client.start_timer()
    client.stop_timer(got.append)
    assert (got[0].get_ack_type(), got[0].get_command()) == ("stats", "ack")
    assert int(got[0].get_data()) >= 0
    connection.expect_nothing()


def test_all_methods_have_twins_in_camel_case() -> None:
    classes = (AMPS.Client, AMPS.Command, AMPS.Message, AMPS.MessageStream, AMPS.FIXBuilder)
    for cls in (*classes, AMPS.CompositeMessageParser, AMPS.MemoryPublishStore):
        for name in dir(cls):
            if not name.startswith("_") and "_" in name and callable(getattr(cls, name)):
                first, *rest = name.split("_")
                twin = getattr(cls, first + "".join(word.capitalize() for word in rest), None)
                assert twin is not None, f"{cls.__name__}.{name}"
    assert AMPS.Message(None).setSubId("S").getSubId() == "S"


def test_absent_fields_are_empty() -> None:
    message = AMPS.Message()
    for name in dir(AMPS.Message):
        if name.startswith("get_") and name != "get_data_raw":
            assert getattr(message, name)() in ("", 0), name
    assert message.get_data_raw() == b""
    command = AMPS.Command("sow")
    for name in dir(AMPS.Command):
        if name.startswith("get_") and name not in ("get_command", "get_data"):
            assert getattr(command, name)() in ("", 0), name


def test_every_setter_of_a_message_is_read_by_its_getter() -> None:
    for name in dir(AMPS.Message):
        if name.startswith("set_"):
            empty = AMPS.Message()
            value = 5 if getattr(empty, f"get_{name[4:]}")() == 0 else "x"
            assert getattr(empty, name)(value) is empty
            assert getattr(empty, f"get_{name[4:]}")() == value, name


def test_topics_may_be_bytes(logged_on: LoggedOn) -> None:
    client, connection = logged_on
    client.publish(b"t", "1")
    client.delta_publish(b"t", "1")
    assert [connection.expect(name)["t"] for name in ("publish", "delta_publish")] == ["t", "t"]
    assert sent(connection, client.subscribe, ignore, b"t", filter=b"/a=1")["f"] == "/a=1"
    assert AMPS.Command("publish").set_topic(b"t").get_topic() == "t"


def test_a_body_that_is_no_utf8_is_text_from_which_the_same_bytes_are_made(logged_on: LoggedOn) -> None:
    """A handler that reads it as text does not fail, and passes on what it got."""
    client, connection = logged_on
    message = AMPS.Message().set_data(b"a\xff\xc3\xa9")
    data = message.get_data()
    assert data == "a\udcff\u00e9"
    client.publish("t", data)
    assert connection.expect("publish").body == b"a\xff\xc3\xa9"
    assert message.set_data(data).get_data_raw() == b"a\xff\xc3\xa9"
    message.set_command("publish").set_topic("t")
    client.send(message)
    assert connection.expect("publish").body == b"a\xff\xc3\xa9"
    client.execute_async(AMPS.Command("publish", "t").set_data(data))
    assert connection.expect("publish").body == b"a\xff\xc3\xa9"


def test_messages_without_a_handler_go_to_the_last_chance_handler(logged_on: LoggedOn) -> None:
    """client.md §10: it has an older name, too."""
    client, connection = logged_on
    got: list[str] = []
    client.set_unhandled_message_handler(lambda message: got.append(message.get_data()))
    connection.publish("unknown", b"1")
    wait_for(lambda: got == ["1"])
    client.set_last_chance_message_handler(lambda message: got.append("L"))
    connection.publish("unknown", b"2")
    wait_for(lambda: got == ["1", "L"])


def test_all_exceptions_and_their_aliases_are_here() -> None:
    """client.md §11: catching the deprecated name catches the new one."""
    for name in vars(errors):
        if isinstance(getattr(errors, name), type) and issubclass(getattr(errors, name), Exception):
            assert getattr(AMPS, name) is getattr(errors, name)
    assert issubclass(AMPS.BadFilterException, AMPS.BadFilter)


def test_option_helpers_can_be_concatenated() -> None:
    """client.md §1.2"""
    options = AMPS.Message.Options
    text = options.OOF + options.Conflation(0.25) + options.Select("-/", "+/id") + options.MaxBacklog(5)
    assert text == "oof,conflation=250ms,select=[-/,+/id],max_backlog=5,"
    assert AMPS.Command("subscribe").set_options(text).header()["opts"] == text[:-1]


def test_native_handlers_and_ssl_init() -> None:
    with pytest.raises(NotImplementedError, match="Python callable"):
        AMPS.CMessageHandler(None)
    AMPS.ssl_init("/usr/lib/libssl.so")
