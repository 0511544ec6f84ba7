# See replay_bounds.pyx.

cimport cython
from libc.stdint cimport uint64_t

from amps._core.record cimport RecordHeader


cdef enum Verdict:
    VERDICT_BEFORE                 # the range has not begun
    VERDICT_WITHIN
    VERDICT_BEHIND                 # the range has ended before this record


cdef struct Bookmark:
    uint64_t publisher_id
    uint64_t sequence


@cython.final
cdef class ReplayBounds:
    cdef uint64_t begin_us         # records of an earlier time are not in the range; 0 = it has begun
    cdef readonly bint has_end
    cdef bint end_inclusive
    cdef readonly uint64_t end_position
    cdef readonly uint64_t end_us
    cdef Bookmark* awaited         # ends that are not in the log yet, sorted
    cdef readonly uint64_t awaited_count

    cdef Verdict judge(self, const RecordHeader* record) noexcept nogil
    cdef bint meet(self, const RecordHeader* record) noexcept nogil
