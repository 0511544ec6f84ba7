"""The utility `amps_queues_ack_dump` (queues.md §17)."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from amps.cli.utilities.queues_ack_dump import main
from amps.journal.disk import Disk
from amps.journal.kinds import kind_of
from amps.journal.queues_ack import HEADER_BYTES, LogMark, QueueStart, write_queues_ack

STARTS = [
    QueueStart("Q", "json", ("epoch",), 4096),
    QueueStart("jobs-\udc80", "nvfix", ("bookmark", ((3, 7), (4, 9))), 123456, ((5, 6, 7), (8, 9, 10))),
    QueueStart("R", "json", ("time", 1_700_000_000_000_000_000), 99),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "I.queues.ack"
    write_queues_ack(Disk(), path, LogMark(200_000, 3, 150_000, 77), STARTS)
    return path


def test_every_queue_is_shown(path: Path) -> None:
    ran = CliRunner().invoke(main, [str(path)])
    assert ran.exit_code == 0, ran.output
    header, *blocks = ran.output.split("_" * 80 + "\n")
    assert [line.partition(" : ")[2] for line in header.splitlines()] == [
        str(path), str(path.stat().st_size), "amps-server::queues.ack/v1", "200000", "3", "3",
    ]  # fmt: skip
    assert [[line.partition(" : ")[2] for line in block.splitlines()] for block in blocks] == [
        ["[Q]", "json", "epoch", "4096", "0"],
        ["[jobs-���]", "nvfix", "3|7|,4|9|", "123456", "2"],
        ["[R]", "json", "20231114T221320.000000Z", "99", "0"],
    ]
    assert blocks[0].startswith("queue          : [Q]\nmessage type   : json\n")
    kind = kind_of(path)
    assert kind is not None
    assert kind == ("queues.ack", "1.0")


@pytest.mark.parametrize("option", ["-n", "--limit"])
@pytest.mark.parametrize(("limit", "shown"), [(0, 0), (2, 2), (9, 3)])
def test_a_limit(path: Path, option: str, limit: int, shown: int) -> None:
    ran = CliRunner().invoke(main, [option, str(limit), str(path)])
    assert ran.exit_code == 0
    assert ran.output.count("recovery point") == shown


def test_unusable_files_are_reported_and_the_others_shown(path: Path, tmp_path: Path) -> None:
    damaged, short = tmp_path / "damaged", tmp_path / "short"
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 3] ^= 1
    damaged.write_bytes(data)
    short.write_bytes(data[:20])
    ran = CliRunner().invoke(main, [str(damaged), str(short), str(tmp_path / "none"), str(path)])
    assert ran.exit_code == 1
    assert f"{damaged}: its checksum does not match" in ran.output
    assert f"{short}: 20 bytes are less than its header" in ran.output
    assert f"{tmp_path / 'none'}" in ran.output
    assert ran.output.count("recovery point") == 3
    assert CliRunner().invoke(main, []).exit_code == 2
