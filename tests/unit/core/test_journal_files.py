"""Journal files and flusher: the order of writes and syncs, spare journals, failures."""

import errno
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from amps._core.journal.reader import FILE_HEADER_SIZE, FORMAT_VERSION, read_file_header
from amps._core.journal.writer import IndexBuilder, IndexReader
from amps.journal.disk import Disk
from amps.journal.files import read_header
from amps.journal.names import index_path, journal_path, watermark_path
from amps.journal.watermark import WatermarkFile, read_watermark
from amps.server.core.flusher import Flusher, SyncFailed
from amps.server.core.journal_files import MIB, JournalFiles, StorageFailure
from tests.simulation.server import SimulatedRuntime
from tests.support.reports import Reports

NAME = "inst"
SIZE = MIB


class ScriptedDisk(Disk):
    """A disk that records every call by file name. It can be full, fail its syncs, or delay them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.full = False
        self.sync_fails = False
        self.gate: threading.Event | None = None

    def _name(self, descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(descriptor, size_bytes)

    def fill(self, descriptor: int, offset: int, size_bytes: int) -> None:
        self.calls.append(("fill", self._name(descriptor)))
        super().fill(descriptor, offset, size_bytes)

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        self.calls.append(("header" if offset == 0 else "write", self._name(descriptor)))
        super().write(descriptor, data, offset, zeros)

    def sync(self, descriptor: int) -> None:
        if self.gate is not None:
            assert self.gate.wait(20)
        self.calls.append(("sync", self._name(descriptor)))
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self.calls.append(("rename", target.name))
        super().rename(source, target)

    def sync_directory(self, directory: Path) -> None:
        self.calls.append(("sync", "directory"))
        super().sync_directory(directory)


class Setting:
    """The files and the flusher of one core, with or without threads."""

    def __init__(
        self,
        path: Path,
        preallocated: int = 2,
        background: bool = False,
        size: int = SIZE,
        disk: ScriptedDisk | None = None,
    ) -> None:
        self.disk = disk or ScriptedDisk()
        self.directory = path / "journal"
        self.directory.mkdir(exist_ok=True)
        self.runtime = SimulatedRuntime(path / f"run-{len(list(path.iterdir()))}", 4096)
        self.watermark = watermark_path(self.directory, NAME)
        watermark_file = WatermarkFile(self.watermark, self.disk)
        self.flusher = Flusher(self.runtime, 0.001, watermark_file, self.disk, background)
        self.reports = Reports()
        self.files = JournalFiles(
            self.directory,
            NAME,
            size,
            preallocated,
            self.runtime,
            self.flusher,
            self.reports,
            self.disk,
            background,
        )

    def open_new(self) -> None:
        self.files.start(set(), -1)
        self.files.next_file(0, 0, 0, 1)
        self.flusher.start(FILE_HEADER_SIZE)

    def journal(self, number: int) -> str:
        return journal_path(self.directory, NAME, number).name

    def write(self, offset: int, length: int = 100) -> None:
        self.files.write(offset, memoryview(b"x" * length))

    def numbers(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("*.journal"))


def test_files_new_pages_are_written_whole(tmp_path: Path) -> None:
    """Pages of a spare are not in memory, so writing a part of one would require reading it first."""
    setting = Setting(tmp_path)
    setting.open_new()
    journal = setting.directory / setting.journal(0)
    with journal.open("r+b") as file:
        file.seek(FILE_HEADER_SIZE)
        file.write(b"?" * 20_000)  # the space is unused; these bytes show which ones are written
    setting.write(FILE_HEADER_SIZE, 5000)
    page_end = FILE_HEADER_SIZE + 8192
    assert FILE_HEADER_SIZE % 4096 == 0

    def content(begin: int, end: int) -> bytes:
        return journal.read_bytes()[begin:end]

    assert content(FILE_HEADER_SIZE, page_end + 1) == b"x" * 5000 + bytes(8192 - 5000) + b"?"
    setting.write(FILE_HEADER_SIZE + 5000, 3192)  # up to the end of the page
    assert content(FILE_HEADER_SIZE, page_end + 1) == b"x" * 8192 + b"?"
    setting.write(page_end, 8)
    assert content(page_end, page_end + 4097) == b"x" * 8 + bytes(4088) + b"?"
    with journal.open("r+b") as file:
        file.seek(page_end + 100)
        file.write(b"?")
    setting.write(page_end + 8, 8)  # within a page that is in memory
    assert content(page_end, page_end + 102) == b"x" * 16 + bytes(84) + b"?" + bytes(1)


@pytest.mark.parametrize("size_bytes", [SIZE, SIZE - 100])
def test_files_a_journal_keeps_its_size(tmp_path: Path, size_bytes: int) -> None:
    """This includes a journal whose last page is not whole."""
    setting = Setting(tmp_path, size=size_bytes)
    setting.open_new()
    setting.write(size_bytes - 300, 200)
    assert (setting.directory / setting.journal(0)).stat().st_size == size_bytes


def test_files_a_spare_is_complete_before_it_has_its_name(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.files.start(set(), -1)
    setting.files.next_file(0, 0, 0, 1)
    calls = setting.disk.calls
    unfinished = setting.journal(0) + ".new"
    made = calls[: calls.index(("rename", setting.journal(0))) + 2]
    assert made[-3:] == [("sync", unfinished), ("rename", setting.journal(0)), ("sync", "directory")]
    assert ("header", unfinished) in made


def test_files_a_header_is_durable_before_the_first_record(tmp_path: Path) -> None:
    """Otherwise old records could appear behind new ones: a spare must contain nothing but zeros."""
    setting = Setting(tmp_path)
    setting.open_new()
    after = setting.disk.calls[setting.disk.calls.index(("sync", "directory")) + 1 :]
    assert after[:2] == [("header", setting.journal(0)), ("sync", setting.journal(0))]


def test_files_a_journal_is_durable_to_its_end_before_the_next_is_used(tmp_path: Path) -> None:
    """Otherwise a machine crash could tear an older journal, although the watermark may already cover all of it."""
    setting = Setting(tmp_path)
    setting.open_new()
    setting.files.wait_for_spares()
    setting.write(FILE_HEADER_SIZE)
    setting.disk.calls.clear()
    setting.files.next_file(1, SIZE, 0, 2)
    assert setting.disk.calls == [
        ("sync", setting.journal(0)),
        ("header", setting.journal(1)),
        ("sync", setting.journal(1)),
    ]
    assert setting.runtime.control.durable == SIZE
    assert read_watermark(setting.watermark) == SIZE


def resumed(path: Path, version: int) -> Setting:
    """A core that finds the journal of another one in use, with a version of the format."""
    before = Setting(path)
    before.open_new()
    before.files.wait_for_spares()
    journal = before.directory / before.journal(0)
    with journal.open("r+b") as file:
        file.seek(8)
        file.write(version.to_bytes(4, "little"))
    setting = Setting(path)
    setting.files.start({1}, 0)
    return setting


def version_of(setting: Setting) -> int:
    return (setting.directory / setting.journal(0)).read_bytes()[8]


@pytest.mark.parametrize("version", [FORMAT_VERSION - 1, FORMAT_VERSION])
def test_files_the_journal_in_use_gets_the_version_of_new_ones(tmp_path: Path, version: int) -> None:
    """queue_guarantees.md Q-17, Q-36: it is on the disk before the journal can be written to."""
    setting = resumed(tmp_path, version)
    header = read_header(setting.directory / setting.journal(0))
    setting.files.resume(header)
    changed = [("write", setting.journal(0)), ("sync", setting.journal(0))]
    assert setting.disk.calls == (changed if version < FORMAT_VERSION else [])
    assert version_of(setting) == FORMAT_VERSION
    assert read_header(setting.directory / setting.journal(0)) == header


@pytest.mark.parametrize("fails", ["open", "write", "sync"])
def test_files_a_journal_that_keeps_its_old_version_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """queue_guarantees.md Q-17: so no record enters a file that an older server reads."""
    setting = resumed(tmp_path, FORMAT_VERSION - 1)

    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(setting.disk, fails, fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        setting.files.resume(read_header(setting.directory / setting.journal(0)))
    with pytest.raises(KeyError):
        setting.files.in_use  # noqa: B018
    assert version_of(setting) == (FORMAT_VERSION if fails == "sync" else FORMAT_VERSION - 1)


def test_flusher_the_watermark_file_is_written_before_the_watermark_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(tmp_path)
    setting.open_new()
    assert read_watermark(setting.watermark) == setting.runtime.control.durable == FILE_HEADER_SIZE
    setting.write(FILE_HEADER_SIZE)
    seen: list[tuple[int, int]] = []
    write = WatermarkFile.write

    def noting(self: WatermarkFile, position: int) -> None:
        write(self, position)
        seen.append((position, setting.runtime.control.durable))

    monkeypatch.setattr(WatermarkFile, "write", noting)
    setting.flusher.written(FILE_HEADER_SIZE + 100, 0)
    assert setting.runtime.control.durable == FILE_HEADER_SIZE
    assert setting.flusher.step()
    assert seen == [(FILE_HEADER_SIZE + 100, FILE_HEADER_SIZE)]
    assert setting.runtime.control.durable == FILE_HEADER_SIZE + 100
    assert not setting.flusher.step()


def test_flusher_a_failed_sync_is_final(tmp_path: Path) -> None:
    """The kernel may have dropped the pages, so a later success does not count."""
    setting = Setting(tmp_path)
    setting.open_new()
    setting.write(FILE_HEADER_SIZE)
    setting.flusher.written(FILE_HEADER_SIZE + 100, 0)
    setting.disk.sync_fails = True
    assert not setting.flusher.step()
    setting.disk.sync_fails = False
    assert not setting.flusher.step()
    assert setting.flusher.failed == errno.EIO
    assert setting.runtime.control.durable == FILE_HEADER_SIZE
    assert read_watermark(setting.watermark) == FILE_HEADER_SIZE
    with pytest.raises(SyncFailed):
        setting.flusher.wait_until_synced(FILE_HEADER_SIZE + 100)
    with pytest.raises(StorageFailure):
        setting.files.next_file(1, SIZE, 0, 2)
    page = journal_path(setting.directory, NAME, 1)
    header = read_file_header(page.read_bytes()[:FILE_HEADER_SIZE], page.name) if page.exists() else None
    assert header is None or not header[5], "the next journal came into use after a failed sync"


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_flusher_every_waiting_thread_gets_its_sync(tmp_path: Path) -> None:
    """With the real thread, and a slow device."""
    setting = Setting(tmp_path, background=True)
    setting.open_new()
    for round_number in range(1, 20):
        end = FILE_HEADER_SIZE + 100 * round_number
        setting.write(end - 100)
        setting.disk.gate = threading.Event()
        setting.flusher.written(end - 50, end - 50)
        waiter = in_background(functools.partial(setting.flusher.wait_until_synced, end))
        assert setting.runtime.control.durable < end - 50
        setting.disk.gate.set()
        waiter.join(20)
        assert not waiter.is_alive()
        assert setting.runtime.control.durable >= end
    setting.flusher.drain()
    setting.files.stop()


def test_flusher_drains_positions_without_demand(tmp_path: Path) -> None:
    setting = Setting(tmp_path, background=True)
    setting.open_new()
    setting.write(FILE_HEADER_SIZE)
    setting.flusher.written(FILE_HEADER_SIZE + 100, 0)
    setting.flusher.drain()
    assert setting.runtime.control.durable == FILE_HEADER_SIZE + 100
    setting.files.stop()


def test_flusher_a_torn_watermark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "w"
    assert read_watermark(path) == 0
    WatermarkFile(path, Disk()).write(1 << 40)
    assert read_watermark(path) == 1 << 40
    content = path.read_bytes()
    for length in range(24):
        path.write_bytes(content[:length] + bytes(24 - length))
        assert read_watermark(path) in (0, 1 << 40)
    for offset in range(24):
        image = bytearray(content)
        image[offset] ^= 1
        path.write_bytes(image)
        assert read_watermark(path) == 0
    path.write_bytes(content[:10])
    assert read_watermark(path) == 0


# Spares


def test_files_as_many_spares_are_ready_as_configured(tmp_path: Path) -> None:
    """transaction_log.md §20 29: the file in use counts; with 1 the next is made when the first is full."""
    for preallocated in (1, 2, 4):
        place = tmp_path / str(preallocated)
        place.mkdir()
        setting = Setting(place, preallocated)
        setting.open_new()
        setting.files.wait_for_spares()
        assert setting.numbers() == [setting.journal(n) for n in range(preallocated)]
        setting.files.next_file(1, SIZE, 0, 2)
        setting.files.wait_for_spares()
        assert setting.numbers() == [setting.journal(n) for n in range(preallocated + 1)]


def test_files_spares_of_another_size_are_made_anew(tmp_path: Path) -> None:
    """They are removed from the last one on, so that a crash leaves no gap.

    Those before the first wrong one are kept.
    """
    setting = Setting(tmp_path, 4)
    setting.open_new()
    setting.files.wait_for_spares()
    os.truncate(setting.directory / setting.journal(2), 2 * SIZE)
    removed: list[str] = []

    class Watching(ScriptedDisk):
        def unlink(self, path: Path) -> None:
            removed.append(path.name)
            super().unlink(path)

    again = Setting(tmp_path, 4, disk=Watching())
    again.files.start({1, 2, 3}, 0)
    assert removed == [again.journal(3), again.journal(2)]
    again.files.wait_for_spares()
    assert {path.stat().st_size for path in again.directory.glob("*.journal")} == {SIZE}
    assert len(again.numbers()) == 4


def test_files_a_large_message_gets_a_file_of_its_size(tmp_path: Path) -> None:
    """transaction_log.md §20 28: this applies to that file only."""
    setting = Setting(tmp_path)
    setting.open_new()
    size, _ = setting.files.next_file(1, SIZE, 3 * SIZE + 1, 2)
    assert size == 4 * SIZE == (setting.directory / setting.journal(1)).stat().st_size
    size, _ = setting.files.next_file(2, 5 * SIZE, 100, 3)
    assert size == SIZE


def test_files_a_full_disk_stops_the_next_file_only(tmp_path: Path) -> None:
    """transaction_log.md §20 35: records that have their place are written.

    The next file is a failure, which is reported.
    """
    setting = Setting(tmp_path)
    setting.open_new()
    setting.files.wait_for_spares()
    setting.disk.full = True
    setting.files.next_file(1, SIZE, 0, 2)
    setting.write(FILE_HEADER_SIZE)
    with pytest.raises(StorageFailure, match="No space left"):
        setting.files.next_file(2, 2 * SIZE, 0, 3)
    assert "2C-0003" in setting.reports.ids
    assert not list(setting.directory.glob("*.new"))
    setting.disk.full = False
    assert setting.files.step()
    setting.files.next_file(2, 2 * SIZE, 0, 3)


def test_files_waiting_for_spares_on_a_full_disk_fails(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.disk.full = True
    setting.files.start(set(), -1)
    with pytest.raises(StorageFailure):
        setting.files.next_file(0, 0, 0, 1)


def test_files_an_index_is_written_for_a_full_journal(tmp_path: Path) -> None:
    """A leftover index of another log is removed when the journal comes into use."""
    setting = Setting(tmp_path)
    path = index_path(setting.directory, NAME, 0)
    path.write_bytes(b"old")
    setting.open_new()
    assert not path.exists()
    builder = IndexBuilder(None, 0, 0, SIZE)
    setting.files.finish_file(0, builder)
    setting.files.stop()
    assert IndexReader(path.read_bytes(), True).file_number == 0
    assert not setting.runtime.index_path(0).exists()
