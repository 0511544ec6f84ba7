"""The connection states that a client passes through, in their order, for threads that run listeners or wait.

The engine reports each state here at the moment it is reached. Several threads dispatch events, and one that reported a
later state might run first: so the listeners are always called with the oldest state not yet told, by one thread at a
time. Threads that wait for a state need not wait until its listeners have run.
"""

from collections import deque
from collections.abc import Callable

from amps.client.blocking.changes import Changes
from amps.client.blocking.turns import Turn
from amps.client.enums import ConnectionState, Timeout


class StateQueue:
    """The states not yet told to listeners, and the threads that wait for a change."""

    def __init__(self) -> None:
        self._states: deque[ConnectionState] = deque()
        self._telling = Turn()
        self._changed = Changes()

    def note(self, state: ConnectionState | None) -> None:
        """Note a state that has just been reached, or (None) another change of the connection."""
        if state is not None:
            self._states.append(state)
        self._changed.notify()

    def tell(self, listen: Callable[[ConnectionState], object]) -> None:
        """Call `listen` with each state not yet told. If another thread does so already, it tells all of them."""
        telling, claim = self._telling, object()
        while self._states:
            try:
                if not telling.take(claim):
                    return
                while self._states:
                    listen(self._states.popleft())
            finally:
                if telling.holder is claim:
                    telling.holder = None

    def wait_for(self, condition: Callable[[], bool], timeout: Timeout) -> bool:
        """Wait until the condition holds, which is checked after each change; return whether it does."""
        return self._changed.wait_for(condition, timeout)
