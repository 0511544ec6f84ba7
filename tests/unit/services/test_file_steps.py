"""Compressing and removing files: the files chosen, their order, and protected files."""

import asyncio
import gzip
import os
import threading
import time
from pathlib import Path

import pytest

from amps.server.services.actions.file_steps import compress_file
from amps.server.services.actions.step import StepFailure
from tests.support.services import Surroundings, action, do, on, surroundings


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(directory: Path, *names: str) -> None:
    """Make files, the first one the oldest, each an hour older than the next."""
    for number, name in enumerate(names):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}\n" * 100)
        then_s = time.time() - 3600 * (len(names) - number)
        os.utime(path, (then_s, then_s))


def run(step: str, **options: str) -> Surroundings:
    async def body() -> Surroundings:
        with surroundings(action(on("startup"), do(step, **options)), log=True) as made:
            await made.happened("startup")
            return made

    return asyncio.run(body())


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def problem(made: Surroundings) -> str:
    (text,) = made.log.texts("29-0002")
    return text


def test_operations_9_3_files_by_age_and_pattern(directory: Path) -> None:
    """operations.md §9.3: older than `Age`, matching `Pattern` relative to the working directory, no recursion."""
    make(directory, "logs/a.log", "logs/b.log", "logs/c.log", "logs/d.txt", "logs/deep/e.log")
    run("remove-files", Age="3.5h", Pattern="logs/*.log")
    assert names(directory) == ["logs/c.log", "logs/d.txt", "logs/deep/e.log"]
    run("remove-files", Age="0s", Pattern="**/*.log")
    assert names(directory) == ["logs/d.txt", "logs/deep/e.log"]


def test_operations_69_keep_leaves_the_newest(directory: Path) -> None:
    """operations.md §13 69: `Keep` 2 leaves the two newest."""
    make(directory, "1.log", "2.log", "3.log", "4.log", "5.log")
    run("remove-files", Age="1m", Pattern="*.log", Keep="2")
    assert names(directory) == ["4.log", "5.log"]
    run("remove-files", Age="1m", Pattern="*.log", Keep="2", Count="1")
    assert names(directory) == ["4.log", "5.log"]


def test_operations_9_3_count_takes_the_oldest(directory: Path) -> None:
    """operations.md §9.3: at most `Count`, oldest first; `Keep` comes before it."""
    make(directory, "1.log", "2.log", "3.log", "4.log", "5.log")
    run("delete-files", Age="1m", Pattern="*.log", Count="2")
    assert names(directory) == ["3.log", "4.log", "5.log"]
    run("remove-files", Age="1m", Pattern="*.log", Keep="1", Count="1")
    assert names(directory) == ["4.log", "5.log"]


@pytest.mark.parametrize("step", ["remove-files", "compress-files"])
def test_transaction_log_61_journals_are_left_alone(directory: Path, step: str) -> None:
    """transaction_log.md §22 61, operations.md §13 69: the files stay, and it is logged."""
    journals = [
        "j/n.0000000000.journal",
        "j/other.0000000001.journal.gz",
        "j/x.journal.zst.part",
        "journal/n.durable",
        "journal/n.lock",
        "journal/n.0000000000.index",
    ]
    make(directory, *journals, "j/a.log", "journal/m.lock")
    made = run(step, Age="0s", Pattern="j*/*")
    assert names(directory)[: len(journals)] != []
    assert all((directory / name).exists() for name in journals)
    assert not (directory / "j/a.log").exists()
    assert not (directory / "journal/m.lock").exists()
    assert "belongs to a transaction log and is left alone, as are 5 others" in problem(made)


def test_a_journal_is_protected_whatever_its_age(directory: Path) -> None:
    """A wrong pattern is reported at once, not only when the journals are old enough."""
    make(directory, "n.0000000000.journal")
    assert "left alone; use" in problem(run("remove-files", Age="365d", Pattern="*.journal"))
    make(directory, "n.0000000001.journal")
    assert "left alone, as is another one; use" in problem(
        run("remove-files", Age="365d", Pattern="*.journal")
    )


def test_operations_9_3_open_files_are_skipped(directory: Path) -> None:
    """operations.md §9.3"""
    make(directory, "1.log", "2.log")
    with (directory / "1.log").open():
        made = run("remove-files", Age="0s", Pattern="*.log")
    assert names(directory) == ["1.log"]
    assert not made.log.texts("29-0002")


def test_only_plain_files_are_touched(directory: Path) -> None:
    make(directory, "target.txt")
    (directory / "link.log").symlink_to("target.txt")
    (directory / "dir.log").mkdir()
    os.mkfifo(directory / "pipe.log")
    run("remove-files", Age="0s", Pattern="*.log")
    assert (directory / "link.log").is_symlink()
    assert (directory / "dir.log").is_dir()
    assert (directory / "pipe.log").exists()


def test_operations_9_3_compressing_removes_the_original(directory: Path) -> None:
    """operations.md §9.3: content, mode and time stay; compressed files stay as they are."""
    make(directory, "1.log", "2.log.gz")
    (directory / "1.log").chmod(0o640)
    before = (directory / "1.log").stat()
    made = run("compress-files", Age="0s", Pattern="*")
    assert names(directory) == ["1.log.gz", "2.log.gz"]
    after = (directory / "1.log.gz").stat()
    assert gzip.decompress((directory / "1.log.gz").read_bytes()) == b"content of 1.log\n" * 100
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert not made.log.texts("29-0002")


def test_compressing_overwrites_no_file(directory: Path) -> None:
    make(directory, "1.log", "1.log.gz", "2.log")
    made = run("compress-files", Age="0s", Pattern="*.log")
    assert names(directory) == ["1.log", "1.log.gz", "2.log.gz"]
    assert (directory / "1.log.gz").read_text().startswith("content of 1.log.gz")
    assert "there is a 1.log.gz already" in problem(made)


def test_a_leftover_of_a_crash_is_replaced(directory: Path) -> None:
    make(directory, "1.log", "1.log.gz.part")
    run("compress-files", Age="0s", Pattern="*")
    assert names(directory) == ["1.log.gz"]


def test_compressing_stops_when_the_instance_stops(directory: Path) -> None:
    make(directory, "1.log")
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(StepFailure, match="the instance stops"):
        compress_file(directory / "1.log", stopping)
    assert names(directory) == ["1.log"]


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(directory, "1.log", "2.log")
    unlink = Path.unlink

    def failing(self: Path, missing_ok: bool = False) -> None:
        if self.name == "1.log":
            raise PermissionError(13, "Permission denied")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", failing)
    made = run("remove-files", Age="0s", Pattern="*.log")
    monkeypatch.undo()
    assert "1.log: Permission denied" in problem(made)
    assert [path.name for path in directory.glob("*.log")] == ["1.log"]
