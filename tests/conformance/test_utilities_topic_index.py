"""The topic index that a server makes for full journals, and its dump: transaction_log.md §3, §16.4, §20 item 32."""

from pathlib import Path

from tests.support.peer import RawClient
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.utilities import Ran, entries_of, run

WORKERS = "<Transport><Workers>1</Workers></Transport>"
TOPIC_INDEX = "<TransactionLog><TopicIndex><Enabled>true</Enabled></TopicIndex></TransactionLog>"
TUNED = f"<Tuning>{WORKERS}</Tuning>"
TUNED_WITH_INDEX = f"<Tuning>{WORKERS}{TOPIC_INDEX}</Tuning>"


def fill_one_journal(server: ServerProcess) -> Path:
    """Write more than one journal of messages that alternate between two topics. Return the first journal."""
    with RawClient.tcp(server.port()) as client:
        client.logon("writer", mt="json")
        for sequence in range(1, 1201):
            client.publish(f"t{sequence % 3 == 0:d}", b"x" * 10_000, s=sequence)
        client.flush("persisted")
    return server.journals()[0]


def index_beside(journal: Path) -> Path:
    return journal.with_suffix(".topic.index")


def offsets_of(ran: Ran) -> list[int]:
    return [int(line) for line in ran.lines if line.isdigit()]


def test_transaction_log_16_4_topic_index_dump(start_server: StartServer, tmp_path: Path) -> None:
    """transaction_log.md §16.4, §20 item 32: offsets of a topic's entries; made again if it was lost."""
    server = start_server(
        name="L1", log_topics=("t0", "t1"), instance_xml=TUNED_WITH_INDEX, transport_workers=None
    )
    journal = fill_one_journal(server)
    index = index_beside(journal)
    wait_until(index.exists, 30, "no topic index appears")
    entries = entries_of(run("journal_dump", "--no-data", journal).out)
    wanted = {
        topic: [int(entry["file offset"]) for entry in entries if entry["topic"] == f"[{topic}]"]
        for topic in ("t0", "t1")
    }
    assert len(wanted["t1"]) > 200
    for topic in ("t0", "t1"):
        ran = run("topic_index_dump", index, "--topic", topic, "--message-type", "json")
        assert ran.status == 0, ran.errors
        assert offsets_of(ran) == wanted[topic]
    topic_hash = next(entry["topic hash"] for entry in entries if entry["topic"] == "[t1]")
    assert offsets_of(run("topic_index_dump", index, f"--topic-hash={topic_hash}")) == wanted["t1"]
    both = run("topic_index_dump", index, "--message-type", "json")
    assert sorted(offsets_of(both)) == sorted(wanted["t0"] + wanted["t1"])
    assert run("topic_index_dump", index).status == 2
    assert run("topic_index_dump", index, "--topic", "t9").status == 1
    assert run("topic_index_dump", index, "--topic", "t0", "--message-type", "fix").status == 1
    damaged = tmp_path / "x.topic.index"
    damaged.write_bytes(index.read_bytes()[:-1] + b"\xff")
    ran = run("topic_index_dump", damaged, "--topic", "t0")
    assert ran.status == 1
    assert f"{damaged}: checksum does not match" in ran.errors
    before = index.read_bytes()
    server.stop()
    index.unlink()
    server.start()
    wait_until(index.exists, 30, "the topic index is not made again")
    assert index.read_bytes() == before


def test_transaction_log_3_without_the_switch_there_is_none(start_server: StartServer) -> None:
    """transaction_log.md §3: optional."""
    server = start_server(log_topics=("t0", "t1"), instance_xml=TUNED, transport_workers=None)
    journal = fill_one_journal(server)
    wait_until(journal.with_suffix(".index").exists, 30, "no index appears")
    server.stop()
    assert not index_beside(journal).exists()


def test_a_topic_index_of_another_log_is_removed(start_server: StartServer) -> None:
    """transaction_log.md §3: the file of a removed log must not be used as the index of a new journal."""
    server = start_server(name="L1", log_topics=("t0", "t1"))
    server.stop()
    for journal in server.journals():
        journal.unlink()
    stale = server.journal_directory / "L1.0000000000.topic.index"
    stale.write_bytes(b"old")
    server.start()
    with RawClient.tcp(server.port()) as client:
        client.logon("writer", mt="json")
        client.publish("t0", b"x", s=1)
        client.flush("persisted")
    assert not stale.exists()
