"""How the stop of an instance went: what failed in it, and the exit status that says so.

The stop goes on whatever fails: the other processes still end in their order. A failure is logged when it happens, told
to the service manager and on standard error, and stays in the exit status.

Invariant: the first failure counts, but EXIT_STORAGE, which says what may be missing, replaces any other.
"""

from amps.server import console
from amps.server.eventlog import EventLog
from amps.server.service_manager import notify

EXIT_FAILED = 1
"""The start failed, or the instance gave up: the stop is only its end."""
EXIT_PROCESS = 70
"""A process died in the stop. What was acknowledged is in the transaction log, and so is all that the core took."""
EXIT_STORAGE = 74
"""The transaction log is not known to hold more than what was acknowledged."""


class StopFailures:
    """What failed while an instance stopped."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.status = 0
        """The exit status; 0: nothing failed."""

    def log_not_durable(self, reason: str) -> None:
        """The core has not made durable all that it had."""
        if self.status != EXIT_STORAGE:
            self.status = EXIT_STORAGE
            self._log.log("FF-0006", reason=reason, code=EXIT_STORAGE)
            self._tell(f"the transaction log was not made durable: {reason}")

    def process_died(self, title: str, pid: int, status: str) -> None:
        """A process that should have ended in order did not."""
        self.status = self.status or EXIT_PROCESS
        self._log.log("FF-0007", process=title, pid=pid, status=status)
        self._tell(f"process {title!r} died while the instance stopped ({status})")

    def _tell(self, text: str) -> None:
        console.complain(f"Error: {text}")
        notify(f"STATUS={text.splitlines()[0]}\n")
