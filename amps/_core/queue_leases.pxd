# What one connection holds of queues. See queue_leases.pyx.

cimport cython
from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    NO_ENTRY = 0xFFFFFFFF


cdef struct Lease:
    uint64_t publisher_id          # bookmark of the message
    uint64_t sequence
    uint64_t position              # its log position
    uint32_t slot                  # where the core keeps it
    uint32_t queue                 # number of the queue; NO_ENTRY = the lease is over


@cython.final
cdef class LeaseTable:
    cdef Lease* leases             # a ring, in the order of delivery
    cdef uint32_t* index           # twice as large: place in the ring + 1; 0 = nothing
    cdef readonly uint64_t capacity  # of the ring: a power of two
    cdef uint64_t first            # counts of all that ever went out of the ring, and into it
    cdef uint64_t next
    cdef readonly uint64_t count   # of leases that are not over
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
