"""A journal directory without room: nothing acknowledged is lost, the server says so and ends (§20 35)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peer import Message, PeerError, bodies_of
from tests.support.peers import Peers
from tests.support.server import StartServer, numbered_bodies, wait_until

SMALL = "size=34m"
LARGE = "size=200m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for three journals of 10 MB, not four."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    directory = tmp_path / "server-0" / "journal"
    directory.mkdir(parents=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL, "tmpfs", directory], check=False).returncode != 0:
        pytest.skip("mounting a file system is not permitted here")
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


def test_fault_a_full_disk_loses_nothing_acknowledged(
    small_disk: Path, start_server: StartServer, peers: Peers
) -> None:
    server = start_server(log_topics=("t1",))
    assert server.journal_directory == small_disk
    bodies = numbered_bodies(5000, padding_bytes=10_000)  # 50 MB
    publisher = peers.logged_on(server, o="ack_conflation=10ms")
    acknowledged = 0
    try:
        for first in range(0, len(bodies), 100):
            publisher.publish_all("t1", bodies[first : first + 100], first_sequence=first + 1, a="persisted")
            covered = publisher.wait_for_persisted(first + 100)[-1]["s"]
            assert isinstance(covered, int)
            acknowledged = covered
    except (OSError, PeerError):
        pass  # no ack any more, or closed
    assert 1000 <= acknowledged < 4000
    wait_until(
        lambda: bool([r for r in server.log.records() if r.level in ("critical", "emergency")]),
        10,
        "the full disk is not reported as critical",
    )
    assert server.process is not None
    process = server.process
    wait_until(lambda: process.poll() is not None, 30, "the server did not end")
    assert process.returncode == 1
    # The reason stands in the log once as the core's and once as the instance's, and on standard error.
    for (record,) in (server.log.find("1D-0003"), server.log.find("01-0006")):
        assert record.level == "critical"
        assert "No space left on device" in record.text
        assert f"{small_disk}; free some space there and start the server again" in record.text
    assert not server.log.find("00-0009"), "it had been running"
    assert "Error: no further journal can be made" in server.output()
    server.kill_all()

    subprocess.run(["mount", "-o", f"remount,{LARGE}", small_disk], check=True)
    server.start()
    reader = peers.logged_on(server)
    reader.send({"c": "subscribe", "t": "t1", "bm": "0", "sub_id": "r", "a": "processed,completed"})
    assert reader.receive().succeeded
    stored: list[Message] = []
    while not (stored and stored[-1].is_ack("completed")):
        stored.append(reader.receive(timeout_s=60))
    count = len(stored) - 1
    assert count >= acknowledged
    assert bodies_of(stored[:-1]) == bodies[:count]
    peers.logged_on(server).publish_persisted("t1", [b"goes on"], 1)
