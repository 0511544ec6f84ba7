# What goes out to one connection. See delivery/output.pyx.

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.journal.reader cimport LogCursor
from amps._core.journal.record cimport RecordHeader


@cython.final
cdef class OutputBuffer:
    cdef bytes chunk
    cdef uint8_t* start
    cdef uint64_t used
    cdef uint64_t capacity
    cdef list sealed
    cdef readonly uint64_t pending_bytes       # collected since the last take
    cdef uint64_t taken_bytes                  # handed over by all takes
    cdef uint64_t paced_until                  # place in the stream where the last paced message ends
    cdef uint64_t lease_until_ns               # of the next message with WANT_LEASE: UNIX time; 0 = it has no end
    cdef object on_first
    cdef bint closed                           # nothing is collected any more
    cdef uint64_t publisher_id                 # whose bookmarks `bookmark_start` begins
    cdef uint8_t bookmark_start[32]            # the header's field up to the sequence number: neighbours share it
    cdef uint32_t bookmark_start_length

    cdef int tell(self) except -1
    cdef int begin_chunk(self, uint64_t length) except -1
    cdef int seal(self) except -1
    cdef void begin_bookmarks(self, uint64_t publisher_id) noexcept
    cdef int publish(
        self, const char* prefix, uint64_t prefix_length, uint32_t flags, const RecordHeader* record, LogCursor cursor
    ) except -1
