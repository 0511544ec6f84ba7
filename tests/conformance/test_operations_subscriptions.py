"""The list of subscriptions of a running server (operations.md §5.7)."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.admin import get
from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.queues import options, queue_xml
from tests.support.server import ServerProcess, StartServer, wait_until

WAIT_S = 30.0
SHOWN = {
    "backlog",
    "bookmark",
    "client_id",
    "entitlement_filter",
    "filter",
    "id",
    "message_type",
    "options",
    "pagination_id",
    "sub_id",
    "topic",
}


class Shown:
    """A server with an administration interface, and the subscriptions that it lists."""

    def __init__(self, server: ServerProcess, port: int) -> None:
        self.server = server
        self.port = port

    def subscriptions(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the subscriptions by client and subscription id. None may occur twice."""
        answer = get(self.port, "/amps/instance/subscriptions.json")
        assert answer.status == 200, answer.body
        rows: list[dict[str, str]] = answer.json()["amps"]["instance"]["subscriptions"]
        found = {(row["client_id"], row["sub_id"]): row for row in rows}
        assert len(found) == len(rows) == len({row["id"] for row in rows})
        return found


Start = Callable[..., Shown]


@pytest.fixture
def start(start_server: StartServer) -> Iterator[Start]:
    port = reserve_port()

    def started(*queues: str, **more: Any) -> Shown:
        given = options(*queues, **more) if queues else more
        given["instance_xml"] = given.get("instance_xml", "") + f"<Admin><InetAddr>{port}</InetAddr></Admin>"
        return Shown(start_server(**given), port)

    yield started
    release_port(port)


def test_operations_5_7_all_kinds_of_subscriptions(start: Start, peers: Peers) -> None:
    """operations.md §5.7: ordinary ones, by bookmark and to queues; in a replay, caught up, held back, paused."""
    shown = start(queue_xml("Q", "T"))
    publisher = peers.logged_on(shown.server)
    publisher.publish_persisted("T", [b'{"k":1}'] * 200, 1)
    one, other = peers.logged_on(shown.server), peers.logged_on(shown.server)
    one.subscribe("plain", "plain")
    one.subscribe("^reg.x", "regex", filter="/k = 1", o="timestamp , replace")
    one.subscribe("T", "replay", bm="0", o="rate=1")
    one.subscribe("T", "caught up", bm="0")
    one.subscribe("T", "paused", bm="0", o="pause,conflation=100ms,conflation_key=[/a,/b]")
    one.subscribe("T", "to be paused", bm="0")
    one.request({"c": "subscribe", "sub_id": "to be paused", "o": "pause"})
    one.subscribe("T", "live", bm="0|1|", o="live")
    one.subscribe("T", "a few", bm="0", top_n=300)
    other.subscribe("Q", "queue", o="max_backlog=3")
    other.subscribe("^(Q|plain)$", "both", o="max_backlog=2", filter="/k = 2")
    other.request({"c": "sow_and_subscribe", "t": "plain", "sub_id": "sow and"}, ack="completed")
    other.request({"c": "delta_subscribe", "t": "plain", "sub_id": "delta"})
    other.subscribe("plain", "plain")
    found = shown.subscriptions()
    assert {row.keys() == SHOWN for row in found.values()} == {True}
    assert {row["message_type"] for row in found.values()} == {"json"}

    def of(client: RawClient, name: str) -> tuple[str, str, str, str]:
        row = found[client.client_name, name]
        return row["topic"], row["filter"], row["bookmark"], row["options"]

    assert {sub_id for client, sub_id in found if client == one.client_name} == {
        "plain",
        "regex",
        "replay",
        "caught up",
        "paused",
        "to be paused",
        "live",
        "a few",
    }
    assert {sub_id for client, sub_id in found if client == other.client_name} == {
        "queue",
        "both",
        "sow and",
        "delta",
        "plain",
    }
    assert len(found) == 13
    assert of(one, "plain") == ("plain", "", "", "")
    assert of(one, "regex")[::2] == ("^reg.x", "")
    assert of(one, "regex")[1].replace(" ", "").replace("==", "=") == "/k=1"
    assert of(one, "regex")[3] == "timestamp"
    assert of(one, "replay") == ("T", "", "0", "rate=1")
    assert of(one, "paused") == ("T", "", "0", "conflation=100ms,conflation_key=[/a,/b],pause")
    assert of(one, "to be paused") == ("T", "", "0", "pause")
    assert of(one, "live") == ("T", "", "0|1|", "live")
    assert of(other, "queue") == ("Q", "", "", "max_backlog=3")
    assert of(other, "both")[3] == "max_backlog=2"
    wait_until(
        lambda: shown.subscriptions()[other.client_name, "queue"]["backlog"] == "3",
        WAIT_S,
        "nothing is leased",
    )


def test_operations_5_7_a_subscription_keeps_its_id(start: Start, peers: Peers) -> None:
    """operations.md §5.7: when it is replaced, paused or resumed, and for queues and other topics alike."""
    shown = start(queue_xml("Q", "T"))
    client = peers.logged_on(shown.server)
    client.subscribe("a", "s", o="timestamp")
    client.subscribe("T", "b", bm="0", o="pause")
    (one, two) = shown.subscriptions().values()
    for topic in ("Q", "Q", "a", "^.*$"):
        client.subscribe(topic, "s", o="replace")
        row = shown.subscriptions()[client.client_name, "s"]
        assert (row["id"], row["topic"]) == (one["id"], topic)
        assert "timestamp" not in row["options"]
        assert "replace" not in row["options"]
    client.request({"c": "subscribe", "sub_id": "b", "o": "resume"})
    wait_until(
        lambda: shown.subscriptions()[client.client_name, "b"] == two | {"options": ""}, WAIT_S, "not resumed"
    )
    path = f"/amps/instance/subscriptions/{one['id']}"
    assert get(shown.port, f"{path}/sub_id").body == "s"
    client.unsubscribe("s")
    assert shown.subscriptions().keys() == {(client.client_name, "b")}
    assert get(shown.port, path).status == 404
    client.close()
    wait_until(lambda: not shown.subscriptions(), WAIT_S, "still there")


def test_operations_5_7_subscriptions_of_all_transports(start: Start, peers: Peers) -> None:
    """operations.md §5.7: many, on every worker; those of a dead worker are gone, and do not delay the answer."""
    shown = start()
    clients = [peers.logged_on(shown.server) for _ in range(6)]
    for client in clients:
        for number in range(400):
            client.send({"c": "subscribe", "t": f"topic {number}", "sub_id": str(number), "cid": "c"})
        client.flush("processed")
    found = shown.subscriptions()
    assert found.keys() == {(client.client_name, str(n)) for client in clients for n in range(400)}
    workers = {int(row["id"]) >> 32 for row in found.values()}
    assert workers == {0, 1}
    (pid,) = shown.server.pids("amps: transport 1")
    of_worker = {key for key, row in found.items() if int(row["id"]) >> 32 == 0}
    shown.server.kill_transport(1)
    wait_until(lambda: shown.server.pids("amps: transport 1") not in ([], [pid]), WAIT_S, "not started again")
    assert shown.subscriptions().keys() == of_worker
    newcomers = [peers.logged_on(shown.server) for _ in range(6)]
    for client in newcomers:
        client.subscribe("new", "new")
    again = shown.subscriptions()
    assert {key for key in again if key[1] == "new"} == {(client.client_name, "new") for client in newcomers}
    assert not {row["id"] for key, row in again.items() if key[1] == "new"} & {
        row["id"] for row in found.values()
    }


def test_operations_5_7_a_transport_that_stands_still(start: Start, peers: Peers) -> None:
    """A worker that continues completes the answers that it had begun."""
    shown = start(transport_workers=1)
    client = peers.logged_on(shown.server)
    client.subscribe("a", "s")
    (pid,) = shown.server.pids("amps: transport 0")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert get(shown.port, "/amps/instance/name").body == "Test"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert list(shown.subscriptions()) == [(client.client_name, "s")]
