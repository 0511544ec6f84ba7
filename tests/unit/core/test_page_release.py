"""Pages of the journal that are released to the system, and pages that stay.

On a file system in memory pages never leave; there, only the flusher's own count of released pages is tested.
"""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amps._core.journal.group_commit import PAGES_KEPT_BYTES, GroupCommit, PageRelease
from amps._core.shm.memory import ControlPage
from amps.journal.disk import Disk
from amps.server.write_statistics import WriteStatistics
from tests.support.page_cache import PAGE_BYTES, pages_can_leave, resident_pages

MIB = 1 << 20
SECOND_NS = 1_000_000_000
PER_SYNC_BYTES = 16 * MIB
HELD_BYTES_MAX = 2048 * MIB
PIECE_BYTES = 2 * MIB
"""The largest piece of memory in which the kernel keeps pages together."""
TRANSPORTS = 3
ALL = 1 << 62


class Journals:
    """Files of a log, written and synced as the core does it, without threads."""

    def __init__(self, directory: Path, begin: int = 0) -> None:
        self.directory = directory
        self.control = ControlPage()
        self._wake_up = os.eventfd(0)
        self.pages = PageRelease(self.control, TRANSPORTS)
        self.pages.begin(begin)
        self.commit = GroupCommit(
            self.control,
            self._wake_up,
            [],
            WriteStatistics().words,
            10**12,
            4 * MIB,
            Disk().close,
            os.fsync,
            lambda position: None,
            None,
            self.pages,
        )
        self.commit.begin(begin)
        self.position = begin
        self.paths: list[tuple[int, Path]] = []  # with the log position at which the file begins
        self._descriptor = -1

    def use_file(self) -> None:
        path = self.directory / f"journal-{len(self.paths)}"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.paths.append((self.position, path))
        self.commit.use_file(self._descriptor)
        self.pages.use_file(self._descriptor, self.position)

    def write(self, size_bytes: int) -> None:
        """Write and sync."""
        begin = self.paths[-1][0]
        chunk = bytes(MIB)
        for offset in range(0, size_bytes, MIB):
            os.pwrite(self._descriptor, chunk[: size_bytes - offset], self.position - begin + offset)
        self.position += size_bytes
        self.commit.written(self.position, self.position)
        assert self.commit.step()

    def close(self) -> None:
        os.close(self._wake_up)
        os.close(self._descriptor)

    def give_back(self) -> int:
        """Sync small amounts until no more pages are released. Returns the position where the released part ends."""
        before = -1
        while self.pages.given_back_until != before:
            before = self.pages.given_back_until
            self.write(1)
        return self.pages.given_back_until

    def resident(self, begin: int, end: int) -> int:
        """The number of pages in memory between two log positions."""
        return sum(
            resident_pages(path, max(0, begin - start), min(end - start, path.stat().st_size))
            for start, path in self.paths
            if begin - start < path.stat().st_size and end > start
        )


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[Callable[..., Journals]]:
    made: list[Journals] = []

    def make(begin: int = 0) -> Journals:
        made.append(Journals(tmp_path, begin))
        made[-1].use_file()
        return made[-1]

    yield make
    for one in made:
        one.close()


def check_memory(journals: Journals, end: int) -> None:
    """Check that no page before `end` is in memory, and most of those behind it.

    The system may evict pages at any time. A piece of memory that reaches beyond `end` is not released yet.
    """
    if not pages_can_leave(journals.directory):
        pytest.skip("files in this directory never leave memory")
    assert journals.resident(0, end - PIECE_BYTES) == 0
    behind = journals.position - end
    assert journals.resident(end, journals.position) > behind // PAGE_BYTES // 2


def test_old_pages_are_released_and_the_newest_stay(journals: Callable[..., Journals]) -> None:
    log = journals()
    log.pages.keep_from(0, 0, None)
    log.write(PAGES_KEPT_BYTES + 8 * MIB + 12_345)
    assert log.give_back() == 8 * MIB
    check_memory(log, 8 * MIB)
    log.write(3 * MIB)  # too little for a call
    assert log.give_back() == 8 * MIB
    log.write(MIB)
    assert log.give_back() == 12 * MIB
    check_memory(log, 12 * MIB)


def test_no_page_is_released_before_the_queues_positions_are_known(journals: Callable[..., Journals]) -> None:
    log = journals()
    log.write(PAGES_KEPT_BYTES + 8 * MIB)
    assert log.give_back() == 0
    assert not log.pages.wants_to_know(16 * MIB - 1, SECOND_NS - 1)
    assert log.pages.wants_to_know(16 * MIB, SECOND_NS - 1)
    assert log.pages.wants_to_know(16 * MIB - 1, SECOND_NS)
    log.pages.keep_from(16 * MIB, SECOND_NS, 5 * MIB + 100)
    assert log.give_back() == 5 * MIB
    assert not log.pages.wants_to_know(32 * MIB - 1, 2 * SECOND_NS - 1)
    log.pages.keep_from(32 * MIB, 2 * SECOND_NS, None)
    assert log.give_back() == 5 * MIB  # 3 MiB are too little
    log.write(MIB)
    assert log.give_back() == 9 * MIB


def test_a_living_transport_keeps_pages_that_it_has_not_read(journals: Callable[..., Journals]) -> None:
    log = journals()
    log.pages.keep_from(0, 0, None)
    log.control.set_transport_alive(1, True)
    log.control.set_transport_alive(2, True)
    log.control.set_pages_done(2, 100 * MIB)
    log.write(PAGES_KEPT_BYTES + 20 * MIB)
    assert log.give_back() == 0  # one has not published its position yet
    log.control.set_pages_done(1, 7 * MIB + 1)
    assert log.give_back() == 7 * MIB
    log.control.set_transport_alive(1, False)
    assert log.give_back() == 20 * MIB
    check_memory(log, 20 * MIB)


def test_a_bounded_amount_is_released_after_a_sync(journals: Callable[..., Journals]) -> None:
    """Otherwise the next sync would be delayed."""
    log = journals()
    log.write(PAGES_KEPT_BYTES + 3 * PER_SYNC_BYTES)
    log.pages.keep_from(0, 0, None)
    seen = []
    for _ in range(4):
        log.write(1)
        seen.append(log.pages.given_back_until)
    assert seen == [PER_SYNC_BYTES, 2 * PER_SYNC_BYTES, 3 * PER_SYNC_BYTES, 3 * PER_SYNC_BYTES]
    check_memory(log, 3 * PER_SYNC_BYTES)


def test_pages_from_before_the_start_stay(journals: Callable[..., Journals]) -> None:
    log = journals(10 * MIB)
    log.pages.keep_from(0, 0, None)
    log.write(PAGES_KEPT_BYTES + 3 * MIB)
    assert log.give_back() == 10 * MIB  # 3 MiB are too little
    log.write(MIB)
    assert log.give_back() == 14 * MIB


def test_over_the_ends_of_files(journals: Callable[..., Journals]) -> None:
    """Each file is held open until all its pages are released, and no longer."""
    log = journals()
    log.pages.keep_from(0, 0, None)
    sizes = [9 * MIB + 5 * PAGE_BYTES, MIB, 30 * MIB, 50 * MIB]
    open_before = len(os.listdir("/proc/self/fd"))
    for size in sizes[:-1]:
        log.write(size)
        log.use_file()
    log.write(sizes[-1])
    end = sum(sizes) - PAGES_KEPT_BYTES
    end -= end % 65536
    assert log.give_back() == end
    check_memory(log, end)
    # No page of the first two files is held; pages of the third, which is closed, and the last are.
    assert len(os.listdir("/proc/self/fd")) == open_before + 1
    del log.commit, log.pages
    assert len(os.listdir("/proc/self/fd")) == open_before - 1


def held_open() -> int:
    """The descriptors of this process, without those of other tests that wait for the garbage collector."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_file_that_is_not_read_for_long_is_closed(journals: Callable[..., Journals]) -> None:
    """Otherwise a removed journal would still occupy space on the disk."""
    log = journals()
    log.pages.keep_from(0, 0, 0)  # a queue without consumers
    log.write(MIB)
    held = held_open()
    log.position = HELD_BYTES_MAX
    log.use_file()
    log.write(1)
    assert held_open() == held + 1  # one of the old file, two of the new one
    log.position += MIB
    log.use_file()
    log.write(1)
    assert held_open() == held + 1  # the oldest has gone
    log.pages.keep_from(0, 0, None)
    log.write(PAGES_KEPT_BYTES + 4 * MIB)
    # A part that is no longer held is not released in small steps.
    assert log.pages.given_back_until == HELD_BYTES_MAX + 5 * MIB


def test_a_removed_journal_is_closed_at_once(journals: Callable[..., Journals]) -> None:
    log = journals()
    log.pages.keep_from(0, 0, 0)
    for _ in range(3):
        log.write(MIB)
        log.use_file()
    log.write(1)
    held = held_open()
    log.paths[1][1].unlink()  # it is not its turn
    log.write(1)
    assert held_open() == held
    log.paths[0][1].unlink()
    log.write(1)
    assert held_open() == held - 2
    log.paths[3][1].unlink()  # the file in use
    log.paths[2][1].unlink()
    log.write(1)
    assert held_open() == held - 3


def test_more_files_than_there_are_places_for(journals: Callable[..., Journals]) -> None:
    """The oldest files keep their pages; the pages of all others are released."""
    log = journals()
    held = held_open()
    for _ in range(70):
        log.write(MIB)
        log.use_file()
    log.write(PAGES_KEPT_BYTES)
    assert held_open() == held + 62
    log.pages.keep_from(0, 0, None)
    assert log.give_back() == 70 * MIB
    if pages_can_leave(log.directory):
        assert log.resident(8 * MIB, 70 * MIB) == 0
        assert log.resident(0, 8 * MIB) > 4 * MIB // PAGE_BYTES
