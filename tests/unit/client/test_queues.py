"""Queue acknowledgements as the client sends them, against a scripted peer."""

import time
from typing import Any

from amps.client import Client, MemoryPublishStore, Message
from tests.unit.client.peer import Connection, in_background
from tests.unit.client.talk import LoggedOn, wait_for


def queue_stream(client: Client, connection: Connection, backlog: int = 10, **options: Any) -> Any:
    with in_background(client.subscribe, "q", max_backlog=backlog, **options) as call:
        frame = connection.expect("subscribe")
        assert frame["o"] == f"max_backlog={backlog}"
        connection.ack(frame, o=f"max_backlog={backlog}")
    return call.result()


def deliver(connection: Connection, stream: Any, *numbers: int, topic: str = "q") -> None:
    for number in numbers:
        connection.publish(
            stream.sub_id, b"%d" % number, topic=topic, bm=f"1|{number}|", lp="20300101T000000.000000Z"
        )


def test_client_37_an_ack_is_a_sow_delete(logged_on: LoggedOn) -> None:
    """client.md §21 37"""
    client, connection = logged_on()
    stream = queue_stream(client, connection)
    assert stream.max_backlog == 10
    deliver(connection, stream, 1)
    next(stream).ack()
    assert connection.expect("sow_delete").header == {"c": "sow_delete", "t": "q", "bm": "1|1|"}
    client.ack_batch_size = 3
    deliver(connection, stream, 2, 3, 4)
    for _ in range(3):
        next(stream).ack()
    assert connection.expect("sow_delete")["bm"] == "1|2|,1|3|,1|4|"
    client.ack("q", ["1|8|", "1|9|"], "cancel")
    frame = connection.expect("sow_delete")
    assert (frame["bm"], frame["o"]) == ("1|8|,1|9|", "cancel")
    assert client.stats.acks_sent == 3
    stream.close()


def test_client_38_a_batch_is_never_larger_than_the_backlog(logged_on: LoggedOn) -> None:
    """client.md §21 38, [P] part: batches are bounded by the backlog"""
    client, connection = logged_on(ack_batch_size=100)
    with queue_stream(client, connection, 5) as stream:
        deliver(connection, stream, *range(1, 11))
        for _ in range(10):
            next(stream).ack()
        for _ in range(2):
            assert connection.expect("sow_delete")["bm"].count("|") == 10


def test_client_39_partial_batches_go_out_after_the_timeout(logged_on: LoggedOn) -> None:
    """client.md §21 39"""
    client, connection = logged_on(ack_batch_size=10, ack_timeout=0.2)
    with queue_stream(client, connection) as stream:
        deliver(connection, stream, 1, 2)
        started = time.monotonic()
        for _ in range(2):
            next(stream).ack()
        assert connection.expect("sow_delete")["bm"] == "1|1|,1|2|"
        assert time.monotonic() - started > 0.1
        connection.expect_nothing(0.3)


def test_client_39_the_default_timeout_is_a_second(logged_on: LoggedOn) -> None:
    """client.md §21 39"""
    client, connection = logged_on(ack_batch_size=10)
    with queue_stream(client, connection) as stream:
        deliver(connection, stream, 1)
        message = next(stream)
        started = time.monotonic()
        message.ack()
        assert connection.expect("sow_delete")["bm"] == "1|1|"
        assert time.monotonic() - started > 0.9


def test_client_39_42_without_timeout_only_flush_and_close_send(logged_on: LoggedOn) -> None:
    """client.md §21 39, 42"""
    client, connection = logged_on(ack_batch_size=10, ack_timeout=0)
    stream = queue_stream(client, connection)
    deliver(connection, stream, 1, 2, 3)
    next(stream).ack()
    connection.expect_nothing(0.3)
    client.flush_acks()
    assert connection.expect("sow_delete")["bm"] == "1|1|"
    next(stream).ack()
    next(stream).ack()
    client.close()
    assert connection.expect("sow_delete")["bm"] == "1|2|,1|3|"


def test_client_40_auto_ack_of_handlers(logged_on: LoggedOn) -> None:
    """client.md §21 40: acknowledged after the handler returned; with `cancel` if it raised"""
    client, connection = logged_on(auto_ack=True)
    client.set_exception_listener(lambda _error: None)
    seen: list[bytes] = []

    def handler(message: Message) -> None:
        connection.expect_nothing(0.05)
        seen.append(message.data)
        if message.data == b"2":
            raise ValueError("no")

    with in_background(client.subscribe, "q", handler=handler, max_backlog=2) as call:
        frame = connection.expect("subscribe")
        connection.ack(frame, o="max_backlog=2")
    for number in (1, 2):
        connection.publish(call.value, b"%d" % number, topic="q", bm=f"1|{number}|", lp="x")
        frame = connection.expect("sow_delete")
        assert frame["bm"] == f"1|{number}|"
        assert frame.get("o") == (None if number == 1 else "cancel")
    wait_for(lambda: client.stats.handler_errors == 1)


def test_client_40_auto_ack_of_streams(logged_on: LoggedOn) -> None:
    """client.md §21 40: message n is acknowledged when message n + 1 is requested"""
    client, connection = logged_on(auto_ack=True)
    stream = queue_stream(client, connection)
    deliver(connection, stream, 1, 2)
    next(stream)
    connection.expect_nothing(0.1)
    next(stream)
    assert connection.expect("sow_delete")["bm"] == "1|1|"
    stream.close()
    assert connection.expect()["c"] == "unsubscribe"
    connection.expect_nothing(0.1)


def test_client_41_acks_with_options_and_of_other_messages(logged_on: LoggedOn) -> None:
    """client.md §21 41"""
    client, connection = logged_on(ack_batch_size=10)
    stream = queue_stream(client, connection)
    deliver(connection, stream, 1, 2)
    next(stream).ack()
    next(stream).ack("expire")
    plain, expire = connection.expect("sow_delete"), connection.expect("sow_delete")
    assert (plain["bm"], plain.get("o")) == ("1|1|", None)
    assert (expire["bm"], expire["o"]) == ("1|2|", "expire")
    with in_background(client.subscribe, "t") as call:
        connection.ack(connection.expect("subscribe"))
    other = call.result()
    connection.publish(other.sub_id, b"x", bm="9|9|")
    next(other).ack()
    client.flush_acks()
    connection.expect_nothing(0.1)


def test_messages_as_contexts_ack_or_cancel(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    stream = queue_stream(client, connection)
    deliver(connection, stream, 1, 2)
    with next(stream):
        pass
    assert connection.expect("sow_delete").get("o") is None
    try:
        with next(stream):
            raise KeyError
    except KeyError:
        assert connection.expect("sow_delete")["o"] == "cancel"


def test_acks_with_a_store_are_numbered_and_kept(logged_on: LoggedOn) -> None:
    """client.md §6: with a publish store acks get sequence numbers"""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    stream = queue_stream(client, connection)
    deliver(connection, stream, 1)
    next(stream).ack()
    frame = connection.expect("sow_delete")
    assert (frame["s"], frame["a"], frame["bm"]) == (1, "persisted", "1|1|")
    assert client.unpersisted_count == 1
