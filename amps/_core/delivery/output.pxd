# The output buffer of a connection. See delivery/output.pyx.

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.journal.reader cimport LogCursor, LogFile
from amps._core.journal.record cimport RecordHeader


@cython.final
cdef class OutputBuffer:
    cdef bytes chunk
    cdef uint8_t* start
    cdef uint64_t used
    cdef uint64_t capacity
    cdef list sealed
    cdef readonly uint64_t pending_bytes       # bytes collected since the last take
    cdef uint64_t taken_bytes                  # bytes returned by all takes
    cdef uint64_t paced_until                  # place in the stream where the last paced message ends
    cdef uint64_t lease_until_ns               # UNIX time, for the next message with WANT_LEASE; 0 = no end
    cdef object on_first
    cdef bint closed                           # no more output is accepted
    cdef uint64_t publisher_id                 # publisher id of `bookmark_start`
    cdef uint8_t bookmark_start[32]            # bookmark field up to the sequence; consecutive messages share it
    cdef uint32_t bookmark_start_length

    cdef int tell(self) except -1
    cdef int begin_chunk(self, uint64_t length) except -1
    cdef int seal(self) except -1
    cdef int add(self, const uint8_t* data, uint64_t length) except -1
    cdef void begin_bookmarks(self, uint64_t publisher_id) noexcept
    cdef int publish(
        self, const char* prefix, uint64_t prefix_length, uint32_t flags, const RecordHeader* record, LogCursor cursor
    ) except -1
    cdef int publish_body(
        self, const char* prefix, uint64_t prefix_length, uint32_t flags, const RecordHeader* record,
        const uint8_t* payload, uint64_t payload_length, LogFile file,
    ) except -1
    cdef int out_of_focus(
        self, const char* prefix, uint64_t prefix_length, uint32_t flags, bytes reason, uint64_t key,
        const RecordHeader* record, const uint8_t* payload, uint64_t payload_length,
    ) except -1


cdef uint32_t write_timestamp(uint8_t* at, uint64_t timestamp_ns) noexcept nogil
