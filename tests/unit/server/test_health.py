"""Detection of stuck processes: silence counts, unless the disk explains it, in a process that can run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from amps.journal.disk import Disk
from amps.server import health
from amps.server.core.disk import WatchedDisk, watched
from amps.server.health import DiskActivity, Health, Pulse
from tests.support.server import wait_until

S = 1_000_000_000


def ago_ns(seconds: float) -> int:
    return time.monotonic_ns() - int(seconds * S)


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def begun(activity: DiskActivity, seconds_ago: float, slot: int = 1) -> None:
    activity._words[2 * slot] = ago_ns(seconds_ago)


def ended(activity: DiskActivity, seconds_ago: float, slot: int = 1) -> None:
    activity._words[2 * slot] = 0
    activity._words[2 * slot + 1] = ago_ns(seconds_ago)


def test_silence_is_judged_by_its_length(idle: subprocess.Popen[bytes]) -> None:
    pulse = Pulse(idle.pid)
    assert pulse.judge(ago_ns(1), None) is Health.WELL
    assert pulse.judge(ago_ns(30), None) is Health.SILENT
    assert pulse.judge(ago_ns(61), None) is Health.STUCK
    assert pulse.judge(time.monotonic_ns() + S, None) is Health.WELL


def test_a_process_that_waits_for_its_disk_is_not_stuck(idle: subprocess.Popen[bytes]) -> None:
    pulse, activity = Pulse(idle.pid), DiskActivity()
    silent = ago_ns(100)
    assert pulse.judge(silent, activity) is Health.STUCK
    begun(activity, 90)
    assert pulse.judge(silent, activity) is Health.WAITING_FOR_DISK
    # The process makes short calls one after the other.
    ended(activity, 2)
    assert pulse.judge(silent, activity) is Health.WAITING_FOR_DISK
    ended(activity, 20)
    assert pulse.judge(silent, activity) is Health.STUCK


def test_a_call_of_the_disk_excuses_silence_for_a_limited_time(idle: subprocess.Popen[bytes]) -> None:
    pulse, activity = Pulse(idle.pid), DiskActivity()
    begun(activity, health.DISK_HOPELESS_S + 1)
    assert pulse.judge(ago_ns(400), activity) is Health.STUCK


def test_a_stopped_process_does_not_wait_for_its_disk(idle: subprocess.Popen[bytes]) -> None:
    """The call that it announced before it was stopped stays announced for ever."""
    pulse, activity = Pulse(idle.pid), DiskActivity()
    begun(activity, 100)
    silent = ago_ns(100)
    assert pulse.judge(silent, activity) is Health.WAITING_FOR_DISK
    idle.send_signal(signal.SIGSTOP)
    wait_until(lambda: psutil.Process(idle.pid).status() == psutil.STATUS_STOPPED, 10, "not stopped")
    assert pulse.judge(silent, activity) is Health.STUCK


def test_no_process_is_blamed_for_the_time_when_the_supervisor_was_stopped(
    idle: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole process tree, including the supervisor, was stopped and continues."""
    pulse = Pulse(idle.pid)
    assert pulse.judge(ago_ns(100), None) is Health.STUCK
    monkeypatch.setattr(health, "LISTENING_GAP_S", 0.0)
    assert pulse.judge(ago_ns(100), None) is Health.WELL
    monkeypatch.setattr(health, "LISTENING_GAP_S", 1000.0)
    assert pulse.judge(ago_ns(100), None) is Health.WELL
    monkeypatch.setattr(health, "STUCK_WARNING_S", 0.0)
    assert pulse.judge(ago_ns(100), None) is Health.SILENT


def test_before_it_is_ready_a_process_must_only_run(
    idle: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Pulse(os.getpid())
    still = Pulse(idle.pid)
    monkeypatch.setattr(health, "STUCK_WARNING_S", 0.2)
    monkeypatch.setattr(health, "STUCK_KILL_S", 0.4)
    assert still.judge(0, None) is Health.WELL
    deadline_s = time.monotonic() + 30
    seen = set()
    while Health.STUCK not in seen and time.monotonic() < deadline_s:
        before = time.process_time()
        while time.process_time() < before + 0.02:
            pass
        assert busy.judge(0, None) is Health.WELL
        seen.add(still.judge(0, None))
    assert Health.STUCK in seen


def test_a_process_that_has_ended_is_not_judged_here(idle: subprocess.Popen[bytes]) -> None:
    pulse = Pulse(idle.pid)
    idle.kill()
    idle.wait()
    assert pulse.judge(0, None) is Health.WELL


def test_calls_of_the_disk_are_announced_and_withdrawn() -> None:
    activity = DiskActivity()
    during: list[tuple[float, bool]] = []

    def slow_sync(self: Disk, descriptor: int) -> None:
        time.sleep(0.001)
        during.append((activity.under_way_s(), activity.busy()))
        raise OSError(5, "no")

    class SlowDisk(WatchedDisk):
        sync = watched(slow_sync)

    disk = SlowDisk(activity)
    assert not activity.busy()
    with pytest.raises(OSError, match="no"):
        disk.sync(0)
    ((under_way_s, busy),) = during
    assert under_way_s >= 0.001
    assert busy
    assert activity.under_way_s() == 0.0
    assert activity.busy(), "a call has just ended"
    activity.reset()
    assert not activity.busy()


def test_every_call_of_the_disk_is_watched() -> None:
    for name, value in vars(Disk).items():
        if callable(value) and not name.startswith("_") and name != "store":
            assert vars(WatchedDisk)[name].__wrapped__ is value, name
