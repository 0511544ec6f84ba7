"""Streams, handlers and threads: the thread in which each one runs, and the effect of slow consumers."""

import gc
import logging
import threading
import time
from typing import Any

import pytest

from amps.client import (
    Client,
    Command,
    ConnectionState,
    DisconnectedException,
    MemoryPublishStore,
    Message,
    MessageStream,
    StreamException,
    UsageException,
)
from tests.unit.client.peer import WAIT_S, Connection, Outcome, in_background
from tests.unit.client.talk import LoggedOn, stream_of, subscribe, synchronise, wait_for


def test_client_25_a_raising_handler_stops_nothing(
    logged_on: LoggedOn, caplog: pytest.LogCaptureFixture
) -> None:
    """client.md §21 25"""
    client, connection = logged_on()
    got: list[bytes] = []
    errors: list[BaseException] = []

    def handler(message: Message) -> None:
        got.append(message.data)
        raise ValueError("handler")

    sub_id = subscribe(client, connection, handler)
    with caplog.at_level(logging.WARNING, "amps.client"):
        for n in range(3):
            connection.publish(sub_id, b"%d" % n)
        synchronise(client, connection)
    assert got == [b"0", b"1", b"2"]
    assert len([record for record in caplog.records if "raised" in record.message]) == 3
    caplog.clear()
    client.set_exception_listener(errors.append)
    connection.publish(sub_id, b"3")
    synchronise(client, connection)
    assert [str(error) for error in errors] == ["handler"]
    assert caplog.records == []
    assert client.stats.handler_errors == 4


def test_client_26_waiting_commands_in_handlers(logged_on: LoggedOn) -> None:
    """client.md §21 26: refused with inline dispatch, allowed with a dispatch thread"""
    outcomes: list[Any] = []
    done = threading.Event()
    for dispatch in ("inline", "thread"):
        client, connection = logged_on(dispatch=dispatch, name=dispatch)

        def handler(message: Message, client: Client = client) -> None:
            try:
                outcomes.append(client.sow_count("t"))
            except UsageException as error:
                outcomes.append(error)
            done.set()

        sub_id = subscribe(client, connection, handler)
        done.clear()
        connection.publish(sub_id, b"x")
        if dispatch == "thread":
            frame = connection.expect("sow")
            connection.ack(frame)
            connection.ack(frame, "stats", matches=7)
        assert done.wait(WAIT_S)
    assert isinstance(outcomes[0], UsageException)
    assert outcomes[1] == 7


def test_dispatch_thread_keeps_order_over_handlers_and_is_bounded(logged_on: LoggedOn) -> None:
    client, connection = logged_on(dispatch="thread", max_depth=10)
    got: list[int] = []
    names: set[str] = set()

    def handler(message: Message) -> None:
        names.add(threading.current_thread().name)
        got.append(int(message.data))

    first = subscribe(client, connection, handler)
    second = subscribe(client, connection, handler)
    for n in range(200):
        connection.publish(first if n % 2 else second, b"%d" % n)
    wait_for(lambda: len(got) == 200)
    assert got == list(range(200))
    assert names == {"amps-dispatch:tester"}


def test_client_27_idle_streams(logged_on: LoggedOn) -> None:
    """client.md §21 27"""
    client, connection = logged_on()
    stream = stream_of(client, connection).set_timeout(0.2)
    started = time.monotonic()
    assert [next(stream), next(stream)] == [None, None]
    assert time.monotonic() - started >= 0.35
    assert stream.get(0.05) is None
    connection.publish(str(stream.sub_id), b"x")
    message = stream.get(WAIT_S)
    assert message is not None
    assert message.data == b"x"
    stream.close()
    with pytest.raises(EOFError):
        stream.get(0.1)
    assert list(stream) == []


def test_client_28_a_full_stream_pushes_back_but_never_deadlocks(logged_on: LoggedOn) -> None:
    """client.md §21 28"""
    client, connection = logged_on(max_depth=10)
    stream = stream_of(client, connection)
    for n in range(1000):
        connection.publish(str(stream.sub_id), b"%d" % n)
    wait_for(lambda: stream.depth == 10)
    time.sleep(0.1)
    assert stream.depth == 10
    call = Outcome(client.sow_count, ("t",), {})
    frame = connection.expect("sow")
    connection.ack(frame)
    connection.ack(frame, "stats", matches=1)
    assert call.result() == 1
    assert [int(next(stream).data) for _ in range(1000)] == list(range(1000))
    assert stream.dropped == 0


def test_full_streams_may_drop_or_end(logged_on: LoggedOn) -> None:
    """client.md §19.4"""
    client, connection = logged_on()
    dropping = stream_of(client, connection, max_depth=5, on_full="drop_oldest")
    raising = stream_of(client, connection, max_depth=5, on_full="raise")
    for n in range(8):
        connection.publish(str(dropping.sub_id), b"%d" % n)
    synchronise(client, connection)
    assert [int(message.data) for message in dropping.drain()] == [3, 4, 5, 6, 7]
    assert dropping.dropped == 3
    for n in range(8):
        connection.publish(str(raising.sub_id), b"%d" % n)
    assert connection.expect("unsubscribe")["sub_id"] == raising.sub_id
    taken = [next(raising) for _ in range(raising.depth)]
    assert [int(message.data) for message in taken] == [0, 1, 2, 3, 4][: len(taken)]
    with pytest.raises(StreamException):
        next(raising)
    assert isinstance(raising.error, StreamException)


def test_client_29_conflation_keeps_the_newest_of_each_key(logged_on: LoggedOn) -> None:
    """client.md §21 29, [P]"""
    client, connection = logged_on()
    stream = stream_of(client, connection).conflate()
    sub_id = str(stream.sub_id)
    connection.publish(sub_id, b"first", k="1")
    connection.publish(sub_id, b"other", k="2")
    for n in range(100):
        connection.publish(sub_id, b"%d" % n, k="1")
    for n in range(3):
        connection.publish(sub_id, b"plain %d" % n)
    synchronise(client, connection)
    assert [message.data for message in stream.drain()] == [
        b"99",
        b"other",
        b"plain 0",
        b"plain 1",
        b"plain 2",
    ]


def test_client_30_buffered_messages_survive_the_connection(logged_on: LoggedOn) -> None:
    """client.md §21 30"""
    client, connection = logged_on()
    stream = stream_of(client, connection)
    for n in range(3):
        connection.publish(str(stream.sub_id), b"%d" % n)
    synchronise(client, connection)
    connection.close()
    assert [next(stream).data for _ in range(3)] == [b"0", b"1", b"2"]
    for _ in range(2):
        with pytest.raises(DisconnectedException):
            next(stream)
    client.disconnect()


def test_disconnecting_ends_streams_without_an_error(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection)
    client.disconnect()
    assert stream.to_list() == []


def test_client_31_leaving_and_dropping_streams_unsubscribes(logged_on: LoggedOn) -> None:
    """client.md §21 31"""
    client, connection = logged_on()
    with stream_of(client, connection) as stream:
        pass
    assert connection.expect("unsubscribe")["sub_id"] == stream.sub_id
    dropped: MessageStream | None = stream_of(client, connection)
    assert dropped is not None
    sub_id = dropped.sub_id
    dropped = None
    gc.collect()
    assert connection.expect("unsubscribe")["sub_id"] == sub_id
    with in_background(client.sow, "t") as call:
        frame = connection.expect("sow")
        connection.ack(frame)
        connection.send({"c": "group_begin", "query_id": frame["query_id"]})
    call.value.close()
    cancel = connection.expect("unsubscribe")
    assert (cancel["query_id"], cancel.get("sub_id")) == (frame["query_id"], None)


def test_control_shows_group_markers_and_acks(logged_on: LoggedOn) -> None:
    """client.md §19.4 and §21 14, [P] part"""
    client, connection = logged_on()
    commands = {}
    for control in (False, True):
        call = Outcome(client.execute, (Command("sow", "t").add_ack_type("stats"),), {"control": control})
        frame = connection.expect("sow")
        connection.ack(frame)
        query_id = frame["query_id"]
        connection.send({"c": "group_begin", "query_id": query_id})
        connection.send({"c": "sow", "t": "t", "query_id": query_id, "bs": 1}, body=b'{"k":"1","l":2}{}')
        connection.send({"c": "group_end", "query_id": query_id})
        connection.ack(frame, "stats", records_returned=1)
        commands[control] = [message.command for message in call.result()]
    assert commands == {False: ["sow"], True: ["group_begin", "sow", "group_end", "ack"]}


def test_client_32_messages_can_be_kept(logged_on: LoggedOn) -> None:
    """client.md §21 32"""
    client, connection = logged_on()
    kept: list[Message] = []
    count = 0

    def handler(message: Message) -> None:
        nonlocal count
        count += 1
        if count == 1:
            kept.append(message)

    sub_id = subscribe(client, connection, handler)
    connection.publish(sub_id, b"keep me", bm="1|1|")
    for n in range(10_000):
        connection.publish(sub_id, b"%d" % n, bm=f"2|{n}|")
    wait_for(lambda: count == 10_001)
    assert (kept[0].data, kept[0].bookmark, kept[0].sub_id) == (b"keep me", "1|1|", sub_id)


def test_client_33_a_slow_handler_does_not_cost_the_connection(logged_on: LoggedOn) -> None:
    """client.md §21 33: beats are sent on time, and silence during the handler is not counted against the server"""
    client, connection = logged_on(heartbeat=1.5)
    release = threading.Event()
    sub_id = subscribe_past_heartbeat(client, connection, lambda _message: release.wait(WAIT_S))
    connection.publish(sub_id, b"x")
    beats = [connection.expect("heartbeat")["o"] for _ in range(3)]
    release.set()
    assert beats == ["beat"] * 3
    time.sleep(0.3)  # the client reads again, finds nothing, and must not count the handler's time as silence
    connection.send({"c": "heartbeat"})
    connection.expect("heartbeat")
    assert client.connected


def subscribe_past_heartbeat(client: Client, connection: Connection, handler: Any) -> str:
    assert connection.expect("heartbeat")["o"] == "start,2"
    call = Outcome(client.subscribe, ("t",), {"handler": handler})
    frame = connection.expect()
    while frame["c"] == "heartbeat":
        frame = connection.expect()
    connection.ack(frame)
    return str(call.result())


def test_client_34_numbers_rise_on_the_wire_with_several_publishing_threads(logged_on: LoggedOn) -> None:
    """client.md §21 34: each thread's messages stay in their order"""
    client, connection = logged_on(publish_store=MemoryPublishStore())

    def publish(thread: int) -> None:
        for n in range(1000):
            client.publish(f"t{thread}", b"%d" % n)

    threads = [threading.Thread(target=publish, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    frames = [connection.expect("publish") for _ in range(8000)]
    for thread in threads:
        thread.join()
    assert [frame["s"] for frame in frames] == list(range(1, 8001))
    for thread_number in range(8):
        mine = [int(frame.body) for frame in frames if frame["t"] == f"t{thread_number}"]
        assert mine == list(range(1000))


def test_a_lone_publish_is_sent_at_once_and_a_burst_whole(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    for _ in range(5):
        client.publish("t", b"alone")
        assert connection.expect("publish").body == b"alone"
    for n in range(20_000):
        client.publish("t", b"%d" % n)
    assert [int(connection.expect("publish").body) for _ in range(20_000)] == list(range(20_000))


def test_handlers_run_on_the_receive_thread_and_may_send(logged_on: LoggedOn) -> None:
    """client.md §5.2: a handler may publish, acknowledge and close"""
    client, connection = logged_on()
    started: list[str] = []
    client.set_receive_started_callback(lambda: started.append(threading.current_thread().name))
    client.disconnect()
    assert started == []
    names: list[str] = []
    states: list[ConnectionState] = []
    client.add_connection_state_listener(states.append)

    def handler(message: Message) -> None:
        names.append(threading.current_thread().name)
        client.publish("answer", message.data)
        client.execute_async(Command("publish", "answer", data=b"again"))
        client.close()

    call = Outcome(client.open, (), {})
    assert connection.peer is not None
    second = connection.peer.accept()
    second.logon()
    call.result()
    sub_id = subscribe(client, second, handler)
    second.publish(sub_id, b"question")
    assert second.expect("publish").body == b"question"
    assert second.expect("publish").body == b"again"
    second.expect_close()
    wait_for(lambda: client.state is ConnectionState.SHUTDOWN)
    assert names == started == ["amps-rx:tester"]
    assert states[-2:] == [ConnectionState.DISCONNECTED, ConnectionState.SHUTDOWN]


def test_disconnecting_does_not_wait_for_full_buffers(logged_on: LoggedOn) -> None:
    for dispatch in ("inline", "thread"):
        client, connection = logged_on(max_depth=5, dispatch=dispatch, name=dispatch)
        release = threading.Event()
        stream = stream_of(client, connection)
        sub_id = subscribe(client, connection, lambda _message, release=release: release.wait(WAIT_S))
        for n in range(100):
            connection.publish(str(stream.sub_id), b"%d" % n)
            if dispatch == "thread":
                connection.publish(sub_id, b"x")
        while stream.depth < 5:
            time.sleep(0.005)
        started = time.monotonic()
        client.disconnect()
        assert time.monotonic() - started < 3
        release.set()
        assert len(stream.to_list()) >= 5


def test_streams_are_read_in_another_thread_than_the_receiver(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection)
    sub_id = str(stream.sub_id)
    total = 0

    def consume() -> None:
        nonlocal total
        for message in stream:
            total += int(message.data)

    consumer = threading.Thread(target=consume)
    consumer.start()
    for n in range(5000):
        connection.publish(sub_id, b"%d" % n)
    wait_for(lambda: total == sum(range(5000)))
    stream.close()
    consumer.join(WAIT_S)
    assert not consumer.is_alive()


def test_streams_have_a_telling_repr(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    stream = stream_of(client, connection, sub_id="S")
    connection.publish("S")
    wait_for(lambda: stream.depth == 1)
    assert repr(stream) == "<MessageStream subscribe 't' S: 1 buffered>"
    stream.close()
    assert repr(stream) == "<MessageStream subscribe 't' S: closed>"
    with pytest.raises(ValueError, match="negative"):
        stream.set_timeout(-1)


def test_connecting_again_in_a_handler_raises_an_error_that_says_when_it_is_possible(
    logged_on: LoggedOn,
) -> None:
    client, connection = logged_on()
    raised: list[BaseException] = []
    client.set_exception_listener(raised.append)

    def handler(message: Message) -> None:
        client.disconnect()
        client.connect()

    connection.publish(subscribe(client, connection, handler))
    wait_for(lambda: not client.connected)
    assert "when this handler returns" in str(raised[0])
