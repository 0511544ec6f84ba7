# See queue_holding.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_contents cimport QueueContents
from amps._core.queue_lease_order cimport LeaseOrder
from amps._core.queue_members cimport Membership, Subscriber


# What an acknowledgement did with one message.
cdef enum Outcome:
    OUTCOME_NOT_FOUND = 0          # it is not in the queue
    OUTCOME_REFUSED = 1            # leased to somebody else, and leasing is strict
    OUTCOME_NOTHING = 2            # found; there was nothing to do
    OUTCOME_RETURNED = 3           # it is available again
    OUTCOME_FREED = 4              # delivered at most once: it counts in no backlog any more
    OUTCOME_REMOVED = 5            # it has left the queue; the journal must know
    OUTCOME_EXPIRED = 6            # a cancel has met a limit: removed, and the output has noted that
    OUTCOME_DEFERRED = 7           # beyond the target depth: remembered until it is reached
    OUTCOME_EXTENDED = 8


cdef class QueueHolding(QueueContents):
    cdef bint strict
    cdef uint64_t lease_period_ns          # 0 = leases do not end
    cdef readonly uint64_t member_limit
    cdef uint64_t max_deliveries           # 0 = no limit
    cdef uint64_t max_cancels
    cdef readonly list members             # Membership, in the order in which their subscriptions were made
    cdef list holders                      # all that hold something or are current
    cdef uint64_t ready                    # members that may get a message
    cdef uint64_t lease_due_ns             # no lease ends before
    cdef readonly LeaseOrder leases        # by when they began

    cdef int acknowledge_slot(
        self, uint64_t client, uint32_t slot, uint32_t action, uint64_t extension_ns, uint64_t now_ns
    ) except -1

    cdef uint64_t begin_lease(self, uint32_t slot) except? 0xFFFFFFFFFFFFFFFF
    cdef int extend(self, Membership member, uint32_t slot, uint64_t end_ns) except -1
    cdef Membership holder_of(self, uint32_t slot)
    cdef int hold(self, Membership member, uint32_t slot) except -1
    cdef uint64_t lease_end(self, uint32_t slot) noexcept nogil
    cdef int unhold(self, Membership member, uint32_t slot) except -1
    cdef int let_go(self, uint32_t slot) except -1
    cdef int free_delivered(self, uint32_t slot) except -1
    cdef int freed(self, Membership member) except -1
    cdef int count_backlog(self, Subscriber subscriber, int change) except -1
    cdef int give_back(self, uint32_t slot, bint cancelled) except -1
    cdef int return_all(self, Membership member, uint64_t now_ns) except -1

    cdef int add_member(self, Membership member) except -1
    cdef int drop_member(self, Membership member) except -1
    cdef int member_became(self, Membership member, bint ready) except -1

    cdef int end_leases(self) except -1
