"""`amps-grep` on logs and journals that a real server wrote: transaction_log.md §16.3 and §22 66; operations.md §11."""

import gzip
from pathlib import Path

import pytest

from tests.support.utilities import Ran, Written, entries_of, run, write_journals

LOG = b"""2026-02-03T08:15:30.1234560-05:00 [4] info: 07-0013 client[alice] disconnected.
2026-02-03T08:15:31.0000000-05:00 [4] info: 1F-0004 AMPS client session logon for: Bob
client name hash = 17
correlation id =\x20
2026-02-03T08:15:32.0000000-05:00 [2] warning: 02-0025 something else (.*)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_journals(tmp_path_factory.mktemp("journals"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(LOG)
    return path


def grep(*arguments: object, stdin: bytes = b"") -> Ran:
    ran = run("grep", *arguments, stdin=stdin)
    assert ran.status == (0 if ran.out else 1), ran.errors
    return ran


def numbers(ran: Ran) -> list[int]:
    return [int(entry["entry"]) for entry in entries_of(ran.out)]


def test_transaction_log_16_3_whole_records_of_logs(log: Path) -> None:
    """transaction_log.md §16.3: a match anywhere shows all lines of the record; terms are exact texts."""
    lines = LOG.splitlines(keepends=True)
    assert grep("name hash", log).out == b"".join(lines[1:4])
    assert grep("(.*)", log).out == lines[4]
    assert grep("a.ice", log).out == b""
    assert grep("-e", "alice", "-e", "hash", log).out == b"".join(lines[:4])
    assert grep("--search_term=alice", log).out == lines[0]
    assert grep("-E", r"0\d-\d{4}", log).out == lines[0] + lines[4]
    assert grep("-E", r"session.*\n.*hash", log).out == b"".join(lines[1:4])
    assert grep("-i", "BOB", log).out == b"".join(lines[1:4])
    assert grep("BOB", log).out == b""
    assert grep("-v", "hash", log).out == lines[0] + lines[4]
    assert grep("hash", stdin=LOG).out == b"".join(lines[1:4])


def test_transaction_log_16_3_terms_from_a_file(log: Path, tmp_path: Path) -> None:
    """transaction_log.md §16.3"""
    terms = tmp_path / "terms"
    terms.write_text("alice\nnothing like it\n")
    assert grep("-f", terms, log).out == grep("alice", log).out == grep(f"--file={terms}", log).out


def test_transaction_log_16_3_names_and_line_numbers(log: Path) -> None:
    """transaction_log.md §16.3: -n, -H, -h; names by default if there are several files; -h is not help."""
    assert grep("-n", "Bob", log).lines[1] == "3:client name hash = 17"
    assert grep("-H", "-n", "Bob", log).lines[0].startswith(f"{log}:2:2026-02-03T")
    assert grep("alice", log, log).lines[1].startswith(f"{log}:2026-02-03T")
    assert grep("-h", "alice", log, log).out == LOG.splitlines(keepends=True)[0] * 2


def test_transaction_log_16_3_compressed_logs(log: Path, tmp_path: Path) -> None:
    """transaction_log.md §16.3"""
    packed = tmp_path / "b.gz"
    packed.write_bytes(gzip.compress(LOG))
    assert grep("Bob", packed).out == grep("Bob", log).out
    assert grep("Bob", stdin=packed.read_bytes()).out == grep("Bob", log).out


def test_texts_that_are_no_logs_are_searched_by_line() -> None:
    assert grep("b", stdin=b"abc\nxyz\nbbb").out == b"abc\nbbb\n"


def test_transaction_log_16_3_the_servers_own_log(written: Written) -> None:
    """transaction_log.md §16.3: the logon record has several lines."""
    ran = grep("--client=alice", "-E", "1F-0004", written.event_log)
    assert "client name hash = " + written.bookmarks[0].partition("|")[0] in ran.lines


def test_transaction_log_66_grep_finds_all_of_a_clients_entries(written: Written) -> None:
    """transaction_log.md §22 66: by name, those without a sequence included; a payload's text finds its entry."""
    found = grep("--client=alice", "--no-data", written.first)
    assert numbers(found) == list(range(len(numbers(found))))
    assert len(numbers(found)) > 900
    assert found.lines[0] == f"File Name       : {written.first}"
    assert found.lines[3].startswith("Extents         : [")
    assert numbers(grep("free text", written.first)) == [5]
    assert numbers(grep('"n":3}', written.first)) == [2]
    # One name is in the journal with two hashes; each hash finds its own entries, and the name finds both.
    own, derived = (written.bookmarks[at].partition("|")[0] for at in (0, 5))
    assert numbers(grep(f"--client={derived}", written.first)) == [5]
    assert numbers(grep(f"--client={own}", "--no-data", written.first)) == numbers(found)
    assert numbers(grep("--client=alice", "-e", "free", written.first)) == [5]
    assert numbers(grep("--client=reader", written.first)) == []
    assert numbers(grep("--client=reader", "-v", "--no-data", written.first)) == numbers(found)


@pytest.mark.parametrize(
    "arguments",
    [
        ["[t2]"],
        ["[free"],
        ["topic                     : [t2]"],
        ["corr-1"],
        ["key-1"],
        ["flags                     : numbered"],
        ["-i", "FREE TEXT"],
        ["-E", r"topic +: \[t2"],
        ["numbered_by_server\nfile"],
    ],
)
def test_transaction_log_16_3_any_part_of_an_entry_finds_it(written: Written, arguments: list[str]) -> None:
    """transaction_log.md §16.3: topic name, client or payload text, and any other field that the entry shows."""
    assert numbers(grep(*arguments, written.first)) == [5]


@pytest.mark.parametrize(
    "label", ["cor", "correlation id", "corr", "byte count ", "topic", " : ", "key", "sow key"]
)
@pytest.mark.parametrize("ignoring_case", [False, True])
def test_transaction_log_16_3_labels_are_not_searched(
    written: Written, label: str, ignoring_case: bool
) -> None:
    """transaction_log.md §16.3: every entry contains the labels, so that a term from a label would find all entries."""
    arguments = ("-i", label.upper()) if ignoring_case else (label,)
    expected = [5] if label in ("cor", "corr", "key") else []
    assert numbers(grep("--no-data", *arguments, written.first)) == expected


def test_transaction_log_16_3_expressions_know_lines(written: Written, log: Path) -> None:
    """transaction_log.md §16.3: `^` and `$` match at each line of a record with several lines."""
    lines = LOG.splitlines(keepends=True)
    assert grep("-E", "^client name", log).out == b"".join(lines[1:4])
    assert grep("-E", "= 17$", log).out == b"".join(lines[1:4])
    assert grep("-E", "^name hash", log).out == b""
    assert numbers(grep("-E", r"^topic +: \[t2\]$", written.first)) == [5]


@pytest.mark.parametrize("name", ["x.journal", "x.0000000000.journal.gz"])
@pytest.mark.parametrize("content", [b"", b"XMPSOJNL" + bytes(8000), bytes(8192), b"text\n", b"AMPS"])
def test_transaction_log_16_3_a_file_named_as_a_journal_must_be_one(
    tmp_path: Path, name: str, content: bytes
) -> None:
    """operations.md §11.2: a file with the name of a journal but other contents is damaged."""
    path = tmp_path / name
    path.write_bytes(content)
    ran = run("grep", "text", path)
    assert ran.status == 2
    assert str(path) in ran.errors
    assert not ran.out


def test_transaction_log_16_3_numbers_find_entries(written: Written) -> None:
    """transaction_log.md §16.3"""
    (entry,) = entries_of(run("journal_search", written.first, written.bookmarks[5]).out)
    for label in ("local txid", "timestamp", "iso8601 timestamp"):
        assert 5 in numbers(grep(entry[label], written.first)), label
    assert numbers(grep(f"crc32                     : {entry['crc32']}", written.first)) == [5]
    assert numbers(grep(f"client seq                : {entry['client seq']}", written.first)) == [5]


def test_transaction_log_16_3_several_journals_and_streams(written: Written) -> None:
    """transaction_log.md §16.3: the header of each journal with a match; no names on the lines."""
    ran = grep("--no-data", '"pad"', written.first, written.second)
    heads = [line for line in ran.lines if line.startswith("File Name")]
    assert heads == [f"File Name       : {path}" for path in (written.first, written.second)]
    streamed = grep("--no-data", '"pad"', stdin=gzip.compress(written.first.read_bytes(), 1))
    assert numbers(streamed) == numbers(grep("--no-data", '"pad"', written.first))
    again = grep("local txid", stdin=ran.out)
    assert len(entries_of(again.out)) == len(entries_of(ran.out))
    assert grep("-H", "free text", written.first).lines[3].startswith(f"{written.first}:Extents")


def test_transaction_log_16_3_exit_status(log: Path, tmp_path: Path, written: Written) -> None:
    """operations.md §11.2, as grep: 0 found, 1 nothing, 2 error."""
    assert run("grep").status == 2
    assert run("grep", "-E", "(", log).status == 2
    assert run("grep", "--help").status == 0
    assert run("grep", "--version").status == 0
    missing = run("grep", "alice", tmp_path / "none", log)
    assert missing.status == 2
    assert b"alice" in missing.out
    assert f"{tmp_path / 'none'}: No such file" in missing.errors
    damaged = tmp_path / "x.journal"
    damaged.write_bytes(written.first.read_bytes()[:500_000])
    ran = run("grep", '"n":1}', damaged)
    assert ran.status == 2
    assert numbers(ran) == [0]
    assert f"{damaged}: damaged at offset" in ran.errors
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(LOG)[:-20])
    ran = run("grep", "alice", cut)
    assert ran.status == 2
    assert "cannot be uncompressed" in ran.errors
