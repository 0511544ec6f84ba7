"""The supervisor's state of each process that it forked."""

import contextlib
import os
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from amps.server.eventlog import EventLog
from amps.server.health import DiskActivity, Health, Pulse

RESTARTS_MAX = 5
RESTART_WINDOW_S = 60.0
EXIT_NEW_EPOCH = 79
"""The replication process has given the log a new epoch, and ends on purpose: another one has to use it."""


class GiveUp(Exception):
    """The instance cannot continue; the text has the reason."""


@dataclass(slots=True)
class Child:
    """One forked process. `ours` is the supervisor's end of the channel; None for the log process."""

    title: str
    pid: int
    ours: socket.socket | None
    pulse: Pulse
    ready: bool = False

    def gets_on(self, beat_ns: int, disk: DiskActivity | None, log: EventLog) -> bool:
        """Whether it makes progress, or waits for its disk. A process that is stuck is killed.

        `beat_ns`: its last heartbeat; `disk`: the core's disk activity, for the core only.
        """
        pulse = self.pulse
        silent_before_s = pulse.silent_s
        health = pulse.judge(beat_ns if self.ready else 0, disk)
        seconds = int(pulse.silent_s)
        if health is Health.WELL:
            if pulse.told is not None:
                pulse.told = None
                log.log("30-0002", thread=self.title, seconds=int(silent_before_s))
        elif health is not pulse.told:
            pulse.told = health
            if health is Health.WAITING_FOR_DISK:
                assert disk is not None
                log.log("30-0001", thread=self.title, seconds=seconds, call=int(disk.under_way_s()))
            elif health is Health.SILENT:
                log.log("30-0000", thread=self.title, seconds=seconds)
            else:
                log.log("30-0003", process=self.title, pid=self.pid, seconds=seconds)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
        return health in (Health.WELL, Health.WAITING_FOR_DISK)


@dataclass(slots=True)
class RestartCounter:
    """The times at which a kind of process died."""

    times: deque[float] = field(default_factory=deque)

    def too_often(self) -> bool:
        """Count one death now. Return whether there were too many."""
        now = time.monotonic()
        self.times.append(now)
        while now - self.times[0] > RESTART_WINDOW_S:
            self.times.popleft()
        return len(self.times) >= RESTARTS_MAX
