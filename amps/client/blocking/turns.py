"""The right of one thread at a time to do something, for threads that cannot wait for it for ever.

A lock that is tried, or acquired with a limit of time, is not safe against Ctrl-C: an interrupt that comes right after
`acquire` leaves it held for ever. A turn remembers its holder, so that this can be told at the end:

    claim = object()
    try:
        if not turn.take(claim, deadline):
            return
        ...
    finally:
        if turn.holder is claim:  # no call before the assignment: an interrupt may come with the end of each call
            turn.holder = None
            turn.wake()

An interrupt in `wake` leaves threads waiting that look again by themselves, soon.
"""

import threading

from amps.client.blocking.changes import Changes
from amps.client.blocking.deadlines import AT_ONCE, left_until


class Turn:
    """Who may act now; None: nobody does."""

    def __init__(self) -> None:
        self.holder: object | None = None
        self._guard = threading.Lock()  # held for a moment only, by `with`, which an interrupt cannot break
        self._freed = Changes()

    def take(self, claim: object, deadline: float | None = AT_ONCE) -> bool:
        """Make `claim` the holder, once nobody else is; False: the deadline (None: none) has passed."""
        with self._guard:
            if self.holder is None:
                self.holder = claim
                return True
        if deadline == AT_ONCE:
            return False
        return self._freed.wait_for(lambda: self.take(claim), left_until(deadline))

    def wake(self) -> None:
        """Wake the threads that wait; called after `holder` was set to None."""
        self._freed.notify()
