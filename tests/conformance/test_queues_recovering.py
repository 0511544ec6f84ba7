"""The queues after a start, and the journals that they keep: queues.md §17 and §24, 63, 64, 66."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.managed import ask
from tests.support.mounts import resize, small_disk
from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, options, queue_xml
from tests.support.server import ServerProcess, StartServer, wait_until

CACHE, ACK = "*.queue.cache", "*.queues.ack"


def found(server: ServerProcess, *patterns: str) -> list[Path]:
    """The files of the queues in the journal directory."""
    return [path for pattern in patterns for path in sorted(server.journal_directory.glob(pattern))]


@pytest.mark.parametrize("file_backed", [None, "enabled"])
@pytest.mark.parametrize("orderly", [True, False])
def test_queues_recover_from_the_remaining_files(
    start_server: StartServer, peers: Peers, orderly: bool, file_backed: str | None
) -> None:
    """queues.md §24, 63: after any end, and without any of their files."""
    queueing = Queueing(start_server(**options(queue_xml("Q", "T", FileBackedMetadata=file_backed))), peers)
    server = queueing.server
    queueing.publish(1, 2, 3, 4, 5)
    consumer = queueing.consumer(3)
    held = consumer.receive_published(3)
    acknowledge(consumer, *held[:2], a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    for removed in ([], [CACHE], [ACK], [CACHE, ACK]):
        if orderly:
            server.stop()
            assert len(found(server, CACHE, ACK)) == 2
        else:
            server.kill_all()
        for path in found(server, *removed):
            path.unlink()
        queueing = Queueing(server.start(), peers)
        assert queueing.waiting("Q", 3) == bodies(3, 4, 5)


def test_queues_come_back_although_a_file_is_damaged(start_server: StartServer, peers: Peers) -> None:
    """queues.md §17: the contents are right, and the log names the file that was not used."""
    queueing = Queueing(start_server(**options(queue_xml("Q", "T"))), peers)
    server = queueing.server
    queueing.publish(1, 2, 3)
    acknowledge(queueing.publisher, *queueing.consumer().receive_published(1), a="processed,persisted", s=4)
    assert queueing.publisher.wait_for_persisted(4)
    for damaged in (CACHE, ACK):
        server.stop()
        [path] = found(server, damaged)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        queueing = Queueing(server.start(), peers)
        assert f"{path} cannot be used" in server.log.text()
        assert queueing.waiting("Q", 2) == bodies(2, 3)


def test_queues_keep_the_messages_of_their_recovery_point(start_server: StartServer, peers: Peers) -> None:
    """queues.md §24, 64: `now` is the time of the first start; another RecoveryPoint starts again at that point."""
    now, epoch = queue_xml("Q", "T", RecoveryPoint="now"), queue_xml("Q", "T")
    server = start_server(**options())
    Queueing(server, peers).publish(1)
    queueing = Queueing(server.restart(**options(now)), peers)
    queueing.publish(2, 3)
    server.kill_all()  # the first start has stored where the queue begins
    assert Queueing(server.start(), peers).waiting("Q", 2) == bodies(2, 3)
    assert Queueing(server.restart(), peers).waiting("Q", 2) == bodies(2, 3)
    assert Queueing(server.restart(**options(epoch)), peers).waiting("Q", 3) == bodies(1, 2, 3)
    queueing = Queueing(server.restart(**options(now)), peers)
    assert queueing.waiting("Q", 0) == []
    queueing.publish(4)
    assert queueing.waiting("Q", 1) == bodies(4)


@pytest.mark.parametrize("orderly", [True, False])
def test_queues_lose_nothing_by_other_rules(start_server: StartServer, peers: Peers, orderly: bool) -> None:
    """queues.md §17: messages that a changed filter or underlying topic excludes come back with the old one, except
    those acknowledged meanwhile.
    """
    server = start_server(**options(queue_xml("Q", "T")))
    Queueing(server, peers).publish(1, 2, 3, 4)

    def restart(queue: str) -> Queueing:
        if not orderly:
            server.kill_all()
        return Queueing(server.restart(**options(queue)), peers)

    queueing = restart(queue_xml("Q", "T", Filter="/id = 3"))
    assert "the rules for its messages were changed" in server.log.text()
    consumer = queueing.consumer()
    acknowledge(consumer, *consumer.receive_published(1), a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    assert queueing.waiting("Q", 0) == []
    for _ in range(2):
        assert restart(queue_xml("Q", "T", Filter="/id = 5")).waiting("Q", 0) == []
    assert restart(queue_xml("Q", "TX")).waiting("Q", 0) == []
    for _ in range(2):
        assert restart(queue_xml("Q", "T")).waiting("Q", 3) == bodies(1, 2, 4)


def test_queues_begin_after_a_bookmark_or_at_a_time(start_server: StartServer, peers: Peers) -> None:
    """queues.md §2: RecoveryPoint as a bookmark, and as a timestamp."""
    server = start_server(**options())
    queueing = Queueing(server, peers)
    queueing.publish(1, 2)
    reader = queueing.client()
    reader.subscribe("T", "r", bm="0")
    second = reader.receive_published(2)[1]
    time.sleep(1.1)
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time()))
    queueing.publish(3)
    after_second = queue_xml("Q", "T", RecoveryPoint=str(second["bm"]))
    assert Queueing(server.restart(**options(after_second)), peers).waiting("Q", 1) == bodies(3)
    since = queue_xml("Q", "T", RecoveryPoint=moment)
    assert Queueing(server.restart(**options(since)), peers).waiting("Q", 1) == bodies(3)


def test_queues_hold_the_journals_of_their_messages(start_server: StartServer, peers: Peers) -> None:
    """queues.md §24, 66: a file with a waiting message stays, and so do newer ones; after its ack they go."""
    server = start_server(module="tests.support.managed", **options(queue_xml("Q", "T")))
    queueing = Queueing(server, peers)
    queueing.publish(1)
    publisher = queueing.publisher
    body = b'{"filler":"%s"}' % (b"x" * 10_000)
    for _ in range(2500):
        publisher.publish("T/other", body)
    publisher.flush("persisted")

    def journals() -> list[int]:
        _, outcome, rows = ask(server.directory, 1, "list")
        assert outcome == "ok"
        return [row["number"] for row in rows]

    def remove() -> Any:
        _, outcome, numbers = ask(server.directory, 1, "remove", {"age_s": 0})
        assert outcome == "ok"
        return numbers

    wait_until(lambda: len(journals()) >= 3, 20, server.excerpt)
    before = journals()
    assert remove() == before[:-1]
    wait_until(lambda: "is to be removed, but" in server.log.text(), 20, server.excerpt)
    assert journals() == before
    consumer = queueing.consumer()
    acknowledge(consumer, *consumer.receive_published(1), a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    wait_until(lambda: journals() == before[-1:], 20, server.excerpt)
    queueing.publish(2)
    server.kill_all()
    assert Queueing(server.start(), peers).waiting("Q", 1) == bodies(2)


@pytest.fixture
def runtime_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "runtime", "200m") as directory:
        yield directory


def test_queues_without_memory_refuse_messages(
    start_server: StartServer, peers: Peers, runtime_disk: Path
) -> None:
    """A message without room in the queues is refused, not lost: the server stays, and accepts it later."""
    given = options(queue_xml("Q", "T", MaxPerSubscriptionBacklog=5000))
    server = start_server(environment={"AMPS_RUNTIME_DIRECTORY": str(runtime_disk)}, **given)
    queueing = Queueing(server, peers)
    queueing.publish(1)
    filler = runtime_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(65536))
    publisher = peers.logged_on(server, name="publisher")
    with contextlib.suppress(OSError):
        for number in range(2, 3000):
            publisher.publish("T", bodies(number)[0], s=number)
    publisher.wait_for_close()
    wait_until(lambda: "messages for queues are refused" in server.log.text(), 20, server.excerpt)
    other = peers.logged_on(server)
    other.publish("T/other", b"{}")  # a message that enters no queue is accepted
    other.flush("persisted")
    filler.unlink()
    resize(runtime_disk, "300m")
    publisher = peers.logged_on(server, name="publisher")
    for number in range(2, 3000):
        publisher.publish("T", bodies(number)[0], s=number)
    publisher.flush("persisted")
    consumer = queueing.consumer(5000)
    assert bodies_of(consumer.receive_published(2999)) == bodies(*range(1, 3000))
