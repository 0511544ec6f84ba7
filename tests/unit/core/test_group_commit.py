"""The flusher on a plain disk, where it syncs and publishes the durable watermark without the interpreter.

Orders and failures that only a scripted disk can show are in test_journal_files.py, crashes in the simulation.
"""

import errno
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from amps._core.journal.group_commit import GroupCommit
from amps._core.shm.memory import ControlPage
from amps.journal.disk import Disk
from amps.journal.watermark import WatermarkFile, read_watermark
from amps.server.core.disk import WatchedDisk
from amps.server.core.flusher import BATCH_BYTES, Flusher, SyncFailed, syncs_plainly
from amps.server.health import DiskActivity
from amps.server.runtime import WakeUp
from amps.server.write_statistics import WriteStatistics
from tests.support.server import wait_until

START = 4096
TRANSPORTS = 2
LONG_S = 3600.0
"""A FlushInterval that does not end during a test."""


class SharedMemory:
    """The parts of a runtime that the flusher uses."""

    def __init__(self) -> None:
        self.control = ControlPage()
        self.core_wake_up = WakeUp()
        self.transport_wake_ups = [WakeUp() for _ in range(TRANSPORTS)]
        self.write_statistics = WriteStatistics()

    def close(self) -> None:
        for wake_up in (self.core_wake_up, *self.transport_wake_ups):
            os.close(wake_up.fd)


class Setting:
    """One flusher with its thread, and files to write."""

    def __init__(self, directory: Path, flush_interval_s: float, disk: Disk, keeps_pages: bool) -> None:
        self.directory = directory
        self.runtime = SharedMemory()
        self.watermark = directory / "watermark"
        self.flusher = Flusher(
            self.runtime,  # type: ignore[arg-type]
            flush_interval_s,
            WatermarkFile(self.watermark, disk),
            disk,
            keeps_pages=keeps_pages,
        )

    def new_file(self) -> int:
        name = self.directory / f"journal-{len(list(self.directory.iterdir()))}"
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
        os.write(descriptor, b"x" * START)
        self.flusher.use_file(descriptor, START)
        return descriptor

    def was_woken(self) -> bool:
        """True if the core was woken since the last call."""
        try:
            return os.eventfd_read(self.runtime.core_wake_up.fd) > 0
        except BlockingIOError:
            return False

    @property
    def durable(self) -> int:
        return int(self.runtime.control.durable)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Setting]]:
    settings: list[Setting] = []

    def started(
        flush_interval_s: float = LONG_S, disk: Disk | None = None, keeps_pages: bool = True
    ) -> Setting:
        setting = Setting(tmp_path, flush_interval_s, disk or Disk(), keeps_pages)
        settings.append(setting)
        setting.flusher.start(START)
        return setting

    yield started
    for setting in settings:
        setting.flusher.drain()
        setting.runtime.close()


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_demanded_position_is_synced_at_once_and_on_record(start: Callable[..., Setting]) -> None:
    setting = start()
    assert (setting.durable, read_watermark(setting.watermark)) == (START, START)
    setting.new_file()
    setting.flusher.written(START + 10, 0)
    time.sleep(0.12)  # longer than the thread waits at most between two checks
    assert setting.durable == START
    setting.flusher.demand(START + 1)
    wait_until(lambda: setting.durable == START + 10, 20, "it is not synced")
    assert read_watermark(setting.watermark) == START + 10
    assert setting.runtime.write_statistics.size().maximum == 10
    setting.flusher.written(START + 30, START + 30)
    wait_until(lambda: setting.durable == START + 30, 20, "it is not synced")
    assert read_watermark(setting.watermark) == START + 30
    assert sum(setting.runtime.write_statistics.latency().counts) == 2


def test_without_demand_a_batch_or_the_interval_is_synced(start: Callable[..., Setting]) -> None:
    setting = start()
    setting.new_file()
    setting.flusher.written(START + BATCH_BYTES - 1, 0)
    time.sleep(0.12)
    assert setting.durable == START
    setting.flusher.written(START + BATCH_BYTES, 0)
    wait_until(lambda: setting.durable == START + BATCH_BYTES, 20, "a batch is not synced")
    other = start(0.02)
    other.new_file()
    other.flusher.written(START + 1, 0)
    wait_until(lambda: other.durable == START + 1, 20, "FlushInterval is not kept")


def test_a_sync_needs_no_interpreter(start: Callable[..., Setting]) -> None:
    """This thread holds the interpreter all the time, with a switch interval of hours."""
    setting = start()
    setting.new_file()
    setting.flusher.wait_until_synced(START + 1)  # the thread has started
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(LONG_S)
    try:
        for end in range(START + 2, START + 7):
            setting.flusher.written(end, end)
            give_up_s = time.monotonic() + 20
            while setting.runtime.control.durable < end:
                assert time.monotonic() < give_up_s, "not synced as long as the interpreter is busy"
    finally:
        sys.setswitchinterval(interval_s)


def test_the_core_does_not_release_the_interpreter_to_wake_the_thread(
    start: Callable[..., Setting],
) -> None:
    """All calls are made by C code here, which does not release the interpreter, while another thread waits for it."""
    setting = start(1e-6)
    setting.new_file()
    setting.flusher.wait_until_synced(START + 1)  # the thread has started
    turns: list[None] = []
    ended = threading.Event()

    def want_turns() -> None:
        while not ended.is_set():
            turns.append(None)

    last = START + 300
    calls: list[Callable[[], object]] = [partial(sum, range(100_000)), turns.__len__]
    for end in range(START + 2, last + 1):
        calls += [partial(setting.flusher.written, end, end), partial(sum, range(2_000))]
    calls.append(turns.__len__)
    other = threading.Thread(target=want_turns)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        other.start()
        wait_until(lambda: len(turns) > 0, 20, "the other thread does not run")
        results = list(map(operator.call, calls))
    finally:
        sys.setswitchinterval(interval_s)
        ended.set()
        other.join()
    assert results[1] == results[-1], "the other thread had the interpreter"
    wait_until(lambda: setting.durable == last, 20, "it is not synced")


def test_sleeping_transports_are_woken_and_no_others(start: Callable[..., Setting]) -> None:
    setting = start()
    setting.new_file()
    setting.runtime.control.set_transport_sleeping(1, True)
    setting.flusher.written(START + 1, START + 1)
    wait_until(lambda: setting.durable == START + 1, 20, "it is not synced")
    setting.flusher.drain()
    woken = []
    for wake_up in setting.runtime.transport_wake_ups:
        try:
            woken.append(os.eventfd_read(wake_up.fd))
        except BlockingIOError:
            woken.append(0)
    assert woken == [0, 1]


def test_files_before_the_one_in_use_are_synced_once_more_and_closed(start: Callable[..., Setting]) -> None:
    setting = start()
    descriptors = [setting.new_file() for _ in range(9)]  # more than there is room for at first
    setting.flusher.wait_until_synced(START + 9)
    assert setting.durable == START + 9
    assert [is_open(descriptor) for descriptor in descriptors] == [False] * 8 + [True]
    setting.flusher.wait_until_synced(START + 12)
    assert is_open(descriptors[-1])
    os.close(descriptors[-1])


def test_pages_are_given_back_while_nothing_is_written(start: Callable[..., Setting]) -> None:
    """The descriptor held open for that is closed, too."""
    setting = start(keeps_pages=False)
    assert setting.flusher.pages is not None
    setting.new_file()
    newest = setting.new_file()
    setting.flusher.wait_until_synced(START + 1)
    (oldest,) = setting.directory.glob("journal-1")
    held = len(os.listdir("/proc/self/fd"))
    oldest.unlink()
    wait_until(lambda: len(os.listdir("/proc/self/fd")) == held - 1, 20, "it is held open")
    os.close(newest)


def test_a_failed_sync_is_final_and_reported(start: Callable[..., Setting]) -> None:
    setting = start()
    reading, writing = os.pipe()
    setting.flusher.use_file(writing, START)  # cannot be synced
    waiting = threading.Thread(target=setting.flusher.written, args=(START + 1, START + 1))
    waiting.start()
    waiting.join()
    wait_until(lambda: setting.flusher.failed == errno.EINVAL, 20, "nothing is said of it")
    wait_until(setting.was_woken, 20, "the core is not woken")
    with pytest.raises(SyncFailed):
        setting.flusher.wait_until_synced(START + 1)
    assert not setting.flusher.step()
    assert (setting.durable, read_watermark(setting.watermark)) == (START, START)
    os.close(reading)
    os.close(writing)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("problem", "told"), [(OSError(errno.EDQUOT, "full"), errno.EDQUOT), (ValueError("a defect"), errno.EIO)]
)
def test_a_thread_that_ends_too_early_is_a_failed_sync(
    start: Callable[..., Setting], problem: Exception, told: int
) -> None:
    """Otherwise the core would go on, and clients would wait for acknowledgements without end."""

    class Unclosable(Disk):
        def close(self, descriptor: int) -> None:
            super().close(descriptor)
            raise problem

    setting = start(disk=Unclosable())
    setting.new_file()
    descriptor = setting.new_file()
    setting.flusher.written(START + 1, START + 1)
    wait_until(lambda: setting.flusher.failed == told, 20, "nothing is said of it")
    wait_until(setting.was_woken, 20, "the core is not woken")
    with pytest.raises(SyncFailed):
        setting.flusher.wait_until_synced(START + 1)
    assert (setting.durable, read_watermark(setting.watermark)) == (START, START)
    os.close(descriptor)


def test_all_waiting_threads_get_their_sync(start: Callable[..., Setting]) -> None:
    setting = start()
    setting.new_file()
    got: list[bool] = []

    def wait_for(position: int) -> None:
        setting.flusher.wait_until_synced(position)
        got.append(setting.durable >= position)

    for round_number in range(1, 50):
        threads = [
            threading.Thread(target=wait_for, args=(START + 10 * round_number + more,)) for more in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert got == [True] * 147


def test_draining_syncs_positions_without_demand(start: Callable[..., Setting]) -> None:
    setting = start()
    setting.new_file()
    setting.flusher.written(START + 5, 0)
    setting.flusher.drain()
    assert (setting.durable, read_watermark(setting.watermark)) == (START + 5, START + 5)


def test_a_watched_disk_s_syncs_are_announced_and_withdrawn(start: Callable[..., Setting]) -> None:
    activity = DiskActivity()
    setting = start(disk=WatchedDisk(activity))
    assert not activity.busy()
    setting.new_file()
    setting.flusher.wait_until_synced(START + 1)
    assert activity.busy(), "a call has just ended"
    assert activity.under_way_s() == 0.0


def test_a_disk_with_its_own_sync_is_recognised() -> None:
    class Other(Disk):
        def sync(self, descriptor: int) -> None:
            """A sync of another kind."""

    assert syncs_plainly(Disk())
    assert syncs_plainly(WatchedDisk(DiskActivity()))
    assert not syncs_plainly(Other())


def test_memory_that_is_too_small_is_refused() -> None:
    control, nobody = ControlPage(), (lambda *arguments: None)
    words = WriteStatistics().words
    for statistics, mark, why in (
        (words[1:], bytearray(24), "too small"),
        (words, bytearray(23), "too small"),
    ):
        with pytest.raises(ValueError, match=why):
            GroupCommit(control, -1, [], statistics, 1, 1, nobody, None, None, mark, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both sync and promise"):
        GroupCommit(control, -1, [], words, 1, 1, nobody, nobody, None, None, None)
    with pytest.raises(ValueError, match="too many transports"):
        GroupCommit(control, -1, [-1] * 65, words, 1, 1, nobody, nobody, nobody, None, None)
