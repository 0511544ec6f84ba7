"""A journal directory without room, and SOW topics: what cannot be recorded does not happen, and is not confirmed."""

import time
from pathlib import Path

from tests.fault.test_disk_full import LARGE, Filler, disk
from tests.support.mounts import resize
from tests.support.peers import Peers
from tests.support.server import StartServer, wait_until
from tests.support.sow import bodies, options, publish, topic_xml

__all__ = ["disk"]


def test_fault_a_full_disk_refuses_deletions(disk: Path, start_server: StartServer, peers: Peers) -> None:
    """sow.md §§5, 6: both are records of the log, so neither may take effect before it has them."""
    server = start_server(
        **options(topic_xml("orders", "/id", Expiration="enabled"), logged=["orders", "t1"])
    )
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1}, {"id": 2})
    publish(client, "orders", {"id": 3}, e=60)
    filler = Filler(server, peers)
    filler.fill()
    server.log.wait_for("2C-0011")

    cid = client.new_id()
    client.send({"c": "sow_delete", "t": "orders", "f": "/id = 1", "cid": cid, "a": "processed,stats"})
    refused = client.wait_for_ack("processed", cid)
    assert (refused["status"], refused.reason) == ("failure", "tx store failed")
    client.expect_silence()
    reader = peers.logged_on(server)
    assert bodies(reader, "orders") == [{"id": 1}, {"id": 2}, {"id": 3}]

    resize(disk, LARGE)
    server.log.wait_for("2C-0012")
    again = peers.logged_on(server)
    again.send({"c": "sow_delete", "t": "orders", "f": "/id = 1", "cid": cid, "a": "processed,stats"})
    assert again.wait_for_ack("processed", cid).succeeded
    assert again.wait_for_ack("stats", cid)["records_deleted"] == 1
    assert bodies(again, "orders") == [{"id": 2}, {"id": 3}]
    server.restart()
    assert bodies(peers.logged_on(server), "orders") == [{"id": 2}, {"id": 3}]


def test_fault_a_full_disk_delays_expiries(disk: Path, start_server: StartServer, peers: Peers) -> None:
    """sow.md §5: a value that is due stays until its expiry is in the log, and the server goes on meanwhile."""
    server = start_server(
        **options(topic_xml("orders", "/id", Expiration="enabled"), logged=["orders", "t1"])
    )
    client = peers.logged_on(server)
    publish(client, "orders", {"id": 1})
    published = time.monotonic()
    publish(client, "orders", {"id": 2}, e=4)
    Filler(server, peers).fill()
    server.log.wait_for("2C-0011")
    full_in_time = time.monotonic() - published < 4
    time.sleep(max(0.0, published + 5 - time.monotonic()))
    reader = peers.logged_on(server)
    if full_in_time:
        assert bodies(reader, "orders") == [{"id": 1}, {"id": 2}]
    resize(disk, LARGE)
    wait_until(lambda: bodies(reader, "orders") == [{"id": 1}], timeout_s=30, explain="still there")
    server.restart()
    assert bodies(peers.logged_on(server), "orders") == [{"id": 1}]
