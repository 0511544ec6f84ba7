"""Telling a process that is stuck from one that only waits for its disk.

Every process of the tree beats: it stores the time into the control page on each turn of its loop. The core has
nobody to beat for it while its loop is inside a write or a sync, or waits for a journal that is being made; so its
threads say in shared memory when they hand something to the disk and when they have it back (`DiskActivity`). A
core that is silent is taken for waiting while a call of the disk is under way or one has just come back, and only
if the process can run at all: one that was stopped by a signal has the same words standing there for ever. No call
is believed in for longer than DISK_HOPELESS_S.

Silent for STUCK_WARNING_S: said in the log. Silent for STUCK_KILL_S and not waiting: to be killed; the supervisor
starts it anew as after any death. Before a process has said that it is ready it need not beat, and the time that it
spends on the processor counts instead. Silence counts only as long as somebody listens: when the whole tree was
stopped (by a terminal, a debugger, a container's host), nobody is to blame for it afterwards.

Invariants: each word of DiskActivity has one writer; judging takes no lock and never waits.
"""

import enum
import mmap
import time

import psutil

STUCK_WARNING_S = 10.0
STUCK_KILL_S = 60.0
DISK_HOPELESS_S = 300.0
# The supervisor looks twice a second; if it did not for so long, it could not run either.
LISTENING_GAP_S = 5.0

DISK_SLOTS = 8
_STOPPED = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP})


class Health(enum.Enum):
    """What the supervisor makes of a process."""

    WELL = enum.auto()
    WAITING_FOR_DISK = enum.auto()
    SILENT = enum.auto()
    STUCK = enum.auto()


class DiskActivity:
    """What the core's threads have the disk do. Two words for each thread: begun at, last ended at (monotonic ns)."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 16 * DISK_SLOTS)).cast("Q")

    def reset(self) -> None:
        """Forget what a dead core had under way."""
        for index in range(len(self._words)):
            self._words[index] = 0

    def begin(self, slot: int) -> None:
        """A thread hands something to the disk."""
        self._words[2 * slot] = time.monotonic_ns()

    def end(self, slot: int) -> None:
        """It has come back, done or failed."""
        self._words[2 * slot + 1] = time.monotonic_ns()
        self._words[2 * slot] = 0

    def words(self, slot: int) -> memoryview:
        """The two of a thread."""
        return self._words[2 * slot : 2 * slot + 2]

    def under_way_s(self) -> float:
        """For how long the disk has had the oldest call that is under way; 0 = none is."""
        begun = [word for word in self._words[0::2].tolist() if word]
        return (time.monotonic_ns() - min(begun)) / 1e9 if begun else 0.0

    def busy(self) -> bool:
        """Whether the disk works for the core: a call is under way that may yet come back, or one just has."""
        if 0.0 < self.under_way_s() < DISK_HOPELESS_S:
            return True
        last_ended = max(self._words[1::2].tolist())
        return last_ended > 0 and (time.monotonic_ns() - last_ended) / 1e9 < STUCK_WARNING_S


class Pulse:
    """How the supervisor listens to one process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu_s = -1.0
        self._cpu_moved_ns = 0
        self._looked_ns = time.monotonic_ns()
        self._listening_since_ns = 0
        self.silent_s = 0.0
        self.told: Health | None = None
        """The worst that was logged since the process was last well."""

    def judge(self, beat_ns: int, disk: DiskActivity | None) -> Health:
        """Take one look. `beat_ns`: its last beat, 0 = it need not beat yet; `disk`: for the core, whose disk it is."""
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
        except psutil.Error:  # it is gone; that it died is told by the kernel
            return Health.WELL
        return Health.STUCK if self.silent_s >= STUCK_KILL_S else Health.SILENT

    def _last_run_ns(self, now_ns: int) -> int:
        """When the process was last seen to have got on with something."""
        times = self._process.cpu_times()
        spent_s = times.user + times.system
        if spent_s != self._cpu_s:
            self._cpu_s = spent_s
            self._cpu_moved_ns = now_ns
        return self._cpu_moved_ns
