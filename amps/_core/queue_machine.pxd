# See queue_machine.pyx.

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from amps._core.queue_holding cimport QueueHolding
from amps._core.queue_members cimport Cursor, Membership


cdef enum Fairness:
    FAIRNESS_FAST = 0
    FAIRNESS_ROUND_ROBIN = 1
    FAIRNESS_PROPORTIONAL = 2


@cython.final
cdef class Queue(QueueHolding):
    cdef bint has_priority
    cdef int fairness
    cdef uint64_t max_backlog              # over all subscriptions
    cdef list cursors
    cdef Cursor everything                 # for subscriptions without a filter
    cdef uint64_t last_order               # of the subscription that got a message last
    cdef uint64_t wait_until_ns            # for filters to be evaluated

    cdef int offer_to(self, Cursor cursor, uint32_t slot) except -1
    cdef int gather(self, Cursor cursor) except -1

    cdef uint64_t undelivered_from(self) noexcept
    cdef int serve(self, uint64_t now_ns) except -1
    cdef bint release_barrier(self) except -1
    cdef bint look(self, Cursor cursor) except -1
    cdef bint precedes(self, uint32_t one, uint32_t other) noexcept nogil
    cdef int64_t choose(self) except -2
    cdef Membership pick(self, uint32_t slot)
    cdef int deliver(self, uint32_t slot, Membership member) except -1

    cdef int hear_match(self, Cursor cursor, uint64_t position, uint32_t hint) except -1
    cdef int heard(self, Cursor cursor, uint64_t evaluated_until, uint64_t now_ns) except -1
