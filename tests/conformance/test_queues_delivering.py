"""Limits, fairness, time and restarts of queues over sockets: queues.md §24, 42, 44 to 48, 51 to 53, 55 and 63."""

import time
from collections.abc import Callable

import pytest

from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, options, queue_xml, quiet
from tests.support.server import StartServer


@pytest.fixture
def start(start_server: StartServer, peers: Peers) -> Callable[..., Queueing]:
    """A server with queues."""
    return lambda *queues: Queueing(start_server(**options(*queues)), peers)


def restarted(queueing: Queueing, peers: Peers, down_s: float = 0.0) -> Queueing:
    """Start the server again after SIGKILL to all of its processes, and a pause."""
    queueing.server.kill_all()
    time.sleep(down_s)
    return Queueing(queueing.server.start(), peers)


def receive(*clients: RawClient) -> list[bytes]:
    """Receive one message for each client."""
    return [bodies_of(client.receive_published(1))[0] for client in clients]


def test_queues_deliveries_are_not_counted_over_a_restart(
    start: Callable[..., Queueing], peers: Peers
) -> None:
    """queues.md §24, 42."""
    queueing = start(queue_xml("Q", "T", MaxDeliveries=2))
    queueing.publish(1)
    consumer = queueing.consumer()
    assert receive(consumer) == bodies(1)
    consumer.close()
    queueing = restarted(queueing, peers)
    for _ in range(2):
        consumer = queueing.consumer()
        assert receive(consumer) == bodies(1)
        consumer.close()
    assert queueing.waiting("Q", 0) == []


def test_queues_proportional(start: Callable[..., Queueing]) -> None:
    """queues.md §24, 45: two idle consumers get messages in turn; and 44: then the one with the most room in
    proportion.
    """
    queueing = start(queue_xml("Q", "T"))
    one, two = queueing.consumer(10), queueing.consumer(10)
    for number in (1, 2, 3, 4):
        queueing.publish(number)
    assert bodies_of(one.receive_published(2)) == bodies(1, 3)
    assert bodies_of(two.receive_published(2)) == bodies(2, 4)
    clyde = queueing.consumer(4)
    queueing.publish(5, 6)
    assert bodies_of(clyde.receive_published(1)) == bodies(5)
    assert receive(one) == bodies(6)
    for client in (one, two, clyde):
        quiet(client)


def test_queues_in_turn(start: Callable[..., Queueing]) -> None:
    """queues.md §24, 46: round-robin; a consumer with a full backlog is passed over."""
    queueing = start(queue_xml("Q", "T", FairnessModel="round-robin"))
    consumers = [queueing.consumer(backlog) for backlog in (10, 1, 10)]
    queueing.publish(1, 2, 3, 4, 5, 6)
    assert [
        bodies_of(client.receive_published(n)) for client, n in zip(consumers, (3, 1, 2), strict=True)
    ] == [
        bodies(1, 4, 6),
        bodies(2),
        bodies(3, 5),
    ]


def test_queues_the_first_with_room(start: Callable[..., Queueing]) -> None:
    """queues.md §24, 47."""
    queueing = start(queue_xml("Q", "T", FairnessModel="fast"))
    first, second = queueing.consumer(3), queueing.consumer(3)
    queueing.publish(1, 2, 3, 4)
    assert bodies_of(first.receive_published(3)) == bodies(1, 2, 3)
    assert receive(second) == bodies(4)


def test_queues_at_most_once_is_gone(start: Callable[..., Queueing], peers: Peers) -> None:
    """queues.md §24, 48: neither a disconnect nor a restart brings it back."""
    queueing = start(queue_xml("Q", "T", Semantics="at-most-once"))
    queueing.publish(1, 2)
    consumer = queueing.consumer(1)
    assert receive(consumer) == bodies(1)
    consumer.close()
    assert queueing.waiting("Q", 1) == bodies(2)
    queueing.publish(3)
    assert restarted(queueing, peers).waiting("Q", 1) == bodies(3)


def test_queues_messages_expire(start: Callable[..., Queueing]) -> None:
    """queues.md §24, 51 and 52: by the queue's time or their own, as the model says."""
    models = ("default", "queue", "latest", "earliest")
    queueing = start(
        *[queue_xml(f"Qn{model}", "T", ExpirationModel=model) for model in models],
        *[queue_xml(f"Qh{model}", "T", ExpirationModel=model, Expiration="1h") for model in models],
        queue_xml("Qs", "T", Expiration="1s"),
    )
    queueing.publish(1)
    queueing.publish(2, e=2)
    time.sleep(3)
    left = {"Qs": bodies()}
    for model in models:
        stays = bodies(1, 2) if model in ("queue", "latest") else bodies(1)
        left |= {f"Qn{model}": stays, f"Qh{model}": stays}
    consumers = {name: queueing.consumer(queue=name) for name in left}
    for name, stays in left.items():
        assert bodies_of(consumers[name].receive_published(len(stays))) == stays, name
    quiet(consumers["Qs"])
    for consumer in consumers.values():
        consumer.expect_silence()


def test_queues_time_passes_while_the_instance_is_down(start: Callable[..., Queueing], peers: Peers) -> None:
    """queues.md §24, 55; an expired message is gone after the start."""
    queueing = start(queue_xml("Q", "T", Expiration="2s"))
    queueing.publish(1)
    queueing = restarted(queueing, peers, 3)
    assert queueing.waiting("Q", 0) == []


def test_queues_come_back_exactly(start: Callable[..., Queueing], peers: Peers) -> None:
    """queues.md §24, 63: acknowledged messages stay gone; leased and waiting ones come back in order, after SIGKILL."""
    queueing = start(queue_xml("Q", "T"))
    queueing.publish(1, 2, 3, 4, 5)
    consumer = queueing.consumer(3)
    held = consumer.receive_published(3)
    acknowledge(consumer, *held[:2], a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    queueing = restarted(queueing, peers)
    assert queueing.waiting("Q", 3) == bodies(3, 4, 5)
    assert restarted(queueing, peers).waiting("Q", 3) == bodies(3, 4, 5)


def test_queues_an_acknowledgement_comes_before_its_message(
    start: Callable[..., Queueing], peers: Peers
) -> None:
    """queues.md §8.5: it is kept, also over a restart, and the message is never delivered."""
    queueing = start(queue_xml("Q", "T"))
    publisher = peers.logged_on(queueing.server, name="the publisher")
    publisher.publish("T", bodies(1)[0], s=1)
    consumer = queueing.consumer()
    [first] = consumer.receive_published(1)
    publisher_id = str(first["bm"]).split("|")[0]
    acknowledge(consumer, f"{publisher_id}|2|", a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    queueing = restarted(queueing, peers)
    again = peers.logged_on(queueing.server, name="the publisher")
    for sequence in (2, 3):
        again.publish("T", bodies(sequence)[0], s=sequence)
    again.flush("persisted")
    assert queueing.waiting("Q", 2) == bodies(1, 3)


def test_queues_the_workers_die(start: Callable[..., Queueing], peers: Peers) -> None:
    """queues.md §5.6: their connections end, and the messages leased to these go to other clients."""
    queueing = start(queue_xml("Q", "T"))
    queueing.publish(1, 2)
    consumer = queueing.consumer()
    assert bodies_of(consumer.receive_published(2)) == bodies(1, 2)
    old = queueing.server.transport_pids()
    for pid in old:
        queueing.server.kill_process(pid)
    consumer.wait_for_close()
    queueing.server.wait_for_new_tree(old)
    assert Queueing(queueing.server, peers).waiting("Q", 2) == bodies(1, 2)
