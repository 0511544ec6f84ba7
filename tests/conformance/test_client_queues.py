"""The client library as a consumer of queues, against a server: client.md §6; §21, 36 to 42; queues.md §8.6, D-29."""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.client import Client, ConnectionState, MemoryPublishStore, Message, MessageStream, UsageException
from tests.support.peers import Peers
from tests.support.queues import Queueing, bodies, options, queue_xml
from tests.support.server import ServerProcess, StartServer, wait_until

TIMEOUT_S = 20.0
QUIET_S = 0.5

MakeClient = Callable[..., Client]


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q, and Q1 that delivers at most once, over T; both allow 5 messages at a time."""
    server = start_server(
        **options(
            queue_xml("Q", "T", MaxPerSubscriptionBacklog=5, LeasePeriod="30s"),
            queue_xml("Q1", "T1", MaxPerSubscriptionBacklog=5, Semantics="at-most-once"),
        )
    )
    return Queueing(server, peers)


@pytest.fixture
def make_client(queueing: Queueing, unique: str) -> Iterator[MakeClient]:
    """Makes logged-on clients that are closed with the test."""
    made: list[Client] = []

    def make(name: str = "consumer", **more: Any) -> Client:
        made.append(Client(unique + name, uri(queueing.server), **more))
        return made[-1].open()

    yield make
    for client in made:
        client.close()


def uri(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


def next_of(stream: MessageStream) -> Message:
    message = stream.get(TIMEOUT_S)
    assert message is not None, "nothing came"
    return message


def is_closed(client: Client) -> bool:
    try:
        client.get_most_recent("s")
    except UsageException:
        return True
    return False


def quiet(stream: MessageStream) -> None:
    assert stream.get(QUIET_S) is None


def test_client_36_queue_and_consumer_limit_the_backlog(queueing: Queueing, make_client: MakeClient) -> None:
    """client.md §21, 36"""
    queueing.publish(*range(1, 8))
    client = make_client()
    with client.subscribe("Q") as stream:
        assert stream.max_backlog == 1
        message = next_of(stream)
        quiet(stream)
        message.ack()
        assert next_of(stream).data == bodies(2)[0]
    with client.subscribe("Q", max_backlog=10) as stream:
        assert stream.max_backlog == 5
        assert [next_of(stream).data for _ in range(5)] == bodies(2, 3, 4, 5, 6)
        quiet(stream)
    with client.subscribe("Q", max_backlog=0) as stream:
        assert stream.max_backlog == 0
        quiet(stream)


@pytest.mark.parametrize("topic", ["Q", "Q1"])
def test_client_38_a_batch_larger_than_the_backlog_does_not_stall(
    queueing: Queueing, make_client: MakeClient, topic: str
) -> None:
    """client.md §21, 38; queues.md D-29: the same holds where the acknowledgement only frees a place in the backlog."""
    queueing.publish(*range(1, 21), topic="T" if topic == "Q" else "T1")
    sent: list[bytes] = []
    client = make_client(ack_batch_size=100, ack_timeout=0)
    client.set_transport_filter(lambda data, outgoing: sent.append(bytes(data)) if outgoing else None)
    with client.subscribe(topic, max_backlog=10) as stream:
        for number in range(1, 21):
            message = next_of(stream)
            assert message.data == bodies(number)[0]
            message.ack()
        quiet(stream)
    client.close()
    batches = [data for data in sent if b'"sow_delete"' in data]
    assert len(batches) == 4
    assert [data.count(b"|,") for data in batches] == [4] * 4
    assert queueing.waiting(topic, 0) == []


def test_client_38_a_smaller_backlog_sends_waiting_acknowledgements(
    queueing: Queueing, make_client: MakeClient
) -> None:
    """client.md §6: the waiting acknowledgements are sent when a replacement has a backlog that is already full."""
    queueing.publish(*range(1, 5))
    client = make_client(ack_batch_size=5, ack_timeout=0)
    stream = client.subscribe("Q", max_backlog=5, sub_id="s")
    for _ in range(4):
        next_of(stream).ack()
    quiet(stream)
    replacement = client.subscribe("Q", max_backlog=2, sub_id="s", replace=True)
    queueing.publish(5)
    assert replacement.max_backlog == 2
    assert next_of(replacement).data == bodies(5)[0]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_client_40_a_queue_is_consumed_and_failures_come_again(
    queueing: Queueing, make_client: MakeClient, concurrency: int
) -> None:
    """client.md §21, 40, with `consume`: each message is handled once, those of failed handlers again"""
    queueing.publish(*range(1, 41))
    attempts: list[bytes] = []
    done: set[bytes] = set()
    finished = threading.Event()

    def handler(message: Message) -> None:
        attempts.append(message.data)
        if message.json()["id"] % 10 == 0 and attempts.count(message.data) == 1:
            raise ValueError("the first time")
        done.add(message.data)
        if len(done) == 40:
            finished.set()

    client = make_client()
    client.set_exception_listener(lambda error: None)
    client.consume("Q", handler, concurrency=concurrency)
    assert finished.wait(TIMEOUT_S)
    client.close()
    assert sorted(attempts) == sorted(bodies(*range(1, 41)) + bodies(10, 20, 30, 40))
    assert queueing.waiting("Q", 0) == []


def test_client_39_a_part_of_a_batch_goes_out_in_time(queueing: Queueing, make_client: MakeClient) -> None:
    """client.md §21, 39"""
    queueing.publish(1, 2, 3)
    client = make_client(ack_batch_size=5, ack_timeout=0.2)
    with client.subscribe("Q", max_backlog=2) as stream:
        next_of(stream).ack()  # one of two: without this acknowledgement the third message would not come
        assert [next_of(stream).data for _ in range(2)] == bodies(2, 3)


def test_client_40_handlers_acknowledge_when_they_return(queueing: Queueing, make_client: MakeClient) -> None:
    """client.md §21, 40: a handler that raises cancels, and the message comes again; the others have left the queue."""
    client = make_client(auto_ack=True)
    seen: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    failures = [True, True]
    client.set_exception_listener(lambda _error: None)

    def handle(message: Message) -> None:
        seen.put(message.data)
        if message.data == bodies(2)[0] and failures:
            failures.pop()
            raise ValueError("not yet")

    client.subscribe("Q", handler=handle)
    queueing.publish(1, 2, 3)
    assert [seen.get(timeout=TIMEOUT_S) for _ in range(5)] == bodies(1, 2, 2, 2, 3)
    wait_until(lambda: client.stats.acks_sent == 5, TIMEOUT_S, queueing.server.excerpt)
    client.close()
    assert queueing.waiting("Q", 0) == []


def test_client_40_streams_acknowledge_when_asked_for_more(
    queueing: Queueing, make_client: MakeClient
) -> None:
    """client.md §21, 40: the last message comes again if the application closes the stream."""
    queueing.publish(1, 2, 3)
    client = make_client(auto_ack=True)
    with client.subscribe("Q", max_backlog=5) as stream:
        assert [next_of(stream).data for _ in range(2)] == bodies(1, 2)
    client.close()
    assert queueing.waiting("Q", 2) == bodies(2, 3)


def test_client_41_options_take_effect_at_once(queueing: Queueing, make_client: MakeClient) -> None:
    """client.md §21, 41: acknowledgements with options are sent after the plain ones of a batch."""
    queueing.publish(*range(1, 5))
    client = make_client(ack_batch_size=5, ack_timeout=0)
    with client.subscribe("Q", max_backlog=4) as stream:
        held = [next_of(stream) for _ in range(4)]
        held[0].ack()
        held[1].ack("expire")
        held[2].ack("cancel")
        assert next_of(stream).data == bodies(3)[0]
        with held[3]:
            pass
    client.close()
    assert queueing.waiting("Q", 1) == bodies(3)


def test_client_41_messages_without_a_queue_are_not_acknowledged(
    queueing: Queueing, make_client: MakeClient
) -> None:
    """client.md §21, 41: neither messages of an ordinary topic, nor those of a replay of a queue."""
    client = make_client()
    stream = client.subscribe("T", with_bookmarks=True)
    queueing.publish(1)
    next_of(stream).ack()
    replay = client.bookmark_subscribe("Q", "0")
    next_of(replay).ack()
    client.flush_acks()
    assert client.stats.acks_sent == 0
    client.close()
    assert queueing.waiting("Q", 1) == bodies(1)


def test_client_41_a_queue_that_delivers_once_wants_acknowledgements(
    queueing: Queueing, make_client: MakeClient
) -> None:
    """client.md §21, 41; queues.md D-29"""
    queueing.publish(*range(1, 7), topic="T1")
    client = make_client()
    with client.subscribe("Q1", max_backlog=5) as stream:
        held = [next_of(stream) for _ in range(5)]
        assert {message.lease_period for message in held} == {"0"}
        quiet(stream)
        held[0].ack()
        assert next_of(stream).data == bodies(6)[0]


def test_client_42_closing_sends_waiting_acknowledgements(
    queueing: Queueing, make_client: MakeClient
) -> None:
    """client.md §21, 42"""
    queueing.publish(1, 2, 3)
    client = make_client(ack_batch_size=5, ack_timeout=0)
    stream = client.subscribe("Q", max_backlog=5)
    for _ in range(2):
        next_of(stream).ack()
    client.close()
    assert queueing.waiting("Q", 1) == bodies(3)


@pytest.mark.parametrize("stored", [False, True], ids=["unsent", "stored"])
def test_client_42_acknowledgements_outlive_a_connection(
    queueing: Queueing, make_client: MakeClient, stored: bool
) -> None:
    """client.md §21, 42, queues.md §8.6: acknowledgements that wait in a batch, or that are numbered in a publish
    store, are sent when the same client logs on again, after the lease was broken.
    """
    server = queueing.server
    queueing.publish(1, 2, 3)
    client = make_client(
        ack_batch_size=0 if stored else 5,
        ack_timeout=0,
        publish_store=MemoryPublishStore() if stored else None,
    )
    lost: queue.SimpleQueue[bool] = queue.SimpleQueue()
    client.set_disconnect_handler(lambda _client, _error: lost.put(True))
    stream = client.subscribe("Q", max_backlog=5)
    held = [next_of(stream) for _ in range(3)]
    if stored:
        os.kill(server.core_pid(), signal.SIGSTOP)  # no acknowledgement can be sent any more
    for message in held[:2]:
        message.ack()
    assert client.unpersisted_count == (2 if stored else 0)
    server.kill_all()
    lost.get(timeout=TIMEOUT_S)
    server.start()
    client.connect()
    client.logon()
    wait_until(lambda: client.unpersisted_count == 0, TIMEOUT_S, server.excerpt)
    client.flush()
    assert Queueing(server, queueing.peers).waiting("Q", 1) == bodies(3)


def test_client_acknowledges_by_filter(queueing: Queueing, make_client: MakeClient) -> None:
    """client.md §20: sow_delete(filter=) is sent to a queue unchanged."""
    queueing.publish(1, 2, 3)
    ack = make_client().sow_delete("Q", filter="/id < 3")
    assert (ack.matches, ack.records_deleted) == (2, 2)
    assert queueing.waiting("Q", 1) == bodies(3)


def test_client_queries_a_queue(queueing: Queueing, make_client: MakeClient) -> None:
    """queues.md §14.1, D-18: rows have keys and no leases; messages that a query returns need no acknowledgement."""
    queueing.publish(1, 2, 3)
    client = make_client()
    rows = list(client.sow("Q", order_by="/id DESC", top_n=2, timestamp=True))
    assert [row.data for row in rows] == bodies(3, 2)
    assert all(row.sow_key and row.timestamp and row.lease_period is None for row in rows)
    assert client.sow_count("Q") == 3
    with client.sow_and_subscribe("Q", options="max_backlog=2") as stream:
        rows = [next_of(stream) for _ in range(3)]
        assert [row.command for row in rows] == ["sow"] * 3
        rows[0].ack()
        assert stream.max_backlog == 2
        held = [next_of(stream) for _ in range(2)]
        assert [(message.command, message.data) for message in held] == [
            ("publish", body) for body in bodies(1, 2)
        ]
        quiet(stream)
        held[0].ack()
        assert next_of(stream).data == bodies(3)[0]
    assert client.stats.acks_sent == 1


def test_client_40_a_handler_that_runs_while_the_client_closes(
    queueing: Queueing, make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """client.md §6: it is too late for the handler's acknowledgement; the message comes again, and the client ends in
    order.
    """
    client = make_client(auto_ack=True)
    running, go_on = threading.Event(), threading.Event()
    states: queue.SimpleQueue[ConnectionState] = queue.SimpleQueue()

    def handle(message: Message) -> None:
        running.set()
        go_on.wait(TIMEOUT_S)

    client.subscribe("Q", handler=handle)
    client.add_connection_state_listener(states.put)
    queueing.publish(1)
    assert running.wait(TIMEOUT_S)
    closing = threading.Thread(target=client.close)
    closing.start()
    wait_until(lambda: is_closed(client), TIMEOUT_S, "close was not begun")
    go_on.set()
    closing.join(TIMEOUT_S)
    assert [states.get(timeout=TIMEOUT_S) for _ in range(2)] == [
        ConnectionState.DISCONNECTED,
        ConnectionState.SHUTDOWN,
    ]
    assert caplog.records == []
    assert queueing.waiting("Q", 1) == bodies(1)
