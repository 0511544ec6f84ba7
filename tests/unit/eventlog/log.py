"""An event log with its log process, in the processes of a test."""

import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path

from amps.config import LogTargetConfig
from amps.server.eventlog import (
    LEVELS,
    EventLog,
    minimum_level,
    open_log_channel,
    run_log_process,
    shared_counters,
)

RECORD = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}[+-]\d\d:\d\d \[\d+\] "
    r"(developer|trace|stats|info|warning|error|critical|emergency): [0-9A-F]{2}-[0-9A-F]{4} "
)
"""The beginning of a record in a text target."""
EVERYTHING = frozenset(LEVELS)


def fork(action: Callable[[], None]) -> int:
    """Run `action` in a child process. Its exit code shows whether the action raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Log:
    """A channel and its log process."""

    def __init__(self, *targets: LogTargetConfig) -> None:
        self.targets = targets
        self.counters = shared_counters(len(targets))
        self.sender, self.receiver = open_log_channel()
        self.log = EventLog(self.sender, 1, minimum_level(targets))
        self.pid = 0
        self.start()

    def start(self) -> None:
        def run() -> None:
            self.sender.close()
            run_log_process(self.targets, "instance", self.receiver, self.counters)

        self.pid = fork(run)

    def finish(self) -> None:
        """Close the last sender and wait for the log process."""
        self.sender.close()
        assert exit_code(self.pid) == 0
        self.receiver.close()


def file_target(path: Path, **values: object) -> LogTargetConfig:
    return LogTargetConfig(**({"protocol": "file", "levels": EVERYTHING, "file_name": str(path)} | values))  # type: ignore[arg-type]
