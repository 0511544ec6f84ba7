"""A file that is written as a whole is there as a whole or not at all, whatever fails at whatever moment."""

import errno
import itertools
from pathlib import Path

import pytest

from amps._core.frames import LogDamaged
from amps.journal.disk import Disk, whole_file

OLD, NEW = b"old content", b"the new one " * 1000
CALLS = ["open", "write", "sync", "close", "rename", "sync_directory"]


class FailingDisk(Disk):
    """The real one until a certain call, counted from 0, raises."""

    def __init__(self, fails_at: int | None, failure: BaseException) -> None:
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

    def write(self, descriptor: int, data: memoryview, offset: int) -> None:
        self._note("write")
        super().write(descriptor, data, offset)

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
def test_it_is_on_the_device_before_it_has_its_name_and_the_name_afterwards(
    tmp_path: Path, existed: bool
) -> None:
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
def test_a_failure_leaves_the_old_one_or_the_new_one(
    tmp_path: Path, fails_at: int, failure: BaseException
) -> None:
    """And nothing else, unless the process dies of it."""
    path = tmp_path / "a"
    path.write_bytes(OLD)
    with pytest.raises(type(failure)):
        write(FailingDisk(fails_at, failure), path)
    assert path.read_bytes() == (NEW if CALLS[fails_at] == "sync_directory" else OLD)
    if isinstance(failure, OSError):
        assert list(tmp_path.iterdir()) == [path]


def test_what_turns_out_to_be_wrong_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    disk = Disk()

    def write_and_look() -> None:
        with whole_file(disk, path) as descriptor:
            disk.write(descriptor, memoryview(NEW), 0)
            raise LogDamaged(str(path), 0, "it is not what it must be")

    with pytest.raises(LogDamaged):
        write_and_look()
    assert not list(tmp_path.iterdir())
