"""What the log has of client names that change hands: counted here, by the one who decides, so once in an instance.

Two clients with one name end each other's connections without end, on whichever workers they are. The first take-over
of a name is logged at once, the others as a count at growing intervals (amps/server/repeats.py), and what is left at
the end of the core.
"""

import time

from amps.server.eventlog import EventLog
from amps.server.repeats import Repeats

LOOK_INTERVAL_S = 1.0


class TakeOvers:
    """Of all names."""

    def __init__(self, log: EventLog) -> None:
        self._repeats: Repeats[str] = Repeats(
            lambda values: log.log("02-0025", **values),
            lambda count, seconds, values: log.log(
                "02-0027", **values, count=count, seconds=f"{seconds:.0f}"
            ),
        )
        self._look_s = 0.0

    def happened(self, name: str, user: str) -> None:
        """A session was told that its name has a new owner."""
        self._repeats.happened(name, client=name, user=user)

    def look(self) -> None:
        """To be called often: says what is due."""
        now_s = time.monotonic()
        if now_s >= self._look_s:
            self._look_s = now_s + LOOK_INTERVAL_S
            self._repeats.look_around()

    def end(self) -> None:
        """Say what has not been said."""
        self._repeats.end()
