# Acknowledgements of queue messages on their way to the core. See queue_acks.pyx.

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.queue_leases cimport LeaseTable
from amps._core.queue_records cimport QueueEntry
from amps._core.record cimport RecordHeader
from amps._core.wire cimport HeaderView


cdef enum:
    ENTRIES_PER_RECORD = 4096      # longer lists become several records


# Whose acknowledgement it is, and of what: the parts of its record besides the entries.
cdef struct Acknowledging:
    uint32_t slot
    uint32_t serial
    uint32_t topic                 # number of the queue's name
    uint32_t action                # QueueAction
    uint64_t extension_ns
    uint64_t searched_until        # log position up to which entries without a position were looked for
    uint32_t token
    bint numbered                  # without a sequence it gets one from the server
    uint64_t publisher_id
    uint64_t derived_id
    uint64_t sequence


@cython.final
cdef class AckList:
    cdef QueueEntry* entries
    cdef readonly uint32_t count
    cdef uint32_t capacity
    cdef readonly uint32_t unknown  # entries without a log position

    cdef bint parse(self, const uint8_t* text, uint64_t length, LeaseTable leases, uint32_t queue) except -1
    cdef int append(self, uint64_t publisher_id, uint64_t sequence, LeaseTable leases, uint32_t queue) except -1
    cdef int put(self, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t slot) except -1
    cdef void end_leases(self, LeaseTable leases, uint32_t queue) noexcept
    cdef list records(self, Acknowledging* about)


cdef bint read_plain(const HeaderView* view, Acknowledging* about) noexcept nogil
cdef uint64_t acknowledgement_length(const Acknowledging* about, uint32_t count) noexcept nogil
cdef void lay_out(
    RecordHeader* record, const Acknowledging* about, const QueueEntry* entries, uint32_t count
) noexcept nogil
