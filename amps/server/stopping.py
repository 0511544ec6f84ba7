"""The result of the stop of an instance: its failures, and the exit status for them.

A stop continues after any failure: the other processes still end in their order. A failure is logged when it happens,
reported to the service manager and on standard error, and kept in the exit status.

Invariant: the first failure counts, but EXIT_STORAGE, which stands for possible loss, replaces any other.
"""

from amps.server import console
from amps.server.eventlog import EventLog
from amps.server.service_manager import notify

EXIT_FAILED = 1
"""The start failed, or the instance gave up: the stop is only its end."""
EXIT_PROCESS = 70
"""A process died in the stop. The transaction log contains all acknowledged messages, and all that the core has read.
"""
EXIT_STORAGE = 74
"""The transaction log may lack messages that were not acknowledged."""


class StopFailures:
    """The failures while an instance stops."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.status = 0
        """The exit status; 0: no failure."""

    def log_not_durable(self, reason: str) -> None:
        """Note that the core has not made all records durable."""
        if self.status != EXIT_STORAGE:
            self.status = EXIT_STORAGE
            self._log.log("FF-0006", reason=reason, code=EXIT_STORAGE)
            self._tell(f"the transaction log was not made durable: {reason}")

    def process_died(self, title: str, pid: int, status: str) -> None:
        """Note that a process died instead of ending in order."""
        self.status = self.status or EXIT_PROCESS
        self._log.log("FF-0007", process=title, pid=pid, status=status)
        self._tell(f"process {title!r} died while the instance stopped ({status})")

    def _tell(self, text: str) -> None:
        console.complain(f"Error: {text}")
        notify(f"STATUS={text.splitlines()[0]}\n")
