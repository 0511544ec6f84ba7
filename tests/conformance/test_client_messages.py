"""The client library against a server: publishing, subscribing, replaying (client.md §21 10 to 58)."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.client import (
    EPOCH,
    NOW,
    AckType,
    BadFilterException,
    Client,
    Command,
    CommandException,
    DisconnectedException,
    InvalidTopicException,
    MemoryPublishStore,
    Message,
    NotEntitledException,
)
from tests.support.server import ServerProcess, StartServer, wait_until

MakeClient = Callable[..., Client]


@pytest.fixture
def make_client(unique: str) -> Iterator[MakeClient]:
    """Make logged-on clients of a server, which are closed with the test."""
    made: list[Client] = []

    def make(server: ServerProcess, name: str = "", **options: Any) -> Client:
        client = Client(f"{unique}{name}", f"tcp://127.0.0.1:{server.port()}/amps/json", **options)
        made.append(client)
        return client.open()

    yield make
    for client in made:
        client.close()


def numbers(messages: Any) -> list[int]:
    return [message.json()["n"] for message in messages]


def take(stream: Any, count: int) -> list[Message]:
    """Return the next messages of a stream; fail if they do not come."""
    messages: list[Message] = []
    for _ in range(count):
        message = stream.get(10)
        assert message is not None, f"only {len(messages)} of {count} messages came"
        messages.append(message)
    return messages


def publish_numbers(client: Client, topic: str, first: int, last: int) -> None:
    for n in range(first, last + 1):
        client.publish(topic, {"n": n})


def test_client_10_subscriptions_deliver_and_end(
    make_client: MakeClient, plain_server: ServerProcess, topic: str
) -> None:
    """client.md §21 10, 17, 18: overlapping subscriptions, each message once per subscription"""
    client = make_client(plain_server)
    publisher = make_client(plain_server, "-p")
    got: list[tuple[str, int]] = []
    literal = client.subscribe(topic, handler=lambda m: got.append(("literal", m.json()["n"])))
    pattern = client.subscribe(f"^{topic}$", handler=lambda m: got.append(("pattern", m.json()["n"])))
    publish_numbers(publisher, topic, 1, 3)
    publisher.flush()
    wait_until(lambda: len(got) == 6, 10, lambda: f"got {got}")
    client.unsubscribe(literal)
    publish_numbers(publisher, topic, 4, 5)
    wait_until(lambda: len(got) == 8, 10, lambda: f"got {got}")
    assert [n for name, n in got if name == "literal"] == [1, 2, 3]
    assert [n for name, n in got if name == "pattern"] == [1, 2, 3, 4, 5]
    assert pattern != literal


def test_client_11_a_refused_filter_leaves_the_client_usable(
    make_client: MakeClient, plain_server: ServerProcess, topic: str
) -> None:
    """client.md §21 11"""
    client = make_client(plain_server)
    got: list[Message] = []
    with pytest.raises(BadFilterException) as caught:
        client.subscribe(topic, "/a >", handler=got.append)
    assert caught.value.reason == "bad filter"
    with client.subscribe(topic) as stream:
        client.publish(topic, {"n": 1})
        assert numbers(take(stream, 1)) == [1]
    assert got == []


def test_client_11_a_filter_holds_live_and_from_the_log(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 11; the subscription id tells apart two filtered subscriptions to one topic."""
    client = make_client(logged_server)
    with (
        client.subscribe(recorded_topic, "/n > 1") as above,
        client.subscribe(recorded_topic, "/n IN (1, 3)") as odd,
    ):
        publish_numbers(client, recorded_topic, 1, 3)
        assert numbers(take(above, 2)) == [2, 3]
        assert numbers(take(odd, 2)) == [1, 3]
    with client.bookmark_subscribe(recorded_topic, EPOCH, filter="/n < 3") as replay:
        assert numbers(take(replay, 2)) == [1, 2]


def test_client_12_topics_that_are_not_set_up_for_it(
    make_client: MakeClient, logged_server: ServerProcess, topic: str
) -> None:
    """client.md §21 12"""
    client = make_client(logged_server)
    with pytest.raises(CommandException):
        client.sow(topic)
    with pytest.raises(InvalidTopicException):
        client.bookmark_subscribe(topic, EPOCH)
    client.flush()


def test_client_13_sequence_numbers_go_on_from_the_logon_ack(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 13"""
    first = make_client(logged_server, publish_store=MemoryPublishStore())
    assert [first.publish(recorded_topic, {"n": n}) for n in range(1, 4)] == [1, 2, 3]
    first.publish_flush()
    assert first.unpersisted_count == 0
    first.close()
    second = make_client(logged_server, publish_store=MemoryPublishStore())
    assert second.publish(recorded_topic, {"n": 4}) == 4
    second.publish_flush()
    with second.bookmark_subscribe(recorded_topic, EPOCH) as stream:
        assert numbers(take(stream, 4)) == [1, 2, 3, 4]


def test_client_21_publish_flush_without_a_store(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 21, with a replay in place of the sow"""
    publisher = make_client(logged_server)
    publish_numbers(publisher, recorded_topic, 1, 500)
    publisher.publish_flush()
    with make_client(logged_server, "-r").bookmark_subscribe(recorded_topic, EPOCH) as stream:
        assert numbers(take(stream, 500)) == list(range(1, 501))


def test_client_22_acks_of_publishes(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 22: requested `processed` acknowledgements reach the handler."""
    client = make_client(logged_server)
    acks: list[Message] = []
    command_id = client.execute_async(
        Command("publish", recorded_topic, data=b"{}", ack_type=AckType.PROCESSED), acks.append
    )
    client.flush()
    assert [(ack.command_id, ack.status) for ack in acks] == [(command_id, "success")]


def test_client_24_replayed_messages_reach_the_handler(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 24 and §7: replay, completed ack, then live, without a gap"""
    client = make_client(logged_server, publish_store=MemoryPublishStore())
    publish_numbers(client, recorded_topic, 1, 200)
    client.publish_flush()
    got: list[int] = []
    completed = threading.Event()

    def handler(message: Message) -> None:
        if message.is_content:
            got.append(message.json()["n"])
        elif message.ack_type == AckType.COMPLETED:
            completed.set()

    client.bookmark_subscribe(recorded_topic, EPOCH, handler=handler, ack_type="completed")
    publish_numbers(client, recorded_topic, 201, 300)
    assert completed.wait(10)
    wait_until(lambda: len(got) == 300, 10, lambda: f"{len(got)} messages")
    assert got == list(range(1, 301))


def test_client_43_bookmarks_name_points_in_the_log(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 43, §7: NOW, a message's own bookmark"""
    client = make_client(logged_server, publish_store=MemoryPublishStore())
    publish_numbers(client, recorded_topic, 1, 5)
    client.publish_flush()
    with client.bookmark_subscribe(recorded_topic, EPOCH) as stream:
        third = take(stream, 3)[-1]
    assert third.bookmark is not None
    with (
        client.bookmark_subscribe(recorded_topic, third.bookmark) as after,
        client.bookmark_subscribe(recorded_topic, NOW) as live,
    ):
        publish_numbers(client, recorded_topic, 6, 6)
        assert numbers(take(after, 3)) == [4, 5, 6]
        assert numbers(take(live, 1)) == [6]


def test_client_53_a_killed_server_loses_no_acknowledged_publish(
    make_client: MakeClient, start_server: StartServer
) -> None:
    """client.md §21 53: the store sends the rest again, and the log holds each message once."""
    server = start_server(log_topics=["orders"])
    client = make_client(server, publish_store=MemoryPublishStore(), logon_options="ack_conflation=10ms")
    publish_numbers(client, "orders", 1, 60)
    client.publish_flush()
    publish_numbers(client, "orders", 61, 100)
    server.kill_all()
    wait_until(lambda: not client.connected, 10, "the client did not notice")
    with pytest.raises(DisconnectedException):
        client.publish("orders", {"n": 0})
    server.start()
    client.connect()
    ack = client.logon()
    assert ack.sequence is not None
    assert 60 <= ack.sequence <= 100
    publish_numbers(client, "orders", 101, 110)
    client.publish_flush()
    assert client.unpersisted_count == 0
    with client.bookmark_subscribe("orders", EPOCH, ack_type="completed", control=True) as stream:
        replayed = []
        for message in stream:
            if not message.is_content:
                break
            replayed.append(message.json()["n"])
    assert replayed == list(range(1, 111))


def test_client_55_unpersisted_count_falls_to_zero(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 55, without a flush"""
    client = make_client(logged_server, publish_store=MemoryPublishStore())
    publish_numbers(client, recorded_topic, 1, 1000)
    wait_until(lambda: client.unpersisted_count == 0, 10, lambda: f"{client.unpersisted_count} left")


def test_client_58_a_refused_publish_among_good_ones(
    make_client: MakeClient, entitled_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """client.md §21 58"""
    client = make_client(entitled_server, publish_store=MemoryPublishStore())
    failed: list[tuple[int | None, str | None, bytes, str]] = []
    client.set_failed_write_handler(
        lambda message, reason: failed.append((message.sequence, message.topic, message.data, reason))
    )
    denied = f"deny/{unique}"
    for n in range(1, 6):
        client.publish(denied if n == 3 else recorded_topic, b"%d" % n)
    client.publish_flush()
    assert client.unpersisted_count == 0
    assert failed == [(3, denied, b"3", "not entitled")]
    with pytest.raises(NotEntitledException):
        client.subscribe(denied)


@pytest.mark.parametrize("stored", [False, True])
def test_client_19_3_publish_persisted_returns_what_became_of_the_message(
    make_client: MakeClient, entitled_server: ServerProcess, recorded_topic: str, unique: str, stored: bool
) -> None:
    """client.md §19.3: it returns when the message is in the log, and raises if the server refuses it"""
    client = make_client(entitled_server, publish_store=MemoryPublishStore() if stored else None)
    assert client.publish_persisted(recorded_topic, {"n": 1}) == int(stored)
    with pytest.raises(NotEntitledException):
        client.publish_persisted(f"deny/{unique}", {"n": 2})
    assert client.publish_persisted(recorded_topic, {"n": 3}) == 3 * stored
    assert client.unpersisted_count == 0
    with client.bookmark_subscribe(recorded_topic, EPOCH) as stream:
        assert [message.json()["n"] for message in take(stream, 2)] == [1, 3]


@pytest.mark.parametrize("stored", [False, True])
def test_publish_persisted_of_a_topic_that_is_not_recorded(
    make_client: MakeClient, plain_server: ServerProcess, topic: str, stored: bool
) -> None:
    client = make_client(plain_server, publish_store=MemoryPublishStore() if stored else None)
    assert client.publish_persisted(topic, b"x") == int(stored)


def test_large_messages_pass(make_client: MakeClient, plain_server: ServerProcess, topic: str) -> None:
    client = make_client(plain_server)
    body = bytes(50 * 2**20)
    with client.subscribe(topic) as stream:
        client.publish(topic, body)
        message = stream.get(30)
    assert message is not None
    assert message.data == body


def test_many_threads_publish_in_order(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 34 with a server: no message is treated as a duplicate."""
    client = make_client(logged_server, publish_store=MemoryPublishStore())

    def publish(thread: int) -> None:
        for n in range(500):
            client.publish(recorded_topic, {"n": [thread, n]})

    threads = [threading.Thread(target=publish, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.publish_flush()
    with client.bookmark_subscribe(recorded_topic, EPOCH) as stream:
        got = [message.json()["n"] for message in take(stream, 2000)]
    for number in range(4):
        assert [n for publisher, n in got if publisher == number] == list(range(500))
