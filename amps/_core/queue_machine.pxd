# See queue_machine.pyx.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from amps._core.bookmark_index cimport PublisherMap
from amps._core.queue_heap cimport Heap
from amps._core.queue_lease_order cimport LeaseOrder
from amps._core.queue_list cimport MessageList
from amps._core.queue_members cimport Cursor, Membership, Subscriber
from amps._core.queue_output cimport QueueOutput


cdef enum:
    NO_PUBLISHER = 0xFFFFFFFF


cdef enum Fairness:
    FAIRNESS_FAST = 0
    FAIRNESS_ROUND_ROBIN = 1
    FAIRNESS_PROPORTIONAL = 2


cdef enum ExpirationModel:
    EXPIRATION_DEFAULT = 0
    EXPIRATION_QUEUE = 1
    EXPIRATION_LATEST = 2
    EXPIRATION_EARLIEST = 3


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

    cdef uint32_t publisher(self, uint64_t publisher_id) except? 0xFFFFFFFF
    cdef uint32_t known_publisher(self, uint64_t publisher_id) noexcept
    cdef uint64_t publisher_id(self, uint32_t number) noexcept nogil
    cdef int expects(self, Queue queue, uint64_t due_ns) except -1
    cdef int count_backlog(self, Subscriber subscriber, int change) except -1
    cdef int forget_membership(self, Membership member) except -1


cdef class Queue(MessageList):
    cdef readonly object settings
    cdef bint at_least_once
    cdef bint strict
    cdef bint has_priority
    cdef int fairness
    cdef int expiration_model
    cdef uint64_t lease_period_ns          # 0 = leases do not end
    cdef uint64_t max_backlog              # over all subscriptions
    cdef readonly uint64_t member_limit
    cdef uint64_t expiration_ns            # NEVER = no default
    cdef uint64_t max_deliveries           # 0 = no limit
    cdef uint64_t max_cancels
    cdef uint64_t target_depth
    cdef uint64_t deferred_ns
    cdef QueueShared shared
    cdef QueueOutput output
    cdef uint64_t now_ns                   # as it was told last
    cdef uint64_t expected_ns              # when its timer rings; NEVER = it has none
    cdef uint64_t wait_until_ns            # for filters to be evaluated
    cdef readonly list members             # Membership, in the order in which their subscriptions were made
    cdef list holders                      # all that hold something or are current
    cdef list cursors
    cdef Cursor everything                 # for subscriptions without a filter
    cdef uint64_t ready                    # members that may get a message
    cdef uint64_t last_order               # of the subscription that got a message last
    cdef Heap barriers
    cdef Heap expiries                     # of messages whose time does not pass in the order of the log
    cdef uint32_t expiry_next              # the first slot whose time may pass next, of those in the order of the log
    cdef uint32_t inactive_next
    cdef uint64_t lease_due_ns             # no lease ends before
    cdef readonly LeaseOrder leases                 # by when they began
    cdef dict deferred                     # (publisher id, sequence) -> UNIX time until which it is remembered
    cdef bint dirty                        # it has to be served
    cdef public uint64_t start_position    # records before it are none of its business when the log is read

    cdef int mark_dirty(self) except -1
    cdef int enqueue(self, const NewMessage* message, uint64_t now_ns) except -1
    cdef int place(self, uint32_t number, bint is_barrier) except -1
    cdef uint64_t expiry(self, const NewMessage* message, bint* own) noexcept
    cdef int remember_expiry(self, uint32_t slot) except -1
    cdef int set_available(self, uint32_t slot) except -1
    cdef int offer(self, uint32_t slot) except -1
    cdef int offer_to(self, Cursor cursor, uint32_t slot) except -1
    cdef int gather(self, Cursor cursor) except -1
    cdef int leave(self, uint32_t slot) except -1
    cdef int expire(self, uint32_t slot, uint32_t reasons) except -1
    cdef int note_removal(self, uint32_t slot, uint32_t action, uint32_t reasons) except -1
    cdef int activate(self) except -1
    cdef tuple bookmark(self, uint32_t slot)
    cdef int remove_recorded(self, uint64_t position) except -1

    cdef int acknowledge(
        self, uint64_t client, uint64_t position, uint32_t hint, uint32_t action, uint64_t extension_ns,
        uint64_t now_ns
    ) except -1
    cdef int acknowledge_slot(
        self, uint64_t client, uint32_t slot, uint32_t action, uint64_t extension_ns, uint64_t now_ns
    ) except -1
    cdef uint32_t find_since(self, uint32_t publisher, uint64_t sequence, uint64_t position) noexcept nogil
    cdef bint defers(self, uint32_t action) noexcept nogil
    cdef int defer(self, uint64_t publisher_id, uint64_t sequence, uint64_t now_ns) except -1
    cdef Membership holder_of(self, uint32_t slot)
    cdef int hold(self, Membership member, uint32_t slot) except -1
    cdef uint64_t lease_end(self, uint32_t slot) noexcept nogil
    cdef int unhold(self, Membership member, uint32_t slot) except -1
    cdef int let_go(self, uint32_t slot) except -1
    cdef int free_delivered(self, uint32_t slot) except -1
    cdef int freed(self, Membership member) except -1
    cdef int extend(self, Membership member, uint32_t slot, uint64_t end_ns) except -1
    cdef int give_back(self, uint32_t slot, bint cancelled) except -1

    cdef int add_member(self, Membership member) except -1
    cdef int drop_member(self, Membership member) except -1
    cdef int member_became(self, Membership member, bint ready) except -1
    cdef int return_all(self, Membership member, uint64_t now_ns) except -1

    cdef uint64_t due_ns(self) noexcept
    cdef int pass_time(self, uint64_t now_ns) except -1
    cdef int end_leases(self) except -1
    cdef int expire_own(self) except -1
    cdef int expire_in_order(self) except -1

    cdef int serve(self, uint64_t now_ns) except -1
    cdef bint release_barrier(self) except -1
    cdef bint look(self, Cursor cursor) except -1
    cdef bint precedes(self, uint32_t one, uint32_t other) noexcept nogil
    cdef int64_t choose(self) except -2
    cdef Membership pick(self, uint32_t slot)
    cdef int deliver(self, uint32_t slot, Membership member) except -1

    cdef int hear_match(self, Cursor cursor, uint64_t position, uint32_t hint) except -1
    cdef int heard(self, Cursor cursor, uint64_t evaluated_until, uint64_t now_ns) except -1
