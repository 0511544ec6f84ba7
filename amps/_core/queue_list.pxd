# See queue_list.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_slots cimport QueueArena, QueueSlot


# What a queue says of itself to other processes: one row of a table in shared memory. All fields are the core's.
cdef packed struct QueueCounters:
    uint64_t depth                 # active messages: available, leased, barriers
    uint64_t inactive              # beyond the target depth
    uint64_t leased
    uint64_t delivered             # left an at-most-once queue and count in a backlog
    uint64_t insert_count          # entered, since the instance started
    uint64_t delete_count          # acknowledged, expired or delivered at most once, since then
    uint64_t expired_leases
    uint64_t deferred              # acknowledgements that wait for their message
    uint64_t transferred_in
    uint64_t transferred_out
    uint64_t oldest_position       # log position of the oldest message; NEVER = it is empty
    uint64_t last_queued_position  # of the newest message that entered
    uint64_t last_acked_position   # of the newest message that left
    uint64_t first_block_plus_one  # of the arena, to walk from; 0 = none
    uint64_t members               # subscriptions
    uint64_t oldest_lease_ns       # UNIX time at which the oldest lease began; NEVER = there is none


cdef class MessageList:
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
    cdef uint32_t head                     # the oldest of them; NO_SLOT = none

    cdef uint32_t append(self, uint64_t position) except? 0xFFFFFFFF
    cdef uint32_t next_slot(self, uint32_t slot) noexcept nogil
    cdef uint32_t find(self, uint64_t position, uint32_t hint) noexcept nogil
    cdef int gone(self, uint32_t slot) except -1
    cdef int drop_block(self, uint64_t place) except -1
    cdef int block_dropped(self, uint32_t block, uint32_t next_slot) except -1
    cdef uint64_t place_of_block(self, uint64_t position) noexcept nogil
