# The layout of the queues' shared memory, which other processes read: slots, blocks of slots, counters. See
# queues/slots.pxi.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef enum:
    BLOCK_SLOTS = 1024
    NO_SLOT = 0xFFFFFFFF
    NO_BLOCK = 0xFFFFFFFF

# The state of a message in a queue (queues.md §19).
cdef enum SlotState:
    SLOT_FREE = 0
    SLOT_INACTIVE = 1              # beyond the target depth
    SLOT_AVAILABLE = 2
    SLOT_LEASED = 3
    SLOT_BARRIER = 4               # waits until all messages before it have left
    SLOT_DELIVERED = 5             # left an at-most-once queue, and still counts in a backlog
    SLOT_GONE = 6
    SLOT_DELAYED = 7               # waits for a time: queues/delays.pxi
    SLOT_WAITING = 8               # behind the head of its key (queue_guarantees.md §3)
    SLOT_ELSEWHERE = 9             # would be available, but another instance owns it: queues/span.pxi


cdef enum SlotFlag:
    SLOT_HAS_PRIORITY = 1          # without it, the message comes after all that have a priority
    SLOT_OWN_EXPIRY = 2            # it does not expire in the order of the log
    SLOT_LEASE_ENDS = 4            # `lease_ns` is the end of the lease, not its beginning
    SLOT_DELAYED_HEAD = 8          # while delayed: it is the head of its key, and holds the others back
    SLOT_REQUEST = 16              # while elsewhere, in SLOT_REQUESTS: a request to the owner; at most seven count
    SLOT_REQUESTS = 112


# 64 bytes. One message in one queue.
cdef packed struct QueueSlot:
    uint64_t position              # log position of the message's record; rises from slot to slot of a queue
    uint64_t sequence              # second part of its bookmark
    uint64_t expires_ns            # UNIX time from which on it may not be delivered; NEVER
    # UNIX time. While leased: at which the lease ends, or began if it has no end. While delayed: at which the message
    # becomes available. While elsewhere: since when.
    uint64_t lease_ns
    uint64_t priority
    uint32_t publisher             # number of the first part of its bookmark
    # Number of the membership that holds it, while leased or delivered. While elsewhere: time of the next request.
    uint32_t holder
    uint32_t previous              # in the holder's list of slots, in the order of lease ends; if waiting, its key's
    uint32_t next
    uint16_t deliveries
    uint16_t cancels
    uint8_t state                  # SlotState
    uint8_t flags                  # SlotFlag
    uint16_t ownership             # number of its ownership; 0 = this instance, always: queues/ownerships.pxi


# One block of slots, all of one queue.
cdef packed struct QueueBlock:
    uint32_t queue_plus_one        # number of the queue that owns it, plus 1; 0 = free
    uint32_t used                  # slots filled since the block was taken
    uint32_t live                  # slots that are not gone
    uint32_t next                  # block of the queue with the messages that follow


# The counters of a queue: one row of a table in shared memory, for other processes. Only the core writes them.
cdef packed struct QueueCounters:
    uint64_t depth                 # active messages: available, elsewhere, leased, waiting, barriers
    uint64_t inactive              # beyond the target depth
    uint64_t leased
    uint64_t delivered             # left an at-most-once queue and count in a backlog
    uint64_t insert_count          # messages entered since the instance started
    uint64_t delete_count          # messages acknowledged, expired or delivered at most once since then
    uint64_t expired_leases
    uint64_t deferred              # acknowledgements that wait for their message
    uint64_t transferred_in
    uint64_t transferred_out
    uint64_t oldest_position       # log position of the oldest message; NEVER = the queue is empty
    uint64_t last_queued_position  # of the newest message that entered
    uint64_t last_acked_position   # of the newest message that left
    uint64_t first_block_plus_one  # number of its first block in the arena, plus 1; 0 = none
    uint64_t members               # subscriptions
    uint64_t oldest_lease_ns       # UNIX time at which the oldest lease began; NEVER = no lease
    uint64_t delayed               # messages that wait for their time; not in `depth`
    uint64_t next_delivery_ns      # UNIX time at which the first of them becomes available; NEVER = there are none
    uint64_t waiting               # messages behind the head of their key
    uint64_t transactions          # transactions that acknowledged its messages since the instance started
    uint64_t transactions_lease_lost  # that the fence refused since then
    uint64_t foreign               # messages that another instance owns
    uint64_t proxied               # 1 = this instance may take messages of owners that cannot be reached
    uint64_t[1] unused
