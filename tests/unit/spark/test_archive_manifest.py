"""The manifest of an archive: after a death between any two steps of a commit, it is unchanged or completed."""

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps.journal.disk import Disk
from amps.spark.pipelines.archive_manifest import Archive, ArchivedFile, ArchivedJournal, ArchivedPart
from amps.spark.pipelines.job import PipelineError

PATHS = ("topic=a/date=2026-11-22/x.parquet", "topic=b/date=2026-11-22/x.parquet")


def entry_with(paths: tuple[str, ...], number: int = 4) -> ArchivedJournal:
    files = tuple(ArchivedFile(path, "a", "2026-11-22", 1, 3, "", 1, 1, 1, 1) for path in paths)
    part = ArchivedPart(0, 4096, 8192, 0, 0, 0, len(files), {"publish": 2}, ("json",), "1|1|", "1|2|", files)
    return ArchivedJournal("x", number, 0, 8192, 1, True, 8192, (part,))


def stage(archive: Archive, paths: tuple[str, ...], content: str) -> dict[str, Path]:
    directory = archive.staging / content
    directory.mkdir(parents=True)
    staged = {}
    for place, path in enumerate(paths):
        staged[path] = directory / f"{place}"
        staged[path].write_text(content)
    return staged


def visible(archive: Archive) -> dict[str, str]:
    """The files that a reader of Parquet finds."""
    return {
        str(path.relative_to(archive.directory)): path.read_text()
        for path in archive.directory.rglob("*.parquet")
        if "_amps" not in path.parts
    }


class Death(BaseException):
    """The death of the process, after which no code runs."""


class DyingDisk(Disk):
    """A disk that dies before its n-th call with an effect."""

    left = 1 << 30

    @classmethod
    def step(cls) -> None:
        cls.left -= 1
        if cls.left < 0:
            raise Death

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        self.step()
        super().write(descriptor, data, offset, zeros)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        super().rename(source, target)

    def sync_directory(self, directory: Path) -> None:
        self.step()
        super().sync_directory(directory)


def test_a_committed_journal_is_in(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "parquet")
    entry = entry_with(PATHS)
    with archive.working("x"):
        archive.commit(entry, stage(archive, PATHS, "one"), ())
    again = Archive(tmp_path / "parquet")
    assert again.instance() == "x"
    assert again.journals() == {4: entry}
    assert visible(again) == dict.fromkeys(PATHS, "one")
    assert not again.staging.exists()


def test_a_death_anywhere_in_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal is replaced by other files of it. The next run finds the old files, or completes the new ones."""
    before, after = entry_with(PATHS), dataclasses.replace(entry_with((PATHS[1],)), first_txid=2)
    origin = Archive(tmp_path / "origin")
    with origin.working("x"):
        origin.commit(before, stage(origin, PATHS, "old"), ())
    monkeypatch.setattr("amps.spark.pipelines.archive_manifest.Disk", DyingDisk)
    replace, unlink = os.replace, Path.unlink

    def dying_replace(source: Path, target: Path) -> None:
        DyingDisk.step()
        replace(source, target)

    def dying_unlink(path: Path, missing_ok: bool = False) -> None:
        DyingDisk.step()
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "replace", dying_replace)
    monkeypatch.setattr(Path, "unlink", dying_unlink)
    outcomes = []
    for steps in range(100):
        shutil.copytree(origin.directory, tmp_path / f"{steps}")
        archive = Archive(tmp_path / f"{steps}")
        died = False
        try:
            with archive.working("x"):
                staged = stage(archive, (PATHS[1],), "new")
                DyingDisk.left = steps
                # A killed process does not remove its staging directory.
                monkeypatch.setattr(
                    "amps.spark.pipelines.archive_manifest.shutil.rmtree", lambda *_, **__: None
                )
                archive.commit(after, staged, PATHS)
        except Death:
            died = True
        monkeypatch.undo()
        DyingDisk.left = 1 << 30
        found = Archive(tmp_path / f"{steps}")
        promised = found.journals()[4]
        with found.working("x"):
            assert found.journals() == {4: promised}
        assert not found.staging.exists()
        assert list((found.directory / "_amps" / "moving").iterdir()) == []
        if promised == before:
            assert visible(found) == dict.fromkeys(PATHS, "old")
        else:
            assert promised == after
            assert visible(found) == {PATHS[1]: "new"}
        outcomes.append(promised == after)
        if not died:
            break
        monkeypatch.setattr("amps.spark.pipelines.archive_manifest.Disk", DyingDisk)
        monkeypatch.setattr(os, "replace", dying_replace)
        monkeypatch.setattr(Path, "unlink", dying_unlink)
    assert not outcomes[0]
    assert outcomes[-1]
    assert outcomes == sorted(outcomes)  # once committed, it stays so
    assert len(outcomes) > 8


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with Archive(tmp_path).working("x"), pytest.raises(PipelineError, match="another run is at work"):  # noqa: SIM117
        with Archive(tmp_path).working("x"):
            pass


def test_one_instance(tmp_path: Path) -> None:
    with Archive(tmp_path).working("x"):
        pass
    with pytest.raises(PipelineError, match="holds journals of instance 'x', not of 'y'"):  # noqa: SIM117
        with Archive(tmp_path).working("y"):
            pass


def test_unreadable_manifests_are_errors(tmp_path: Path) -> None:
    with Archive(tmp_path).working("x"):
        pass
    entry = tmp_path / "_amps" / "journals" / "0000000001.json"
    entry.write_text('{"instance": "x"')
    with pytest.raises(PipelineError, match=r"0000000001\.json is damaged"):
        Archive(tmp_path).journals()
    said = tmp_path / "_amps" / "archive.json"
    for other in (1, 3):
        said.write_text(f'{{"format": {other}, "instance": "x"}}')
        with pytest.raises(
            PipelineError, match=f"is an archive of format {other}, and this program knows 2 only"
        ):
            Archive(tmp_path).instance()
    for damaged in ("{", "[]", '{"format": 2}', '{"instance": "x"}', '{"format": 2, "instance": 7}'):
        said.write_text(damaged)
        with pytest.raises(PipelineError, match=r"archive\.json cannot be read"):
            Archive(tmp_path).instance()
