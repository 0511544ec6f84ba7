# Marks of pending records: where in the log records are that may not be acknowledged yet.
#
# The scan notes each record that goes to the destination and is not acknowledged. A mark stands for those in a stretch
# of the log. Once an acknowledgement covers the last of them, the watermark moves to the next mark at once, instead of
# reading all these records again.
#
# Only one journal has marks, the last one in which a record was noted. It stays open while it has any, with the topics
# that the scan has learnt: a journal that is opened again has to be read from its beginning.
#
# Invariant: every record at or behind `complete_from` that was noted, and is not acknowledged, is in a mark.

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

cdef enum:
    MARK_BYTES = 1 << 16           # a mark stands for about so many bytes of the log
    MARKS_MAX = 1 << 14            # from here on the last mark grows


cdef struct Mark:
    uint64_t position              # log position of the first record
    uint64_t last_position
    uint64_t last_txid
    uint64_t first_time_ns         # log time of the first record
    uint64_t time_before_ns        # log time of the record before it in the log, of any destination; 0: none was read


@cython.final
cdef class Marks:
    """The marks of one source flow, in the order of the log."""

    cdef Mark* marks
    cdef uint64_t first            # number of the oldest mark in `marks`
    cdef uint64_t end              # behind the newest one
    cdef uint64_t capacity
    cdef LogFile file              # None: there are no marks
    cdef uint64_t complete_from

    def __cinit__(self):
        self.marks = NULL
        self.first = self.end = self.capacity = 0
        self.complete_from = 0

    def __dealloc__(self):
        free(self.marks)

    cdef inline int note(self, LogFile file, const RecordHeader* record, uint64_t time_before_ns) except -1:
        """Note a pending record. Positions rise."""
        cdef Mark* last
        if file is not self.file:
            self.file = file
            self.first = self.end = 0
            self.complete_from = record.position
        else:
            last = &self.marks[self.end - 1]
            if record.position - last.position < MARK_BYTES or self.end - self.first >= MARKS_MAX:
                last.last_position = record.position
                last.last_txid = record.txid
                return 0
        return self.add(record, time_before_ns)

    cdef int add(self, const RecordHeader* record, uint64_t time_before_ns) except -1:
        cdef Mark* grown
        cdef uint64_t capacity
        if self.end == self.capacity:
            if self.first >= self.capacity // 2 and self.first:
                memmove(self.marks, self.marks + self.first, (self.end - self.first) * sizeof(Mark))
                self.end -= self.first
                self.first = 0
            else:
                capacity = max(<uint64_t>64, self.capacity * 2)
                grown = <Mark*>realloc(self.marks, capacity * sizeof(Mark))
                if grown == NULL:
                    raise MemoryError()
                self.marks = grown
                self.capacity = capacity
        grown = &self.marks[self.end]
        grown.position = grown.last_position = record.position
        grown.last_txid = record.txid
        grown.first_time_ns = record.timestamp_ns
        grown.time_before_ns = time_before_ns
        self.end += 1
        return 0

    cdef Mark* oldest(self, uint64_t first_missing, uint64_t cleared_position) noexcept:
        """Drop the marks of acknowledged records, and return the first one that is left. NULL: none is.

        first_missing: the lowest transaction id that is not acknowledged. cleared_position: log position before which
        everything is.
        """
        while self.first < self.end and (
            self.marks[self.first].last_txid < first_missing
            or self.marks[self.first].last_position < cleared_position
        ):
            self.first += 1
        if self.first < self.end:
            return &self.marks[self.first]
        self.file = None
        return NULL
