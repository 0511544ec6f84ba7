# See queue_lease_order.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_slots cimport QueueSlot


# A lease that was given: which message, and when. Stale as soon as that lease is over.
cdef struct GivenLease:
    uint64_t began_ns
    uint32_t slot
    uint32_t unused


cdef class LeaseOrder:
    cdef QueueSlot* slots                  # of the arena
    cdef readonly uint64_t oldest_ns       # UNIX time at which the oldest lease began; NEVER = there is none
    cdef uint64_t period_ns                # of the queue; 0 = leases do not end
    cdef GivenLease* given                 # in the order in which they began: given[first .. first + count]
    cdef uint64_t first
    cdef readonly uint64_t count           # stale ones included; the first one never is
    cdef readonly uint64_t capacity
    cdef dict extended                     # slot -> UNIX time at which its lease began; of those that were extended

    cdef uint64_t began_ns(self, uint32_t slot) except? 0
    cdef int give(self, uint32_t slot, uint64_t now_ns, uint64_t leased) except -1
    cdef int extend(self, uint32_t slot) except -1
    cdef int end(self, uint32_t slot) except -1
    cdef bint lasts(self, const GivenLease* lease) except -1
    cdef int make_room(self, uint64_t leased) except -1
