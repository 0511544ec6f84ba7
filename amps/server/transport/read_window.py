"""How much of the log a replay needs in memory before it continues.

A replay that reads fast gets a large window, because reading much from the disk at a time is cheap. A replay that
reads slowly gets enough for a moment. Otherwise thousands of slow replays all over a log larger than the memory would
read their windows again and again: each window would be evicted for others long before it is used up, and the disk
would have no time left for publishers.

A record is processed only when all of it is in the window. A record that extends beyond the window, or is longer, is
read completely first, in several parts if it is very long. The cursor stops at the end of the window.

Pages that were found in memory may be evicted, so after a while they are checked again. A check costs a microsecond; a
page fault that waits for the disk stops the whole worker. The length of the file is checked each time, because an
access to a truncated part of a mapping kills the process.

The window ends where the log cannot be read. A replay that comes to such a place has it read once more; if that fails
too, the replay ends.
"""

from amps._core.journal.reader import LogCursor, LogUnreadable
from amps._core.journal.search import resident_range

BYTES_FIRST = 1 << 16
BYTES_MIN = 1 << 14
AHEAD_NS = 2_000_000_000
"""Reading time that a window should cover."""
TRUSTED_NS = 100_000_000
"""Time for which a check of the pages in memory is valid."""


class Unreadable:
    """The place at which a file could not be read in the last attempt."""

    def __init__(self) -> None:
        self._problem: LogUnreadable | None = None
        self._met_at = 0  # log position of the replay at that attempt

    @property
    def is_known(self) -> bool:
        """Whether there is such a place."""
        return self._problem is not None

    def note(self, problem: LogUnreadable, position: int) -> None:
        """Note that a read for the replay at a log position failed."""
        self._problem = problem
        self._met_at = position

    def readable_until(self, cursor: LogCursor) -> int:
        """File offset up to which the file at the cursor can be read, as far as is known. Raises LogUnreadable if the
        cursor cannot continue. A failure noted at another position is forgotten then, so that the place is read again.
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
    """The window of one replay, from its position on."""

    def __init__(self) -> None:
        self.resident_until = 0
        """Log position up to which the log was found in memory, or up to which it is being read."""
        self._bytes = BYTES_FIRST
        self._looked_at_ns = 0  # time of the last check
        self._looked_from = 0  # log position of the replay at that check
        self._unreadable = Unreadable()

    def was_unreadable(self, problem: LogUnreadable) -> None:
        """Note that the last requested read failed at the problem's offset. The bytes before it were read."""
        self._unreadable.note(problem, self._looked_from)

    def missing(self, cursor: LogCursor, limit: int, now_ns: int, bytes_max: int) -> tuple[int, int] | None:
        """The range to be read before the replay continues at the cursor, as offset and length in its file. None: no
        read is needed, and the cursor may continue to the end of the window.

        limit: log position up to which there are records. bytes_max: bytes that the replay processes in a turn. Raises
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
            # Of a record that is read in parts, the part just read is not checked again.
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
        """Adapt the window to the bytes read since the last check."""
        elapsed_ns = now_ns - self._looked_at_ns
        read = position - self._looked_from
        if self._looked_at_ns and elapsed_ns > 0 and read > 0:
            self._bytes = min(max(read * AHEAD_NS // elapsed_ns, BYTES_MIN), bytes_max)
        self._looked_at_ns = now_ns
        self._looked_from = position
