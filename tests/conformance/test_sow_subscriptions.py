"""Queries that begin a subscription to SOW topics: sow.md §§1.2, 8, D26, D27, and behaviours of its §25."""

import json
import threading
import time
from collections import Counter
from typing import Any

import pytest

from tests.support.peer import PeerError, RawClient, Value
from tests.support.peers import Peers
from tests.support.queues import records_of
from tests.support.server import ServerProcess, StartServer
from tests.support.sow import failure, kinds, options, publish, topic_xml

LOGGED = [pytest.param([], id="in the value file"), pytest.param(["orders"], id="in the journal")]


@pytest.fixture(params=LOGGED)
def server(start_server: StartServer, request: pytest.FixtureRequest) -> ServerProcess:
    return start_server(**options(topic_xml("orders", "/id"), logged=request.param))


@pytest.fixture
def client(server: ServerProcess, peers: Peers) -> RawClient:
    return peers.logged_on(server)


def test_sow_the_order_of_answers_with_a_subscription(client: RawClient) -> None:
    """sow.md §8, D22."""
    publish(client, "orders", {"id": 1, "a": 1}, {"id": 2, "a": 2})
    client.send(
        {"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": "s", "query_id": "q", "f": "/a > 1",
         "a": "received,processed,completed,stats"}
    )  # fmt: skip
    came = client.receive_many(7)
    assert kinds(came) == ["received", "processed", "group_begin", "sow", "group_end", "completed", "stats"]
    assert [came[6][name] for name in ("sub_id", "topic_matches", "matches", "records_returned")] == ["s", 2, 1, 1]
    publish(client, "orders", {"id": 2, "a": 3}, {"id": 1, "a": 1})
    assert json.loads(client.receive().body) == {"id": 2, "a": 3}
    client.expect_silence()


def test_sow_43_a_limit_concerns_the_query_only(client: RawClient) -> None:
    """sow.md §25, 43."""
    publish(client, "orders", {"id": 1}, {"id": 2}, {"id": 3})
    client.send({"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": "s", "o": "top_n=1"})
    assert len(records_of(client)) == 1
    publish(client, "orders", {"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 3, "n": 1})
    assert [json.loads(client.receive().body)["id"] for _ in range(3)] == [1, 2, 3]


def test_sow_44_a_replacement_returns_what_is_new(client: RawClient) -> None:
    """sow.md §25, 44; §1.2."""
    publish(client, "orders", {"id": 1, "a": 1}, {"id": 2, "a": 7}, {"id": 3, "a": 15})
    fields = {"c": "sow_and_subscribe", "t": "orders", "sub_id": "s", "cid": "1", "bs": 10}
    client.send({**fields, "o": "oof", "f": "/a < 10"})
    assert len(records_of(client)) == 2
    client.send({**fields, "o": "replace,oof", "f": "/a BETWEEN 5 AND 20", "a": "completed"})
    assert [json.loads(row.body)["a"] for row in records_of(client)] == [15]
    left = client.receive()
    assert (left["c"], left["sids"], left["reason"], left["t"]) == ("oof", "s", "match", "orders")
    assert json.loads(left.body) == {"id": 1, "a": 1}
    assert client.receive().is_ack("completed")
    publish(client, "orders", {"id": 9, "a": 3}, {"id": 9, "a": 6})
    assert json.loads(client.receive().body) == {"id": 9, "a": 6}


def test_sow_a_replacement_of_a_subscription_without_a_query_returns_all(client: RawClient) -> None:
    """sow.md §1.2: nothing was delivered before."""
    publish(client, "orders", {"id": 1, "a": 1})
    client.send({"c": "subscribe", "t": "orders", "sub_id": "s", "cid": "1", "a": "processed"})
    client.wait_for_ack("processed", "1")
    client.send({"c": "sow_and_subscribe", "t": "orders", "sub_id": "s", "cid": "2", "o": "replace"})
    assert len(records_of(client)) == 1
    client.send({"c": "sow_and_subscribe", "t": "orders", "sub_id": "s", "cid": "3", "o": "replace"})
    assert records_of(client) == []


def test_sow_63_a_bookmark_means_now(client: RawClient, server: ServerProcess) -> None:
    """sow.md §25, 63; D26, D27."""
    publish(client, "orders", {"id": 1}, {"id": 2})
    client.send({"c": "sow_and_subscribe", "t": "orders", "sub_id": "s", "cid": "1", "bm": "0", "bs": 10})
    assert len(records_of(client)) == 2
    publish(client, "orders", {"id": 3})
    assert json.loads(client.receive().body) == {"id": 3}
    server.log.wait_for("14-0008")
    for command in ("delta_subscribe", "sow_and_delta_subscribe"):
        assert failure(client, c=command, t="orders", sub_id="d", bm="0") == "invalid options"


def test_sow_an_unsubscribe_ends_the_query_too(client: RawClient) -> None:
    """sow.md §1.1."""
    body = b'{"id":%d,"p":"' + b"x" * 20_000 + b'"}'
    for number in range(500):
        client.send({"c": "p", "t": "orders"}, body % number)
    client.send({"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": "s", "query_id": "q"})
    client.send({"c": "unsubscribe", "sub_id": "s", "cid": "2", "a": "processed"})
    assert client.receive()["c"] == "group_begin"
    while (message := client.receive())["c"] == "sow":
        pass
    assert message["c"] == "group_end"
    assert client.receive().is_ack("processed", "2")
    publish(client, "orders", {"id": 3})
    client.expect_silence()


KEYS = 400


@pytest.mark.parametrize("commanded", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_sow_46_no_change_is_lost_or_comes_twice(server: ServerProcess, peers: Peers, commanded: str) -> None:
    """sow.md §25, 46: while a publisher is at full speed, the result and what follows are one sequence of versions."""
    publisher = peers.logged_on(server)
    versions: Counter[int] = Counter()
    stop = threading.Event()

    def publish_on() -> None:
        number = 0
        while not stop.is_set():
            frames = []
            for _ in range(200):
                key = number * 7919 % KEYS
                versions[key] += 1
                frames.append(b'{"id":%d,"v":%d}' % (key, versions[key]))
                number += 1
            for body in frames:
                publisher.send({"c": "p", "t": "orders"}, body)
        publisher.send({"c": "flush", "cid": "end", "a": "completed"})
        publisher.wait_for_ack("completed", "end")

    thread = threading.Thread(target=publish_on)
    thread.start()
    try:
        found = []
        for turn in range(5):
            client = peers.logged_on(server)
            client.send({"c": commanded, "t": "orders", "cid": "1", "sub_id": f"s{turn}", "bs": 7})
            found.append((client, records_of(client)))
    finally:
        stop.set()
        thread.join()
    publish(publisher, "orders", {"id": -1, "v": 1})
    for client, records in found:
        last: dict[Any, int] = {}
        for record in records:
            body = json.loads(record.body)
            assert body["id"] not in last
            last[body["id"]] = body["v"]
        while (body := json.loads(client.receive().body))["id"] != -1:
            assert body["v"] == last.get(body["id"], 0) + 1, (body, last.get(body["id"]))
            last[body["id"]] = body["v"]
        assert last == dict(versions)


@pytest.mark.parametrize("killed", ["core", "transports", "all"])
def test_sow_46_no_acknowledged_change_is_lost_by_a_death(
    start_server: StartServer, peers: Peers, killed: str
) -> None:
    """sow.md §25, 46, §4: processes are killed while results are sent; what was persisted is in the next result, and
    what comes behind that continues it.
    """
    server = start_server(**options(topic_xml("orders", "/id"), logged=["orders"]))
    publisher = peers.logged_on(server)
    padding = "x" * 2000
    versions = dict.fromkeys(range(KEYS), 0)
    for sequence in range(1, 2000):
        versions[sequence * 7919 % KEYS] = sequence
        body = json.dumps({"id": sequence * 7919 % KEYS, "v": sequence, "p": padding}).encode()
        publisher.send({"c": "p", "t": "orders", "s": sequence}, body)
    publisher.send({"c": "flush", "cid": "f", "a": "persisted"})
    publisher.wait_for_ack("persisted", "f")
    readers = [peers.logged_on(server, receive_buffer_bytes=16 * 1024) for _ in range(3)]
    for client in readers:
        client.send({"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": "s", "bs": 1})
        assert client.receive()["c"] == "group_begin"
    before = [server.core_pid(), *server.transport_pids()]
    if killed == "core":
        server.kill_core()
        server.wait_for_new_tree(before)
    elif killed == "transports":
        for number in range(2):
            server.kill_transport(number)
        server.log.wait_for("01-0001", "transport", count=4)
    else:
        server.kill_all()
        server.start()
    client = connected(peers, server)
    client.send({"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": "s", "bs": 10})
    found = {body["id"]: body["v"] for body in (json.loads(row.body) for row in records_of(client))}
    assert found == {key: version for key, version in versions.items() if version}
    publish(client, "orders", {"id": 3, "v": 9999})
    assert json.loads(client.receive().body) == {"id": 3, "v": 9999}


def connected(peers: Peers, server: ServerProcess) -> RawClient:
    """A client of a server that may still be starting processes."""
    deadline_s = time.monotonic() + 20
    while True:
        try:
            return peers.logged_on(server)
        except (OSError, PeerError):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def test_sow_keys_limit_the_subscription_too(client: RawClient) -> None:
    """protocol.md D33."""
    publish(client, "orders", {"id": 1, "n": 0}, {"id": 2, "n": 0}, {"id": 3, "n": 0})
    client.send({"c": "sow", "t": "orders", "cid": "q", "bs": 10})
    keys = {json.loads(row.body)["id"]: str(row.header["k"]) for row in records_of(client)}
    fields: dict[str, Value] = {"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": "s", "bs": 10}
    client.send({**fields, "sow_keys": f"{keys[1]},{keys[3]}, 77", "f": "/n < 5"})
    assert sorted(json.loads(row.body)["id"] for row in records_of(client)) == [1, 3]
    publish(client, "orders", {"id": 2, "n": 1}, {"id": 3, "n": 1}, {"id": 1, "n": 9}, {"id": 1, "n": 2})
    assert [json.loads(message.body)["id"] for message in client.receive_many(2)] == [3, 1]
    client.expect_silence()
