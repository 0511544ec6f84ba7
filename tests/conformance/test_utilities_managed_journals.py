"""The utilities on the files of journal management: compressed and archived journals, `clients.ack`.

transaction_log.md §3, §13, §16.4, §20 item 39, §22 66.
"""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from amps.cli.main import amps as amps_command
from tests.support.peer import RawClient
from tests.support.server import StartServer, wait_until
from tests.support.utilities import LARGE_COUNT, SMALL_COUNT, Written, entries_of, run, write_journals

TUNED = (
    "<Tuning><Transport><Workers>1</Workers></Transport>"
    "<TransactionLog><TopicIndex><Enabled>true</Enabled></TopicIndex></TransactionLog></Tuning>"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_journals(tmp_path_factory.mktemp("journals"))


def manage(*arguments: object) -> None:
    ran = CliRunner().invoke(amps_command, ["journal", *map(str, arguments)])
    assert ran.exit_code == 0, ran.output


def without_name(out: bytes) -> list[bytes]:
    return out.splitlines()[1:]


def test_transaction_log_66_journals_that_the_server_compressed(written: Written, tmp_path: Path) -> None:
    """transaction_log.md §22 66: dump, search and grep work on `.gz`."""
    directory = tmp_path / "journal"
    shutil.copytree(written.directory, directory)
    journal = directory / written.first.name
    plain = run("journal_dump", journal)
    manage("compress", directory, "-up-to", 0)
    packed = directory / f"{journal.name}.gz"
    assert packed.exists()
    assert not journal.exists()
    ran = run("journal_dump", packed)
    assert ran.status == 0, ran.errors
    assert without_name(ran.out) == without_name(plain.out)
    (entry,) = entries_of(run("journal_search", packed, written.bookmarks[5]).out)
    assert entry["topic"] == "[t2]"
    (found,) = entries_of(run("grep", "free text", packed).out)
    assert found == entry
    (found,) = entries_of(run("grep", "free text", stdin=packed.read_bytes()).out)
    assert found == entry
    assert run("file_kinds", packed).lines == [f"{packed.name}: AMPS journal 3.0"]
    data = bytearray(packed.read_bytes())
    data[len(data) // 2] ^= 1
    packed.write_bytes(data)
    ran = run("journal_dump", "--no-data", packed)
    assert ran.status == 1
    assert "damaged at offset" in ran.errors


def test_transaction_log_3_topic_indexes_go_where_their_journals_go(
    start_server: StartServer, tmp_path: Path
) -> None:
    """transaction_log.md §3, §13: archived and removed with the journal; also made for a journal in the archive."""
    server = start_server(name="L1", log_topics=("t1",), instance_xml=TUNED, transport_workers=None)
    with RawClient.tcp(server.port()) as client:
        client.logon("writer", mt="json")
        for sequence in range(1, 1201):
            client.publish("t1", b"x" * 10_000, s=sequence)
        client.flush("persisted")
    directory, archive = server.journal_directory, tmp_path / "archive"
    archive.mkdir()
    index = server.journals()[0].with_suffix(".topic.index")
    wait_until(index.exists, 30, "no topic index appears")
    server.stop()
    manage("archive", directory, "-archive", archive, "-up-to", 0)
    assert not index.exists()
    moved = archive / index.name
    before = moved.read_bytes()
    # Lost, and made again by a server whose journal is already compressed and in the archive.
    manage("compress", directory, "-archive", archive, "-up-to", 0)
    moved.unlink()
    archived = f"<JournalArchiveDirectory>{archive}</JournalArchiveDirectory>"
    server.restart(journal_xml=archived)
    wait_until(index.exists, 30, "no topic index is made for an archived journal")
    assert index.read_bytes() == before
    server.stop()
    manage("remove", directory, "-archive", archive, "-up-to", 0)
    assert list(archive.iterdir()) == []
    assert not index.exists()


def test_transaction_log_39_clients_ack_dump(written: Written, tmp_path: Path) -> None:
    """transaction_log.md §16.4, §20 item 39: per publisher name, hash, last sequence, transaction id and time."""
    path = written.directory / "L1.clients.ack"
    ran = run("clients_ack_dump", path)
    assert ran.status == 0, ran.errors
    header, *blocks = ran.out.decode().split("_" * 80 + "\n")
    assert header.splitlines()[0] == f"File Name    : {path}"
    assert "Publishers   : 2\n" in header
    found = {}
    for block in blocks:
        values = [line.partition(" : ") for line in block.splitlines()]
        assert [label.strip() for label, _, _ in values] == [
            "client name", "client name hash", "last client seq", "last txid", "iso8601 timestamp", "timestamp",
        ]  # fmt: skip
        found[values[1][2]] = [value for _, _, value in values]
    own, derived = (written.bookmarks[at].split("|") for at in (0, -1))
    assert set(found) == {own[0], derived[0]}
    assert found[own[0]][:1] + found[own[0]][2:4] == ["[alice]", str(SMALL_COUNT + LARGE_COUNT), "unknown"]
    assert found[derived[0]][:1] + found[derived[0]][2:4] == ["[alice]", derived[1], derived[1]]
    (entry,) = entries_of(run("journal_search", written.first, written.bookmarks[-1]).out)
    assert found[derived[0]][4:] == [entry["iso8601 timestamp"], entry["timestamp"]]
    for limit in ("-n", "--limit"):
        assert run("clients_ack_dump", limit, 1, path).out.count(b"client name hash") == 1
    assert run("clients_ack_dump").status == 2
    damaged = tmp_path / "x.clients.ack"
    damaged.write_bytes(path.read_bytes()[:-1])
    ran = run("clients_ack_dump", damaged, path)
    assert ran.status == 1
    assert str(damaged) in ran.errors
    assert str(path) in ran.out.decode()


def test_journals_that_were_removed_by_hand_can_be_made_known(written: Written, tmp_path: Path) -> None:
    """transaction_log.md §12: until then each start reports them."""
    directory = tmp_path / "journal"
    shutil.copytree(written.directory, directory)
    (directory / written.first.name).unlink()
    manage("remove", directory, "-up-to", 0)
    assert (directory / f"{written.first.name.split('.')[0]}.removed").read_text() == (
        "journals before 1 were removed\n"
    )
