# See queues/slots.pxi.

cimport cython
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from amps._core.journal.queue_records cimport QueueDelivery, QueueEntry
from amps._core.journal.writer cimport PublisherMap
from amps._core.queues.slots cimport NO_BLOCK, QueueBlock, QueueCounters, QueueSlot


cdef uint64_t NEVER                # as a time: never


cdef class QueueArena:
    cdef object memory
    cdef QueueSlot* slots
    cdef QueueBlock* blocks
    cdef readonly uint32_t block_capacity
    cdef readonly uint32_t blocks_used     # blocks taken at least once
    cdef uint32_t blocks_ready             # blocks whose memory is allocated
    cdef uint32_t first_free               # head of the list of free blocks
    cdef uint32_t free_count
    cdef object make_room
    cdef readonly object obstacle          # reason of the last failed allocation of a block; None = none failed
    cdef readonly uint64_t refusals        # number of failed allocations
    cdef uint32_t** key_hashes             # by block, for queues with an OrderingKey; see queues/ordering.pxi

    cdef bint ensure(self, uint32_t count) except -1
    cdef uint32_t take_block(self, uint32_t queue) except? NO_BLOCK
    cdef uint32_t next_slot(self, uint32_t slot) noexcept nogil
    cdef void give_back(self, uint32_t block) noexcept nogil


# A heap of slots, in the order of delivery or of expiry. See queues/heap.pxi.


cdef struct HeapEntry:
    uint64_t rank                  # ascending,
    uint64_t position              # then by log position
    uint32_t slot
    uint32_t last                  # 1: behind all entries with 0


cdef struct Heap:
    HeapEntry* entries
    uint64_t count
    uint64_t capacity


cdef inline bint comes_before(const HeapEntry* one, const HeapEntry* other) noexcept nogil:
    if one.last != other.last:
        return one.last < other.last
    if one.rank != other.rank:
        return one.rank < other.rank
    return one.position < other.position


cdef int heap_push(Heap* heap, uint64_t rank, uint64_t position, uint32_t slot, uint32_t last) except -1
cdef void heap_pop(Heap* heap) noexcept nogil
cdef void heap_free(Heap* heap) noexcept nogil


# See queues/members.pxi.


cdef class Subscriber:
    """A subscription in the core, with one backlog over all its queues."""

    cdef readonly uint32_t transport
    cdef readonly uint32_t number          # number of the subscription in its transport
    cdef readonly uint64_t client          # client key: the same for all subscriptions of a connection
    cdef readonly uint64_t order           # order of creation; a replacement keeps it
    cdef readonly uint64_t limit           # effective backlog
    cdef readonly uint64_t outstanding     # messages delivered and not acknowledged
    cdef readonly object shown             # subscription id, topic, filter: texts for status reports
    cdef list memberships                  # in queues that deliver to it
    cdef list alive                        # `memberships`, and those that only hold messages


cdef class Membership:
    """A subscription in one queue. It exists while it is current or holds messages."""

    cdef readonly uint32_t number          # index in the list of memberships; slots name their holder by it
    cdef readonly Subscriber subscriber
    cdef readonly uint32_t queue
    cdef Cursor cursor
    cdef bint current                      # it gets messages; False after a replacement without this queue
    cdef uint32_t first                    # first of the slots that it holds, in the order of lease ends
    cdef uint32_t last
    cdef uint64_t held


cdef class Cursor:
    """The next messages for the subscriptions of one queue that share a filter."""

    cdef readonly object key               # (transport, filter key); None: no filter
    cdef readonly uint32_t number
    cdef QueueArena arena
    cdef bint takes_all                    # no filter: every available message matches
    cdef uint64_t members                  # number of subscriptions that share it
    cdef uint64_t ready                    # number of these with room for a message
    cdef Heap heap                         # slots that match and were available when entered
    cdef uint32_t fresh                    # takes_all: the first slot not checked yet; NO_SLOT = none
    cdef readonly uint64_t evaluated_until  # log position up to which the filter is evaluated
    cdef dict matches                      # block -> bitmap of the slots that match
    cdef uint32_t top                      # the slot to deliver next
    cdef uint64_t last_delivered_position  # log position of the last delivered message; 0 = none
    cdef uint64_t heard_ns                 # time of the last matches received, or when it began to wait

    cdef bint has_match(self, uint32_t slot)
    cdef int note_match(self, uint32_t slot) except -1
    cdef int forget_block(self, uint32_t block) except -1


# See queues/delays.pxi.


cdef class DelayOrder:
    cdef QueueSlot* slots                  # of the arena
    cdef readonly uint64_t next_ns         # UNIX time at which the first delayed message becomes available; NEVER
    cdef bint used                         # a message was delayed since the start
    cdef Heap heap                         # delayed messages, by that time
    cdef uint64_t cancel_ns                # delay of a message at its first cancel; 0 = none
    cdef double cancel_factor              # by which the delay grows with each further cancel
    cdef uint64_t cancel_max_ns

    cdef int add(self, uint32_t slot, uint64_t delayed) except -1
    cdef uint32_t take(self, uint64_t now_ns) noexcept
    cdef void drop_stale(self) noexcept
    cdef bint waits(self, const HeapEntry* entry) noexcept nogil
    cdef int gather(self) except -1
    cdef uint64_t after_cancel(self, uint32_t cancels, uint64_t requested_ns) noexcept nogil


# See queues/lease_order.pxi.


# A lease: its message and its beginning. Stale once the lease has ended.
cdef struct GivenLease:
    uint64_t began_ns
    uint32_t slot
    uint32_t unused


cdef class LeaseOrder:
    cdef QueueSlot* slots                  # of the arena
    cdef readonly uint64_t oldest_ns       # UNIX time at which the oldest lease began; NEVER = no lease
    cdef uint64_t period_ns                # of the queue; 0 = leases do not end
    cdef GivenLease* given                 # in the order in which they began: given[first .. first + count]
    cdef uint64_t first
    cdef readonly uint64_t count           # including stale entries; the first entry is never stale
    cdef readonly uint64_t capacity
    cdef dict extended                     # slot -> UNIX time at which its lease began; extended leases only

    cdef uint64_t began_ns(self, uint32_t slot) except? 0
    cdef int give(self, uint32_t slot, uint64_t now_ns, uint64_t leased) except -1
    cdef int extend(self, uint32_t slot) except -1
    cdef int end(self, uint32_t slot) except -1
    cdef bint lasts(self, const GivenLease* lease) except -1
    cdef int make_room(self, uint64_t leased) except -1


# See queues/milestones.pxi.


cdef enum:
    MILESTONES_PER_PAGE = 254


cdef struct MilestonePage:
    uint32_t count
    uint32_t[MILESTONES_PER_PAGE] slots


cdef class Milestones:
    cdef QueueSlot* slots                  # of the arena
    cdef uint32_t** hashes                 # of the arena
    cdef MilestonePage** pages
    cdef readonly uint64_t page_count
    cdef uint64_t page_capacity

    cdef uint32_t hash_of(self, uint32_t slot) noexcept nogil
    cdef bint is_before(self, uint32_t slot, uint32_t hash_, uint64_t position) noexcept nogil
    cdef uint64_t page_for(self, uint32_t hash_, uint64_t position) noexcept nogil
    cdef uint32_t place_in(self, const MilestonePage* page, uint32_t hash_, uint64_t position) noexcept nogil
    cdef void around(self, uint32_t slot, uint32_t* before, uint32_t* behind) noexcept nogil
    cdef void add(self, uint32_t slot) noexcept nogil
    cdef void remove(self, uint32_t slot) noexcept nogil
    cdef bint insert_page(self, uint64_t number) noexcept nogil
    cdef void drop_page(self, uint64_t number) noexcept nogil
    cdef bint split(self, uint64_t number) noexcept nogil
    cdef void join(self, uint64_t number) noexcept nogil


# See queues/ordering.pxi.


# A part of the keys: those whose hashes have the same leading bits.
cdef struct KeySegment:
    uint32_t* entries              # slots, by a place that the hash gives; NO_SLOT = free
    uint32_t capacity
    uint32_t count
    uint32_t depth                 # number of these bits
    uint32_t unused


cdef class OrderingKeys:
    """The keys of one queue with an OrderingKey, and the messages that wait behind their heads."""

    cdef QueueArena arena
    cdef QueueSlot* slots                  # of the arena
    cdef uint32_t** hashes                 # of the arena
    cdef KeySegment** directory            # by the first `depth` bits of the hash; a segment may be there several times
    cdef uint32_t depth
    cdef readonly uint64_t count           # keys
    cdef readonly uint64_t steps           # of all searches for the places of waiting messages, for tests
    cdef readonly Milestones milestones    # None: no message was delayed since the start

    cdef int take_block(self, uint32_t block) except -1
    cdef void forget_block(self, uint32_t block) noexcept nogil
    cdef uint32_t hash_of(self, uint32_t slot) noexcept nogil
    cdef void set_hash(self, uint32_t slot, uint32_t hash_) noexcept nogil
    cdef int expect_delays(self) except -1
    cdef uint32_t join(self, uint32_t slot) except? 0xFFFFFFFF
    cdef uint32_t take_over(self, uint32_t slot) except? 0xFFFFFFFF
    cdef uint32_t head_of(self, uint32_t last) noexcept nogil
    cdef uint32_t first_waiting(self, uint32_t slot) noexcept nogil
    cdef void replace_head(self, uint32_t* entry, uint32_t head, uint32_t slot) noexcept nogil
    cdef uint32_t place_behind(self, uint32_t last, uint32_t slot) noexcept nogil
    cdef void wait_behind(self, uint32_t* entry, uint32_t before, uint32_t slot) noexcept nogil
    cdef void insert_behind(self, uint32_t before, uint32_t slot) noexcept nogil
    cdef void now_waits(self, uint32_t slot) noexcept nogil
    cdef void waits_no_longer(self, uint32_t slot) noexcept nogil
    cdef uint32_t leave(self, uint32_t slot) noexcept nogil
    cdef KeySegment* segment_of(self, uint32_t hash_) noexcept nogil
    cdef uint32_t* find(self, uint32_t hash_) noexcept nogil
    cdef void erase(self, uint32_t* entry, KeySegment* segment) noexcept nogil
    cdef void put(self, uint32_t* entries, uint32_t capacity, uint32_t slot) noexcept nogil
    cdef void move(self, KeySegment* segment, uint32_t* entries, uint32_t capacity) noexcept nogil
    cdef void shrink(self, KeySegment* segment) noexcept nogil
    cdef int make_room(self, uint32_t hash_) except -1
    cdef int split(self, KeySegment* segment, uint32_t hash_) except -1
    cdef int double_directory(self) except -1


# See queues/ownerships.pxi.


cdef struct Ownership:
    uint32_t owner                 # number of an instance; 0 = this one
    uint32_t epoch
    uint32_t references            # slots that have this ownership
    uint32_t is_proxied


cdef class Ownerships:
    cdef Ownership* table
    cdef uint32_t capacity
    cdef uint32_t count                    # ownerships that were used at least once
    cdef dict numbers                      # (owner, epoch, is proxied) -> number in the table
    cdef list unused                       # numbers that are free
    cdef uint32_t recent                   # the number that was taken last
    cdef readonly list names               # of instances, by number
    cdef dict owners                       # name -> number
    cdef bytearray reachable               # by number of an instance: 1 = it can be reached

    cdef uint32_t owner(self, str name) except? 0xFFFFFFFF
    cdef bint is_reachable(self, uint32_t owner) except -1
    cdef uint16_t _append(self, uint32_t owner, uint32_t epoch, bint is_proxied) except? 0xFFFF
    cdef uint16_t take(self, uint32_t owner, uint32_t epoch, bint is_proxied) except? 0xFFFF
    cdef bint _is_recent(self, uint32_t owner, uint32_t epoch, bint is_proxied) noexcept nogil
    cdef int give_back(self, uint16_t number) except -1
    cdef bint supersedes(self, uint32_t owner, uint32_t epoch, bint is_proxied, uint16_t number) except -1


# See queues/bookmark_table.pxi.


cdef struct TableEntry:
    uint32_t slot                  # NO_SLOT = free
    uint32_t hash_                 # of the bookmark of the slot


# The entries of the bookmarks whose hashes have the same leading bits.
cdef struct TablePart:
    TableEntry* entries
    uint32_t capacity
    uint32_t count
    uint32_t depth                 # number of these bits
    uint32_t unused


@cython.final
cdef class BookmarkTable:
    cdef QueueSlot* slots                  # of the arena
    cdef TablePart** directory             # by the first `depth` bits of the hash; a part may be there several times
    cdef uint32_t depth
    cdef readonly uint64_t count
    cdef uint64_t seed

    cdef uint32_t hash_of(self, uint32_t publisher, uint64_t sequence) noexcept nogil
    cdef TablePart* part_of(self, uint32_t hash_) noexcept nogil
    cdef uint32_t find(self, uint32_t publisher, uint64_t sequence) noexcept nogil
    cdef int add(self, uint32_t slot) except -1
    cdef int remove(self, uint32_t slot) except -1
    cdef int _split(self, TablePart* part, uint32_t hash_) except -1


# See queues/span.pxi.


cdef class Queue


cdef class Candidates:
    cdef bint by_priority
    cdef uint64_t count_max
    cdef list entries
    cdef QueueSlot worst                   # flags, priority and position of the last one that is kept, if `has_worst`
    cdef bint has_worst
    cdef bint was_cut                      # some were found that are not among the best

    cdef bint stops_walk(self)
    cdef int add(self, uint32_t owner, uint32_t slot, const QueueSlot* message) except -1
    cdef int _cut(self) except -1
    cdef list best(self)


cdef class QueueSpan:
    cdef Queue queue
    cdef QueueSlot* slots                  # of the arena
    cdef readonly Ownerships ownerships    # of all queues
    cdef readonly BookmarkTable bookmarks
    cdef readonly uint32_t domain          # see QueueAcknowledgementHeader
    cdef int64_t initial_owner             # number of an instance; -1 = the instance of the publish
    cdef readonly dict early               # (publisher id, sequence) -> (owner, epoch, is proxied, end in UNIX ns)
    cdef readonly bint is_proxied          # this instance may act for owners that cannot be reached
    cdef readonly double typical_ns        # moving average of the time from a message to its acknowledgement
    # what this instance wants
    cdef uint64_t look_ns                  # when to look for messages; NEVER
    cdef uint64_t not_before_ns
    cdef uint32_t at                       # where the walk through the slots continues; NO_SLOT = at the first one
    cdef uint64_t soonest_ns               # time of the next request of a message that the walk has passed
    cdef readonly uint64_t wanted          # messages that were requested and have not come
    cdef uint64_t wanted_until_ns          # when they are no longer expected
    cdef list named                        # (slot, log position) of the messages that their requests named
    cdef QueueSlot granted                 # the last one that has come, in the order of delivery; position 0 = none
    cdef uint64_t began_ns                 # UNIX time from which times of requests in slots count; 0 = none yet

    cdef int enter(self, uint32_t slot, uint32_t origin) except -1
    cdef int restore(self, uint32_t slot, str owner, uint32_t epoch, bint is_proxied) except -1
    cdef int left(self, uint32_t slot) except -1
    cdef bint owns(self, uint32_t slot) noexcept nogil
    cdef uint32_t find(self, uint64_t publisher_id, uint64_t sequence) noexcept
    cdef int wait_for_owner(self, uint32_t slot) except -1
    cdef int acknowledged(self, uint32_t slot) except -1
    cdef int _own(self, uint32_t slot, uint32_t owner, uint32_t epoch, bint is_proxied) except -1
    cdef int transfer(self, uint32_t slot, uint32_t owner, uint32_t epoch, bint is_proxied) except -1
    cdef int transfer_early(
        self, uint64_t publisher_id, uint64_t sequence, uint32_t owner, uint32_t epoch, bint is_proxied,
        uint64_t now_ns
    ) except -1
    cdef int decide(self, uint32_t slot, uint32_t owner, bint is_proxied) except -1
    cdef int published_elsewhere(self, uint32_t slot, uint32_t origin) except -1
    cdef uint64_t grant(
        self, uint32_t requester, const uint64_t* bookmarks, uint64_t count, uint64_t wanted
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t due_ns(self) noexcept
    cdef int pass_time(self) except -1
    cdef void prompt(self) noexcept
    cdef int look_at(self, uint64_t due_ns) except -1
    cdef uint64_t room(self) except? 0xFFFFFFFFFFFFFFFF
    cdef bint look(self) except -1
    cdef int _request(self, list found, uint64_t room) except -1
    cdef int _granted(self, const QueueSlot* message) except -1
    cdef void _forget_requests(self, QueueSlot* message) noexcept nogil
    cdef uint64_t _due_ns(self, const QueueSlot* message) noexcept nogil
    cdef void _note_request(self, QueueSlot* message) noexcept nogil
    cdef void block_dropped(self, uint32_t block, uint32_t next_slot) noexcept nogil


# See queues/output.pxi.


cdef struct DeliveryBuffer:
    QueueDelivery* items
    uint64_t count
    uint64_t capacity


cdef packed struct Removal:
    uint32_t queue
    uint32_t action                # QueueAction: QUEUE_EXPIRE, _DELIVERED, _ANSWERED, _DELAYED or _TRANSFER
    # Of QUEUE_DELAYED: when the message becomes available. Of QUEUE_TRANSFER: the numbers of both owners, 32 bits each,
    # the former one first. Else 0.
    uint64_t until_ns
    QueueEntry entry


cdef class QueueOutput:
    cdef DeliveryBuffer* deliveries        # by transport
    cdef uint32_t transport_count
    cdef Removal* removals
    cdef readonly uint64_t removal_count
    cdef uint64_t removal_capacity
    cdef public bint frozen

    cdef int deliver(
        self, uint32_t transport, uint32_t subscription, uint32_t queue, uint32_t slot, uint64_t position,
        uint64_t lease_until_ns, uint32_t flags
    ) except -1
    cdef int remove(
        self, uint32_t queue, uint32_t action, uint64_t publisher_id, uint64_t sequence, uint64_t position,
        uint32_t deliveries, uint32_t reasons
    ) except -1
    cdef int delay(
        self, uint32_t queue, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t deliveries,
        uint64_t until_ns
    ) except -1
    cdef int transfer(
        self, uint32_t queue, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t owner_before,
        uint32_t owner, uint32_t epoch, bint is_proxied
    ) except -1


# Of queues/queue.pxi and queues/queue_shared.pxi.


cdef enum:
    NO_PUBLISHER = 0xFFFFFFFF
    STALE_MAX = 64                 # stale entries that a heap may have, regardless of its size


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
    uint64_t expiry_ns             # UNIX time at which its own lifetime ends; NEVER; 0 = it has none of its own
    uint64_t priority
    uint64_t deliver_at_ns         # UNIX time before which it is not available; 0 = it is not delayed
    uint32_t publisher             # number of the publisher id
    uint32_t key_hash              # of its OrderingKey; 0 = it has no key
    uint32_t origin                # number of the instance to which it was published: queues/ownerships.pxi
    bint has_priority
    bint is_barrier


# See queues/expiries.pxi.


cdef class ExpiryOrder:
    cdef QueueArena arena
    cdef QueueSlot* slots                  # of the arena
    cdef int model                         # ExpirationModel
    cdef uint64_t lifetime_ns              # of the queue's messages; NEVER = no default
    cdef Heap heap                         # of messages that do not expire in the order of the log
    cdef uint32_t next                     # the first slot that may expire next in the order of the log; NO_SLOT

    cdef uint64_t expiry(self, const NewMessage* message, bint* own) noexcept
    cdef int add(self, uint32_t slot, uint64_t live) except -1
    cdef uint64_t due_ns(self) noexcept nogil
    cdef uint32_t take(self, uint64_t now_ns) noexcept nogil
    cdef bint may_expire(self, uint32_t slot) noexcept nogil
    cdef void block_dropped(self, uint32_t block, uint32_t next_slot) noexcept nogil
    cdef int gather(self) except -1


cdef class QueueShared:
    """The state that all queues of an instance share."""

    cdef QueueOutput output
    cdef readonly Ownerships ownerships
    cdef list wishes                       # requests to other owners: (queue, name, bookmarks, how many are wanted)
    cdef readonly list queues              # Queue, by number
    cdef list memberships                  # by number; None = not in use
    cdef list free_memberships
    cdef list dirty                        # queues to serve
    cdef Heap timers                       # queues, by the time of their next timed work
    cdef PublisherMap publisher_numbers
    cdef uint64_t* publisher_ids
    cdef uint32_t publisher_count
    cdef uint32_t publisher_capacity
    # Deferred acknowledgements of all queues, and their limits. The limits do not apply to acknowledgements that the
    # core reads from its log.
    cdef uint64_t deferred
    cdef dict deferred_by_client           # client -> count; connected clients only
    cdef uint64_t deferred_max
    cdef uint64_t deferred_per_client_max

    cdef uint32_t publisher(self, uint64_t publisher_id) except? 0xFFFFFFFF
    cdef uint32_t known_publisher(self, uint64_t publisher_id) noexcept
    cdef uint64_t publisher_id(self, uint32_t number) noexcept nogil
    cdef int expects(self, Queue queue, uint64_t due_ns) except -1
    cdef int forget_membership(self, Membership member) except -1
    cdef int note_deferred(self, client) except -1
    cdef int note_undeferred(self, client) except -1
    cdef int forget_deferring(self, client) except -1
    cdef bint may_defer(self, client, uint64_t count) except -1


# The effect of an acknowledgement on one message.
cdef enum Outcome:
    OUTCOME_NOT_FOUND = 0          # the message is not in the queue
    OUTCOME_REFUSED = 1            # leased to another client, and leasing is strict
    OUTCOME_NOTHING = 2            # found; nothing to do
    OUTCOME_RETURNED = 3           # the message is available again, or will be after a delay
    OUTCOME_FREED = 4              # delivered at most once: removed from its backlog
    OUTCOME_REMOVED = 5            # it has left the queue; the journal must record that
    OUTCOME_EXPIRED = 6            # a cancel reached a limit: removed, and noted in the output
    OUTCOME_DEFERRED = 7           # kept until the message enters or becomes active
    OUTCOME_EXTENDED = 8


# See queues/queue.pxi.


cdef enum Fairness:
    FAIRNESS_FAST = 0
    FAIRNESS_ROUND_ROBIN = 1
    FAIRNESS_PROPORTIONAL = 2


@cython.final
cdef class Queue:
    # the messages in the order of the log
    cdef readonly uint32_t number
    cdef QueueArena arena
    cdef QueueSlot* slots                  # of the arena
    cdef QueueCounters* counters
    cdef object counters_memory
    cdef uint32_t* blocks                  # in the order of the log: blocks[first_block .. first_block + block_count]
    cdef uint64_t first_block
    cdef readonly uint64_t block_count
    cdef uint64_t block_capacity
    cdef readonly uint64_t live            # slots that are not gone
    cdef uint32_t head                     # the oldest slot that is not gone; NO_SLOT = none
    # messages enter, wait, run out of time, and leave
    cdef readonly object settings
    cdef bint at_least_once
    cdef uint64_t target_depth
    cdef uint64_t deferred_ns
    cdef QueueShared shared
    cdef QueueOutput output
    cdef uint64_t now_ns                   # the time last passed by a caller
    cdef uint64_t expected_ns              # when its timer is due; NEVER = no timer
    cdef Heap barriers
    cdef uint32_t inactive_next
    cdef dict deferred                     # (publisher id, sequence) -> (UNIX time of its expiration, client)
    cdef readonly DelayOrder delays        # messages that wait for a time
    cdef bint dirty                        # it is in the list of queues to serve
    cdef ExpiryOrder expiries
    cdef readonly OrderingKeys keys        # None: the queue has no OrderingKey
    cdef readonly QueueSpan span           # None: the queue is one of this instance alone
    cdef public uint64_t start_position    # recovery ignores records before this log position
    # who holds which messages
    cdef bint strict
    cdef uint64_t lease_period_ns          # 0 = leases do not end
    cdef readonly uint64_t member_limit
    cdef uint64_t max_deliveries           # 0 = no limit
    cdef uint64_t max_cancels
    cdef readonly list members             # Membership, in the order in which their subscriptions were made
    cdef list holders                      # members that hold messages or are current
    cdef uint64_t ready                    # number of members with room for a message
    cdef uint64_t lease_due_ns             # no lease ends before this time
    cdef readonly LeaseOrder leases        # leases by the time of their beginning
    # which message goes to which subscription
    cdef bint has_priority
    cdef int fairness
    cdef uint64_t max_backlog              # over all subscriptions
    cdef list cursors
    cdef Cursor everything                 # for subscriptions without a filter
    cdef uint64_t last_order               # order of the subscription that got the last message
    cdef uint64_t wait_until_ns            # until when delivery waits for filters to be evaluated

    # the messages in the order of the log
    cdef uint32_t append(self, uint64_t position) except? 0xFFFFFFFF
    cdef uint32_t find(self, uint64_t position, uint32_t hint) noexcept nogil
    cdef int gone(self, uint32_t slot) except -1
    cdef int drop_block(self, uint64_t place) except -1
    cdef int block_dropped(self, uint32_t block, uint32_t next_slot) except -1
    cdef uint64_t place_of_block(self, uint64_t position) noexcept nogil

    # messages enter, wait, run out of time, and leave
    cdef int mark_dirty(self) except -1
    cdef int enqueue(self, const NewMessage* message, uint64_t now_ns) except -1
    cdef int place(self, uint32_t number, bint is_barrier, uint64_t deliver_at_ns, bint is_head) except -1
    cdef int set_available(self, uint32_t slot) except -1
    cdef int offer(self, uint32_t slot) except -1
    cdef int open_(self, uint32_t slot) except -1
    cdef int promote(self, uint32_t slot) except -1
    cdef int make_available(self, uint32_t slot) except -1
    cdef int come_back(self, uint32_t slot) except -1
    cdef int activate(self) except -1
    cdef int activate_next(self) except -1
    cdef int activate_until(self, uint32_t slot) except -1
    cdef int leave(self, uint32_t slot) except -1
    cdef int expire(self, uint32_t slot, uint32_t reasons) except -1
    cdef int note_removal(self, uint32_t slot, uint32_t action, uint32_t reasons) except -1
    cdef int remove_recorded(self, uint64_t position, uint32_t hint) except -1
    cdef int remove_replicated(self, uint32_t slot, uint64_t now_ns) except -1
    cdef int drop_barriers(self, uint64_t position) except -1
    cdef bint defers(self, uint32_t action) noexcept nogil
    cdef int defer(self, uint64_t publisher_id, uint64_t sequence, uint64_t now_ns, client) except -1
    cdef int remember(self, tuple bookmark, until, client) except -1
    cdef tuple recall(self, tuple bookmark)
    cdef tuple bookmark(self, uint32_t slot)
    cdef uint32_t find_since(self, uint32_t publisher, uint64_t sequence, uint64_t position) noexcept nogil
    cdef int delay(self, uint32_t slot, uint64_t until_ns) except -1
    cdef int become_head(self, uint32_t slot) except -1
    cdef int end_delays(self) except -1
    cdef int delay_recorded(self, uint64_t position, uint64_t until_ns) except -1
    cdef uint64_t due_ns(self) noexcept
    cdef int pass_time(self, uint64_t now_ns) except -1

    # who holds which messages
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
    cdef int give_back(self, uint32_t slot, bint cancelled, uint64_t delay_ns) except -1
    cdef int return_all(self, Membership member, uint64_t now_ns) except -1
    cdef int add_member(self, Membership member) except -1
    cdef int drop_member(self, Membership member) except -1
    cdef int member_became(self, Membership member, bint ready) except -1
    cdef int end_leases(self) except -1

    # which message goes to which subscription
    cdef int offer_to(self, Cursor cursor, uint32_t slot) except -1
    cdef int gather(self, Cursor cursor) except -1
    cdef uint64_t undelivered_from(self) noexcept
    cdef bint is_wanted(self, uint32_t slot) except -1
    cdef bint may_take(self, uint32_t slot) except -1
    cdef int serve(self, uint64_t now_ns) except -1
    cdef bint release_barrier(self) except -1
    cdef bint look(self, Cursor cursor) except -1
    cdef bint precedes(self, uint32_t one, uint32_t other) noexcept nogil
    cdef int64_t choose(self) except -2
    cdef Membership pick(self, uint32_t slot)
    cdef int deliver(self, uint32_t slot, Membership member) except -1
    cdef int hear_match(self, Cursor cursor, uint64_t position, uint32_t hint) except -1
    cdef int heard(self, Cursor cursor, uint64_t evaluated_until, uint64_t now_ns) except -1
