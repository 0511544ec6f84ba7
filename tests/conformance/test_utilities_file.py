"""`amps_file` on files of a server: transaction_log.md §16.4, operations.md §11."""

import gzip
from pathlib import Path

import zstandard

from tests.support.server import StartServer
from tests.support.utilities import run

NOT_OURS = "not an AMPS file"


def test_transaction_log_16_4_kinds(start_server: StartServer, tmp_path: Path) -> None:
    """transaction_log.md §16.4: `<base name>: AMPS <kind> <version>`; patterns; compressed files."""
    server = start_server(name="L1", log_topics=("t1",))
    directory = server.journal_directory
    server.stop()
    ran = run(
        "file_kinds", f"{directory}/*.journal", directory / "L1.durable", directory / "L1.lock", directory
    )
    assert ran.status == 0, ran.errors
    assert ran.lines == [
        "L1.0000000000.journal: AMPS journal 3.0",
        "L1.0000000001.journal: AMPS journal 3.0",
        "L1.durable: AMPS durable 1.0",
        f"L1.lock: {NOT_OURS}",
        f"journal: {NOT_OURS}",
    ]
    data = (directory / "L1.0000000000.journal").read_bytes()
    for name, contents in (
        ("a.journal.gz", zstandard.compress(data)),
        ("b.journal.gz", gzip.compress(data)),
        ("x.journal", data[:11]),
        ("empty", b""),
        ("x.gz", b"\x1f\x8b\x08broken"),
        ("x.zst", b"\x28\xb5\x2f\xfdbroken"),
        ("i", b"AMPSOIDX\1\0\0\0"),
        ("t", b"AMPSOTIX\2\0\0\0"),
        ("c", b"AMPSOCAK\1\0\0\0"),
    ):
        (tmp_path / name).write_bytes(contents)
    ran = run("file_kinds", *(tmp_path / name for name in ("a.journal.gz", "b.journal.gz", "i", "t", "c")))
    kinds = [line.partition(": ")[2] for line in ran.lines]
    assert kinds == [
        "AMPS journal 3.0",
        "AMPS journal 3.0",
        "AMPS index 1.0",
        "AMPS topic index 2.0",
        "AMPS clients.ack 1.0",
    ]
    ran = run("file_kinds", tmp_path / "x*", tmp_path / "empty")
    assert ran.status == 0
    assert [line.partition(": ")[2] for line in ran.lines] == [NOT_OURS] * 4


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """operations.md §11.2: 1 bad file, 2 usage."""
    assert run("file_kinds").status == 2
    ran = run("file_kinds", tmp_path / "none*", __file__)
    assert ran.status == 1
    assert ran.lines == [f"{Path(__file__).name}: {NOT_OURS}"]
    assert "No such file" in ran.errors


def test_a_file_whose_name_is_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "a[1].journal"
    path.write_bytes(b"AMPSOJNL\2\0\0\0")
    assert run("file_kinds", path).lines == ["a[1].journal: AMPS journal 2.0"]
