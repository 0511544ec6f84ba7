"""Content filters and queues over sockets: queues.md §3, §8.1, §9.2, behaviours 11, 17, 18 and 25 to 27 of §24."""

import pytest

from tests.support.peer import RawClient, Value, bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, counts, options, query, queue_xml, quiet
from tests.support.server import StartServer


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q over T, Qs with strict leasing, Qx with a filter of its own."""
    server = start_server(
        **options(
            queue_xml("Q", "T"),
            queue_xml("Qs", "T", Leasing="strict"),
            queue_xml("Qx", "T", Filter="/x > 1"),
        )
    )
    return Queueing(server, peers)


def keyed(*keys: str) -> list[bytes]:
    return [b'{"k":"%s","n":%d}' % (key.encode(), number) for number, key in enumerate(keys)]


def delete(client: RawClient, filter_: str, queue: str = "Q") -> tuple[Value, Value, Value]:
    """Acknowledge by filter. Return topic_matches, matches, records_deleted."""
    cid = client.new_id()
    header: dict[str, Value] = {"c": "sow_delete", "t": queue, "f": filter_, "cid": cid}
    assert client.request({**header, "a": "processed,completed,stats"}).succeeded
    client.wait_for_ack("completed", cid)
    return counts(client, cid)


def test_queues_a_replaced_filter_keeps_leased_messages(queueing: Queueing) -> None:
    """queues.md §24, 11."""
    client = queueing.client()
    client.subscribe("Q", "s", f="/k = 'a'", o="max_backlog=3")
    queueing.publish_bodies(keyed("a", "a"))
    held = client.receive_published(2)
    client.subscribe("Q", "s", f="/k = 'b'", o="replace,max_backlog=3")
    later = [b'{"k":"a","n":7}', b'{"k":"b","n":8}', b'{"k":"b","n":9}']
    queueing.publish_bodies(later)
    assert bodies_of(client.receive_published(1)) == [later[1]]
    quiet(client)
    assert acknowledge(client, *held).succeeded
    assert bodies_of(client.receive_published(1)) == [later[2]]


def test_queues_take_messages_that_their_filter_matches(queueing: Queueing) -> None:
    """queues.md §24, 17."""
    published = [b'{"x":%d}' % number for number in range(4)]
    queueing.publish_bodies(published)
    assert queueing.waiting("Qx", 2) == published[2:]


def test_queues_unmatched_messages_delay_no_consumer(queueing: Queueing) -> None:
    """queues.md §24, 18."""
    clients = [queueing.client() for _ in range(2)]
    for client, key in zip(clients, "ab", strict=True):
        client.subscribe("Q", "s", f=f"/k = '{key}'", o="max_backlog=10")
    published = keyed("c", "a", "b", "a", "b")
    queueing.publish_bodies(published)
    assert bodies_of(clients[0].receive_published(2)) == [published[1], published[3]]
    assert bodies_of(clients[1].receive_published(2)) == [published[2], published[4]]
    assert queueing.waiting("Q", 1) == [published[0]]


def test_queues_acknowledge_messages_that_a_filter_matches(queueing: Queueing) -> None:
    """queues.md §24, 25: messages that are leased to another client included."""
    published = keyed("a", "b", "a", "a")
    queueing.publish_bodies(published)
    client = queueing.consumer(2)
    client.receive_published(2)
    assert delete(queueing.client(), "/k = 'a'") == (4, 3, 3)
    client.close()
    assert queueing.waiting("Q", 1) == [published[1]]


def test_queues_are_emptied_including_leased_messages(queueing: Queueing) -> None:
    """queues.md §24, 26."""
    queueing.publish(*range(1, 6))
    client = queueing.consumer(2)
    client.receive_published(2)
    assert delete(queueing.client(), "1=1") == (5, 5, 5)
    queueing.publish(6, 7)
    assert bodies_of(client.receive_published(2)) == bodies(6, 7)


def test_queues_strict_ones_keep_messages_leased_to_others(queueing: Queueing) -> None:
    """queues.md §24, 27."""
    queueing.publish(*range(1, 6))
    client = queueing.consumer(2, "Qs")
    held = client.receive_published(2)
    assert delete(queueing.client(), "1=1", "Qs")[2] == 3
    cid = client.new_id()
    acknowledge(client, *held, a="processed,stats", cid=cid)
    assert counts(client, cid) == (2, 2, 2)
    client.close()
    assert queueing.waiting("Qs", 0) == []


def test_queues_acknowledge_by_filter_in_all_that_an_expression_stands_for(queueing: Queueing) -> None:
    """queues.md §8.1; a filter that matches no message succeeds as well."""
    queueing.publish_bodies(keyed("a", "b"))
    client = queueing.client()
    assert delete(client, "/k = 'c'") == (2, 0, 0)
    assert delete(client, "/k = 'a'", "^Qs?$") == (4, 2, 2)
    assert delete(client, "/k = 'a'", "^Qs?$") == (2, 0, 0)


def test_queues_acknowledge_by_filter_with_a_sequence(queueing: Queueing) -> None:
    """queues.md §8.3: `persisted` comes, whether a message matched or not."""
    queueing.publish_bodies(keyed("a", "b"))
    client = queueing.client()
    for sequence, key in enumerate("ac", 1):
        header: dict[str, Value] = {"c": "sow_delete", "t": "Q", "f": f"/k = '{key}'", "s": sequence}
        client.request({**header, "cid": client.new_id(), "a": "processed,persisted"})
        while client.wait_for_ack("persisted")["s"] != sequence:
            pass
    assert queueing.waiting("Q", 1) == [keyed("a", "b")[1]]


def test_queues_evaluate_filters_on_earlier_messages(queueing: Queueing) -> None:
    """queues.md §9.1: the oldest message that matches, wherever it stands; two workers' filters at once."""
    published = keyed(*"abc" * 700)
    queueing.publish_bodies(published)
    clients = [queueing.client() for _ in range(4)]
    for client, key in zip(clients, "abcb", strict=True):
        client.subscribe("Q", "s", f=f"/k = '{key}' AND /n > 1500", o="max_backlog=10")
    wanted = [body for number, body in enumerate(published) if number > 1500]
    assert bodies_of(clients[0].receive_published(10)) == wanted[2::3][:10]
    assert bodies_of(clients[2].receive_published(10)) == wanted[1::3][:10]
    both = bodies_of(clients[1].receive_published(10)) + bodies_of(clients[3].receive_published(10))
    assert sorted(both) == wanted[0::3][:20]


def test_queues_tell_filters_the_underlying_topic(queueing: Queueing) -> None:
    """queues.md §5.4: TOPIC_NAME() is the topic of the publish, not the queue's name; in subscriptions, queries and
    acknowledgements.
    """
    queueing.publish(1, 2, 3)
    consumer = queueing.client()
    consumer.subscribe("Q", "s", f="TOPIC_NAME() = 'T' AND /id < 3", o="max_backlog=10")
    assert bodies_of(consumer.receive_published(2)) == bodies(1, 2)
    nobody = queueing.client()
    nobody.subscribe("Q", "s", f="TOPIC_NAME() = 'Q'", o="max_backlog=10")
    quiet(nobody)
    client = queueing.client()
    assert query(client, f="TOPIC_NAME() = 'T'")[0] == bodies(3)
    acknowledged = {"c": "sow_delete", "t": "Q", "a": "processed,stats"}
    client.request({**acknowledged, "f": "TOPIC_NAME() = 'Q'", "cid": "none"})
    assert counts(client, "none") == (3, 0, 0)
    client.request({**acknowledged, "f": "TOPIC_NAME() = 'T'", "cid": "all"})
    assert counts(client, "all") == (3, 3, 3)


def test_queues_show_waiting_messages(queueing: Queueing) -> None:
    """queues.md §24, 56: a query leases no message, and shows no leased one."""
    queueing.publish(1, 2, 3)
    consumer = queueing.consumer(1)
    held = consumer.receive_published(1)
    client = queueing.client()
    assert query(client) == (bodies(2, 3), (2, 2, 2))
    quiet(consumer)
    consumer.close()
    assert bodies_of(held) == bodies(1)
    assert queueing.waiting("Q", 3) == bodies(1, 2, 3)


def test_queues_show_pages_of_matching_messages(queueing: Queueing) -> None:
    """queues.md §14.1, D-17: in the order of the log."""
    published = keyed(*"abcabca")
    queueing.publish_bodies(published)
    client = queueing.client()
    assert query(client, f="/k = 'a'", bs=2) == (published[::3], (7, 3, 3))
    assert query(client, top_n=2) == (published[:2], (7, 7, 2))
    assert query(client, f="/k = 'a'", o="top_n=1,skip_n=1") == (published[3:4], (7, 3, 1))
    assert query(client, f="/k = 'z'") == ([], (7, 0, 0))
    assert client.request(
        {"c": "sow", "t": "Q", "cid": client.new_id(), "a": "processed", "f": "/n ="}
    ).failed


def test_queues_filters_may_ask_about_the_message(queueing: Queueing) -> None:
    """queues.md §5.4: in the filter of a subscription, of a query and of an acknowledgement."""
    queueing.publish_bodies(keyed("a", "b", "a"))
    client = queueing.client()
    client.subscribe("Q", "s", f="MESSAGE_SIZE() > 5 AND /k = 'b'", o="max_backlog=2")
    (message,) = client.receive_published(1)
    bookmark = message["bm"]
    other = queueing.client()
    assert query(other, f=f"BOOKMARK() != '{bookmark}'") == (keyed("a", "b", "a")[::2], (2, 2, 2))
    assert delete(other, f"BOOKMARK() = '{bookmark}'") == (3, 1, 1)
    client.close()
    assert queueing.waiting("Q", 2) == keyed("a", "b", "a")[::2]


def test_queues_a_message_that_no_filter_can_parse_is_logged(queueing: Queueing) -> None:
    """It matches no filter on its fields; the log reports it with its topic."""
    queueing.publish_bodies([b"no json", *keyed("a")])
    client = queueing.client()
    client.subscribe("Q", "s", f="/k = 'a'", o="max_backlog=2")
    assert bodies_of(client.receive_published(1)) == keyed("a")
    queueing.server.log.wait_for("14-0003", "of type json could not be parsed", "topic 'T'")
