"""Queries of queues over sockets, alone and with a subscription: queues.md §14.1, D-17, D-18; protocol.md §9."""

import re

import pytest

from tests.support.peer import RawClient, Value, bodies_of
from tests.support.peers import Peers
from tests.support.queues import (
    Queueing,
    Record,
    acknowledge,
    bodies,
    counts,
    options,
    query,
    queue_xml,
    quiet,
    records_of,
)
from tests.support.server import StartServer

TIMESTAMP = re.compile(r"\d{8}T\d{6}\.\d{6}Z")


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q over T, Q2 over T2."""
    queues = queue_xml("Q", "T"), queue_xml("Q2", "T2", MaxPerSubscriptionBacklog=4)
    return Queueing(start_server(**options(*queues)), peers)


def priced(*pairs: tuple[str, str]) -> list[bytes]:
    return [b'{"k":"%s","p":%s}' % (k.encode(), p.encode()) for k, p in pairs]


def shown(client: RawClient, **fields: Value) -> list[Record]:
    client.send({"c": "sow", "t": "Q", "cid": client.new_id(), **fields})
    return records_of(client)


def bodies_shown(client: RawClient, **fields: Value) -> list[bytes]:
    return [record.body for record in shown(client, **fields)]


def subscribe_with_query(
    client: RawClient, sub_id: str, *, command: str = "sow_and_subscribe", topic: str = "Q", **fields: Value
) -> tuple[Value, list[Record]]:
    """Return the options that the `processed` acknowledgement grants, and the records that follow it."""
    cid = client.new_id()
    header: dict[str, Value] = {"c": command, "t": topic, "cid": cid, "sub_id": sub_id, "query_id": "q"}
    ack = client.request({**header, "a": "processed", **fields})
    assert ack.succeeded, ack
    assert (ack["sub_id"], ack["query_id"]) == (sub_id, "q")
    return ack.get("o"), records_of(client)


def test_queues_show_waiting_messages_in_an_order(queueing: Queueing) -> None:
    """queues.md §24, 56, as far as it concerns orderby; sow.md D8. Equal ones keep the order of the log."""
    published = priced(("b", "9"), ("a", "10"), ("b", "null"), ("a", '"9"'), ("c", "9"))
    queueing.publish_bodies(published)
    client = queueing.client()

    def at(*places: int) -> list[bytes]:
        return [published[place] for place in places]

    assert bodies_shown(client, orderby="/p") == at(2, 0, 4, 1, 3)
    assert bodies_shown(client, orderby="/p DESC", bs=2) == at(3, 1, 0, 4, 2)
    assert bodies_shown(client, orderby="/p TEXT") == at(2, 1, 0, 3, 4)
    assert bodies_shown(client, orderby="/k DESC, /p") == at(4, 2, 0, 1, 3)
    assert bodies_shown(client, order_by="/k,/p DESC") == at(3, 1, 0, 2, 4)
    assert bodies_shown(client, orderby="/p", f="/k = 'b'") == at(2, 0)
    assert bodies_shown(client, orderby="/p", top_n=2) == at(2, 0)
    assert bodies_shown(client, orderby="/p", o="top_n=2,skip_n=3") == at(1, 3)
    assert bodies_shown(client, orderby="/p", o="top_n=2,skip_n=9") == []
    cid = client.new_id()
    assert bodies_shown(client, orderby="/p", o="top_n=0", a="stats", cid=cid) == []
    assert counts(client, cid, "records_returned") == (5, 5, 0)
    failed = client.request({"c": "sow", "t": "Q", "cid": "f", "a": "processed", "orderby": "/p DOWN"})
    assert failed.reason == "invalid orderby"


def test_queues_show_many_in_an_order(queueing: Queueing) -> None:
    """protocol.md §9.4, D16: over all queues that an expression matches; each frame has messages of one queue."""
    numbers = [number * 617 % 3001 for number in range(3001)]
    for topic, parity in (("T", 0), ("T2", 1)):
        queueing.publish_bodies([b'{"id":%d}' % number for number in numbers if number % 2 == parity], topic)
    client = queueing.client()
    assert bodies_shown(client, t="^Q", orderby="/id", o="top_n=700,skip_n=1000") == bodies(
        *range(1000, 1700)
    )
    records = shown(client, t="^Q", orderby="/id DESC", bs=10)
    assert [record.body for record in records] == bodies(*range(3000, -1, -1))
    assert [record.topic for record in records] == ["Q", "Q2"] * 1500 + ["Q"]


def test_queues_show_keys_and_timestamps(queueing: Queueing) -> None:
    """queues.md D-17, protocol.md §9.1: keys select messages that were shown before; unknown keys are ignored."""
    queueing.publish(*range(1, 5), x="abc")
    client = queueing.client()
    records = shown(client, o="timestamp", bs=3)
    stamps = [str(record.header["ts"]) for record in records]
    assert stamps == sorted(stamps)
    assert all(TIMESTAMP.fullmatch(stamp) for stamp in stamps)
    assert [record.header["x"] for record in records] == ["abc"] * 4
    assert "ts" not in shown(client)[0].header
    keys = ",".join(str(records[at].key) for at in (3, 1))
    assert query(client, sow_keys=f"{keys},x,-1,99999999999999999999") == (bodies(2, 4), (4, 2, 2))
    assert query(client, sow_keys=keys, f="/id > 2") == (bodies(4), (4, 1, 1))
    assert bodies_shown(client, sow_keys=keys, orderby="/id DESC") == bodies(4, 2)


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_queues_are_queried_and_subscribed_to(queueing: Queueing, command: str) -> None:
    """queues.md D-18: the query leases no message; then messages come as to any consumer, and must be acknowledged."""
    queueing.publish(1, 2, 3)
    client = queueing.client()
    granted, records = subscribe_with_query(
        client, "s", command=command, o="max_backlog=2,oof", orderby="/id DESC"
    )
    assert granted == "max_backlog=2"
    assert [record.body for record in records] == bodies(3, 2, 1)
    held = client.receive_published(2)
    assert bodies_of(held) == bodies(1, 2)
    assert [(message["t"], message["sids"]) for message in held] == [("Q", "s")] * 2
    quiet(client)
    queueing.publish(4)
    assert acknowledge(client, *held).succeeded
    assert bodies_of(client.receive_published(2)) == bodies(3, 4)
    client.close()
    assert queueing.waiting("Q", 2) == bodies(3, 4)


def test_queues_grant_the_same_with_a_query_as_without(queueing: Queueing) -> None:
    """queues.md §5.2: the smallest limit of the queues, 1 without a request; paging options apply to the query."""
    queueing.publish(1, 2, 3)
    client = queueing.client()
    granted, records = subscribe_with_query(client, "a", topic="^Q", o="max_backlog=9,top_n=1,skip_n=1")
    assert granted == "max_backlog=4"
    assert [record.body for record in records] == bodies(2)
    assert bodies_of(client.receive_published(3)) == bodies(1, 2, 3)
    granted, records = subscribe_with_query(client, "b", topic="Q2")
    assert (granted, records) == ("max_backlog=1", [])
    assert client.request({"c": "unsubscribe", "sub_id": "a", "cid": "u", "a": "processed"}).succeeded
    granted, records = subscribe_with_query(client, "c", o="max_backlog=0", f="/id > 1")
    assert granted == "max_backlog=0"
    assert [record.body for record in records] == bodies(2, 3)
    quiet(client)


def test_queues_send_acknowledgements_of_both_parts(queueing: Queueing) -> None:
    """protocol.md §12.3: processed, the group, completed, stats, then messages."""
    queueing.publish(1, 2)
    client = queueing.client()
    header: dict[str, Value] = {"c": "sow_and_subscribe", "t": "Q", "cid": "1", "sub_id": "s", "bs": 2}
    client.send({**header, "a": "received,processed,completed,stats"})
    came = [client.receive() for _ in range(8)]
    kinds = [str(message.get("a") or message["c"]) for message in came]
    wanted = ["received", "processed", "group_begin", "sow", "group_end", "completed", "stats", "p"]
    assert kinds == wanted
    assert (came[6]["topic_matches"], came[6]["matches"], came[6]["records_returned"]) == (2, 2, 2)
    assert [message["query_id"] for message in came[2:5]] == ["1"] * 3


def test_queues_replace_a_subscription_by_one_with_a_query(queueing: Queueing) -> None:
    """queues.md §5.5: leased messages stay leased, and are not shown; the backlog is that of the new subscription."""
    queueing.publish(1, 2, 3, 4)
    client = queueing.consumer(2)
    held = client.receive_published(2)
    granted, records = subscribe_with_query(client, "s", o="replace,max_backlog=3", f="/id != 3")
    assert granted == "max_backlog=3"
    assert [record.body for record in records] == bodies(4)
    assert bodies_of(client.receive_published(1)) == bodies(4)
    quiet(client)
    assert acknowledge(client, *held).succeeded
    quiet(client)


def test_queues_refuse_the_same_with_a_query_as_without(queueing: Queueing) -> None:
    """queues.md D-24; a refused command leaves no subscription behind."""
    client = queueing.client()
    for number, fields in enumerate(
        (
            {"o": "conflation=1s,conflation_key=[/id]"},
            {"o": "pause"},
            {"o": "rate=5"},
            {"o": "fully_durable"},
            {"o": "bookmark_not_found=epoch"},
            {"o": "skip_n=1"},
            {"o": "max_backlog=-1"},
            {"orderby": "nothing at all"},
            {"f": "/id ="},
        )
    ):
        cid = f"r{number}"
        header: dict[str, Value] = {"c": "sow_and_subscribe", "t": "Q", "cid": cid, "sub_id": "s"}
        failed = client.request({**header, "a": "processed", **fields})
        assert failed.failed, fields
        assert not failed.reason.startswith("not supported yet")
    queueing.publish(1)
    quiet(client)
    granted, _ = subscribe_with_query(client, "s", o="conflation=none,live,no_sowkey,oof,max_backlog=7")
    assert granted == "max_backlog=7"


def test_queues_of_ordinary_topics_a_query_shows_nothing(queueing: Queueing) -> None:
    """queues.md D-23: an expression that matches a queue and its topic gets both kinds of messages."""
    queueing.publish(1)
    client = queueing.client()
    granted, records = subscribe_with_query(client, "s", topic="^[QT]$", o="max_backlog=5")
    assert granted == "max_backlog=5"
    assert [(record.topic, record.body) for record in records] == [("Q", b'{"id":1}')]
    assert bodies_of(client.receive_published(1)) == bodies(1)
    queueing.publish(2)
    topics = {str(message["t"]) for message in client.receive_published(2)}
    assert topics == {"Q", "T"}


def test_queues_refuse_to_order_too_much(queueing: Queueing) -> None:
    """An ordered query holds its result, 64 MiB at most. A page of it is possible, and so is a query without an
    order.
    """
    count = 70
    queueing.publish_bodies(
        [b'{"id":%d,"text":"%s"}' % (number, b"x" * 1_000_000) for number in range(count)]
    )
    client = queueing.client()
    for command in ("sow", "sow_and_subscribe"):
        header: dict[str, Value] = {
            "c": command,
            "t": "Q",
            "cid": command,
            "a": "processed",
            "orderby": "/id",
        }
        assert client.request(header).reason == "result too large"
    quiet(client)
    (record,) = shown(client, orderby="/id DESC", top_n=1)
    assert record.body.startswith(b'{"id":69,')
    cid = client.new_id()
    client.send({"c": "sow", "t": "Q", "cid": cid, "a": "stats", "o": "top_n=0"})
    assert records_of(client) == []
    assert counts(client, cid, "records_returned") == (count, count, 0)
