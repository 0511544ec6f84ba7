# The range of a bookmark subscription: the parts of its beginning and end that must be checked on records.
#
# A range that begins with a message begins at the position of its reader; only a beginning in time is checked here. A
# range ends behind the last of its ends: a position (of the messages found in the log), a time, and messages that are
# not in the log yet. Positions and times rise along the log, so each is one number (transaction_log.md §5.3,
# §20 items 9, 11 to 15).
#
# Times are compared in microseconds, the resolution of bookmarks.

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove


@cython.final
cdef class ReplayBounds:

    def __cinit__(self):
        self.awaited = NULL

    def __init__(self, uint64_t begin_us=0, end=None):
        """begin_us: the first microsecond (UNIX) of the range; 0: it begins at the position of the reader.

        end: None for a range without an end, or a tuple: whether the end itself belongs to the range; a log position at
        or behind which the range ends; the last microsecond that belongs to it (0: no end in time); and the bookmarks,
        as pairs of numbers, of ends that are not in the log yet. The range ends when all of these are passed.
        """
        cdef uint64_t at
        self.begin_us = begin_us
        self.has_end = end is not None
        self.end_inclusive = False
        self.end_position = 0
        self.end_us = 0
        self.awaited_count = 0
        if end is None:
            return
        self.end_inclusive, self.end_position, self.end_us, awaited = end
        ordered = sorted(set(awaited))
        self.awaited = <Bookmark*>malloc(max(1, len(ordered)) * sizeof(Bookmark))
        if self.awaited == NULL:
            raise MemoryError()
        for at in range(<uint64_t>len(ordered)):
            self.awaited[at].publisher_id, self.awaited[at].sequence = ordered[at]
        self.awaited_count = <uint64_t>len(ordered)

    def __dealloc__(self):
        free(self.awaited)

    @property
    def begun(self):
        """Whether the range has begun: it has no beginning in time, or a record within it was judged."""
        return self.begin_us == 0

    def is_over(self, uint64_t position, uint64_t settled_us):
        """Whether no record of the range can follow behind a log position. All records that may still come there must
        have a later time than `settled_us`.
        """
        return (
            self.has_end
            and self.awaited_count == 0
            and position >= self.end_position
            and settled_us >= self.end_us
        )

    cdef Verdict judge(self, const RecordHeader* record) noexcept nogil:
        """The place of a record relative to the range. Call it in log order; a repeated call gives the same result."""
        cdef uint64_t time_us = record.timestamp_ns // 1000
        if self.has_end:
            # An end may come before the beginning: then the range is empty.
            if self.awaited_count and self.meet(record):
                self.end_position = max(self.end_position, record.position + self.end_inclusive)
            if self.awaited_count == 0 and record.position >= self.end_position and time_us > self.end_us:
                return VERDICT_BEHIND
        if time_us < self.begin_us:
            return VERDICT_BEFORE
        self.begin_us = 0
        return VERDICT_WITHIN

    cdef bint meet(self, const RecordHeader* record) noexcept nogil:
        """Whether the record is one of the awaited ends; if so, it is removed from them."""
        cdef uint64_t low = 0
        cdef uint64_t high = self.awaited_count
        cdef uint64_t middle
        cdef Bookmark* found
        while low < high:
            middle = (low + high) // 2
            found = &self.awaited[middle]
            if found.publisher_id < record.publisher_id or (
                found.publisher_id == record.publisher_id and found.sequence < record.sequence
            ):
                low = middle + 1
            else:
                high = middle
        if low == self.awaited_count:
            return False
        found = &self.awaited[low]
        if found.publisher_id != record.publisher_id or found.sequence != record.sequence:
            return False
        self.awaited_count -= 1
        memmove(found, found + 1, (self.awaited_count - low) * sizeof(Bookmark))
        return True
