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
import time

from amps.client.blocking.deadlines import AT_ONCE

LOOK_AGAIN_S = 0.1
"""How long a thread waits before it looks again whether the turn is free."""


class Turn:
    """Who may act now; None: nobody does."""

    def __init__(self) -> None:
        self.holder: object | None = None
        self._guard = threading.Lock()  # held for a moment only, by `with`, which an interrupt cannot break
        self._freed = threading.Condition(self._guard)
        self._waiting = 0

    def take(self, claim: object, deadline: float | None = AT_ONCE) -> bool:
        """Make `claim` the holder, once nobody else is; False: the deadline (None: none) has passed."""
        with self._guard:
            if self.holder is None:
                self.holder = claim
                return True
        if deadline == AT_ONCE:
            return False
        with self._freed:
            self._waiting += 1
            try:
                while self.holder is not None:
                    left_s = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
                    if left_s <= 0:
                        return False
                    self._freed.wait(min(left_s, LOOK_AGAIN_S))
                self.holder = claim
            finally:
                self._waiting -= 1
        return True

    def wake(self) -> None:
        """Wake the threads that wait; called after `holder` was set to None."""
        if self._waiting:
            with self._freed:
                self._freed.notify()
