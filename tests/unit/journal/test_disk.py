"""A file written as a whole exists as a whole or not at all, and no file is created outside of the log's directory."""

import errno
import fcntl
import itertools
import os
from pathlib import Path

import pytest

from amps._core.journal.reader import LogDamaged
from amps.journal.disk import FILL_BYTES, PAGE_BYTES, DirectoryGone, Disk, whole_file

OLD, NEW = b"old content", b"the new one " * 1000
CALLS = ["open", "write", "sync", "close", "rename", "sync_directory"]


class FailingDisk(Disk):
    """The real disk, until the call with that number, counted from 0, raises."""

    def __init__(self, fails_at: int | None, failure: BaseException) -> None:
        super().__init__()
        self.calls: list[str] = []
        self._fails_at = fails_at
        self._failure = failure

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if len(self.calls) - 1 == self._fails_at:
            raise self._failure

    def open(self, path: Path, flags: int) -> int:
        self._note("open")
        return super().open(path, flags)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self._note("close")

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        self._note("write")
        super().write(descriptor, data, offset, zeros)

    def sync(self, descriptor: int) -> None:
        self._note("sync")
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._note("rename")
        super().rename(source, target)

    def sync_directory(self, directory: Path) -> None:
        self._note("sync_directory")
        super().sync_directory(directory)


def write(disk: Disk, path: Path) -> None:
    with whole_file(disk, path) as descriptor:
        disk.write(descriptor, memoryview(NEW), 0)


@pytest.mark.parametrize("existed", [True, False])
def test_it_is_synced_before_it_has_its_name_and_the_name_afterwards(tmp_path: Path, existed: bool) -> None:
    path = tmp_path / "a"
    if existed:
        path.write_bytes(OLD)
    disk = FailingDisk(None, OSError())
    write(disk, path)
    assert disk.calls == CALLS
    assert path.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("fails_at", "failure"),
    list(
        itertools.product(range(len(CALLS)), [OSError(errno.ENOSPC, "No space left on device"), SystemExit()])
    ),
)
def test_a_failure_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, fails_at: int, failure: BaseException
) -> None:
    """No other file is left, unless the process is killed."""
    path = tmp_path / "a"
    path.write_bytes(OLD)
    with pytest.raises(type(failure)):
        write(FailingDisk(fails_at, failure), path)
    assert path.read_bytes() == (NEW if CALLS[fails_at] == "sync_directory" else OLD)
    if isinstance(failure, OSError):
        assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_turns_out_wrong_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    disk = Disk()

    def write_and_look() -> None:
        with whole_file(disk, path) as descriptor:
            disk.write(descriptor, memoryview(NEW), 0)
            raise LogDamaged(str(path), 0, "it is not what it must be")

    with pytest.raises(LogDamaged):
        write_and_look()
    assert not list(tmp_path.iterdir())


def test_disk_nothing_is_made_in_another_directory_than_expected(tmp_path: Path) -> None:
    """After a file system was unmounted, its mount point has the path of the log's directory, but is another one."""
    disk = Disk()
    directory = tmp_path / "journal"
    directory.mkdir()
    disk.expect(directory)
    disk.close(disk.open(directory / "a", os.O_RDWR | os.O_CREAT))
    directory.rename(tmp_path / "away")
    for made in (False, True):
        if made:
            directory.mkdir()
        with pytest.raises(DirectoryGone, match="not the directory that it was"):
            disk.open(directory / "b", os.O_RDWR | os.O_CREAT)
        with pytest.raises(DirectoryGone):
            disk.check(directory)
    assert not list(directory.iterdir())
    disk.close(disk.open(tmp_path / "away" / "b", os.O_RDWR | os.O_CREAT))
    directory.rmdir()
    (tmp_path / "away").rename(directory)
    disk.close(disk.open(directory / "c", os.O_RDWR | os.O_CREAT))
    assert sorted(path.name for path in directory.iterdir()) == ["a", "b", "c"]


def test_disk_a_directory_can_be_expected_to_be_the_one_of_before(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    identity = Disk().expect(first)
    assert Disk().expect(first, identity) == identity
    with pytest.raises(DirectoryGone):
        Disk().expect(second, identity)


@pytest.mark.parametrize("obstacle", ["none", "open", "write"])
def test_filling_writes_zeros_everywhere_and_nowhere_else(
    tmp_path: Path, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes file systems without direct writes, some of which refuse them only at the first write."""
    disk = Disk()
    descriptor = disk.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    size_bytes = FILL_BYTES + 3 * PAGE_BYTES
    synced = []
    control, write, sync = fcntl.fcntl, os.pwrite, os.fdatasync

    def is_direct() -> bool:
        return bool(control(descriptor, fcntl.F_GETFL) & os.O_DIRECT)

    def fcntl_(file: int, command: int, argument: int = 0) -> int:
        if obstacle == "open" and command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no")
        return control(file, command, argument)

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        if obstacle == "write" and is_direct():
            raise OSError(errno.EINVAL, "no")
        return write(file, data, offset)

    def fdatasync(file: int) -> None:
        synced.append(file)
        sync(file)

    try:
        os.pwrite(descriptor, b"?" * (size_bytes + 3 * PAGE_BYTES), 0)
        os.fsync(descriptor)
        monkeypatch.setattr(fcntl, "fcntl", fcntl_)
        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        disk.fill(descriptor, PAGE_BYTES, size_bytes)
        assert not is_direct()
    finally:
        disk.close(descriptor)
    expected = b"?" * PAGE_BYTES + bytes(size_bytes) + b"?" * (2 * PAGE_BYTES)
    assert (tmp_path / "file").read_bytes() == expected
    assert obstacle == "none" or len(synced) == 2


def test_filling_fails_with_the_reason_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    descriptor = disk.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)

    def pwrite(file: int, data: memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", pwrite)
    try:
        with pytest.raises(OSError, match="No space"):
            disk.fill(descriptor, 0, PAGE_BYTES)
    finally:
        disk.close(descriptor)
