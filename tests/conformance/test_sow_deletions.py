"""`sow_delete` on SOW topics over sockets: sow.md §6, D28, and behaviours of its §25."""

import json
import threading

import pytest

from tests.support.peer import RawClient, Value
from tests.support.peers import Peers
from tests.support.queues import counts, queue_xml
from tests.support.server import ServerProcess, StartServer
from tests.support.sow import bodies, failure, kinds, options, publish, rows, topic_xml

LOGGED = [pytest.param([], id="in the value file"), pytest.param(["orders"], id="in the journal")]


@pytest.fixture(params=LOGGED)
def server(start_server: StartServer, request: pytest.FixtureRequest) -> ServerProcess:
    return start_server(
        **options(
            topic_xml("orders", "/id"), topic_xml("ordered", "/id"), topic_xml("given"), logged=request.param
        )
    )


@pytest.fixture
def client(server: ServerProcess, peers: Peers) -> RawClient:
    return peers.logged_on(server)


def delete(client: RawClient, topic: str, body: bytes = b"", **fields: Value) -> tuple[Value, Value, Value]:
    """Delete records. Returns topic_matches, matches and records_deleted."""
    cid = client.new_id()
    client.send({"c": "sow_delete", "t": topic, "cid": cid, "a": "processed,stats", **fields}, body)
    assert client.wait_for_ack("processed", cid).succeeded
    return counts(client, cid)


def test_sow_17_a_filter_deletes_its_matches(client: RawClient, peers: Peers, server: ServerProcess) -> None:
    """sow.md §25, 17: the counts; an `oof` for each record."""
    publish(client, "orders", *({"id": number, "a": number % 2} for number in range(5)))
    subscriber = peers.logged_on(server)
    subscriber.send({"c": "subscribe", "t": "orders", "sub_id": "s", "cid": "1", "o": "oof", "a": "processed"})
    subscriber.wait_for_ack("processed", "1")
    assert delete(client, "orders", f="/a = 1") == (5, 2, 2)
    assert delete(client, "orders", f="1=1") == (3, 3, 3)
    assert bodies(client, "orders") == []
    came = subscriber.receive_many(5)
    assert {(message["c"], message["reason"], message["sids"]) for message in came} == {("oof", "deleted", "s")}
    assert sorted(json.loads(message.body)["id"] for message in came) == [0, 1, 2, 3, 4]
    assert delete(client, "orders", f="1=1") == (0, 0, 0)


def test_sow_18_a_message_deletes_its_record(client: RawClient) -> None:
    """sow.md §25, 18: and a topic expression deletes in each topic that matches."""
    publish(client, "orders", {"id": 1}, {"id": 2, "x": 1})
    publish(client, "ordered", {"id": 3, "x": 1}, {"id": 4})
    assert delete(client, "orders", b'{"id":1,"other":5}')[2] == 1
    assert delete(client, "orders", b'{"id":99}')[2] == 0
    assert delete(client, "^ord", f="/x = 1") == (3, 2, 2)
    assert (bodies(client, "orders"), bodies(client, "ordered")) == ([], [{"id": 4}])


def test_sow_d28_exactly_one_selector(client: RawClient) -> None:
    """sow.md D28: none or several fail, and delete nothing."""
    publish(client, "orders", {"id": 1})
    (row,) = rows(client, "orders")
    key = str(row.header["k"])
    fields: dict[str, Value] = {"c": "sow_delete", "t": "orders"}
    assert failure(client, **fields, f="1=1", sow_keys=key) == "invalid options"
    assert failure(client, **fields) == "no filter or bookmark"
    assert failure(client, **fields, f="1=1", o="cancel") == "invalid options"
    assert failure(client, **fields, bm="1|1|") == "invalid topic"
    assert failure(client, **fields, f="1=") == "bad filter"
    assert failure(client, c="sow_delete", t="nope", f="1=1") == "invalid topic"
    assert client.request({**fields, "f": "1=1", "a": "processed"}, b'{"id":1}').failed
    assert client.request({**fields, "a": "processed"}, b'{"id":').failed
    assert len(rows(client, "orders")) == 1


def test_sow_keys_select_records_to_delete(client: RawClient) -> None:
    """sow.md §6, §3: keys of any form; unknown ones count for nothing."""
    publish(client, "orders", *({"id": number} for number in range(4)))
    keys = {json.loads(row.body)["id"]: row.header["k"] for row in rows(client, "orders")}
    assert delete(client, "orders", sow_keys=f"{keys[1]},7,{keys[3]},no")[2] == 2
    assert sorted(body["id"] for body in bodies(client, "orders")) == [0, 2]
    publish(client, "given", {"n": 1}, k="abc")
    publish(client, "given", {"n": 2}, k="def")
    assert delete(client, "given", sow_keys="abc,xyz")[2] == 1
    assert bodies(client, "given") == [{"n": 2}]
    assert delete(client, "given", b"{}", k="def")[2] == 1
    assert client.request({"c": "sow_delete", "t": "given", "a": "processed"}, b"{}").reason == "no sow key"


def test_sow_a_deleted_record_can_come_back(client: RawClient, server: ServerProcess, peers: Peers) -> None:
    """sow.md §4, §6: deletions survive a restart, also of records that were published again."""
    publish(client, "orders", *({"id": number, "v": 1} for number in range(6)))
    assert delete(client, "orders", f="/id < 4")[2] == 4
    publish(client, "orders", {"id": 1, "v": 2})
    expected = [{"id": 1, "v": 2}, {"id": 4, "v": 1}, {"id": 5, "v": 1}]
    assert bodies(client, "orders", orderby="/id") == expected
    server.restart()
    assert bodies(peers.logged_on(server), "orders", orderby="/id") == expected


def test_sow_a_large_deletion_has_several_records(client: RawClient) -> None:
    """sow.md §6: more keys than one record of the log holds; `persisted` with the sequence comes at its end."""
    for number in range(5000):
        client.send({"c": "p", "t": "orders"}, b'{"id":%d}' % number)
    client.send({"c": "sow_delete", "t": "orders", "cid": "d", "s": 1, "f": "/id >= 10",
                 "a": "received,processed,completed,stats,persisted"})  # fmt: skip
    came = client.receive_many(5)
    assert kinds(came)[:2] == ["received", "processed"]
    stats = next(message for message in came if message.is_ack("stats"))
    assert [stats[name] for name in ("topic_matches", "matches", "records_deleted")] == [5000, 4990, 4990]
    persisted = next(message for message in came if message.is_ack("persisted"))
    assert persisted["s"] == 1
    assert len(bodies(client, "orders")) == 10


def test_sow_a_repeated_sequence_deletes_nothing(peers: Peers, start_server: StartServer) -> None:
    """sow.md §6, transaction_log.md: a deletion with a sequence that is in the log was carried out before."""
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    name = peers.new_name()
    client = peers.logged_on(server, name=name)
    publish(client, "orders", {"id": 1})
    fields: dict[str, Value] = {"c": "sow_delete", "t": "orders", "s": 5, "a": "persisted"}
    client.send({**fields, "cid": "1", "f": "/id = 77"})
    assert client.wait_for_ack("persisted").succeeded
    server.restart()
    client = peers.logged_on(server, name=name)
    client.send({**fields, "cid": "2", "f": "1=1", "a": "persisted,stats"})
    assert counts(client, "2") == (1, 1, 0)
    assert client.wait_for_ack("persisted").succeeded
    assert bodies(client, "orders") == [{"id": 1}]


def test_sow_expressions_do_not_mix_topics_and_queues(start_server: StartServer, peers: Peers) -> None:
    """A deletion from a queue acknowledges its messages: one command must not do both."""
    server = start_server(
        instance_xml=f"<SOW>{topic_xml('orders', '/id')}{queue_xml('orders_q', 'T')}</SOW>", log_topics=["T"]
    )
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1})
    assert failure(client, c="sow_delete", t="^orders", f="1=1") == "invalid topic"
    assert delete(client, "orders", f="1=1")[2] == 1


def test_sow_a_deletion_among_changes(client: RawClient, server: ServerProcess, peers: Peers) -> None:
    """sow.md §6: of records that change meanwhile, those that match all the time are deleted, and no other ones."""
    keys = 300
    publish(client, "orders", *({"id": number, "kind": "stays", "v": 0} for number in range(keys)))
    stop = threading.Event()
    changing = peers.logged_on(server)

    def change() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            for number in range(0, keys, 3):
                changing.send({"c": "p", "t": "orders"}, b'{"id":%d,"kind":"stays","v":%d}' % (number, version))
        changing.send({"c": "flush", "cid": "end", "a": "completed"})
        changing.wait_for_ack("completed", "end")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in range(5):
            publish(client, "orders", *({"id": 1000 + at, "kind": "goes", "n": number} for at in range(50)))
            assert delete(client, "orders", f="/kind = 'goes'")[2] == 50
    finally:
        stop.set()
        thread.join()
    found = bodies(client, "orders", orderby="/id")
    assert [body["id"] for body in found] == list(range(keys))
