# See queue_contents.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.bookmark_index cimport PublisherMap
from amps._core.queue_heap cimport Heap
from amps._core.queue_list cimport MessageList
from amps._core.queue_members cimport Membership
from amps._core.queue_output cimport QueueOutput


cdef enum:
    NO_PUBLISHER = 0xFFFFFFFF
    STALE_MAX = 64                 # stale entries of a heap that are put up with, whatever its size


cdef enum ExpirationModel:
    EXPIRATION_DEFAULT = 0
    EXPIRATION_QUEUE = 1
    EXPIRATION_LATEST = 2
    EXPIRATION_EARLIEST = 3


# A message that enters a queue.
cdef struct NewMessage:
    uint64_t position
    uint64_t publisher_id
    uint64_t sequence
    uint64_t timestamp_ns          # UNIX time at which this instance processed it
    uint64_t priority
    uint32_t publisher             # number of the publisher id
    uint32_t expiration_s          # as published; 0 = never, NO_EXPIRATION = none given
    bint has_priority
    bint is_barrier


cdef class QueueShared:
    """What all queues of an instance share."""

    cdef QueueOutput output
    cdef readonly list queues              # Queue, by number
    cdef list memberships                  # by number; None = not in use
    cdef list free_memberships
    cdef list dirty                        # queues that have to be served
    cdef Heap timers                       # of queues, by the time at which they have something to do
    cdef PublisherMap publisher_numbers
    cdef uint64_t* publisher_ids
    cdef uint32_t publisher_count
    cdef uint32_t publisher_capacity
    # Acknowledgements that wait for their messages, of all queues, and how many may. What the core reads in its log is
    # taken in any case.
    cdef uint64_t deferred
    cdef dict deferred_by_client           # client -> how many; of those whose connections stand
    cdef uint64_t deferred_max
    cdef uint64_t deferred_per_client_max

    cdef uint32_t publisher(self, uint64_t publisher_id) except? 0xFFFFFFFF
    cdef uint32_t known_publisher(self, uint64_t publisher_id) noexcept
    cdef uint64_t publisher_id(self, uint32_t number) noexcept nogil
    cdef int expects(self, QueueContents queue, uint64_t due_ns) except -1
    cdef int forget_membership(self, Membership member) except -1
    cdef int note_deferred(self, client) except -1
    cdef int note_undeferred(self, client) except -1
    cdef int forget_deferring(self, client) except -1
    cdef bint may_defer(self, client, uint64_t count) except -1


cdef class QueueContents(MessageList):
    cdef readonly object settings
    cdef bint at_least_once
    cdef int expiration_model
    cdef uint64_t expiration_ns            # NEVER = no default
    cdef uint64_t target_depth
    cdef uint64_t deferred_ns
    cdef QueueShared shared
    cdef QueueOutput output
    cdef uint64_t now_ns                   # as it was told last
    cdef uint64_t expected_ns              # when its timer rings; NEVER = it has none
    cdef Heap barriers
    cdef Heap expiries                     # of messages whose time does not pass in the order of the log
    cdef uint32_t expiry_next              # the first slot whose time may pass next, of those in the order of the log
    cdef uint32_t inactive_next
    cdef dict deferred                     # (publisher id, sequence) -> (UNIX time when it is forgotten, client)
    cdef bint dirty                        # it has to be served
    cdef public uint64_t start_position    # records before it are none of its business when the log is read

    cdef int mark_dirty(self) except -1

    cdef int enqueue(self, const NewMessage* message, uint64_t now_ns) except -1
    cdef int place(self, uint32_t number, bint is_barrier) except -1
    cdef uint64_t expiry(self, const NewMessage* message, bint* own) noexcept
    cdef int remember_expiry(self, uint32_t slot) except -1
    cdef int set_available(self, uint32_t slot) except -1
    cdef int offer(self, uint32_t slot) except -1
    cdef int activate(self) except -1

    cdef int leave(self, uint32_t slot) except -1
    cdef int expire(self, uint32_t slot, uint32_t reasons) except -1
    cdef int note_removal(self, uint32_t slot, uint32_t action, uint32_t reasons) except -1
    cdef int remove_recorded(self, uint64_t position) except -1

    cdef bint defers(self, uint32_t action) noexcept nogil
    cdef int defer(self, uint64_t publisher_id, uint64_t sequence, uint64_t now_ns, client) except -1
    cdef int remember(self, tuple bookmark, until, client) except -1
    cdef tuple recall(self, tuple bookmark)
    cdef tuple bookmark(self, uint32_t slot)
    cdef uint32_t find_since(self, uint32_t publisher, uint64_t sequence, uint64_t position) noexcept nogil

    cdef uint64_t due_ns(self) noexcept
    cdef int pass_time(self, uint64_t now_ns) except -1
    cdef int expire_own(self) except -1
    cdef int expire_in_order(self) except -1
