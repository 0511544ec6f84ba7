"""The utilities as a whole: both spellings are installed, and no file crashes or hangs one of them."""

import gzip
import importlib
import random
import tomllib
from pathlib import Path

import click
import numpy
import pytest
import zstandard
from click.testing import CliRunner

from amps.cli.utilities import (
    clients_ack_dump,
    file_kinds,
    grep,
    journal_dump,
    journal_search,
    queues_ack_dump,
    sow_dump,
    topic_index_dump,
)
from amps.journal.clients_ack import ROW_DTYPE, ClientsAck, write_clients_ack
from amps.journal.disk import Disk
from amps.journal.topic_index import make_topic_index
from tests.support.journals import journal
from tests.support.records import RecordParts

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
DOCUMENTED = (
    "amps_journal_dump",
    "amps_journal_search",
    "amps_grep",
    "amps_file",
    "amps_bio_perf_test",
    "amps_sow_dump",
)


def scripts() -> dict[str, str]:
    return dict(tomllib.loads(PROJECT.read_text())["project"]["scripts"])


def test_operations_10_both_spellings_are_installed() -> None:
    """operations.md §10: hyphen and underscore spellings of every tool."""
    found = {name: target for name, target in scripts().items() if name.startswith("amps") and name != "amps"}
    assert set(DOCUMENTED) <= set(found)
    for name, target in found.items():
        for spelling in (name.replace("_", "-"), name.replace("-", "_")):
            assert found[spelling] == target
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        ran = CliRunner().invoke(command, ["--help"])
        assert ran.exit_code == 0
        assert "Example:" in ran.output
        assert CliRunner().invoke(command, ["--version"]).exit_code == 0


def some_clients(count: int) -> ClientsAck:
    rows = numpy.array([(n + 1, n, n * 10**9) for n in range(count)], ROW_DTYPE)
    return ClientsAck(5000, 1, 4096, 1, rows, {n + 1: f"client {n}" for n in range(0, count, 2)})


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_never_crash_a_utility(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    records = [
        RecordParts(chance.randbytes(chance.randrange(300)), topic_id=n % 2, publisher_id=n % 3, sequence=n, txid=n + 1,
                    timestamp_ns=chance.randrange(2**64), kind=chance.choice((1, 1, 1, 3, 8, 9)), flags=n % 8)
        for n in range(20)
    ]  # fmt: skip
    path = tmp_path / "x"
    path.write_bytes(journal(records, 16384, finished=bool(seed % 2)))
    if seed % 6 == 1:
        path.write_bytes(make_topic_index(path))
    if seed % 6 == 3:
        write_clients_ack(Disk(), path, some_clients(seed))
    contents = bytearray((bytes, gzip.compress, zstandard.compress)[seed % 3](path.read_bytes()))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(contents))
        match chance.randrange(4):
            case 0:
                contents[at] = chance.randrange(256)
            case 1:
                contents[at : at + 8] = chance.choice((2**64 - 1, 2**63, 0, 2**28)).to_bytes(8, "little")
            case 2:
                del contents[at + 1 :]
            case _:
                contents[at:at] = chance.randbytes(50)
    path.write_bytes(contents)
    for command, arguments in (
        (journal_dump.main, ["--extents", "--include-noops"]),
        (journal_dump.main, ["--localtime", "--no-data", "-l", "3:7"]),
        (journal_search.main, ["7"]),
        (journal_search.main, ["-d", "\1", "--client", "2"]),
        (grep.main, ["-e", "a"]),
        (grep.main, ["-v", "-i", "-e", "entry"]),
        (grep.main, ["--client", "c", "-n"]),
        (topic_index_dump.main, ["--topic", "red"]),
        (clients_ack_dump.main, []),
        (queues_ack_dump.main, []),
        (file_kinds.main, []),
        (sow_dump.main, ["-v"]),
    ):
        ran = CliRunner().invoke(command, [*arguments, str(path)])
        assert ran.exception is None or isinstance(ran.exception, SystemExit), (command.name, ran.exception)
        assert ran.exit_code in (0, 1, 2)
