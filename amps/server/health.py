"""Distinguishing a process that is stuck from one that only waits for its disk.

Every process of the tree sends heartbeats: it stores the time in the control page on each turn of its loop. The core's
loop sends none during a write or a sync, or while it waits for a journal that is being made. So its threads note in
shared memory when a disk call begins and ends (`DiskActivity`). A silent core counts as waiting while a disk call runs
or has just ended, and only if the process is not stopped: the notes of a process that was stopped by a signal never
change. A disk call counts for no longer than DISK_HOPELESS_S.

After STUCK_WARNING_S without a heartbeat a warning is logged. After STUCK_KILL_S, if it does not wait, the process is
killed; the supervisor starts it again as after any death. Before a process has reported readiness it need not send
heartbeats, and the processor time that it uses counts instead. Silence counts only while the supervisor runs: when the
whole tree was stopped (by a terminal, a debugger, a container's host), no process counts as stuck afterwards.
"""

import enum
import mmap
import time

import psutil

STUCK_WARNING_S = 10.0
STUCK_KILL_S = 60.0
DISK_HOPELESS_S = 300.0
# The supervisor checks twice a second; if it did not for so long, it could not run either.
LISTENING_GAP_S = 5.0

DISK_SLOTS = 8
_STOPPED = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP})


class Health(enum.Enum):
    """The supervisor's judgement of a process."""

    WELL = enum.auto()
    WAITING_FOR_DISK = enum.auto()
    SILENT = enum.auto()
    STUCK = enum.auto()


class DiskActivity:
    """Disk calls of the core's threads. Two words for each thread: begun at, last ended at (monotonic ns)."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 16 * DISK_SLOTS)).cast("Q")

    def reset(self) -> None:
        """Forget the calls of a dead core."""
        for index in range(len(self._words)):
            self._words[index] = 0

    def begin(self, slot: int) -> None:
        """Note that a thread begins a disk call."""
        self._words[2 * slot] = time.monotonic_ns()

    def end(self, slot: int) -> None:
        """Note that the call has ended, successfully or not."""
        self._words[2 * slot + 1] = time.monotonic_ns()
        self._words[2 * slot] = 0

    def words(self, slot: int) -> memoryview:
        """The two words of a thread."""
        return self._words[2 * slot : 2 * slot + 2]

    def under_way_s(self) -> float:
        """For how long the oldest current call has lasted; 0 = there is none."""
        begun = [word for word in self._words[0::2].tolist() if word]
        return (time.monotonic_ns() - min(begun)) / 1e9 if begun else 0.0

    def busy(self) -> bool:
        """Whether the disk works for the core: a call that may still return is running, or one has just ended."""
        if 0.0 < self.under_way_s() < DISK_HOPELESS_S:
            return True
        last_ended = max(self._words[1::2].tolist())
        return last_ended > 0 and (time.monotonic_ns() - last_ended) / 1e9 < STUCK_WARNING_S


class Pulse:
    """The supervisor's observation of one process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu_s = -1.0
        self._cpu_moved_ns = 0
        self._looked_ns = time.monotonic_ns()
        self._listening_since_ns = 0
        self.silent_s = 0.0
        self.told: Health | None = None
        """The worst health that was logged since the process was last well."""

    def judge(self, beat_ns: int, disk: DiskActivity | None) -> Health:
        """Judge the process. `beat_ns`: its last heartbeat, 0 = not required yet; `disk`: the core's, for the core."""
        now_ns = time.monotonic_ns()
        if (now_ns - self._looked_ns) / 1e9 > LISTENING_GAP_S:
            self._listening_since_ns = now_ns
        self._looked_ns = now_ns
        try:
            heard_ns = max(beat_ns or self._last_run_ns(now_ns), self._listening_since_ns)
            self.silent_s = max(0, now_ns - heard_ns) / 1e9
            if self.silent_s < STUCK_WARNING_S:
                return Health.WELL
            if disk is not None and disk.busy() and self._process.status() not in _STOPPED:
                return Health.WAITING_FOR_DISK
        except psutil.Error:  # it has ended; the supervisor gets SIGCHLD
            return Health.WELL
        return Health.STUCK if self.silent_s >= STUCK_KILL_S else Health.SILENT

    def _last_run_ns(self, now_ns: int) -> int:
        """When the process was last seen to have used processor time."""
        times = self._process.cpu_times()
        spent_s = times.user + times.system
        if spent_s != self._cpu_s:
            self._cpu_s = spent_s
            self._cpu_moved_ns = now_ns
        return self._cpu_moved_ns
