# See queue_members.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_heap cimport Heap
from amps._core.queue_slots cimport QueueArena


cdef class Subscriber:
    """A subscription, as the core knows it: one backlog over all the queues that it is for."""

    cdef readonly uint32_t transport
    cdef readonly uint32_t number          # the transport's number of it
    cdef readonly uint64_t client          # whose it is: the same for all of a connection
    cdef readonly uint64_t order           # of creation; replacing it does not change that
    cdef readonly uint64_t limit           # effective backlog
    cdef readonly uint64_t outstanding     # delivered and not acknowledged
    cdef readonly object shown             # subscription id, topic, filter: texts for those who look at it
    cdef list memberships                  # in queues that it gets messages from now
    cdef list alive                        # these, and those in queues from which it only holds messages


cdef class Membership:
    """A subscription in one queue. It lives as long as it is current, or holds messages."""

    cdef readonly uint32_t number          # its place in the book's list, what slots call their holder
    cdef readonly Subscriber subscriber
    cdef readonly uint32_t queue
    cdef Cursor cursor
    cdef bint current                      # it gets messages; not if a replacement moved on to other queues
    cdef uint32_t first                    # what it holds: slots, in the order in which their leases end
    cdef uint32_t last
    cdef uint64_t held


cdef class Cursor:
    """What the subscriptions of one queue with the same filter may get next."""

    cdef readonly object key               # None: without a filter
    cdef readonly uint32_t number
    cdef QueueArena arena
    cdef bint takes_all                    # there is no filter: all that is available matches
    cdef uint64_t members                  # subscriptions that share it
    cdef uint64_t ready                    # of these, how many may get a message
    cdef Heap heap                         # slots that match and were available when they were entered
    cdef uint32_t fresh                    # takes_all: the first slot that was not looked at; NO_SLOT = none
    cdef readonly uint64_t evaluated_until  # log position up to which it is known what matches
    cdef dict matches                      # by block: a bit per slot, whether it matches
    cdef uint32_t top                      # the slot that it would deliver next
    cdef uint64_t last_delivered_position  # log position of what it delivered last; 0 = nothing yet
    cdef uint64_t heard_ns                 # when it last heard what matches, or began to wait for that

    cdef bint has_match(self, uint32_t slot)
    cdef int note_match(self, uint32_t slot) except -1
    cdef int forget_block(self, uint32_t block) except -1
