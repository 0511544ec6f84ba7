"""Logging of client names that change hands. The core decides about names, so each event is counted once per instance.

Two clients with one name disconnect each other without end, on whichever workers they are. The first take-over of a
name is logged at once, later ones as a count at growing intervals (amps/server/repeats.py), and the remaining count
when the core ends.
"""

import time

from amps.server.eventlog import EventLog
from amps.server.repeats import Repeats

LOOK_INTERVAL_S = 1.0


class TakeOvers:
    """The take-overs of all names."""

    def __init__(self, log: EventLog) -> None:
        self._repeats: Repeats[str] = Repeats(
            lambda values: log.log("02-0025", **values),
            lambda count, seconds, values: log.log(
                "02-0027", **values, count=count, seconds=f"{seconds:.0f}"
            ),
        )
        self._look_s = 0.0

    def happened(self, name: str, user: str) -> None:
        """Count a take-over: the session that had the name is disconnected."""
        self._repeats.happened(name, client=name, user=user)

    def look(self) -> None:
        """Log counts that are due; to be called often."""
        now_s = time.monotonic()
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_INTERVAL_S
            self._repeats.look_around()

    def end(self) -> None:
        """Log the remaining counts."""
        self._repeats.end()
