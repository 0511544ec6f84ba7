"""Results of `amps journal verify` agree with a server's start on the same journal."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from amps.cli.main import amps
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer

MESSAGES = 300
FILE_HEADER_BYTES = 4096


@pytest.fixture
def stopped_server(start_server: StartServer, peers: Peers) -> ServerProcess:
    """A stopped server with 300 acknowledged messages of 1,000 bytes in its first journal."""
    server = start_server(log_topics=[".*"])
    publisher = peers.logged_on(server)
    publisher.publish_persisted("t", [b"%04d" % number + b"x" * 996 for number in range(MESSAGES)], 1)
    server.stop()
    return server


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def run(directory: Path) -> tuple[int, str]:
    result = CliRunner().invoke(amps, ["journal", "verify", str(directory)])
    return result.exit_code, result.output


@pytest.mark.parametrize("offset", [FILE_HEADER_BYTES + 40, FILE_HEADER_BYTES + 150_000])
def test_damage_among_acknowledged_records_is_found_at_the_offset_that_a_start_reports(
    stopped_server: ServerProcess, offset: int
) -> None:
    path = stopped_server.journals()[0]
    overwrite(path, offset, bytes((path.read_bytes()[offset] ^ 0xFF,)))
    before = path.read_bytes()
    exit_code, output = run(stopped_server.journal_directory)
    assert exit_code == 1
    found = int(output.split(f"{path}: damaged at offset ")[1].split(":")[0])
    assert found <= offset < found + 2000
    assert path.read_bytes() == before
    assert f"damaged at offset {found}" in stopped_server.start_refused()


def test_a_torn_end_without_acknowledged_records_is_no_damage(stopped_server: ServerProcess) -> None:
    path = stopped_server.journals()[0]
    data = path.read_bytes()
    end = len(data.rstrip(b"\0")) + 64  # behind the last record, whatever its padding
    overwrite(path, end - end % 8, b"half a record")
    exit_code, output = run(stopped_server.journal_directory)
    assert exit_code == 0, output
    assert "never acknowledged" in output
    stopped_server.start()


def test_a_cut_journal_is_damaged(stopped_server: ServerProcess) -> None:
    path = stopped_server.journals()[0]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:500_000])
    exit_code, output = run(stopped_server.journal_directory)
    assert exit_code == 1
    assert f"{path}: damaged at offset 500000: it has 500000 bytes, its header says {size}" in output
