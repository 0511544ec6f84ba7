"""A journal directory without room: publishers are refused, and all other clients go on.

Once there is room, publishers go on as well. transaction_log.md §20 item 35, but for its shutdown in order: the
server stays up.
"""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.load import Publisher, Subscriber, check_everything, replay, running, wait_for_all
from tests.fault.storm import LOGGED
from tests.support.admin import get
from tests.support.mounts import resize, small_disk
from tests.support.peer import ConnectionClosed, RawClient
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until

# Room for three journals of 10 MB, not four.
SMALL = "34m"
LARGE = "300m"
PADDING_BYTES = 10_000
BATCH = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "server-0" / "journal", SMALL) as directory:
        yield directory


class Filler:
    """A publisher that fills the disk, and remembers the acknowledged and the refused messages."""

    def __init__(self, server: ServerProcess, peers: Peers, topic: str = "t1") -> None:
        self.server = server
        self.peers = peers
        self.topic = topic
        self.name = peers.new_name()
        self.bodies = numbered_bodies(5000, padding_bytes=PADDING_BYTES)
        self.acknowledged = 0
        self.client = self.connect()

    def connect(self) -> RawClient:
        self.client = self.peers.open(self.server)
        known = self.client.logon(self.name, o="ack_conflation=10ms")["s"]
        assert isinstance(known, int)
        assert known >= self.acknowledged
        self.acknowledged = known
        return self.client

    def publish(self) -> int | None:
        """Publish the next batch. Return the first number that was refused, or None if all were acknowledged."""
        first = self.acknowledged
        batch = self.bodies[first : first + BATCH]
        assert batch, "the disk does not become full"
        self.client.publish_all(self.topic, batch, first_sequence=first + 1, a="persisted")
        while self.acknowledged < first + len(batch):
            ack = self.client.wait_for_ack("persisted")
            sequence = ack["s"]
            assert isinstance(sequence, int)
            if ack.failed:
                assert ack.reason == "tx store failed"
                return sequence
            self.acknowledged = sequence
        return None

    def fill(self) -> int:
        """Publish until the disk is full. Return the number of the first message that was refused.

        A message that is then on its way is in no log and was not refused, so that its connection ends.
        """
        for _ in itertools.repeat(None, 5000):
            try:
                refused = self.publish()
            except (ConnectionClosed, OSError):
                self.connect()
                continue
            if refused is not None:
                return refused
        raise AssertionError("neither acknowledged nor refused")


def test_fault_a_full_disk_refuses_publishers_and_nothing_else(
    disk: Path, start_server: StartServer, peers: Peers
) -> None:
    server = start_server(log_topics=("t1",))
    assert server.journal_directory == disk
    filler = Filler(server, peers)
    refused = filler.fill()
    assert 1000 <= filler.acknowledged < 4000
    assert refused == filler.acknowledged + 1, "what comes before a failure was acknowledged"
    told = server.log.wait_for("2C-0011")[0]
    assert told.level == "critical"
    assert "No space left on device; free some space there" in told.text

    # All operations that need no new journal go on.
    reader = peers.logged_on(server)
    reader.subscribe("plain", "p")
    writer = peers.logged_on(server)
    writer.publish("plain", b"{}")
    assert reader.receive().body == b"{}"
    assert bodies_of_replay(server) == filler.bodies[: filler.acknowledged]

    # A command with an ack request receives a failure; without one, the connection ends.
    answer = writer.request({"c": "p", "t": "t1"}, b"refused", ack="processed")
    assert answer.failed
    assert answer.reason == "tx store failed"
    answer = writer.request({"c": "p", "t": "t1"}, b"refused", ack="persisted")
    assert answer.failed
    writer.publish("t1", b"refused")
    (told_writer,) = writer.wait_for_close()
    assert (told_writer["status"], told_writer.reason) == ("failure", "tx store failed")
    assert "cid" not in told_writer.header
    # A numbered publish after a refused one could make the refused one look recorded, so it is refused as well.
    filler.client.publish("plain", b"refused", s=refused + BATCH, a="persisted")
    failures = [filler.client.wait_for_ack("persisted") for _ in range(BATCH)]
    assert [ack["s"] for ack in failures] == list(range(refused + 1, refused + BATCH + 1))
    assert all(ack.failed for ack in failures)
    assert not server.log.find("02-0030"), "one line for each refused message would fill the next disk"

    resize(disk, LARGE)
    server.log.wait_for("2C-0012")
    # Such a connection must end before the next numbered message is accepted.
    filler.client.publish("t1", b"after", s=refused + BATCH + 1, a="persisted")
    filler.client.wait_for_close()
    filler.connect()
    assert filler.acknowledged == refused - 1
    assert filler.publish() is None
    assert bodies_of_replay(server) == filler.bodies[: filler.acknowledged]
    server.restart()
    assert bodies_of_replay(server) == filler.bodies[: filler.acknowledged]


def test_fault_a_full_disk_answers_every_publish_of_a_burst(
    disk: Path, start_server: StartServer, peers: Peers
) -> None:
    """With that number of refusals the server stops reading for a moment, and must resume by itself."""
    server = start_server(log_topics=("t1",))
    filler = Filler(server, peers)
    filler.fill()
    filler.client.close()
    client = peers.logged_on(server, name=filler.name)
    first = filler.acknowledged + 1
    bodies = [b"{}"] * 20_000
    client.publish_all("t1", bodies, first_sequence=first, a="persisted")
    for sequence in range(first, first + len(bodies)):
        ack = client.wait_for_ack("persisted")
        assert (ack["s"], ack["status"], ack.reason) == (sequence, "failure", "tx store failed")


def bodies_of_replay(server: ServerProcess) -> list[bytes]:
    return [body for _, body in replay(server, "t1")]


def test_fault_disk_full_under_load_loses_nothing(disk: Path, start_server: StartServer) -> None:
    """Publishers that always try again, a disk that is full and free in turns, and a death while it is full."""
    server = start_server(log_topics=(LOGGED,))
    publishers = [Publisher(server, f"publisher-{n}", f"load/{n}", n, largest_bytes=12_000) for n in range(3)]
    for publisher in publishers:
        publisher.may_be_refused = True
    subscribers = [Subscriber(server, "subscriber", "load/.*")]
    with running([*publishers, *subscribers]):
        server.log.wait_for("2C-0011", timeout_s=60)
        wait_until(lambda: any(p.refused for p in publishers), 20, "nobody is refused")
        resize(disk, "66m")
        server.log.wait_for("2C-0012", timeout_s=20)
        server.log.wait_for("2C-0011", count=2, timeout_s=60)
        core = server.core_pid()
        server.kill_core()
        server.wait_for_new_tree([core])
        server.log.wait_for("2C-0011", count=3, timeout_s=20)
        resize(disk, LARGE)
        for publisher in publishers:
            publisher.wait_for_progress(100)
        wait_for_all(publishers, subscribers)
    check_everything(replay(server, "load/.*"), publishers, subscribers)


def test_fault_a_large_message_without_room_does_not_stop_small_ones(
    disk: Path, start_server: StartServer, peers: Peers
) -> None:
    """It needs a journal of its own size, for which there is no room; the next ordinary message does not."""
    server = start_server(log_topics=("t1",))
    writer = peers.logged_on(server)
    large = b"x" * (30 << 20)
    writer.publish("t1", large, s=1, a="persisted")
    writer.wait_for_close()
    server.log.wait_for("2C-0011")
    small = peers.logged_on(server)
    small.publish_persisted("t1", numbered_bodies(10), 1)
    resize(disk, LARGE)
    server.log.wait_for("2C-0012")
    again = peers.logged_on(server, name=writer.client_name)
    again.publish_persisted("t1", [large], 1)
    assert len(replay(server, "t1")) == 11


def test_fault_actions_report_a_full_disk(disk: Path, start_server: StartServer, peers: Peers) -> None:
    """The services process publishes through a session of its own, which begins again after a refusal."""
    action = """<Actions><Action><On><Module>amps-action-on-schedule</Module>
        <Options><Every>1s</Every></Options></On>
        <Do><Module>amps-action-do-publish-message</Module>
        <Options><Topic>t1</Topic><MessageType>json</MessageType><Data>{"tick":1}</Data></Options></Do>
        </Action></Actions>"""
    server = start_server(log_topics=("t1",), instance_xml=action)
    Filler(server, peers).fill()
    wait_until(
        lambda: bool(server.log.search("accepts no messages now")),
        20,
        "the action says nothing of the full disk",
    )
    ticks = sum(json.loads(body).get("tick", 0) for body in bodies_of_replay(server))
    resize(disk, LARGE)
    server.log.wait_for("2C-0012")
    wait_until(
        lambda: sum(json.loads(body).get("tick", 0) for body in bodies_of_replay(server)) > ticks + 1,
        20,
        "the action does not publish again",
    )


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the administration interface."""
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def test_fault_disk_nearly_full_is_reported_in_time(disk: Path, start_server: StartServer, port: int) -> None:
    """The log and the interface show it before publishers are refused."""
    resize(disk, LARGE)
    xml = "<Tuning><TransactionLog><FreeSpaceWarning>100MB</FreeSpaceWarning></TransactionLog></Tuning>"
    server = start_server(
        log_topics=("t1",),
        instance_xml=f"{xml}<Admin><InetAddr>{port}</InetAddr></Admin>",
        transport_workers=None,  # otherwise there would be a second Tuning
    )
    leaf = "/amps/instance/transaction_log/file_system_free_bytes"
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, int(get(port, leaf).body) - (50 << 20))
    (told,) = server.log.wait_for("1D-0023", timeout_s=60)
    assert told.level == "warning"
    assert f"the file system of {disk} has " in told.text
    assert "less than 100 MiB" in told.text
    assert int(get(port, leaf).body) <= 50 << 20
    ballast.unlink()
    server.log.wait_for("1D-0024", f"the file system of {disk} has room again", timeout_s=60)
