"""`amps_journal_dump`, `amps_journal_search` on journals that a real server wrote: transaction_log.md §16, §22 66."""

import datetime
import gzip
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import package_path, wait_until
from tests.support.utilities import LARGE_COUNT, SMALL_COUNT, Written, entries_of, run, write_journals

LABELS = """entry crc32 type flags|file offset|tx byte count|msg byte count|msg type|local txid|previous local txid
source txid|source name hash|client name hash|client seq|topic hash|sow expiration time|iso8601 timestamp|timestamp
previous byte count|topic byte count|topic|data|correlation id byte count|correlation id|auth id byte count|auth id
rep path byte count|rep path"""
ENTRY_LABELS = ["entry", "crc32", "type", "flags", *re.split(r"[|\n]", LABELS)[1:]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_journals(tmp_path_factory.mktemp("journals"))


def test_transaction_log_66_dump_shows_the_delivered_bookmark(written: Written) -> None:
    """transaction_log.md §22 66: one entry, number 0, with the two parts of the bookmark."""
    ran = run("journal_dump", written.first, "-l", "1")
    assert ran.status == 0, ran.errors
    (entry,) = entries_of(ran.out)
    assert entry["entry"] == "0"
    assert f"{entry['client name hash']}|{entry['client seq']}|" == written.bookmarks[0]
    assert entry["data"] == '[{"n":1}]'
    assert entry["type"] == "publish"


def test_transaction_log_16_1_layout(written: Written) -> None:
    """transaction_log.md §16.1: header, labels in their order, aligned, footer."""
    lines = run("journal_dump", written.first, "-l", "1:1", "--extents").lines
    size = written.first.stat().st_size
    assert lines[:3] == [
        f"File Name       : {written.first}",
        f"File Size       : {size}",
        "Version         : amps-server::journal/v3",
    ]
    extents = re.fullmatch(r"Extents         : (\[(\d+):(\d+)\])", lines[3])
    assert extents
    assert re.fullmatch(r"First Timestamp : \d{8}T\d{6}\.\d{6}Z", lines[4])
    assert re.fullmatch(r"Last Timestamp  : \d{8}T\d{6}\.\d{6}Z", lines[5])
    assert set(lines[6]) == {"_"}
    labels = [*ENTRY_LABELS, "client name"]
    entry = lines[7 : 7 + len(labels)]
    assert [line.partition(":")[0].rstrip() for line in entry] == labels
    assert {line.index(" : ") for line in entry} == {len("correlation id byte count")}
    footer = lines[7 + len(labels) :]
    assert footer[0] == lines[6]
    total = re.fullmatch(r"Total Entries   : (\d+)", footer[1])
    used, rest = (int(line.partition(" : ")[2]) for line in footer[2:4])
    assert total
    assert int(extents[3]) - int(extents[2]) == int(total[1]) - 1
    assert used + rest == size
    assert footer[4:] == [f"Local Extents       : {extents[1]}", "Replication Extents : none"]


def test_transaction_log_4_3_unsequenced_publish_in_the_dump(written: Written) -> None:
    """transaction_log.md §4.3, §16.1: derived id, local txid as sequence, the real client's hash as source txid."""
    alice, _, unnumbered = entries_of(run("journal_dump", written.first, "-l", "3:5").out)
    assert unnumbered["client seq"] == unnumbered["local txid"]
    assert unnumbered["client name hash"] != alice["client name hash"]
    assert unnumbered["source txid"] == alice["client name hash"]
    assert unnumbered["flags"] == "numbered_by_server"
    assert (alice["source txid"], alice["source name hash"], alice["flags"]) == ("0", "0", "none")
    assert unnumbered["topic"] == "[t2]"
    assert unnumbered["topic byte count"] == "2"
    assert unnumbered["data"] == "[free text]"
    assert unnumbered["msg byte count"] == "9"
    assert unnumbered["correlation id"] == "[corr-1]"
    assert unnumbered["correlation id byte count"] == "6"
    assert unnumbered["sow key"] == "[key-1]"
    assert int(unnumbered["sow expiration time"]) == int(unnumbered["timestamp"]) + 60_000_000
    assert alice["sow expiration time"] == "0"


def test_transaction_log_16_1_entries_are_linked(written: Written) -> None:
    """transaction_log.md §16.1: each entry has its predecessor's txid and size; offsets follow from sizes."""
    entries = entries_of(run("journal_dump", written.first, "--no-data").out)
    assert [int(entry["entry"]) for entry in entries] == list(range(len(entries)))
    assert len(entries) > 900
    assert (entries[0]["previous local txid"], entries[0]["previous byte count"]) == ("0", "0")
    for before, after in itertools.pairwise(entries):
        assert after["previous local txid"] == before["local txid"]
        assert after["previous byte count"] == before["tx byte count"]
        assert int(after["file offset"]) >= int(before["file offset"]) + int(before["tx byte count"])
    assert all("data" not in entry for entry in entries)
    second = entries_of(run("journal_dump", written.second, "--no-data").out)
    assert len(entries) + len(second) == SMALL_COUNT + 1 + LARGE_COUNT


def test_transaction_log_16_1_times(written: Written) -> None:
    """transaction_log.md §3.2, §16.1: UTC with Z, --localtime by TZ; raw times count from Julian day 0."""
    (utc,) = entries_of(run("journal_dump", written.first, "-l", "1").out)
    stamp = datetime.datetime.strptime(utc["iso8601 timestamp"], "%Y%m%dT%H%M%S.%f%z")
    assert written.began_s - 1 <= stamp.timestamp() <= written.began_s + 120
    assert int(utc["timestamp"]) - 210866803200000000 == round(stamp.timestamp() * 1e6)
    (local,) = entries_of(
        run("journal_dump", written.first, "-l", "1", "--localtime", environment={"TZ": "XYZ-05:30"}).out
    )
    assert local["iso8601 timestamp"].endswith("+0530")
    assert datetime.datetime.strptime(local["iso8601 timestamp"], "%Y%m%dT%H%M%S.%f%z") == stamp


def test_transaction_log_66_compressed_journals_dump_alike(written: Written, tmp_path: Path) -> None:
    """transaction_log.md §22 66: works on `.gz`, also of several members."""
    data = written.first.read_bytes()
    packed = tmp_path / written.first.with_suffix(".journal.gz").name
    packed.write_bytes(gzip.compress(data[:1_000_001], 1) + gzip.compress(data[1_000_001:], 1))
    plain = run("journal_dump", written.first)
    ran = run("journal_dump", packed)
    assert ran.status == 0, ran.errors
    assert ran.out == plain.out.replace(bytes(written.first), bytes(packed), 1)


def test_a_spare_has_no_entries(written: Written) -> None:
    ran = run("journal_dump", written.spare)
    assert ran.status == 0, ran.errors
    assert "Total Entries   : 0" in ran.lines


@pytest.mark.parametrize("option", ["-h", "--help", "-help"])
def test_transaction_log_16_1_help(option: str) -> None:
    """transaction_log.md §16.1, §16.2"""
    for utility in ("journal_dump", "journal_search"):
        ran = run(utility, option)
        assert ran.status == 0
        assert "FILENAME" in ran.out.decode()


def test_wrong_usage_is_2_and_a_bad_file_1(written: Written, tmp_path: Path) -> None:
    """operations.md §11.2"""
    assert run("journal_dump").status == 2
    assert run("journal_dump", "-l", "x", written.first).status == 2
    assert run("journal_search", written.first).status == 2
    assert run("journal_search", written.first, "no number").status == 2
    for utility in ("journal_dump", "journal_search"):
        arguments = ("1",) if utility == "journal_search" else ()
        missing = run(utility, tmp_path / "none", *arguments)
        assert missing.status == 1
        assert f"{tmp_path / 'none'}: No such file" in missing.errors
        assert run(utility, tmp_path, *arguments).status == 1
        assert run(utility, __file__, *arguments).status == 1


def test_a_damaged_journal_shows_entries_before_the_damage(written: Written, tmp_path: Path) -> None:
    """transaction_log.md §16.1: entries before it are printed, then the place is named, exit status 1."""
    journal = tmp_path / written.first.name
    data = bytearray(written.first.read_bytes())
    offset = int(entries_of(run("journal_dump", written.first, "-l", "3:3").out)[0]["file offset"])
    data[offset + 85] ^= 1
    journal.write_bytes(data)
    ran = run("journal_dump", journal)
    assert ran.status == 1
    assert len(entries_of(ran.out)) == 3
    assert f"{journal}: damaged at offset {offset}: " in ran.errors
    assert run("journal_search", journal, written.bookmarks[1]).status == 1


def test_a_torn_tail_is_an_error(written: Written, tmp_path: Path) -> None:
    journal = tmp_path / written.second.name
    data = bytearray(written.second.read_bytes())
    lines = run("journal_dump", written.second, "--no-data").lines
    used = next(int(line.partition(" : ")[2]) for line in lines if line.startswith("Total Bytes"))
    data[used + 5000] = 1
    journal.write_bytes(data)
    ran = run("journal_dump", journal, "--no-data")
    assert ran.status == 1
    assert len(entries_of(ran.out)) == len(entries_of("\n".join(lines).encode() + b"\n"))
    assert f"damaged at offset {used}: " in ran.errors
    journal.write_bytes(written.second.read_bytes()[: used + 100_000])
    ran = run("journal_dump", journal, "--no-data")
    assert ran.status == 1
    assert f"offset {used + 100_000}: the file ends here" in ran.errors


# --- search ---------------------------------------------------------------------------------------------------------


def search(*arguments: object) -> list[dict[str, str]]:
    ran = run("journal_search", *arguments)
    found = entries_of(ran.out)
    assert ran.status == (0 if found else 1), ran.errors
    return found


def test_transaction_log_66_search_finds_exactly_one_bookmark(written: Written) -> None:
    """transaction_log.md §22 66"""
    for number, bookmark in enumerate(written.bookmarks):
        (entry,) = search(written.first, bookmark)
        assert entry["entry"] == str(number)
        (same,) = search(written.first, bookmark.rstrip("|"))
        assert same == entry
        (same,) = search(written.first, entry["local txid"])
        assert same == entry
    assert search(written.second, written.bookmarks[0]) == []
    assert search(written.first, "1") == []


def test_transaction_log_16_2_conditions(written: Written, tmp_path: Path) -> None:
    """transaction_log.md §16.2: payload, topic, clients; all given conditions must be true."""
    assert [entry["entry"] for entry in search(written.first, "-d", '"n":3}')] == ["2"]
    assert [entry["entry"] for entry in search(written.first, "--data", written.bookmarks[1])] == ["1"]
    assert search(written.first, "-d", "t1") == []
    for spelling in ("-topic=t2", "--topic=t2"):
        (entry,) = search(written.first, spelling)
        assert entry["topic"] == "[t2]"
    assert search(written.first, "-topic=t") == []
    assert search(written.first, "-topic=t2", "-d", '"n":3}') == []
    alice, derived = (written.bookmarks[at].partition("|")[0] for at in (0, -1))
    (entry,) = search(written.first, f"--client={derived}")
    assert entry["topic"] == "[t2]"
    assert len(search(written.first, f"--client={alice}", "-d", "}", "--no-data")) > 900
    both = search(written.first, f"--client={alice}", "--client", derived, "-d", "e", "--no-data")
    assert [entry["entry"] for entry in both] == ["5"]
    assert "data" not in both[0]
    packed = tmp_path / "x.journal.gz"
    packed.write_bytes(gzip.compress(written.first.read_bytes(), 1))
    assert search(packed, "-topic=t2") == search(written.first, "-topic=t2")


def test_output_without_a_reader_is_no_crash(written: Written) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "amps.cli.utilities.journal_dump", str(written.first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": package_path()},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        wait_until(lambda: process.poll() is not None, 30, "it goes on writing")
        assert b"Traceback" not in process.stderr.read()
        assert process.returncode == 1
