"""How much of the log a replay wants in memory before it goes on.

Whoever reads fast gets a large window: asking the disk for a lot at a time is cheap. Whoever reads slowly gets what
lasts for a moment. Thousands of slow replays all over a log that is larger than the memory would otherwise read their
windows again and again: each would be dropped for the others' long before it is used up, and the disk would have
nothing left for those who publish.

What was in memory when it was looked at may be dropped meanwhile, so after a while it is looked at again: a look costs
a microsecond, a page that has to be waited for stops the whole worker.
"""

from amps._core.log_reader import LogCursor
from amps._core.read_ahead import resident_bytes

BYTES_FIRST = 1 << 16
BYTES_MIN = 1 << 14
AHEAD_NS = 2_000_000_000
"""For how long a window should last."""
TRUSTED_NS = 100_000_000
"""For how long a look tells what is in memory."""


class ReadWindow:
    """The window of one replay, from where it stands on."""

    def __init__(self) -> None:
        self.resident_until = 0
        """Log position up to which the log was in memory when it was looked at, or is to be read now."""
        self._bytes = BYTES_FIRST
        self._looked_at_ns = 0  # when the window was last measured
        self._looked_from = 0  # log position at which the replay stood then

    def missing(self, cursor: LogCursor, limit: int, now_ns: int, bytes_max: int) -> tuple[int, int] | None:
        """What is to be read before the replay goes on at the cursor, as offset and length in its file; None: nothing.

        limit: log position up to which there is anything. bytes_max: what the replay looks at in a turn.
        """
        position = cursor.position
        trusted = now_ns - self._looked_at_ns < TRUSTED_NS
        if trusted and position + self._bytes // 16 < self.resident_until:
            return None
        self._measure(position, now_ns, bytes_max)
        resident, wanted = resident_bytes(cursor, limit, self._bytes)
        self.resident_until = position + wanted
        if resident == wanted:
            return None
        return position - cursor.file.start_position + resident, wanted - resident

    def _measure(self, position: int, now_ns: int, bytes_max: int) -> None:
        """Fit the window to what was read since the last look."""
        elapsed_ns = now_ns - self._looked_at_ns
        read = position - self._looked_from
        if self._looked_at_ns and elapsed_ns > 0 and read > 0:
            self._bytes = min(max(read * AHEAD_NS // elapsed_ns, BYTES_MIN), bytes_max)
        self._looked_at_ns = now_ns
        self._looked_from = position
