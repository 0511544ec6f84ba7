"""The conditions under which `amps pipeline archive` calls journals safe to remove, and its reports without them."""

import errno
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps.journal.disk import Disk
from amps.journal.removals import note_removal
from amps.spark.pipelines import archive as job
from amps.spark.pipelines import archive_manifest, archive_tasks
from amps.spark.pipelines.archive_manifest import Archive
from tests.support.archives import LOG_TOPICS, archive, archived, assert_rows_once, flip_byte, mixed_log
from tests.support.handmade_logs import INSTANCE, messages, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a session takes long to start


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return mixed_log(tmp_path / "journal")


def test_before_a_journal_is_called_safe_its_files_are_checked(
    spark: "SparkSession", log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their checksums, without reading the journal. Files of removed journals are not checked."""
    parquet = tmp_path / "parquet"
    archived(log, parquet)
    flip_byte(next(parquet.glob("topic_key=red/*/*0000000000*")))
    journal = log / f"{INSTANCE}.0000000000.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    result = archive(log, parquet)
    assert result.exit_code == 1
    assert re.search(
        r"error: journal 0 at position \d+: the content of .* differs from its checksum", result.output
    )
    assert "none of them can be removed yet" in result.output
    # A journal that is neither here nor known to be removed may be where a server finds it.
    journal.unlink()
    result = archive(log, parquet)
    assert result.exit_code == 1
    assert "none of them can be removed yet" in result.output
    assert note_removal(Disk(), log, INSTANCE, 0)
    assert "and all older ones removed" in archived(log, parquet).output
    assert archive(log, parquet, "--verify").exit_code == 1


def test_rows_archived_before_a_journal_was_full_are_checked_too(
    spark: "SparkSession", log: Path, tmp_path: Path
) -> None:
    parquet = tmp_path / "parquet"
    archived(log, parquet, "--current")
    flip_byte(next(parquet.glob("topic_key=red/*/*0000000002-0000*")))
    write_log(log, LOG_TOPICS, [[], [], messages(60, 6, 100), messages(1)])
    result = archive(log, parquet)
    assert result.exit_code == 1
    assert re.search(r"error: journal 2 at position \d+: the content of .*2-0000", result.output)


def test_a_file_that_belongs_to_no_journal_is_named(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    """Readers would see its rows, so no journal is safe. Files that readers skip are not checked."""
    parquet = tmp_path / "parquet"
    archived(log, parquet)
    original = next(parquet.glob("topic_key=red/*/*0000000001*"))
    for hidden in ("_copy.parquet", ".copy.parquet"):
        shutil.copy(original, original.with_name(hidden))
    archived(log, parquet)
    stray = original.with_name("copy.parquet")
    shutil.copy(original, stray)
    for options in ((), ("--verify",)):
        result = archive(log, parquet, *options)
        assert result.exit_code == 1
        assert f"error: {stray} belongs to no journal of the archive" in result.output
        assert "safe to remove: none" in result.output
    stray.unlink()
    assert "safe to remove: 2 journals" in archived(log, parquet).output


@pytest.mark.parametrize("damage", ["{", "{}", "[]", '{"parts": 1}'])
def test_a_journal_whose_manifest_is_damaged_is_archived_again(
    spark: "SparkSession", log: Path, tmp_path: Path, damage: str
) -> None:
    """As the error advises; none of its files stays that no manifest names."""
    parquet = tmp_path / "parquet"
    archived(log, parquet)
    manifest = parquet / "_amps" / "journals" / "0000000001.json"
    manifest.write_text(damage)
    left = next(parquet.glob("topic_key=red/*/*0000000001*"))
    shutil.copy(left, left.with_name(f"journal-{INSTANCE}-0000000001-0007.parquet"))
    result = archive(log, parquet)
    assert result.exit_code == 1
    assert f"error: {manifest} is damaged" in result.output
    assert result.output.count("\n") == 1
    assert "-again 1" in result.output
    assert archive(log, parquet, "--again", "0").exit_code == 1
    assert "safe to remove: 2 journals" in archived(log, parquet, "--again", "1").output
    assert "safe to remove: 2 journals" in archived(log, parquet, "--verify").output
    assert_rows_once(spark, parquet, 124)


def test_the_journal_in_use_is_archived_again(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    parquet = tmp_path / "parquet"
    archived(log, parquet, "--current")
    (parquet / "_amps" / "journals" / "0000000002.json").write_text("{")
    assert "(-again 2, with -current if it is in use)" in archive(log, parquet).output
    assert "takes -current, too" in archive(log, parquet, "--again", "2").output
    archived(log, parquet, "--again", "2", "--current")
    archived(log, parquet, "--verify")
    assert_rows_once(spark, parquet, 174)


def test_a_journal_that_was_left_on_its_way_in_is_archived_again(
    spark: "SparkSession", log: Path, tmp_path: Path
) -> None:
    parquet = tmp_path / "parquet"
    archived(log, parquet)
    moving = parquet / "_amps" / "moving" / "0000000001.json"
    moving.write_text("{")
    assert f"error: {moving} is damaged" in archive(log, parquet).output
    archived(log, parquet, "--again", "1")
    assert_rows_once(spark, parquet, 124)


def nowhere(text: str) -> str:
    """Return the error about journals whose place is unknown."""
    return next(
        line for line in text.splitlines() if line.startswith("error: ") and "not known to be" in line
    )


def test_nothing_is_safe_behind_a_journal_that_is_nowhere(
    spark: "SparkSession", log: Path, tmp_path: Path
) -> None:
    """It may be in another directory: a server that is told to remove a later journal removes it, too."""
    parquet, elsewhere, wrong = (tmp_path / name for name in ("parquet", "elsewhere", "wrong"))
    for directory in (elsewhere, wrong):
        directory.mkdir()
    shutil.move(log / f"{INSTANCE}.0000000000.journal", elsewhere)
    for options in ((), ("--archive", wrong)):
        for more in (("--dry-run",), ()):
            result = archive(log, parquet, *options, *more)
            assert result.exit_code == 1
            said = nowhere(result.output)
            assert said.startswith(f"error: journal 0 is not in {log}")
            assert "-archive DIR" in said
            assert f"amps journal remove {log} -name {INSTANCE} -up-to 0" in said
            assert "older ones removed" not in result.output
        assert "safe to remove: none" in result.output
    assert list(Archive(parquet).journals()) == [1]
    result = archived(log, parquet, "--archive", elsewhere)
    assert "safe to remove: 2 journals" in result.output
    assert "To have journal 1 and all older ones removed" in result.output
    # It is archived now, wherever its file is.
    assert "To have journal 1 and all older ones removed" in archived(log, parquet).output


def test_journals_that_were_removed_on_purpose_hold_up_nothing(
    spark: "SparkSession", log: Path, tmp_path: Path
) -> None:
    (log / f"{INSTANCE}.0000000000.journal").unlink()
    assert note_removal(Disk(), log, INSTANCE, 0)
    assert "To have journal 1 and all older ones removed" in archived(log, tmp_path / "parquet").output


def test_a_journal_of_which_a_part_is_in_is_nowhere_when_it_is_gone(
    spark: "SparkSession", log: Path, tmp_path: Path
) -> None:
    parquet = tmp_path / "parquet"
    archived(log, parquet, "--current")
    write_log(log, LOG_TOPICS, [[], [], [], messages(1), messages(1)])
    (log / f"{INSTANCE}.0000000002.journal").unlink()
    (log / f"{INSTANCE}.0000000001.journal").unlink()
    (log / f"{INSTANCE}.0000000000.journal").unlink()
    result = archive(log, parquet)
    assert result.exit_code == 1
    assert nowhere(result.output).startswith("error: journal 2 is not in")
    assert list(Archive(parquet).journals()) == [0, 1, 2, 3]


def test_a_missing_journal_in_the_middle_is_refused(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    """A dry run refuses it as well."""
    (log / f"{INSTANCE}.0000000001.journal").unlink()
    for options in (("--dry-run",), ()):
        result = archive(log, tmp_path / "parquet", *options)
        assert result.exit_code == 1
        assert result.output.startswith(f"error: journal 1 is not in {log}, and later journals are: ")
        assert result.output.count("\n") == 1


@pytest.mark.parametrize("place", ["task", "driver"])
def test_a_full_disk_is_one_sentence(
    spark: "SparkSession", log: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the place and the remedy; when there is room again, the next run completes the work."""
    parquet = tmp_path / "parquet"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as filling:
        # Spark's own processes would not see the patch.
        filling.setattr(job, "run_tasks", lambda _, work, arguments: [work(each) for each in arguments])
        if place == "task":
            filling.setattr(archive_tasks.os, "fdatasync", full)
        else:
            filling.setattr(archive_manifest.Disk, "write", full)
        result = archive(log, parquet)
    assert result.exit_code == 1
    said = next(line for line in result.output.splitlines() if line.startswith("error: "))
    assert said.startswith(f"error: there is no room left for {parquet}")
    assert "make room and run the same command again" in said
    assert "safe to remove" not in result.output
    archived(log, parquet)
    assert_rows_once(spark, parquet, 124)
