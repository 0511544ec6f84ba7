"""Journal files: transaction_log.md §2, §3, §12, §13.3 and the behaviours 54, 55, 63 of §22.

Damage is done without knowing the record layout: the test searches a message's body in the file and changes one byte
of it.
"""

import os
import random
import re
import threading
from pathlib import Path

import pytest

from tests.support.peer import RawClient, bodies_of
from tests.support.peers import SOON, Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until

JOURNAL_BYTES = 10 * 2**20
TOPICS = ("t1",)

RECORD_HEAD_BYTES_MAX = 200
"""The largest number of bytes of a record before its payload."""


def fill(client: RawClient, first: int, count: int, padding_bytes: int = 10_000) -> list[bytes]:
    """Publish numbered messages and wait until all are persisted."""
    bodies = numbered_bodies(count, start=first, padding_bytes=padding_bytes)
    for offset in range(0, count, 100):
        client.publish_all("t1", bodies[offset : offset + 100], first_sequence=first + offset, a="persisted")
    client.wait_for_persisted(first + count - 1)
    return bodies


def names_offset(said: str, payload_offset: int) -> bool:
    """True if a text names the offset of the record with the payload at `payload_offset`."""
    named = [int(number) for number in re.findall(r"offset (\d+)", said)]
    return any(payload_offset - RECORD_HEAD_BYTES_MAX <= number <= payload_offset for number in named)


def replayed(peers: Peers, server: ServerProcess, start: str = "0") -> list[bytes]:
    """Replay `t1` from a bookmark and return all bodies."""
    client = peers.logged_on(server)
    client.send({"c": "subscribe", "t": "t1", "bm": start, "sub_id": "r", "a": "processed,completed"})
    assert client.receive().succeeded
    bodies: list[bytes] = []
    while True:
        message = client.receive(timeout_s=60)
        if message.is_ack("completed"):
            return bodies
        bodies.append(message.body)


def change_byte(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(1)
        file.seek(offset)
        file.write(bytes([old[0] ^ 0x40]))


def numbers_in(journal: Path) -> list[int]:
    """The numbers of the numbered bodies that a journal holds."""
    return [int(number) for number in re.findall(rb'\{"n": (\d+), ', journal.read_bytes())]


def locate(server: ServerProcess, body: bytes) -> tuple[Path, int]:
    """Return the journal and the offset where a message's body is stored."""
    for path in server.journals():
        offset = path.read_bytes().find(body)
        if offset >= 0:
            return path, offset
    raise AssertionError(f"no journal holds {body[:60]!r}")


def test_transaction_log_54_two_preallocated_journals(start_server: StartServer) -> None:
    """transaction_log.md §22 54"""
    server = start_server(name="L1", log_topics=TOPICS)
    assert [p.name for p in server.journals()] == ["L1.0000000000.journal", "L1.0000000001.journal"]
    assert [p.stat().st_size for p in server.journals()] == [JOURNAL_BYTES] * 2


def test_transaction_log_54_all_preallocated_journals_are_there_when_the_server_is_ready(
    start_server: StartServer,
) -> None:
    """transaction_log.md §22 54, §2"""
    server = start_server(
        log_topics=TOPICS, journal_xml="<PreallocatedJournalFiles>12</PreallocatedJournalFiles>"
    )
    assert len(server.journals()) == 12


def test_transaction_log_54_one_preallocated_journal(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §22 54: the next is made when the first is full; sizes never change."""
    server = start_server(
        name="L1", log_topics=TOPICS, journal_xml="<PreallocatedJournalFiles>1</PreallocatedJournalFiles>"
    )
    assert [p.name for p in server.journals()] == ["L1.0000000000.journal"]
    bodies = fill(peers.logged_on(server), 1, 2500)  # 25 MB
    journals = server.journals()
    assert [p.name for p in journals] == [f"L1.{number:010d}.journal" for number in range(len(journals))]
    assert 3 <= len(journals) <= 4
    assert {p.stat().st_size for p in journals} == {JOURNAL_BYTES}
    assert replayed(peers, server) == bodies


def test_transaction_log_54_journals_are_kept_ready(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §20 29: one unused journal beside the current one, again after each rotation."""
    server = start_server(name="L1", log_topics=TOPICS)
    publisher = peers.logged_on(server)
    fill(publisher, 1, 1500)
    wait_until(lambda: len(server.journals()) >= 3, 10, "no journal was made ready")
    assert {p.stat().st_size for p in server.journals()} == {JOURNAL_BYTES}


@pytest.mark.parametrize("element", ["JournalSize", "MinJournalSize"])
def test_transaction_log_54_a_size_below_the_minimum_is_raised(
    start_server: StartServer, element: str
) -> None:
    """transaction_log.md §22 54 (O): a warning, and files of 10 MB; both names of the element."""
    directory = "<JournalDirectory>./journal</JournalDirectory>"
    topic = "<Topic><Name>t1</Name><MessageType>json</MessageType></Topic>"
    server = start_server(
        name="L1",
        instance_xml=f"<TransactionLog>{directory}<{element}>1MB</{element}>{topic}</TransactionLog>",
    )
    assert {p.stat().st_size for p in server.journals()} == {JOURNAL_BYTES}
    assert "JournalSize" in server.output()
    assert "warning" in server.output()


def test_transaction_log_54_a_size_is_rounded_up(start_server: StartServer) -> None:
    """transaction_log.md §2, §20 42: whole multiples of 1 MiB; `M` is 10^6."""
    server = start_server(log_topics=TOPICS, journal_size="11M")
    assert {p.stat().st_size for p in server.journals()} == {11 * 2**20}


def test_transaction_log_55_a_renamed_instance_has_another_log(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 55"""
    server = start_server(name="L1", log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 100)
    server.stop()
    contents = {p: p.read_bytes() for p in server.journals()}
    server.restart(name="L2")
    assert replayed(peers, server) == []
    fill(peers.logged_on(server), 1, 10)
    server.stop()
    assert {p: p.read_bytes() for p in contents} == contents
    server.restart(name="L1")
    assert replayed(peers, server) == bodies


def test_transaction_log_3_rotation_under_replay(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §1 3, §3.3: 60 MB over many journals, with live, replaying and late subscribers."""
    server = start_server(log_topics=TOPICS)
    publisher = peers.logged_on(server)
    live, early, late = (peers.logged_on(server) for _ in range(3))
    live.subscribe("t1", "s")
    early.subscribe("t1", "s", bm="0")
    total = 6000
    bodies = numbered_bodies(total, padding_bytes=10_000)
    received: dict[str, list[bytes]] = {}

    def read(name: str, client: RawClient) -> None:
        received[name] = bodies_of(client.receive_published(total, timeout_s=90))

    readers = [
        threading.Thread(target=read, args=(name, client))
        for name, client in (("live", live), ("early", early))
    ]
    for reader in readers:
        reader.start()
    for first in range(0, total, 50):
        publisher.publish_all("t1", bodies[first : first + 50], first_sequence=first + 1)
        if first == total // 2:
            late.subscribe("t1", "s", bm="0")
    read("late", late)
    for reader in readers:
        reader.join()
    assert received["live"] == bodies
    assert received["early"] == bodies
    assert received["late"] == bodies
    assert len(server.journals()) >= 6
    server.restart()
    assert replayed(peers, server) == bodies


def test_transaction_log_3_bookmarks_are_found_in_every_journal(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §7.2: also at the seams, live and after a restart without index files."""
    server = start_server(log_topics=TOPICS)
    numbered, plain = peers.logged_on(server, o="ack_conflation=1ms"), peers.logged_on(server)
    bodies = []
    for first in range(1, 3001, 100):
        bodies += fill(numbered, first, 100)
        more = [b"plain %d" % n + b"x" * 5000 for n in range(first, first + 20)]
        plain.publish_all("t1", more)
        plain.flush("persisted")
        bodies += more
    reader = peers.logged_on(server)
    reader.subscribe("t1", "all", bm="0")
    messages = reader.receive_published(len(bodies), timeout_s=60)
    assert bodies_of(messages) == bodies
    assert len(server.journals()) >= 4
    starts = range(0, len(bodies) - 3, 61)
    for again in range(2):
        for start in starts:
            reader = peers.logged_on(server)
            reader.subscribe("t1", "s", bm=str(messages[start]["bm"]), o="bookmark_not_found=fail")
            assert bodies_of(reader.receive_published(2)) == bodies[start + 1 : start + 3]
            reader.close()
        if again == 0:
            server.stop()
            for path in server.journal_directory.iterdir():
                if path.suffix != ".journal":
                    path.unlink()
            server.start()


@pytest.mark.parametrize("interval", [None, "1000ms", "1us"])
def test_transaction_log_2_flush_interval_changes_no_promise(
    start_server: StartServer, peers: Peers, interval: str | None
) -> None:
    """transaction_log.md §2: acks, flushes and bookmark subscribers keep their guarantees whatever the interval."""
    server = start_server(log_topics=TOPICS, flush_interval=interval)
    publisher, subscriber = peers.logged_on(server), peers.logged_on(server)
    subscriber.subscribe("t1", "s", bm="0")
    publisher.publish("t1", b"nobody waits for an ack", s=1)
    assert subscriber.receive(timeout_s=10).body == b"nobody waits for an ack"
    publisher.publish_persisted("t1", numbered_bodies(50), 2)
    publisher.publish("t1", b"a flush waits", s=52)
    publisher.flush("persisted")
    assert publisher.request({"c": "p", "t": "t1"}, b"own ack", ack="persisted").succeeded
    expected = [*numbered_bodies(50), b"a flush waits", b"own ack"]
    assert bodies_of(subscriber.receive_published(52)) == expected
    server.kill_all()
    server.start()
    assert replayed(peers, server) == [b"nobody waits for an ack", *expected]


def test_transaction_log_20_28_a_message_larger_than_a_journal(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §20 28: it gets a journal of its size; the journals around it keep theirs."""
    server = start_server(log_topics=TOPICS)
    publisher = peers.logged_on(server)
    large = os.urandom(2**20) * 15
    bodies = [b"before", large, b"after", large[:-1], b"end"]
    publisher.publish_persisted("t1", bodies, 1)
    assert replayed(peers, server) == bodies
    sizes = [p.stat().st_size for p in server.journals()]
    assert max(sizes) > len(large)
    assert min(sizes) == JOURNAL_BYTES
    server.restart()
    assert replayed(peers, server) == bodies
    fill(peers.logged_on(server), 1, 10)


def test_transaction_log_20_28_a_message_that_just_fits_or_just_does_not(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §20 28: with all other bytes that a journal needs besides the message."""
    server = start_server(log_topics=TOPICS)
    publisher = peers.logged_on(server)
    large = bytes(JOURNAL_BYTES)
    bodies = [large[:-missing] for missing in range(4000, 4640, 40)]
    publisher.publish_persisted("t1", bodies, 1)
    assert [len(body) for body in replayed(peers, server)] == [len(body) for body in bodies]
    sizes = {path.stat().st_size for path in server.journals()}
    assert sizes == {JOURNAL_BYTES, JOURNAL_BYTES + 2**20}, "both kinds were meant to be tried"


@pytest.mark.parametrize("record", ["first", "middle"])
def test_transaction_log_20_33_damage_before_the_tail_prevents_the_start(
    start_server: StartServer, peers: Peers, record: str
) -> None:
    """transaction_log.md §20 33: in the only journal; the refusal names file, offset and tool, and changes nothing."""
    server = start_server(log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 100, padding_bytes=100)
    server.kill_all()
    path, offset = locate(server, bodies[0 if record == "first" else 50])
    change_byte(path, offset + 20)
    damaged = path.read_bytes()
    said = server.start_refused()
    assert path.name in said
    assert names_offset(said, offset)
    assert "amps" in said.lower()
    assert path.read_bytes() == damaged
    change_byte(path, offset + 20)
    server.start()
    assert replayed(peers, server) == bodies


def test_transaction_log_20_33_damage_in_an_older_journal_is_never_skipped(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §20 33: full journals are checked when they are read, not at each start.

    A replay delivers all messages before the damage and none after it; then a critical record is logged and the
    connection is closed. Replays that don't pass the damage work.
    """
    server = start_server(log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 2500)
    server.stop()
    first_journal = server.journals()[0]
    damaged = numbers_in(first_journal)[-1] - 1
    path, offset = locate(server, bodies[damaged])
    assert path == first_journal
    change_byte(path, offset + 3)
    server.start()

    client = peers.logged_on(server)
    client.subscribe("t1", "s", bm="0")
    *received, told = client.wait_for_close(timeout_s=60)
    assert (told["status"], told.reason) == ("failure", "journal damaged")
    assert bodies_of(received) == bodies[:damaged]
    server.log.wait_for("1D-0010", path.name)
    server.log.wait_for("07-0013", client.client_name, "journal damaged")

    whole = peers.logged_on(server)
    whole.subscribe("t1", "s", bm="0|1|")
    peers.logged_on(server).publish_persisted("t1", [b"new"], 1)
    assert whole.receive().body == b"new"


def test_transaction_log_20_33_a_cut_off_older_journal_prevents_the_start(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §20 33: a file that is shorter than it was, or that is no longer a journal."""
    server = start_server(log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 2500)
    server.stop()
    first_journal = server.journals()[0]
    image = first_journal.read_bytes()
    for broken in (image[: len(image) // 2], b"", bytes(len(image)), b"x" * 100 + image[100:]):
        first_journal.write_bytes(broken)
        assert first_journal.name in server.start_refused()
        assert first_journal.read_bytes() == broken
    first_journal.write_bytes(image)
    server.start()
    assert replayed(peers, server) == bodies


@pytest.mark.parametrize("rest", ["nothing", "garbage"])
def test_transaction_log_20_33_a_torn_tail_is_cut_off_and_logged(
    start_server: StartServer, peers: Peers, rest: str
) -> None:
    """transaction_log.md §20 33: the state after a crash in the middle of a write that was never acknowledged.

    Everything before the cut is there, the log goes on from there, and the cut is in the event log.
    """
    server = start_server(log_topics=TOPICS)
    acknowledged = fill(peers.logged_on(server), 1, 50, padding_bytes=100)
    server.stop()
    beside = {p: p.read_bytes() for p in server.journal_directory.iterdir() if p.suffix != ".journal"}
    server.start()
    torn = numbered_bodies(100, start=51, padding_bytes=100)
    publisher = peers.logged_on(server)
    publisher.publish_all("t1", torn)
    publisher.flush("persisted")
    server.kill_all()
    path, offset = locate(server, torn[60])
    image = path.read_bytes()
    garbage = random.Random(3).randbytes(700) if rest == "garbage" else b""
    path.write_bytes(image[: offset + 20] + garbage + bytes(len(image) - offset - 20 - len(garbage)))
    for old in server.journal_directory.iterdir():
        if old.suffix != ".journal":
            old.unlink()
    for old, content in beside.items():
        old.write_bytes(content)

    server.start()
    cuts = [r for r in server.log.search(path.name) if r.level == "warning"]
    assert any(names_offset(r.text, offset) for r in cuts), "the cut was not logged"
    kept = [*acknowledged, *torn[:60]]
    assert replayed(peers, server) == kept
    peers.logged_on(server).publish_persisted("t1", [b"new"], 1)
    server.restart()
    assert replayed(peers, server) == [*kept, b"new"]


def test_transaction_log_20_33_an_acknowledged_record_is_never_taken_for_a_torn_tail(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §20 33, §1 10: only unacknowledged data can be torn."""
    server = start_server(log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 100, padding_bytes=100)
    server.kill_all()
    path, offset = locate(server, bodies[-1])
    change_byte(path, offset + 20)
    assert path.name in server.start_refused()
    change_byte(path, offset + 20)
    server.start()
    assert replayed(peers, server) == bodies


def test_transaction_log_20_34_a_missing_journal_prevents_the_start(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §20 34, §13.3: the missing file is named; nothing is overwritten."""
    server = start_server(log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 3000)
    server.stop()
    middle = server.journals()[1]
    aside = server.directory / "aside"
    middle.rename(aside)
    others = {p: p.read_bytes() for p in server.journals()}
    assert middle.name in server.start_refused()
    assert {p: p.read_bytes() for p in server.journals()} == others
    aside.rename(middle)
    server.start()
    assert replayed(peers, server) == bodies


def test_transaction_log_13_3_the_oldest_journals_may_be_removed_by_hand(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §13.3: while the server is down, from the oldest end."""
    server = start_server(log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 3000)
    server.stop()
    oldest = server.journals()[0]
    inside = len(numbers_in(oldest))
    for leftover in server.journal_directory.glob(f"{oldest.stem}*"):
        leftover.unlink()
    server.start()
    rest = replayed(peers, server)
    assert rest == bodies[len(bodies) - len(rest) :]
    assert len(rest) >= len(bodies) - inside - 1
    assert len(rest) < len(bodies)


def test_transaction_log_63_index_files_are_made_again(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §22 63: delete everything but the journals; nothing changes."""
    server = start_server(log_topics=TOPICS)
    publisher = peers.open(server)
    publisher.logon("keeper", o=SOON)
    bodies = fill(publisher, 1, 2500)
    server.stop()
    for path in server.journal_directory.iterdir():
        if path.suffix != ".journal":
            path.unlink()
    server.start()
    assert replayed(peers, server) == bodies
    again = peers.open(server)
    assert again.logon("keeper")["s"] == 2500
    again.publish("t1", b"duplicate", s=2500)
    again.publish("t1", b"new", s=2501)
    again.flush("persisted")
    assert replayed(peers, server) == [*bodies, b"new"]


def test_transaction_log_63_rubbish_in_index_files_is_noticed(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §3: an index only saves work; a damaged one never changes the result of a replay."""
    server = start_server(log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 2500)
    server.stop()
    for path in server.journal_directory.iterdir():
        if path.suffix != ".journal":
            path.write_bytes(b"rubbish" * 100)
    server.start()
    assert replayed(peers, server) == bodies


def test_transaction_log_3_only_own_files_are_read(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §3: files of other names in the directory are left alone."""
    server = start_server(name="L1", log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 10)
    server.stop()
    foreign = [
        server.journal_directory / name
        for name in (
            "L10.0000000000.journal",
            "notes.txt",
            "L1.0000000000.journal.bak",
            "X.L1.0000000007.journal",
        )
    ]
    for path in foreign:
        path.write_bytes(b"not a journal")
    server.start()
    assert replayed(peers, server) == bodies
    assert all(path.read_bytes() == b"not a journal" for path in foreign)


def test_transaction_log_2_a_second_server_on_the_same_directory_is_refused(
    start_server: StartServer, make_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §2: a journal directory belongs to one instance only."""
    server = start_server(name="L1", log_topics=TOPICS)
    bodies = fill(peers.logged_on(server), 1, 10)
    other = make_server(name="L1")
    topic = "<Topic><Name>t1</Name><MessageType>json</MessageType></Topic>"
    directory = f"<JournalDirectory>{server.journal_directory}</JournalDirectory>"
    size = "<JournalSize>10MB</JournalSize>"
    other.options = type(other.options)(
        name="L1", instance_xml=f"<TransactionLog>{directory}{size}{topic}</TransactionLog>"
    )
    assert str(server.journal_directory) in other.start_refused()
    fill(peers.logged_on(server), 1, 10)
    assert replayed(peers, server)[:10] == bodies
