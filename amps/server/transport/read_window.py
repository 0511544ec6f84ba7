"""How much of the log a replay wants in memory before it goes on.

Whoever reads fast gets a large window: asking the disk for a lot at a time is cheap. Whoever reads slowly gets what
lasts for a moment. Thousands of slow replays all over a log that is larger than the memory would otherwise read their
windows again and again: each would be dropped for the others' long before it is used up, and the disk would have
nothing left for those who publish.

A record is looked at only when all of it is in the window: one that reaches over its end, or is longer, is asked for as
a whole first, in parts if it is very long. The cursor is told where the window ends, and stops there.

What was in memory when it was looked at may be dropped meanwhile, so after a while it is looked at again: a look costs
a microsecond, a page that has to be waited for stops the whole worker. Whether the file is still as long is asked each
time: who looks at what was cut off is killed.

Where the log cannot be read, the window ends. A replay that comes to such a place has it read once more, and if that
fails too, it is over.
"""

from amps._core.journal.reader import LogCursor, LogUnreadable
from amps._core.journal.search import resident_range

BYTES_FIRST = 1 << 16
BYTES_MIN = 1 << 14
AHEAD_NS = 2_000_000_000
"""For how long a window should last."""
TRUSTED_NS = 100_000_000
"""For how long a look tells what is in memory."""


class Unreadable:
    """Where a file cannot be read, as far as somebody has tried."""

    def __init__(self) -> None:
        self._problem: LogUnreadable | None = None
        self._met_at = 0  # log position at which the replay stood then

    @property
    def is_known(self) -> bool:
        """Whether there is such a place."""
        return self._problem is not None

    def note(self, problem: LogUnreadable, position: int) -> None:
        """What was asked for at a log position could not be read."""
        self._problem = problem
        self._met_at = position

    def readable_until(self, cursor: LogCursor) -> int:
        """File offset up to which the file at the cursor can be read, as far as is known. Raises LogUnreadable if the
        cursor cannot go on; but what was met from elsewhere is forgotten then, and may be read again.
        """
        file, problem = cursor.file, self._problem
        until = file.readable_bytes()
        needed = cursor.position - file.start_position + cursor.needed
        if until < file.size and needed > until:
            raise LogUnreadable(file.path, until, f"the file ends here, its header says {file.size} bytes")
        if problem is None or problem.path != file.path or problem.offset >= until:
            return until
        if needed > problem.offset:
            if self._met_at == cursor.position:
                raise problem
            self._problem = None
            return until
        offset: int = problem.offset
        return offset


class ReadWindow:
    """The window of one replay, from where it stands on."""

    def __init__(self) -> None:
        self.resident_until = 0
        """Log position up to which the log was in memory when it was looked at, or is to be read now."""
        self._bytes = BYTES_FIRST
        self._looked_at_ns = 0  # when the window was last measured
        self._looked_from = 0  # log position at which the replay stood then
        self._unreadable = Unreadable()

    def was_unreadable(self, problem: LogUnreadable) -> None:
        """What was asked for last could not be read; what lies before the problem's offset was."""
        self._unreadable.note(problem, self._looked_from)

    def missing(self, cursor: LogCursor, limit: int, now_ns: int, bytes_max: int) -> tuple[int, int] | None:
        """What is to be read before the replay goes on at the cursor, as offset and length in its file; None: nothing,
        and the cursor may go on to where the window ends.

        limit: log position up to which there is anything. bytes_max: what the replay looks at in a turn. Raises
        LogUnreadable.
        """
        position, file = cursor.position, cursor.file
        start = file.start_position
        if position >= limit or position >= start + file.size or file.compressed:
            cursor.allow(file.size)
            return None
        readable_until = start + self._unreadable.readable_until(cursor)
        self.resident_until = min(self.resident_until, readable_until)
        needed_until = min(position + cursor.needed, start + file.size)
        trusted = now_ns - self._looked_at_ns < TRUSTED_NS
        enough = needed_until <= self.resident_until
        if not (trusted and enough and position + self._bytes // 16 < self.resident_until):
            # Of a record that comes in parts, what was just brought is not looked at again.
            goes_on = not enough and position == self._looked_from
            begin = max(position, self.resident_until) if goes_on else position
            self._measure(position, now_ns, bytes_max)
            end = min(max(needed_until, min(limit, position + self._bytes)), readable_until)
            while begin < end:
                resident, wanted = resident_range(file, begin - start, end, end - begin)
                begin += wanted
                self.resident_until = begin
                if resident < wanted:
                    return begin - wanted + resident - start, wanted - resident
        cursor.allow(self.resident_until - start)
        return None

    def _measure(self, position: int, now_ns: int, bytes_max: int) -> None:
        """Fit the window to what was read since the last look."""
        elapsed_ns = now_ns - self._looked_at_ns
        read = position - self._looked_from
        if self._looked_at_ns and elapsed_ns > 0 and read > 0:
            self._bytes = min(max(read * AHEAD_NS // elapsed_ns, BYTES_MIN), bytes_max)
        self._looked_at_ns = now_ns
        self._looked_from = position
