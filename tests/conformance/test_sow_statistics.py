"""The statistics of SOW topics over HTTP: sow.md §22, operations.md §5.7 and §13, 30."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.admin import get
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.queues import queue_xml
from tests.support.server import StartServer
from tests.support.sow import bodies, options, publish, topic_xml

METRICS = {
    "delete_count", "deletes_per_sec", "device", "historical_granularity", "historical_window", "insert_count",
    "inserts_per_sec", "memory_bytes", "message_type", "path", "queries_per_sec", "query_count", "slab_count",
    "slab_size", "stored_bytes", "topic", "update_count", "updates_per_sec", "valid_keys",
}  # fmt: skip


@pytest.fixture
def port() -> Iterator[int]:
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def with_admin(port: int, *topics: str, **more: Any) -> dict[str, Any]:
    """Options of a server with these SOW topics and an administration interface."""
    made = options(*topics, **more)
    made["instance_xml"] += f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin>"
    return made


def sow(port: int, member: str) -> dict[str, Any]:
    answer = get(port, f"/amps/instance/sow/{member}.json")
    assert answer.status == 200, answer.body
    (row,) = answer.json()["amps"]["instance"]["sow"]
    return dict(row)


def test_sow_statistics(start_server: StartServer, peers: Peers, port: int) -> None:
    """sow.md §22: counts since the start, the state of now, and what is configured; a queue is an entry, too."""
    server = start_server(
        **with_admin(
            port,
            topic_xml("orders", "/id"),
            topic_xml("memory", "/id", Durability="transient", SlabSize="1MB"),
            queue_xml("Q", "orders"),
            logged=["orders", "Q"],
        )
    )
    client = peers.logged_on(server)
    publish(client, "orders", *({"id": number % 3} for number in range(8)))
    publish(client, "memory", {"id": 1})
    assert client.request({"c": "sow_delete", "t": "orders", "f": "/id = 1", "a": "processed"}).succeeded
    for _ in range(2):
        bodies(client, "orders")
    bodies(client, "^orders$", f="/id = 2")
    row = sow(port, "orders!json")
    assert row.keys() == METRICS | {"id"}
    wanted = {
        "id": "orders!json", "topic": "orders", "message_type": "json", "insert_count": "3", "update_count": "5",
        "delete_count": "1", "query_count": "3", "valid_keys": "2", "historical_window": "0",
        "historical_granularity": "0", "path": str(server.directory / "sow/orders.sow"),
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert int(row["stored_bytes"]) > 0
    memory = sow(port, "memory!json")
    assert (memory["valid_keys"], memory["query_count"], memory["slab_size"]) == ("1", "0", "1048576")
    assert memory["slab_count"] == "1"
    assert int(memory["memory_bytes"]) > int(row["memory_bytes"]) > 0
    both = get(port, "/amps/instance/sow.json").json()["amps"]["instance"]["sow"]
    assert [one["id"] for one in both] == ["orders!json", "memory!json", "Q!json"]
    assert [one["insert_count"] for one in both] == ["3", "1", "8"]
    assert "<topic id='orders!json'>" in get(port, "/amps/instance/sow.xml").body
    assert get(port, "/amps/instance/sow/orders!json/valid_keys").body.strip() == "2"
    program = "from amps.cli.main import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", program, "top", "-admin", f"localhost:{port}", "-once", "-view", "sow"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    lines = [line.split() for line in shown.splitlines()]
    assert ["memory", "json", "1"] in [line[:3] for line in lines]
    assert ["orders", "json", "2"] in [line[:3] for line in lines]
    assert not any("Q" in line for line in lines)
    # Counts begin again with a new core; the values stay.
    server.restart()
    row = sow(port, "orders!json")
    assert {row[name] for name in ("insert_count", "update_count", "delete_count", "query_count")} == {"0"}
    assert row["valid_keys"] == "2"
