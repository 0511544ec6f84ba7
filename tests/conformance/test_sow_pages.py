"""Paginated subscriptions: sow.md §§1.2, 11, 13, D8, D19, and behaviours of its §25.

Each behaviour is tested on a topic in the journal, and on one in the value file.
"""

import json
from typing import Any

import pytest

from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.queues import records_of
from tests.support.server import ServerProcess, StartServer
from tests.support.sow import failure, kinds, options, publish, topic_xml

LOGGED = [pytest.param([], id="in the value file"), pytest.param(["orders"], id="in the journal")]


@pytest.fixture(params=LOGGED)
def server(start_server: StartServer, request: pytest.FixtureRequest) -> ServerProcess:
    return start_server(**options(topic_xml("orders", "/id"), topic_xml("others", "/id"), logged=request.param))


@pytest.fixture
def client(server: ServerProcess, peers: Peers) -> RawClient:
    return peers.logged_on(server)


@pytest.fixture
def publisher(server: ServerProcess, peers: Peers) -> RawClient:
    return peers.logged_on(server)


def page(client: RawClient, said: str, sub_id: str = "s", **fields: Any) -> list[Any]:
    """Subscribe to a page of `orders`; returns the bodies of its records."""
    client.send(
        {"c": "sow_and_subscribe", "t": "orders", "cid": "1", "sub_id": sub_id, "o": said, "orderby": "/id", **fields}
    )
    return [json.loads(row.body) for row in records_of(client)]


def ids(rows: list[Any]) -> list[Any]:
    return [row["id"] for row in rows]


def shown(message: Message) -> tuple[Any, ...]:
    """`p` or the reason of an out-of-focus message, and the body."""
    return message.get("reason") or message.command, json.loads(message.body)


def delete(publisher: RawClient, text: str) -> None:
    publisher.send({"c": "sow_delete", "t": "orders", "cid": "d", "f": text, "a": "completed"})
    publisher.wait_for_ack("completed", "d")


def test_sow_42_a_page(client: RawClient, publisher: RawClient) -> None:
    """sow.md §25, 42; §11, D19: a record that comes is published, one that is pushed out goes out of focus first."""
    publish(publisher, "orders", *({"id": number} for number in (10, 20, 50, 70)))
    assert page(client, "top_n=2,skip_n=1,oof") == [{"id": 20}, {"id": 50}]
    publish(publisher, "orders", {"id": 40})
    assert [shown(message) for message in client.receive_many(2)] == [("match", {"id": 50}), ("p", {"id": 40})]
    publish(publisher, "orders", {"id": 70, "a": 1})
    client.expect_silence()
    publish(publisher, "orders", {"id": 20, "a": 1})
    assert shown(client.receive()) == ("p", {"id": 20, "a": 1})
    client.expect_silence()
