"""Disks of a sync pair: full, or slow, at the instance that gets the messages and at the one that sends them.

Nothing acknowledged is lost. Publishers wait or are refused, the log of both sides says why, and all goes on when the
disk does.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.fault.load import replay
from tests.support.held_syncs import HeldSyncs
from tests.support.instances import Instances, To, two_way
from tests.support.mounts import resize, small_disk
from tests.support.peer import ConnectionClosed, Message, RawClient, Silence, bodies_of
from tests.support.server import ServerProcess, numbered_bodies

# Room for two journals of 10 MB, not three.
SMALL = "24m"
LARGE = "300m"
PADDING_BYTES = 10_000
PATIENCE_S = 60.0
LONGEST_PAUSE_S = 3
WAITS_S = 0.5
"""So long an acknowledgement that must not come is waited for."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


@pytest.fixture
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The small disk of the journals of one instance."""
    with small_disk(tmp_path / request.param / "journal", SMALL) as directory:
        yield directory


def _covered(acks: list[Message]) -> int:
    """The last sequence that acknowledgements promise."""
    return max((int(str(ack["s"])) for ack in acks if ack.succeeded and "s" in ack), default=0)


def _persisted_until_quiet(client: RawClient) -> int:
    """Take what arrives until nothing comes any more. Return the last sequence that is promised."""
    covered = 0
    while True:
        try:
            covered = max(covered, _covered([client.wait_for_ack("persisted", timeout_s=WAITS_S)]))
        except AssertionError:
            return covered


def _publish_until_refused(server: ServerProcess, name: str, bodies: list[bytes]) -> tuple[int, int] | None:
    """Log on, and publish what is not acknowledged. Return the last number that was, and the first that was refused;
    None if the connection ends, as it does when a message on its way to the core finds the disk full.
    """
    with contextlib.suppress(ConnectionClosed, OSError), RawClient.tcp(server.port()) as client:
        acknowledged = int(str(client.logon(name, o="ack_conflation=10ms")["s"]))
        while True:
            part = bodies[acknowledged : acknowledged + 50]
            client.publish_all("t", part, first_sequence=acknowledged + 1, a="persisted")
            wanted = acknowledged + len(part)
            while acknowledged < wanted:
                ack = client.wait_for_ack("persisted", timeout_s=PATIENCE_S)
                number = int(str(ack["s"]))
                if ack.failed:
                    assert ack.reason == "tx store failed"
                    return acknowledged, number
                acknowledged = number
    return None


@pytest.mark.parametrize("full_disk", ["B"], indirect=True)
def test_a_full_disk_at_the_destination(group: Instances, full_disk: Path, unique: str) -> None:
    """replication.md §7, 25.69: the source takes all, and acknowledges what the destination has durably. Clients of the
    destination are refused. A death while the disk is full changes nothing.
    """
    for name, to in two_way():
        group.add(name, to)
    group.start()
    here = numbered_bodies(3000, padding_bytes=PADDING_BYTES)
    with group.client("A", unique) as client:
        for begin in range(0, 3000, 100):
            client.publish_all("t", here[begin : begin + 100], first_sequence=begin + 1, a="persisted")
            client.flush("processed")
        (told,) = group["B"].log.wait_for("2C-0011", timeout_s=PATIENCE_S)
        assert "No space left on device; free some space there" in told.text
        group["A"].log.wait_for("1E-0002", "STORAGE", timeout_s=PATIENCE_S)
        group["B"].log.wait_for("1E-0016", "the log accepts no records now", timeout_s=PATIENCE_S)
        stored = [body for _, body in replay(group["B"], "t")]
        assert 0 < len(stored) < 3000
        assert stored == here[: len(stored)]
        # A publisher that waits keeps few checkpoints, so that it may hear of less than is stored.
        client.wait_for_persisted(len(stored) - 3000 // 6, PATIENCE_S)
        with pytest.raises(Silence):
            client.wait_for_persisted(len(stored) + 1, WAITS_S)
        assert bodies_of(group.log_of("A", 3000)) == here
        assert len(group["A"].log.find("1E-0004")) <= 3, "the same records are sent again and again"
        with group.client("B", unique + "-b") as refused:
            answer = refused.request({"c": "p", "t": "t"}, b"{}" * 100_000, ack="persisted")
            assert (answer.failed, answer.reason) == (True, "tx store failed")
        group.kill("B")
        group.start("B", connected=False)
        group["B"].log.wait_for("2C-0011", count=2, timeout_s=PATIENCE_S)
        resize(full_disk, LARGE)
        client.wait_for_persisted(3000, PATIENCE_S)
    for name in "AB":
        assert bodies_of(group.log_of(name, 3000, timeout_s=PATIENCE_S)) == here


@pytest.mark.parametrize("full_disk", ["A"], indirect=True)
def test_a_full_disk_at_the_source(group: Instances, full_disk: Path, unique: str) -> None:
    """replication.md §7, 25.69: its publisher is refused, all that was acknowledged is on both, and what the other one
    publishes waits for it.
    """
    for name, to in two_way():
        group.add(name, to)
    group.start()
    here = numbered_bodies(2500, padding_bytes=PADDING_BYTES)
    there = numbered_bodies(20, 10_001, padding_bytes=PADDING_BYTES)
    while (answer := _publish_until_refused(group["A"], unique, here)) is None:
        pass
    acknowledged, refused = answer
    assert 500 < acknowledged < 2500
    assert refused == acknowledged + 1, "what comes before a failure was acknowledged"
    group["A"].log.wait_for("2C-0011")
    for name in "AB":
        assert bodies_of(group.log_of(name, acknowledged)) == here[:acknowledged]
    with group.client("B", unique + "-b") as waiting:
        waiting.publish_all("t", there, first_sequence=1, a="persisted")
        assert _persisted_until_quiet(waiting) < 20
        resize(full_disk, LARGE)
        waiting.wait_for_persisted(20, PATIENCE_S)
    with RawClient.tcp(group["A"].port()) as client:
        bookmark = str(client.logon(unique, o="ack_conflation=10ms")["bm"])
        assert int(bookmark.split("|")[1]) == acknowledged
        client.publish_persisted("t", here[acknowledged:], acknowledged + 1)
    for name in "AB":
        found = bodies_of(group.log_of(name, 2520, timeout_s=PATIENCE_S))
        assert [body for body in found if body not in there] == here
        assert [body for body in found if body in there] == there


@pytest.mark.parametrize("full_disk", ["B"], indirect=True)
def test_a_message_that_is_too_large_for_the_room_at_the_destination(
    group: Instances, full_disk: Path, unique: str
) -> None:
    """25.66, 25.69: the source tries again with pauses that grow. What is behind the message waits, in order; clients
    of the destination go on with small messages.
    """
    group.add("A", [To("B", exclude="replicate,cascade", reconnect=f"100ms,100ms,{LONGEST_PAUSE_S}s")])
    group.add("B")
    group.start()
    large = b'{"pad":"%s"}' % (b"x" * (20 << 20))
    with group.client("A", unique) as client:
        client.publish_all("t", [b"{}", large, b"[]"], first_sequence=1, a="persisted")
        logons = group["A"].log.wait_for("1E-0001", count=4, timeout_s=PATIENCE_S)
        with group.client("B", unique + "-b") as other:
            other.publish_persisted("t", [b"1"], 1)
        resize(full_disk, LARGE)
        client.wait_for_persisted(3, PATIENCE_S)
    times = [datetime.fromisoformat(record.timestamp) for record in logons]
    assert (times[3] - times[2]).total_seconds() >= LONGEST_PAUSE_S
    found = bodies_of(group.log_of("B", 4))
    assert [body for body in found if body != b"1"] == [b"{}", large, b"[]"]


@pytest.fixture(scope="module")
def syncs(tmp_path_factory: pytest.TempPathFactory) -> HeldSyncs:
    return HeldSyncs(tmp_path_factory.mktemp("held-syncs"))


@pytest.mark.parametrize("slow", "AB")
def test_a_disk_that_hangs_and_is_slow_then(
    group: Instances, syncs: HeldSyncs, unique: str, slow: str
) -> None:
    """replication.md §7: nothing is acknowledged that is not synced on both. What is not synced at A does not leave it.

    Both have clients that go on while each sync of one instance takes long.
    """
    for name, to in two_way():
        group.add(name, to, environment=syncs.environment if name == slow else {})
    group.start()
    bodies = {"A": numbered_bodies(800), "B": numbered_bodies(800, 10_001)}
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        clients = {"A": first, "B": second}
        for name, client in clients.items():
            client.publish_persisted("t", bodies[name][:100], 1)
        with syncs.held():
            for name, client in clients.items():
                client.publish_all("t", bodies[name][100:200], first_sequence=101, a="persisted")
            for client in clients.values():
                assert _persisted_until_quiet(client) <= 100
            other = "AB".replace(slow, "")
            found = bodies_of(group.log_of(other, 300))
            assert sorted(found) == sorted([*bodies["A"][:100], *bodies["B"][:100], *bodies[other][100:200]])
        with syncs.slowed(0.05):
            for begin in range(200, 800, 300):
                for name, client in clients.items():
                    client.publish_all("t", bodies[name][begin : begin + 300], first_sequence=begin + 1, a="persisted")
                for client in clients.values():
                    client.wait_for_persisted(begin + 300, PATIENCE_S)
        group.kill(slow)
        group.start(slow)
        for client in clients.values():
            client.close()
    for name in "AB":
        found = bodies_of(group.log_of(name, 1600, timeout_s=PATIENCE_S))
        assert [body for body in found if body in set(bodies["A"])] == bodies["A"]
        assert [body for body in found if body in set(bodies["B"])] == bodies["B"]
