"""Results of queries for clients that don't read: sow.md §8, operations.md §2.1."""

import json
import time

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.queues import records_of
from tests.support.server import ServerProcess, StartServer
from tests.support.sow import bodies, options, publish, topic_xml

SMALL_BUFFER_BYTES = 16 * 1024
RECORDS = 8000
BODY = b'{"id":%d,"p":"' + b"x" * 10_000 + b'"}'
LIMITS = "<MessageMemoryLimit>4MB</MessageMemoryLimit><ClientMaxCapacity>100%</ClientMaxCapacity>"


@pytest.fixture
def server(start_server: StartServer, peers: Peers) -> ServerProcess:
    started = options(topic_xml("orders", "/id"), logged=["orders"], journal_size="200MB")
    started["instance_xml"] += LIMITS
    server = start_server(**started)
    client = peers.logged_on(server)
    for number in range(RECORDS):
        client.send({"c": "p", "t": "orders"}, BODY % number)
    client.send({"c": "flush", "cid": "f", "a": "completed"})
    client.wait_for_ack("completed", "f")
    return server


def begin_query(client: RawClient, command: str, **fields: str) -> None:
    client.send({"c": command, "t": "orders", "cid": "1", "bs": 10, "a": "completed", **fields})


def test_sow_a_result_waits_for_its_reader(server: ServerProcess, peers: Peers) -> None:
    """sow.md §8: a large result takes little memory, stops nobody else, and is of the moment at which it began."""
    before_bytes = server.anonymous_bytes()
    slow = [peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES) for _ in range(4)]
    for client in slow:
        begin_query(client, "sow")
    other = peers.logged_on(server)
    publish(other, "orders", {"id": 0, "new": True}, {"id": -1, "new": True})
    assert bodies(other, "orders", f="/new IS NOT NULL", orderby="/id") == [
        {"id": -1, "new": True},
        {"id": 0, "new": True},
    ]
    time.sleep(1)
    assert server.anonymous_bytes() - before_bytes < 60 << 20  # 4 results of 80 MB
    for client in slow:
        found = records_of(client)
        assert len(found) == RECORDS
        assert not any("new" in json.loads(row.body) for row in found)
        assert client.receive().is_ack("completed", "1")
    assert not server.log.find("70-0004")


def test_sow_what_is_held_for_a_result_counts(server: ServerProcess, peers: Peers) -> None:
    """sow.md §8, operations.md §2.1: a client whose messages pile up behind a result that it does not read."""
    slow = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    begin_query(slow, "sow_and_subscribe", sub_id="s")
    quick = peers.logged_on(server)
    begin_query(quick, "sow_and_subscribe", sub_id="s", f="/id > 1000000")
    assert records_of(quick) == []
    publisher = peers.logged_on(server)
    for number in range(1, 1000):
        publisher.send({"c": "p", "t": "orders"}, BODY % -number)
    publisher.send({"c": "flush", "cid": "f", "a": "completed"})
    publisher.wait_for_ack("completed", "f")
    server.log.wait_for("70-0004", slow.client_name)
    assert not server.log.find("70-0004", quick.client_name)


def test_sow_a_client_that_leaves_during_its_result(server: ServerProcess, peers: Peers) -> None:
    """sow.md §8: its query ends with it, and takes nothing along."""
    for _ in range(5):
        client = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
        begin_query(client, "sow_and_subscribe", sub_id="s", f="/id >= 0")
        assert client.receive()["c"] == "group_begin"
        client.close()
    other = peers.logged_on(server)
    assert len(bodies(other, "orders", f="/id < 5")) == 5
