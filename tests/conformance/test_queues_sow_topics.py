"""Queues over SOW topics, and transactions that publish to SOW topics: queues.md §4, §13; §24, 19 and 53."""

import json

import pytest

from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.queues import (
    Queueing,
    acknowledge,
    options,
    queue_xml,
    quiet,
    result,
    transact,
    transaction_body,
)
from tests.support.server import StartServer, wait_until
from tests.support.sow import bodies as state_of
from tests.support.sow import topic_xml

LONG = "x" * 400
EXPIRED_S = 10.0


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q over the SOW topic T, QX over TX with a lifetime, QD over TD whose lifetimes have no effect; Qe over TE."""
    server = start_server(
        **options(
            topic_xml("T", "/id"),
            topic_xml("TX", "/id", Expiration="2s"),
            topic_xml("TD", "/id"),
            topic_xml("TE", "/id", Enrichment="<Field>/n + 1 AS /next</Field>"),
            topic_xml("TP", "/id", Preprocessing=f"<Field>'{LONG}' AS /long</Field>"),
            topic_xml("TG"),
            queue_xml("Q", "T"),
            queue_xml("QX", "TX"),
            queue_xml("QD", "TD"),
            queue_xml("QE", "TE"),
        )
    )
    return Queueing(server, peers)


def delete(queueing: Queueing, topic: str, content_filter: str) -> None:
    fields = {"c": "sow_delete", "t": topic, "f": content_filter, "a": "processed"}
    assert queueing.publisher.request(fields).succeeded


def test_queues_19_each_publish_enters_as_it_is_stored(queueing: Queueing) -> None:
    """queues.md §24, 19: two publishes of a key are two messages, a deletion leaves both, a delta enters merged."""
    first, second, merged = b'{"id":1,"a":1}', b'{"id":1,"a":2,"b":1}', b'{"id":1,"a":3,"b":1}'
    queueing.publish_bodies([first, second])
    queueing.publisher.send({"c": "delta_publish", "t": "T"}, b'{"id":1,"a":3}')
    delete(queueing, "T", "/id = 1")
    assert state_of(queueing.publisher, "T") == []
    queueing.publisher.flush("persisted")
    assert queueing.waiting("Q", 3) == [first, second, merged]
    queueing.server.kill_all()
    queueing.server.start()
    queueing.publisher = queueing.client()
    assert queueing.waiting("Q", 3) == [first, second, merged]
    assert state_of(queueing.publisher, "T") == []


def test_queues_19_computed_fields_are_in_the_queue(queueing: Queueing) -> None:
    """queues.md §4: enrichment happens first, also of a delta."""
    queueing.publish_bodies([b'{"id":1,"n":1}'], topic="TE")
    queueing.publisher.send({"c": "delta_publish", "t": "TE"}, b'{"id":1,"n":5,"x":1}')
    queueing.publisher.flush("persisted")
    found = [json.loads(body) for body in queueing.waiting("QE", 2)]
    assert found == [{"id": 1, "n": 1, "next": 2}, {"id": 1, "n": 5, "next": 6, "x": 1}]


def test_queues_53_the_lifetime_of_the_topic_is_that_of_the_message(queueing: Queueing) -> None:
    """queues.md §4, §13; §24, 53: a stamped lifetime, that of a publisher, and one that the topic does not act on."""
    queueing.publish_bodies([b'{"id":1}'], topic="TX")
    queueing.publish_bodies([b'{"id":2}'], topic="TX", e=3600)
    queueing.publish_bodies([b'{"id":1}'], topic="TD", e=1)
    queueing.publish_bodies([b'{"id":2}'], topic="TD")
    assert queueing.waiting("QX", 2) == [b'{"id":1}', b'{"id":2}']
    wait_until(
        lambda: state_of(queueing.publisher, "TX") == [{"id": 2}], EXPIRED_S, lambda: queueing.server.excerpt(40)
    )
    assert queueing.waiting("QX", 1) == [b'{"id":2}']
    # The topic keeps its record, and the queue lets the message go.
    assert queueing.waiting("QD", 1) == [b'{"id":2}']
    assert state_of(queueing.publisher, "TD", orderby="/id") == [{"id": 1}, {"id": 2}]


def test_an_acknowledgement_leaves_the_record(queueing: Queueing) -> None:
    """queues.md §8: the queue's messages and the topic's records are two things."""
    queueing.publish_bodies([b'{"id":1,"a":1}', b'{"id":1,"a":2}'])
    consumer = queueing.consumer()
    messages = consumer.receive_published(2)
    assert acknowledge(consumer, *messages).succeeded
    assert state_of(queueing.publisher, "T") == [{"id": 1, "a": 2}]
    quiet(consumer)


def test_a_transaction_changes_the_state(queueing: Queueing) -> None:
    """queue_guarantees.md §4: the publishes of a transaction are the newest of their keys, also after a kill."""
    queueing.publish_bodies([b'{"id":1,"a":1}', b'{"id":2,"a":1}'])
    worker = queueing.consumer()
    messages = worker.receive_published(2)
    watcher = queueing.client()
    watcher.subscribe("T", o="oof", f="/a < 3")
    body = transaction_body(
        result(b'{"id":1,"a":2}', "T"),
        result(b'{"id":1,"a":3}', "T"),
        result(b'{"id":3,"a":1}', "T", e=3600),
        result(b"given", "TG", k="mine"),
    )
    assert transact(worker, messages, 1, body).succeeded
    expected = [{"id": 1, "a": 3}, {"id": 2, "a": 1}, {"id": 3, "a": 1}]
    assert state_of(queueing.publisher, "T", orderby="/id") == expected
    came = watcher.receive_many(3)
    assert [(one["c"], json.loads(one.body)) for one in came] == [
        ("p", {"id": 1, "a": 2}),
        ("oof", {"id": 1, "a": 3}),
        ("p", {"id": 3, "a": 1}),
    ]
    assert bodies_of(worker.receive_published(3))[1] == b'{"id":1,"a":3}'
    queueing.server.kill_all()
    queueing.server.start()
    again = queueing.client()
    assert state_of(again, "T", orderby="/id") == expected
    assert len(queueing.waiting("Q", 3)) == 3


def test_a_transaction_takes_messages_that_preprocessing_makes_longer(queueing: Queueing) -> None:
    """sow.md §15: a message may need more memory than it has bytes on the wire."""
    worker = queueing.consumer()
    for turn in range(3):
        queueing.publish(turn)
        messages = worker.receive_published(1)
        publishes = [result(b'{"id":%d}' % (turn * 20 + number), "TP") for number in range(20)]
        answer = transact(worker, messages, 1 + 100 * turn, transaction_body(*publishes))
        assert answer.succeeded, answer
    found = state_of(queueing.publisher, "TP", orderby="/id")
    assert found == [{"id": number, "long": LONG} for number in range(60)]


@pytest.mark.parametrize(
    ("publish", "reason"),
    [
        (result(b'{"id":1}', "TE"), "computed fields"),
        (result(b"{", "T"), "parse error"),
        (result(b'{"id":1}', "TG"), "no sow key"),
    ],
)
def test_a_transaction_with_a_message_that_its_topic_does_not_take(
    queueing: Queueing, publish: tuple[dict[str, object], bytes], reason: str
) -> None:
    """queue_guarantees.md §7, 21: a failure, and nothing happens."""
    queueing.publish_bodies([b'{"id":7}'])
    worker = queueing.consumer()
    messages = worker.receive_published(1)
    answer = transact(worker, messages, 1, transaction_body(result(b'{"id":8}', "T"), publish))
    assert (answer["status"], answer.reason) == ("failure", reason), answer
    assert str(answer["detail"]).startswith("publish 2: ")
    assert state_of(queueing.publisher, "T") == [{"id": 7}]
    assert transact(worker, messages, 10, transaction_body(result(b'{"id":8}', "T"))).succeeded
