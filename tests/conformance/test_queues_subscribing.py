"""Queue subscriptions over sockets: queues.md §5, behaviours 1 to 14 of §24."""

import pytest

from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, options, queue_xml, quiet
from tests.support.server import StartServer


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q over T with limits of 10, Q1 and Q2 over T with 4 and 2, Q5 with 5, Qd with the default, T2 over itself."""
    server = start_server(
        **options(
            queue_xml("Q", "T"),
            queue_xml("Q1", "T1", MaxPerSubscriptionBacklog=4),
            queue_xml("Q2", "T", MaxPerSubscriptionBacklog=2),
            queue_xml("Q5", "T", MaxPerSubscriptionBacklog=5),
            queue_xml("Qd", "T").replace("<MaxPerSubscriptionBacklog>10</MaxPerSubscriptionBacklog>", ""),
            queue_xml("T2"),
        )
    )
    return Queueing(server, peers)


def test_queues_messages_of_before_are_delivered_in_order(queueing: Queueing) -> None:
    """queues.md §24, 1."""
    queueing.publish(1, 2, 3)
    client = queueing.consumer(10)
    messages = client.receive_published(3)
    assert bodies_of(messages) == bodies(1, 2, 3)
    assert {message["t"] for message in messages} == {"Q"}
    assert {message["sids"] for message in messages} == {"s"}
    assert len({message["bm"] for message in messages}) == 3
    assert {message["lp"] for message in messages} == {"0"}
    quiet(client)


def test_queues_without_max_backlog_one_message_is_held(queueing: Queueing) -> None:
    """queues.md §24, 2."""
    client = queueing.client()
    assert client.subscribe("Q", "s")["o"] == "max_backlog=1"
    queueing.publish(1, 2)
    (first,) = client.receive_published(1)
    assert first.body == bodies(1)[0]
    quiet(client)
    assert acknowledge(client, first).succeeded
    assert bodies_of(client.receive_published(1)) == bodies(2)


def test_queues_without_a_limit_of_their_own_have_one(queueing: Queueing) -> None:
    """queues.md §24, 3."""
    client = queueing.client()
    assert client.subscribe("Qd", "s", o="max_backlog=10")["o"] == "max_backlog=1"
    queueing.publish(1, 2, 3)
    assert bodies_of(client.receive_published(1)) == bodies(1)
    quiet(client)


@pytest.mark.parametrize(("queue", "asked", "granted"), [("Q5", 10, 5), ("Q", 3, 3)])
def test_queues_the_lower_limit_counts(queueing: Queueing, queue: str, asked: int, granted: int) -> None:
    """queues.md §24, 4."""
    client = queueing.client()
    answer = client.subscribe(queue, "s", o=f"max_backlog={asked}")
    assert answer["o"] == f"max_backlog={granted}"
    queueing.publish(*range(1, 9))
    held = client.receive_published(granted)
    assert bodies_of(held) == bodies(*range(1, granted + 1))
    quiet(client)
    for number, message in enumerate(held[:2]):
        acknowledge(client, message)
        assert bodies_of(client.receive_published(1)) == bodies(granted + 1 + number)
    quiet(client)


def test_queues_one_subscription_to_several_has_one_backlog(queueing: Queueing) -> None:
    """queues.md §24, 5."""
    client = queueing.client()
    assert client.subscribe("^Q[12]$", "s", o="max_backlog=10")["o"] == "max_backlog=2"
    queueing.publish(1, 2, 3)
    queueing.publish(4, 5, 6, topic="T1")
    seen = client.receive_published(2)
    quiet(client)
    for _ in range(4):
        acknowledge(client, seen[-2])
        seen += client.receive_published(1)
    quiet(client)
    assert sorted(bodies_of(seen)) == bodies(1, 2, 3, 4, 5, 6)


def test_queues_backlog_zero_and_invalid_backlogs(queueing: Queueing) -> None:
    """queues.md §24, 6."""
    client = queueing.client()
    assert client.subscribe("Q", "s", o="max_backlog=0")["o"] == "max_backlog=0"
    queueing.publish(1)
    quiet(client)
    for wrong in ("-1", "x"):
        assert client.try_subscribe("Q", "other", o=f"max_backlog={wrong}").failed


def test_queues_the_underlying_topic_is_unchanged(queueing: Queueing) -> None:
    """queues.md §24, 7."""
    subscriber = queueing.client()
    subscriber.subscribe("T", "t")
    client = queueing.consumer()
    queueing.publish(1, 2)
    for message in client.receive_published(2):
        acknowledge(client, message)
    messages = subscriber.receive_published(2)
    assert [(message["t"], message.body) for message in messages] == [("T", body) for body in bodies(1, 2)]
    assert not any("lp" in message for message in messages)
    subscriber.expect_silence()


def test_queues_select_lists(queueing: Queueing) -> None:
    """queues.md §5, sow.md §18: applied to deliveries; the subscription can be replaced with another list. Its filter
    sees whole messages.
    """
    client = queueing.client()
    client.subscribe("Q", "s", o="max_backlog=10,select=[-/,+/b]", f="/a > 0")
    queueing.publish_bodies([b'{"a":1,"b":2}', b'{"a":0,"b":3}', b'{"a":2,"b":4}'])
    assert bodies_of(client.receive_published(2)) == [b'{"b":2}', b'{"b":4}']
    client.subscribe("Q", "s", o="max_backlog=10,replace", f="/a > 0")
    queueing.publish_bodies([b'{"a":1,"b":5}'])
    assert bodies_of(client.receive_published(1)) == [b'{"a":1,"b":5}']


def test_queues_over_their_own_name_share_the_messages_out(queueing: Queueing) -> None:
    """queues.md §24, 8."""
    clients = [queueing.consumer(10, "T2") for _ in range(2)]
    queueing.publish(1, 2, 3, 4, topic="T2")
    found = [message for client in clients for message in client.receive_published(2)]
    assert sorted(bodies_of(found)) == bodies(1, 2, 3, 4)
    for client in clients:
        quiet(client)


@pytest.mark.parametrize(("queue", "topic"), [("Q", "T"), ("T2", "T2")])
def test_queues_with_a_bookmark_replay_the_topic(queueing: Queueing, queue: str, topic: str) -> None:
    """queues.md §24, 9."""
    queueing.publish(*range(1, 13), topic=topic)
    client = queueing.consumer(10, queue)
    for _ in range(12):
        acknowledge(client, *client.receive_published(1))
    reader = queueing.client()
    reader.subscribe(queue, "r", bm="0")
    messages = reader.receive_published(12)
    assert bodies_of(messages) == bodies(*range(1, 13))
    assert {message["t"] for message in messages} == {topic}
    assert not any("lp" in message for message in messages)
    option = queueing.client()
    option.subscribe(queue, "o", o="bookmark,max_backlog=10")
    quiet(option)


def test_queues_delta_subscriptions_get_whole_messages(queueing: Queueing) -> None:
    """queues.md §24, 10."""
    client = queueing.client()
    answer = client.request({"c": "delta_subscribe", "t": "Q", "sub_id": "s", "o": "max_backlog=10"})
    assert answer["o"] == "max_backlog=10"
    updates = [b'{"id":1,"a":1,"b":2}', b'{"id":1,"a":1,"b":3}']
    queueing.publish_bodies(updates)
    assert bodies_of(client.receive_published(2)) == updates


def test_queues_a_replaced_backlog_lets_nothing_through_until_it_has_room(queueing: Queueing) -> None:
    """queues.md §24, 12."""
    client = queueing.consumer(10)
    queueing.publish(*range(1, 13))
    held = client.receive_published(10)
    assert client.subscribe("Q", "s", o="replace,max_backlog=5")["o"] == "max_backlog=5"
    acknowledge(client, *held[:5])
    quiet(client)
    acknowledge(client, held[5])
    assert bodies_of(client.receive_published(1)) == bodies(11)
    quiet(client)


def test_queues_a_replaced_topic_keeps_leased_messages(queueing: Queueing) -> None:
    """queues.md §24, 13."""
    queueing.publish(*range(1, 11))
    client = queueing.consumer(10)
    held = client.receive_published(10)
    assert client.subscribe("Q5", "s", o="replace,max_backlog=10")["o"] == "max_backlog=5"
    quiet(client)
    acknowledge(client, *held[:5])
    quiet(client)
    acknowledge(client, held[5])
    (message,) = client.receive_published(1)
    assert (message["t"], message.body) == ("Q5", bodies(1)[0])
    acknowledge(client, *held[6:])
    queueing.waiting("Q", 0)


def test_queues_an_unsubscribe_gives_its_messages_to_others(queueing: Queueing) -> None:
    """queues.md §24, 14."""
    client = queueing.client()
    for sub_id in ("a", "b"):
        client.subscribe("Q", sub_id, o="max_backlog=2")
    queueing.publish(1, 2)
    held = {message["sids"]: message.body for message in client.receive_published(2)}
    assert set(held) == {"a", "b"}
    client.unsubscribe("a")
    (again,) = client.receive_published(1)
    assert (again["sids"], again.body) == ("b", held["a"])
    quiet(client)
