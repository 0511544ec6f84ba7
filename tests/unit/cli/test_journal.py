"""`amps journal verify` and `amps journal list` on journals that a real core wrote, sound and damaged."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from amps.cli.main import amps
from tests.support.peer import RawClient
from tests.support.peers import SOON
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with several full journals and one in use, from a core that stopped in order."""
    server = ServerProcess(tmp_path_factory.mktemp("journals"), name="V", log_topics=["^L"]).start()
    try:
        with RawClient.tcp(server.port()) as client:
            client.logon("writer", mt="json", o=SOON)
            client.publish_persisted("L", [b"x" * 1_000_000] * 30, 1)
        directory = server.journal_directory
        server.stop()
    finally:
        server.close()
    assert len(list(directory.glob("*.journal"))) > 3
    return directory


def copy_of(written: Path, tmp_path: Path) -> Path:
    """A copy of the journals that a test may damage."""
    return Path(shutil.copytree(written, tmp_path / "journal"))


def run(directory: Path) -> tuple[int, str]:
    result = CliRunner().invoke(amps, ["journal", "verify", str(directory)])
    return result.exit_code, result.output


def test_sound_journals_pass(written: Path) -> None:
    code, output = run(written)
    assert code == 0, output
    assert "0 problems" in output
    assert "spare, not used yet" in output


def test_a_flipped_byte_is_named_with_file_and_offset(written: Path, tmp_path: Path) -> None:
    directory = copy_of(written, tmp_path)
    first = sorted(directory.glob("*.journal"))[0]
    data = bytearray(first.read_bytes())
    data[3_000_000] ^= 1
    first.write_bytes(data)
    code, output = run(directory)
    assert code == 1
    assert f"{first}: damaged at offset " in output
    assert output.endswith(" 1 problem\n")


def test_a_missing_journal_is_named(written: Path, tmp_path: Path) -> None:
    directory = copy_of(written, tmp_path)
    sorted(directory.glob("*.journal"))[1].unlink()
    code, output = run(directory)
    assert code == 1
    assert "journal 0000000001 before it is missing" in output


def test_a_directory_without_journals_is_an_error(tmp_path: Path) -> None:
    code, output = run(tmp_path)
    assert code == 1
    assert "no journals" in output


def test_the_list_shows_the_times_of_every_journal_with_messages(written: Path, tmp_path: Path) -> None:
    """The journal in use has no index file, and the index file of one full journal is removed."""
    directory = copy_of(written, tmp_path)
    sorted(directory.glob("*.index"))[0].unlink()
    result = CliRunner().invoke(amps, ["journal", "list", str(directory)])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()[1:]
    assert lines[-1].endswith("current")
    for line in lines:
        assert re.search(r" bytes  \d{4}-\d\d-\d\dT[\d:]+Z to \d{4}-\d\d-\d\dT[\d:]+Z  ", line), line
    # All journals were written within minutes, so there are at most two dates.
    assert len({line.split()[3][:10] for line in lines}) <= 2
