# The messages of queues, as other processes than the core see them. See queue_walk.pyx.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_list cimport QueueCounters
from amps._core.queue_slots cimport QueueBlock, QueueSlot


cdef class SlotMemory:
    """What the core shares of its queues, to be read only."""

    cdef object slots_memory
    cdef object counters_memory
    cdef const QueueBlock* blocks
    cdef const QueueSlot* slots
    cdef const QueueCounters* counters
    cdef readonly uint32_t queue_count


# What a step of a walk has come to.
cdef enum WalkStep:
    WALK_FOUND = 0
    WALK_END = 1                   # there is nothing further below the limit
    WALK_LOST = 2                  # the core gives back blocks so fast that another turn is better


@cython.final
cdef class QueueWalk:
    """A place in a queue, moving forward from message to message."""

    cdef SlotMemory memory
    cdef readonly uint32_t queue
    cdef readonly uint64_t passed          # log position of the last message that was passed, alive or not
    cdef uint32_t block                    # in which the walk is; NO_BLOCK = to be found by `passed`
    cdef uint64_t first                    # log position of the block's first message: which tells it from a later use
    cdef uint32_t at                       # the next slot in the block
    # of the message that was found
    cdef uint64_t position
    cdef uint32_t slot
    cdef int state                         # SlotState

    cdef WalkStep step(self, uint64_t limit) noexcept nogil
    cdef bint is_alive(self) noexcept nogil
    cdef WalkStep enter(self) noexcept nogil
    cdef WalkStep hop(self) noexcept nogil
    cdef bint is_there(self, uint32_t block, uint64_t first) noexcept nogil
