"""Actions that delete records of SOW topics: `amps-action-do-delete-sow` (sow.md §6, §22; replication.md §26, 32)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin import get
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.queues import queue_xml
from tests.support.replicated_pair import Pair
from tests.support.server import StartServer, wait_until
from tests.support.services import action, do, on
from tests.support.sow import bodies, options, publish, topic_xml

DONE_S = 20.0
MANY = 5000
"""More than the keys of one record."""


@pytest.fixture
def port() -> Iterator[int]:
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def purge(topic: str, content_filter: str) -> str:
    return action(
        on("admin", Path="purge"), do("delete-sow", Topic=topic, MessageType="json", Filter=content_filter)
    )


@pytest.mark.parametrize("logged", [[], ["^orders", "Q"]], ids=["in the value file", "in the journal"])
def test_an_action_deletes_what_matches(
    start_server: StartServer, peers: Peers, port: int, logged: list[str]
) -> None:
    """sow.md §22: an expression for topics; subscribers get `oof`; many records, and logical topics of a `Pattern`."""
    made = options(
        topic_xml("orders", "/id"), topic_xml("orders_all", "/id", Pattern="^orders/"), topic_xml("other", "/id"),
        *([queue_xml("orders_q", "orders")] if logged else []), logged=logged,
    )  # fmt: skip
    made["instance_xml"] += (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin><Actions>{purge('^orders', '/x = 1')}</Actions>"
    )
    server = start_server(**made)
    client = peers.logged_on(server)
    for number in range(MANY):
        client.send({"c": "p", "t": "orders"}, b'{"id":%d,"x":%d}' % (number, number % 2))
    client.flush("processed")
    publish(client, "orders/a", {"id": 1, "x": 1}, {"id": 2, "x": 0})
    publish(client, "other", {"id": 1, "x": 1})
    watcher = peers.logged_on(server)
    watcher.subscribe("orders", o="oof")
    assert get(port, "/amps/administrator/actions/purge").status == 200
    wait_until(
        lambda: len(bodies(client, "orders")) == MANY // 2 and bodies(client, "orders/a") == [{"id": 2, "x": 0}],
        DONE_S,
        lambda: server.excerpt(40),
    )
    assert {one["x"] for one in bodies(client, "orders")} == {0}
    assert bodies(client, "other") == [{"id": 1, "x": 1}]
    left = watcher.receive_many(MANY // 2)
    assert {(one["c"], one["reason"]) for one in left} == {("oof", "deleted")}
    assert sorted(json.loads(one.body)["id"] for one in left) == list(range(1, MANY, 2))
    if logged:
        wait_until(
            lambda: {one["x"] for one in bodies(client, "orders_q", bs=1000)} == {0},
            DONE_S,
            lambda: server.excerpt(40),
        )


def test_replication_32_an_action_deletes_everywhere(tmp_path: Path, unique: str) -> None:
    """replication.md §26, 32: what the action of A deletes disappears from B."""
    pair = Pair(tmp_path)
    try:
        pair.two_way(purge("t", "/x = 1"), xml=f"<SOW>{topic_xml('t', '/id')}</SOW>")
        pair.group.change("B", xml=f"<SOW>{topic_xml('t', '/id')}</SOW>")
        pair.start()
        with pair.group.client("A", unique) as client, pair.group.client("B", unique + "-b") as other:
            publish(client, "t", {"id": 1, "x": 1}, {"id": 2, "x": 0})
            wait_until(lambda: len(bodies(other, "t")) == 2, DONE_S, lambda: pair.group["B"].excerpt(40))
            assert get(pair.ports["A"], "/amps/administrator/actions/purge").status == 200
            for one in (client, other):
                wait_until(
                    lambda one=one: bodies(one, "t") == [{"id": 2, "x": 0}],  # type: ignore[misc]
                    DONE_S,
                    lambda: pair.group["B"].excerpt(40),
                )
    finally:
        pair.close()
