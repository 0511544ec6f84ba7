"""How far actions have processed the queues: one word of shared memory, which outlives the process that writes it.

The services process publishes the log position before which all work of its actions is done. The core removes no
journal behind that (amps/server/core/action_pins.py). A services process that replaces a dead one continues there.
"""

import mmap


class ActionProgress:
    """A log position; 0: none has been published yet."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 8)).cast("Q")

    def reset(self) -> None:
        """Clear the position, because the tree is started again."""
        self.position = 0

    @property
    def position(self) -> int:
        return self._words[0]

    @position.setter
    def position(self, value: int) -> None:
        self._words[0] = value
