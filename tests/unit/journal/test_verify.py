"""Checking several journals in parallel gives the same results as checking them in turn, and can be interrupted."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from amps._core.journal.reader import FILE_HEADER_SIZE, build_file_header
from amps._core.values.value import publisher_id
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.names import compressed_path, journal_path
from amps.journal.verify import FileReport, bytes_to_verify, verify_instance
from tests.support.feed import Feed, Feeder
from tests.support.records import RecordParts
from tests.support.server import package_path

NAME = "journal"
FILE_BYTES = 256 << 10
FULL = 9


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a log by name: nine full journals, of which every third is compressed, and one in use."""
    directory = tmp_path_factory.mktemp("written")
    feeder = Feeder(directory, FILE_BYTES)
    number = 0
    while feeder.journal.number < FULL:
        number += 1
        feeder.push(Feed(0, number, "t", RecordParts(payload=bytes(5000), publisher_id=publisher_id("p"))))
        feeder.turn(number, 0)
    for each in range(0, FULL, 3):
        for _ in compress_journal(
            Disk(), journal_path(directory, NAME, each), compressed_path(directory, NAME, each)
        ):
            pass
    return {path.name: path.read_bytes() for path in directory.iterdir() if ".journal" in path.name}


@pytest.fixture
def directory(files: dict[str, bytes], tmp_path: Path) -> Path:
    """A copy of the log that a test may damage."""
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def reports(directory: Path, jobs: int) -> list[FileReport]:
    return list(verify_instance(directory, NAME, jobs=jobs))


def test_a_sound_log_is_reported_in_order_and_the_progress_reaches_its_end(directory: Path) -> None:
    told: list[int] = []
    threads = set()

    def progress(size: int) -> None:
        told.append(size)
        threads.add(threading.current_thread())

    found = list(verify_instance(directory, NAME, progress, jobs=4))
    assert [report.path.name[len(NAME) + 1 :][:10] for report in found] == [
        f"{number:010d}" for number in range(FULL + 1)
    ]
    assert not any(report.problems for report in found)
    assert sum(told) == bytes_to_verify(directory, None, NAME) == (FULL + 1) * FILE_BYTES
    assert min(told) >= 0
    assert threads == {threading.current_thread()}


@pytest.mark.parametrize("jobs", [2, 5, 30])
def test_damage_and_gaps_are_the_same_whatever_the_number_of_threads(directory: Path, jobs: int) -> None:
    plain = journal_path(directory, NAME, 1)
    data = bytearray(plain.read_bytes())
    data[100_000] ^= 1
    plain.write_bytes(data)
    compressed = compressed_path(directory, NAME, 3)
    compressed.write_bytes(compressed.read_bytes()[:-5])
    journal_path(directory, NAME, 4).unlink()
    journal_path(directory, NAME, 5).write_bytes(journal_path(directory, NAME, 7).read_bytes())
    found = reports(directory, jobs)
    assert found == reports(directory, 1)
    texts = {int(report.path.name[len(NAME) + 1 :][:10]): " ".join(report.problems) for report in found}
    assert set(texts) == {0, 1, 2, 3, 5, 6, 7, 8, 9}
    assert "damaged at offset " in texts[1]
    assert "seek table" in texts[3]
    assert texts[5].startswith(
        "journal 0000000004 before it is missing its header says journal 7 of instance"
    )
    assert "it starts at log position" in texts[6]
    assert not texts[0] + texts[2] + texts[7] + texts[8] + texts[9]


def test_an_unreadable_file_is_a_problem_and_the_others_are_checked(directory: Path) -> None:
    path = journal_path(directory, NAME, 2)
    path.unlink()
    path.mkdir()
    found = reports(directory, 3)
    assert [report.path for report in found if report.problems] == [path]
    assert found[2].problems == ["it cannot be read: Is a directory"]
    assert sum(report.records > 0 for report in found) == FULL


def test_a_journal_at_two_places_is_checked_at_both(directory: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / journal_path(directory, NAME, 2).name).write_bytes(
        journal_path(directory, NAME, 2).read_bytes()
    )
    found = list(verify_instance(directory, NAME, archive=archive, jobs=3))
    assert len(found) == FULL + 2
    assert found[2].path.parent == directory
    assert found[3].path.parent == archive
    assert not any(report.problems for report in found)


@pytest.mark.parametrize("jobs", [1, 4])
def test_an_interrupted_check_leaves_no_thread(directory: Path, jobs: int) -> None:
    """Ctrl-C interrupts the check in the caller's thread."""

    def interrupt(size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(verify_instance(directory, NAME, interrupt, jobs=jobs))
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("verify")]


def test_a_check_that_is_closed_early_leaves_no_thread(directory: Path) -> None:
    found = verify_instance(directory, NAME, jobs=2)
    assert next(found).path.name == "journal.0000000000.journal.gz"
    found.close()  # type: ignore[attr-defined]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("verify")]


def test_ctrl_c_ends_the_command_at_once(tmp_path: Path) -> None:
    """The command is interrupted while its threads are busy: status 1 and no traceback.

    It may also have ended before, and found damage.
    """
    for number in range(4):
        size = 64 << 20
        data = build_file_header(number, size, number * size, 1, 1, 2, NAME, True)
        with journal_path(tmp_path, NAME, number).open("wb") as file:
            file.write(data)
            file.truncate(size)
            # With bytes beyond the records, the whole file must be read.
            file.seek(FILE_HEADER_SIZE)
            file.write(bytes(8) + b"x")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "amps.cli.main", "journal", "verify", "-jobs", "2", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": package_path()},
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert b"Traceback" not in errors + output
    assert process.returncode == 1
