# See pace.pyx.

cimport cython
from libc.stdint cimport uint64_t

from amps._core.record cimport RecordHeader


@cython.final
cdef class Pace:
    cdef readonly int kind
    cdef readonly double rate
    cdef readonly uint64_t gap_max_ns      # of waiting between two messages; 0 = any
    cdef readonly uint64_t due_ns          # when what was refused will be allowed (monotonic)
    cdef uint64_t now_ns                   # of this turn (monotonic)
    cdef double allowance                  # messages or bytes that may go; negative after a large message
    cdef double burst
    cdef uint64_t filled_ns                # when the allowance was worked out
    cdef uint64_t last_due_ns              # of the last message, at multiples of the original speed
    cdef uint64_t last_timestamp_ns        # of the last message in the log; 0 = none yet

    cdef bint allows(self, const RecordHeader* record) noexcept
    cdef void took(self, const RecordHeader* record) noexcept
