"""How far actions have followed the queues: one word of shared memory, which outlives the process that writes it.

The services process says up to where in the log all that its actions need is done; the core removes no journal before
that (amps/server/core/action_pins.py). A services process that took the place of a dead one goes on there.
"""

import mmap


class ActionProgress:
    """A log position; 0: nobody has said anything yet."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 8)).cast("Q")

    def reset(self) -> None:
        """The tree is started anew."""
        self.position = 0

    @property
    def position(self) -> int:
        return self._words[0]

    @position.setter
    def position(self, value: int) -> None:
        self._words[0] = value
