"""Journals of another release: they are intact, but cannot be read here. transaction_log.md §12; §20, 33, 34."""

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amps._core.journal.reader import build_file_header
from amps._core.values.value import publisher_id
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, package_path
from tests.support.utilities import run

VERSION_OFFSET = 8
"""Offset in the header of a journal: docs/files.md."""
OTHER = "written by a newer server: a journal of format version 4, and this program reads versions 2 to 3"
REMEDY = "use the release of amps-server that wrote it"
DAMAGE = ("damaged", "checksum", "amps journal verify", "restore")
"""Words that would make an operator search for damage."""


def make_other(path: Path, version: int = 4) -> None:
    """Change the version number of a journal, as if another release had written it."""
    with path.open("r+b") as file:
        file.seek(VERSION_OFFSET)
        file.write(version.to_bytes(4, "little"))


@pytest.fixture(scope="module")
def filled(start_module_server: StartServer) -> ServerProcess:
    """A stopped server with two full journals, one in use and a spare."""
    server = start_module_server(log_topics=("t1",))
    with Peers("writer") as peers:
        peers.logged_on(server).publish_persisted("t1", numbered_bodies(2500, padding_bytes=10_000), 1)
    server.stop()
    assert len(server.journals()) == 4
    return server


@pytest.fixture
def server(filled: ServerProcess, tmp_path: Path) -> Iterator[ServerProcess]:
    """The stopped server. Its files are restored after the test."""
    kept = tmp_path / "kept"
    shutil.copytree(filled.journal_directory, kept)
    yield filled
    filled.kill_all()
    shutil.rmtree(filled.journal_directory)
    shutil.copytree(kept, filled.journal_directory)


def check_named(said: str, path: Path, other: str = OTHER) -> None:
    assert f"{path}: {other}" in said.replace("\n", " ")
    assert REMEDY in said
    assert not [word for word in DAMAGE if word in said.lower()], said


@pytest.mark.parametrize("number", [0, 1, 2, 3], ids=["oldest", "full", "in use", "spare"])
def test_transaction_log_33_a_start_says_that_a_journal_is_of_another_version(
    server: ServerProcess, number: int
) -> None:
    """transaction_log.md §20, 33: refused, and nothing is changed."""
    make_other(server.journals()[number])
    left = {path: path.read_bytes() for path in server.journals()}
    check_named(server.start_refused(), server.journals()[number])
    assert {path: path.read_bytes() for path in server.journals()} == left


def test_transaction_log_33_a_journal_of_the_first_version_is_of_an_older_server(server: ServerProcess) -> None:
    """transaction_log.md §20, 33."""
    make_other(server.journals()[0], 1)
    older = "written by an older server: a journal of format version 1, and this program reads versions 2 to 3"
    check_named(server.start_refused(), server.journals()[0], older)


def test_journals_of_the_version_before_are_read_and_continued(server: ServerProcess, peers: Peers) -> None:
    """transaction_log.md §20, 33: an update of the server needs no conversion."""
    for path in server.journals():
        make_other(path, 2)
    server.start()
    client = peers.logged_on(server, name="writer-of-old")
    client.publish("t1", b'{"n":0}', s=1)
    client.flush("persisted")
    client.subscribe("t1", "all", bm="0")
    assert len(client.receive_published(2501)) == 2501
    versions = [path.read_bytes()[VERSION_OFFSET] for path in server.journals()]
    # The journal in use, here the third, has the version of new ones: an older server must not read on in it.
    assert versions == [2, 2, 3, 2]
    server.stop()


def test_transaction_log_34_a_spare_of_another_version_is_not_removed(server: ServerProcess) -> None:
    """transaction_log.md §20, 34: only the release that wrote it knows whether it holds messages."""
    last = server.journals()[3]
    size = last.stat().st_size
    for number in (4, 5):
        header = build_file_header(number, size, 0, 0, 1, publisher_id("Test"), "Test", False)
        last.with_name(f"Test.{number:010d}.journal").write_bytes(header.ljust(size, b"\0"))
    other = server.journals()[4]
    make_other(other)
    check_named(server.start_refused(), other)
    assert len(server.journals()) == 6


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("utility", ["journal_dump", "grep", "journal_search"])
def test_transaction_log_16_utilities_say_that_a_journal_is_of_another_version(
    server: ServerProcess, utility: str, compressed: bool
) -> None:
    """transaction_log.md §16: and fail as with a file that they cannot read."""
    path = server.journals()[0]
    make_other(path)
    if compressed:
        packed = path.with_name(path.name + ".gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), 1))
        path = packed
    if utility == "grep":
        ran = run(utility, "x", path)
    elif utility == "journal_search":
        ran = run(utility, path, "1")
    else:
        ran = run(utility, path)
    assert ran.status == (2 if utility == "grep" else 1)
    check_named(ran.errors, path)
    assert ran.out == b""


@pytest.mark.parametrize("command", ["verify", "list"])
def test_transaction_log_12_journal_commands_say_that_a_journal_is_of_another_version(
    server: ServerProcess, command: str
) -> None:
    """transaction_log.md §12: `amps journal verify` and `list`."""
    make_other(server.journals()[1])
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "amps.cli.main", "journal", command, str(server.journal_directory)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": package_path()},
        check=False,
    )
    assert ran.returncode == 1
    said = ran.stdout + ran.stderr
    assert OTHER in said
    assert REMEDY in said
    assert "damaged at" not in said


def test_journals_of_the_version_without_delays_are_continued(
    server: ServerProcess, peers: Peers
) -> None:
    """docs/files.md: they are read, and an older server then refuses the one in use, which may have delays now."""
    journals = server.journals()
    for path in journals:
        make_other(path, 2)
    server.start()
    reader = peers.logged_on(server)
    reader.subscribe("t1", "s", bm="0")
    assert len(reader.receive_published(2500)) == 2500
    reader.publish("t1", b"{}", delay=1)
    (delayed,) = reader.receive_published(1)
    assert "not_before" in delayed
    server.stop()
    versions = [int.from_bytes(path.read_bytes()[8:12], "little") for path in journals[:3]]
    assert versions == [2, 2, 3]


@pytest.mark.parametrize("version", [0, 1 << 16, 0xDEADBEEF])
def test_transaction_log_33_a_version_that_cannot_be_is_damage(server: ServerProcess, version: int) -> None:
    """transaction_log.md §20, 33: no release writes such a number."""
    path = server.journals()[0]
    make_other(path, version)
    said = server.start_refused()
    assert f"{path}: damaged at offset {VERSION_OFFSET}" in said
