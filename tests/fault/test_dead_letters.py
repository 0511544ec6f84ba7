"""Dead letters while the disk is full, and while journals are moved and removed (queues.md §14.6, §15)."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mounts import resize, small_disk
from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, options, queue_xml, quiet
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.services import action, do, on

FILLER = [b'"%b"' % (b"x" * 1_000_000)] * 11
"""More messages than a journal holds."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Room for three journals of 10 MB, not four."""
    with small_disk(tmp_path / "server-0" / "journal", "34m") as directory:
        yield directory


def expired() -> str:
    return on("sow-expire-message", Topic="Q", MessageType="json")


def publish(data: str) -> str:
    return do("publish-message", Topic="T_DEAD", MessageType="json", Data=data)


def started(start_server: StartServer, peers: Peers, *actions: str, **more: object) -> Queueing:
    made = options(queue_xml("Q", "T", MaxPerSubscriptionBacklog=1000), **more)
    made["instance_xml"] += f"<Actions>{''.join(actions)}</Actions>"
    return Queueing(start_server(**made), peers)


def expire_all(queueing: Queueing, count: int) -> None:
    """Expire that number of messages as a consumer."""
    consumer = queueing.consumer(1000)
    acknowledge(consumer, *consumer.receive_published(count), o="expire")
    consumer.close()


def reader_of(queueing: Queueing) -> RawClient:
    reader = queueing.client()
    reader.subscribe("T_DEAD", "dead", bm="0")
    return reader


def numbers(reader: RawClient, count: int) -> list[int]:
    return [json.loads(message.body)["id"] for message in reader.receive_published(count)]


@pytest.mark.parametrize("dies", [False, True])
def test_a_full_disk(disk: Path, start_server: StartServer, peers: Peers, dies: bool) -> None:
    """The letters are larger than the messages: they wait for room, and all are written once there is room."""
    count = 1000
    letter = '{"pad":"' + "x" * 50_000 + '","id":{{AMPS_DATA}}}'
    queueing = started(start_server, peers, action(expired(), publish(letter)))
    queueing.publish_bodies([b"%d" % number for number in range(count)])
    expire_all(queueing, count)
    queueing.server.log.wait_for("29-0007", "accepts no messages now")
    if dies:
        queueing.server.kill_all()
    resize(disk, "300m")
    if dies:
        queueing = Queueing(queueing.server.start(), peers)
    reader = reader_of(queueing)
    assert numbers(reader, count) == list(range(count))
    quiet(reader)


def mark_journals(server: ServerProcess) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGUSR1)


@pytest.mark.parametrize("services_die", [False, True])
def test_journals_stay_until_their_letters_are_written(
    start_server: StartServer, peers: Peers, services_die: bool
) -> None:
    """Journals with messages that have left the queue are still needed, as are those with messages in the queue."""
    queueing = started(
        start_server,
        peers,
        action(
            expired(),
            do("execute-system", Command="while [ -e hold ]; do sleep 0.05; done"),
            publish('{"id":{{AMPS_DATA}}}'),
        ),
        action(on("signal", Signal="SIGUSR1"), do("remove-journal", Age="0s")),
    )
    server = queueing.server
    (server.directory / "hold").touch()
    queueing.publish_bodies([b"1", b"2"])
    queueing.publish_bodies(FILLER * 3, topic="TF")
    first = server.journal_directory / "Test.0000000000.journal"
    mark_journals(server)
    server.log.wait_for("2C-0008", "still needed")
    assert first.exists()
    expire_all(queueing, 2)
    # The first run has begun, and the queue is empty.
    server.log.wait_for("29-0005", timeout_s=20)
    if services_die:
        (services,) = server.pids("amps: services")
        server.kill_process(services)
        server.wait_for_new_tree([services])
    wait_until(lambda: marked(server, 2), 20, "nothing was marked")
    quiet(reader_of(queueing))
    assert first.exists()
    (server.directory / "hold").unlink()
    assert numbers(reader_of(queueing), 2) == [1, 2]
    wait_until(lambda: not first.exists(), 20, "the journal stays")


def marked(server: ServerProcess, count: int) -> bool:
    """Request it. Return True if journals were marked that number of times; a new services process may miss a
    request.
    """
    mark_journals(server)
    time.sleep(0.1)
    return len(server.log.find("29-0004")) >= count


def archived(server: ServerProcess, archive: Path, count: int) -> bool:
    """Request it. Return True if that number of journals is compressed and in the archive."""
    mark_journals(server)
    time.sleep(0.1)
    return len(list(archive.glob("*.journal.gz"))) >= count


def test_messages_in_compressed_and_archived_journals(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """They are read in place."""
    archive = tmp_path / "archive"
    archive.mkdir()
    mark = [do(f"{verb}-journal", Age="0s") for verb in ("compress", "archive")]
    queueing = started(
        start_server,
        peers,
        action(expired(), publish('{"id":{{AMPS_DATA}}}')),
        action(on("signal", Signal="SIGUSR1"), *mark),
        journal_xml=f"<JournalArchiveDirectory>{archive}</JournalArchiveDirectory>",
    )
    for number in (1, 2, 3):
        queueing.publish_bodies([b"%d" % number])
        queueing.publish_bodies(FILLER, topic="TF")
    # The core may not yet count a journal as full, so the request is repeated.
    wait_until(lambda: archived(queueing.server, archive, 3), 30, "nothing was archived")
    expire_all(queueing, 3)
    assert numbers(reader_of(queueing), 3) == [1, 2, 3]
