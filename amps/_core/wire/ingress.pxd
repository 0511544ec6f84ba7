# The leases of one connection. See wire/leases.pxi.

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t

from amps._core.journal.queue_records cimport QueueEntry
from amps._core.journal.record cimport RecordHeader
from amps._core.wire.framing cimport HeaderView
from amps._core.wire.topics cimport TopicEntry


cdef enum:
    NO_ENTRY = 0xFFFFFFFF


cdef struct Lease:
    uint64_t publisher_id          # bookmark of the message
    uint64_t sequence
    uint64_t position              # log position of the message
    uint32_t slot                  # slot of the message in the core
    uint32_t queue                 # number of the queue; NO_ENTRY = the lease is over


@cython.final
cdef class LeaseTable:
    cdef Lease* leases             # a ring, in the order of delivery
    cdef uint32_t* index           # twice as large as the ring: place in the ring + 1; 0 = free
    cdef readonly uint64_t capacity  # entries of the ring: a power of two
    cdef uint64_t first            # count of entries removed from the ring
    cdef uint64_t next             # count of entries added to the ring
    cdef readonly uint64_t count   # leases that are not over
    cdef uint64_t count_max

    cdef const Lease* find(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue) noexcept nogil
    cdef int note(
        self, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t slot, uint32_t queue
    ) except -1
    cdef bint drop(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue) noexcept nogil
    cdef uint64_t place_of(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue) noexcept nogil
    cdef void enter(self, uint64_t at) noexcept nogil
    cdef void free_place(self, uint64_t hole) noexcept nogil
    cdef int make_room(self) except -1
    cdef int resize(self, uint64_t capacity) except -1


# Acknowledgements of queue messages for the core. See wire/acknowledgements.pxi.


cdef enum:
    ENTRIES_PER_RECORD = 4096      # longer lists become several records


# The parts of an acknowledgement's record besides its entries.
cdef struct Acknowledging:
    uint32_t slot
    uint32_t serial
    uint32_t topic                 # number of the queue's name
    uint32_t action                # QueueAction
    uint64_t extension_ns
    uint64_t searched_until        # log position up to which the journal was searched for entries without a position
    uint32_t token
    bint numbered                  # the server numbers it if it has no sequence
    uint64_t publisher_id
    uint64_t derived_id
    uint64_t sequence


@cython.final
cdef class AckList:
    cdef QueueEntry* entries
    cdef readonly uint32_t count
    cdef uint32_t capacity
    cdef readonly uint32_t unknown  # entries without a log position
    cdef readonly uint32_t malformed  # list items that are not the bookmark of a message
    cdef readonly bytes first_malformed

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


# See wire/publishes.pxi.


cdef enum:
    PART_LIMIT = 65535     # longest correlation id, user id or SOW key: records store their lengths in 16 bits


cdef inline uint32_t part_length(const HeaderView* view, int field) noexcept nogil:
    return view.field[field].length if view.present & (<uint64_t>1 << field) else 0
