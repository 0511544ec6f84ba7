"""Replays through journals with topic indexes: faster, and otherwise the same (transaction_log.md §3, §20 item 32)."""

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from amps._core.journal.reader import FRAME_BYTES
from amps.cli.main import amps
from amps.journal.entries import JournalFile
from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, wait_until

TUNING = (
    "<Tuning><Transport><Workers>1</Workers></Transport>"
    "<TransactionLog><TopicIndex><Enabled>{}</Enabled></TopicIndex></TransactionLog></Tuning>"
)
WITH_INDEXES, WITHOUT = TUNING.format("true"), TUNING.format("false")
MESSAGES = 2500  # of 10 kB: two full journals and a part of the third
RARE = 40
RECORD_BYTES_MAX = 10_200
JOURNALS = 2


@pytest.fixture
def filled(start_server: StartServer) -> ServerProcess:
    """A server with two full journals and their indexes; each 40th message is of the topic `rare`."""
    server = start_server(
        name="L1", log_topics=("rare", "common.*"), instance_xml=WITH_INDEXES, transport_workers=None
    )
    with RawClient.tcp(server.port()) as client:
        client.logon("writer", mt="json")
        for sequence in range(1, MESSAGES + 1):
            topic = "rare" if sequence % RARE == 0 else f"common{sequence % 2}"
            client.publish(topic, b'{"k":%d,"x":"%s"}' % (sequence % 3, b"x" * 10_000), s=sequence)
        client.flush("persisted")
    wait_until(lambda: all(map(Path.exists, indexes(server))), 30, "no topic indexes appear")
    return server


def indexes(server: ServerProcess) -> list[Path]:
    directory = server.journal_directory
    return [directory / f"L1.{number:010d}.topic.index" for number in range(JOURNALS)]


def replayed(
    peers: Peers, server: ServerProcess, topic: str, bookmark: str = "0", **fields: str
) -> list[Message]:
    """Replay up to `completed`. Return all messages, including that acknowledgement."""
    client = peers.logged_on(server)
    header = {"c": "subscribe", "t": topic, "sub_id": "s", "bm": bookmark, "a": "completed", "cid": "1"}
    client.send({**header, **fields})
    messages: list[Message] = []
    while not messages or not messages[-1].is_ack("completed"):
        messages.append(client.receive(30))
    client.close()
    return messages


QUESTIONS: list[tuple[str, str, dict[str, str]]] = [
    ("rare", "0", {}),
    ("^ra", "0", {}),
    ("rare", "0", {"f": "/k = 1", "o": "timestamp"}),
    ("common1|rare", "0", {}),
    ("common7", "0", {}),
    ("rare", "0", {"o": "conflation=100ms,conflation_key=[/k]"}),
    ("rare", "0", {"o": "rate=1000"}),
    ("rare", "0", {"o": "rate=100X"}),
    ("rare", "0", {"top_n": "5"}),
]


def test_replays_are_the_same_with_and_without_topic_indexes(filled: ServerProcess, peers: Peers) -> None:
    """transaction_log.md §20 item 32: for any request the deliveries are equal, up to the acknowledgement
    at the end.
    """
    server = filled
    inside = [str(message["bm"]) for message in replayed(peers, server, "rare")[:-1]]
    times = [str(message["ts"]) for message in replayed(peers, server, "rare", o="timestamp")[:-1]]
    questions = [
        *QUESTIONS,
        ("rare", inside[7], {}),
        ("rare", f"[{inside[3]}:{inside[40]})", {}),
        ("rare", f"({times[3]}:{times[30]}]", {}),
        ("rare|common0", f"[{times[45]}:{times[48]})", {}),
    ]
    found = [replayed(peers, server, topic, bookmark, **fields) for topic, bookmark, fields in questions]
    assert [len(messages) for messages in found[:1]] == [MESSAGES // RARE + 1]
    assert not server.log.find("21-0004")
    assert not server.log.find("21-0005")
    server.restart(instance_xml=WITHOUT)
    again = [replayed(peers, server, topic, bookmark, **fields) for topic, bookmark, fields in questions]
    assert again == found


def damage_all_but(topic: bytes, journal: Path) -> None:
    """Make the records of other topics unreadable, except the first and the last one."""
    with JournalFile(journal) as file:
        entries = [(entry.file_offset, entry.topic) for entry in file.entries()]
    with journal.open("r+b") as content:
        for offset, name in entries[1:-1]:
            if name != topic:
                content.seek(offset)
                content.write(b"\xff" * 8)


def damage_frames_without(topic: bytes, journal: Path) -> int:
    """Make all frames of a compressed journal without records of that topic unreadable, except the first and the last
    one. Return their number.
    """
    with JournalFile(journal) as file:
        needed = {
            place // FRAME_BYTES
            for entry in file.entries()
            if entry.topic == topic
            for place in (entry.file_offset, entry.file_offset + RECORD_BYTES_MAX)
        }
    stored = bytearray(journal.read_bytes())
    count, _, _ = struct.unpack("<IBI", stored[-9:])
    table = struct.unpack(f"<{2 * count}I", stored[-9 - 8 * count : -9])
    begins = [sum(table[0 : 2 * frame : 2]) for frame in range(count)]
    damaged = [frame for frame in range(1, count - 1) if frame not in needed]
    for frame in damaged:
        stored[begins[frame] : begins[frame] + 8] = bytes(8)
    journal.write_bytes(stored)
    return len(damaged)


def manage(*arguments: object) -> None:
    ran = CliRunner().invoke(amps, ["journal", *map(str, arguments)])
    assert ran.exit_code == 0, ran.output


def test_only_records_of_the_topic_are_read(filled: ServerProcess, peers: Peers) -> None:
    """transaction_log.md §3: damage in records of other topics does not disturb a replay of this topic."""
    server = filled
    expected = replayed(peers, server, "rare")
    server.stop()
    for journal in server.journals()[:JOURNALS]:
        damage_all_but(b"rare", journal)
    server.start()
    assert replayed(peers, server, "rare") == expected
    assert not server.log.find("1D-0010")
    client = peers.logged_on(server)
    client.subscribe("common0", "s", bm="0")
    client.wait_for_close(timeout_s=60)
    server.log.wait_for("1D-0010", "L1.0000000000.journal")


def test_only_frames_of_the_topic_are_decompressed(
    filled: ServerProcess, peers: Peers, tmp_path: Path
) -> None:
    """transaction_log.md §3, §13: of a compressed journal, in the journal directory and in the archive."""
    server = filled
    expected = replayed(peers, server, "rare")
    server.stop()
    archive = tmp_path / "archive"
    archive.mkdir()
    places = (server.journal_directory, "-archive", archive)
    manage("compress", *places, "-up-to", JOURNALS - 1)
    manage("archive", *places, "-up-to", 0)
    assert (archive / "L1.0000000000.topic.index").exists()
    assert damage_frames_without(b"rare", archive / "L1.0000000000.journal.gz") > 5
    assert damage_frames_without(b"rare", server.journal_directory / "L1.0000000001.journal.gz") > 5
    server.restart(journal_xml=f"<JournalArchiveDirectory>{archive}</JournalArchiveDirectory>")
    assert replayed(peers, server, "^rare$") == expected
    assert not server.log.find("1D-0010")


def test_a_damaged_topic_index_is_logged_and_not_used(filled: ServerProcess, peers: Peers) -> None:
    """transaction_log.md §3: a replay works without it, more slowly; each file is logged once, however many replays
    follow.
    """
    server = filled
    expected = replayed(peers, server, "rare")
    server.stop()
    index = indexes(server)[1]
    content = bytearray(index.read_bytes())
    content[len(content) // 2] ^= 1
    index.write_bytes(content)
    server.start()
    for _ in range(3):
        assert replayed(peers, server, "rare") == expected
    (said,) = server.log.find("21-0005")
    assert f"{index}: checksum does not match" in said.text
    assert not server.log.find("21-0004")


def test_resumed_subscriptions_share_one_pass_over_the_log(filled: ServerProcess, peers: Peers) -> None:
    """transaction_log.md §9: subscriptions resumed together read the log once, and a message for several comes once."""
    server = filled
    client = peers.logged_on(server)
    for sub_id, topic in (("a", "rare"), ("b", "^rare"), ("c", "common7")):
        client.subscribe(topic, sub_id, bm="0", o="pause")
    client.send({"c": "subscribe", "sub_id": "a,b,c", "o": "resume"})
    messages = client.receive_published(MESSAGES // RARE, timeout_s=30)
    assert {frozenset(message.subscriptions) for message in messages} == {frozenset("ab")}
