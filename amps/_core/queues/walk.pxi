# Iterates over the messages of a queue in another process than the core, while the core changes them.
#
# The core keeps the state of its messages in shared memory (queues/slots.pxi): blocks of slots, each queue a list of
# blocks, everything in the order of the log. There are no locks. A walk returns every message below its limit that is
# in the queue during the whole walk. A message that enters or leaves during the walk may be returned or not.
#
# Rules that ensure this:
# - The limit is a watermark of the journal that was read before the walk. The core entered all messages below it before
#   it published the watermark.
# - A block may be given back and be taken again, also by the same queue. A use of a block is identified by its queue
#   and the log position of its first message, which no other use of the block has. Both are checked after all other
#   reads of the block. If they have changed, the walk searches its place again, by the log position of the last message
#   that it passed.
# - A pointer to the next block is valid only if the block that holds it is unchanged after the first position of the
#   next block was read.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

import mmap

from amps._core.shm.platform cimport acquire_fence, load_relaxed
from amps._core.queues.slots cimport BLOCK_SLOTS, NO_BLOCK, SLOT_GONE, QueueBlock, QueueCounters, QueueSlot
from amps._core.queues.engine import blocks_bytes

cdef enum:
    TRIES_MAX = 16


cdef class SlotMemory:

    def __init__(self, slots, counters, uint32_t block_capacity):
        """slots, counters: the memory of QueueArena and QueueManager; read-only is enough."""
        cdef const unsigned char[::1] slots_view = slots
        cdef const unsigned char[::1] counters_view = counters
        self.slots_memory = slots
        self.counters_memory = counters
        self.blocks = <const QueueBlock*>&slots_view[0]
        self.slots = <const QueueSlot*>(&slots_view[0] + <uint64_t>blocks_bytes(block_capacity))
        self.counters = <const QueueCounters*>&counters_view[0]
        self.queue_count = <uint32_t>(<uint64_t>counters_view.shape[0] // sizeof(QueueCounters))

    def last_queued_position(self, uint32_t queue):
        """Log position of the newest message that entered a queue; 0: none has entered."""
        if queue >= self.queue_count:
            raise IndexError(queue)
        return load_relaxed(&self.counters[queue].last_queued_position)


def map_read_only(path):
    """Map a file of the runtime directory for reading. Raises OSError."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


@cython.final
cdef class QueueWalk:

    def __init__(self, SlotMemory memory not None, uint32_t queue):
        if queue >= memory.queue_count:
            raise IndexError(queue)
        self.memory = memory
        self.queue = queue
        self.passed = 0
        self.block = NO_BLOCK

    cdef WalkStep step(self, uint64_t limit) noexcept nogil:
        """Go to the next message below a log position, and set `position`, `slot` and `state`."""
        cdef const QueueBlock* block
        cdef const QueueSlot* slot
        cdef WalkStep came
        cdef uint64_t position
        cdef uint32_t used
        cdef int state
        cdef int tries = 0
        while True:
            if self.block == NO_BLOCK:
                tries += 1
                if tries > TRIES_MAX:
                    return WALK_LOST
                came = self.enter()
                if came == WALK_END:
                    return WALK_END
                continue
            block = &self.memory.blocks[self.block]
            used = (<const volatile uint32_t*>&block.used)[0]
            if self.at >= used:
                came = self.hop() if used == BLOCK_SLOTS else WALK_END
                acquire_fence()
                if not self.is_there(self.block, self.first):
                    self.block = NO_BLOCK
                elif came == WALK_END:
                    return WALK_END
                continue
            slot = &self.memory.slots[<uint64_t>self.block * BLOCK_SLOTS + self.at]
            position = load_relaxed(&slot.position)
            acquire_fence()
            state = (<const volatile unsigned char*>&slot.state)[0]
            acquire_fence()
            if load_relaxed(&slot.position) != position or not self.is_there(self.block, self.first):
                self.block = NO_BLOCK
                continue
            if position >= limit or position == 0:
                return WALK_END  # position 0: the slot is being filled
            self.at += 1
            if position <= self.passed:
                continue
            self.passed = position
            if state == SLOT_GONE:
                continue
            self.position = position
            self.slot = self.block * BLOCK_SLOTS + self.at - 1
            self.state = state
            return WALK_FOUND

    cdef bint is_alive(self) noexcept nogil:
        """Whether the found message is still in the queue."""
        cdef const QueueSlot* slot = &self.memory.slots[self.slot]
        cdef int state = (<const volatile unsigned char*>&slot.state)[0]
        acquire_fence()
        return (
            state != SLOT_GONE and load_relaxed(&slot.position) == self.position
            and (<const volatile uint32_t*>&self.memory.blocks[self.slot // BLOCK_SLOTS].queue_plus_one)[0]
            == self.queue + 1
        )

    cdef WalkStep enter(self) noexcept nogil:
        """Find the block with the message behind the last passed one. If the list of blocks changes during the search,
        `block` stays NO_BLOCK.
        """
        cdef uint64_t first_plus_one = load_relaxed(&self.memory.counters[self.queue].first_block_plus_one)
        cdef uint32_t block
        cdef uint64_t first
        if first_plus_one == 0:
            return WALK_END
        acquire_fence()
        block = <uint32_t>(first_plus_one - 1)
        first = load_relaxed(&self.memory.slots[<uint64_t>block * BLOCK_SLOTS].position)
        acquire_fence()
        if (
            not self.is_there(block, first)
            or load_relaxed(&self.memory.counters[self.queue].first_block_plus_one) != first_plus_one
        ):
            return WALK_LOST
        if first == 0:
            return WALK_END  # the block is being taken
        self.block = block
        self.first = first
        while self.hop() == WALK_FOUND:
            if self.first > self.passed:
                # One block too far: the next message may be in the block before.
                self.block = block
                self.first = first
                break
            block = self.block
            first = self.first
        self.at = 0
        acquire_fence()
        if not self.is_there(block, first):
            self.block = NO_BLOCK
            return WALK_LOST
        return WALK_FOUND

    cdef WalkStep hop(self) noexcept nogil:
        """Move to the beginning of the next block. WALK_END: there is none. WALK_LOST: the list has changed."""
        cdef uint32_t block = self.block
        cdef uint32_t following = (<const volatile uint32_t*>&self.memory.blocks[block].next)[0]
        cdef uint64_t first
        if following == NO_BLOCK:
            return WALK_END
        acquire_fence()
        first = load_relaxed(&self.memory.slots[<uint64_t>following * BLOCK_SLOTS].position)
        acquire_fence()
        if (
            (<const volatile uint32_t*>&self.memory.blocks[block].next)[0] != following
            or not self.is_there(block, self.first)
        ):
            self.block = NO_BLOCK
            return WALK_LOST
        if first == 0:
            return WALK_END  # the block is being taken
        self.block = following
        self.first = first
        self.at = 0
        return WALK_FOUND

    cdef bint is_there(self, uint32_t block, uint64_t first) noexcept nogil:
        """Whether a block still belongs to this queue and begins with the message at that log position."""
        return block != NO_BLOCK and (
            (<const volatile uint32_t*>&self.memory.blocks[block].queue_plus_one)[0] == self.queue + 1
            and load_relaxed(&self.memory.slots[<uint64_t>block * BLOCK_SLOTS].position) == first
        )

    def walk(self, uint64_t limit):
        """[(log position, slot, SlotState)] of all following messages below a log position, for tests and tools."""
        found = []
        while self.step(limit) == WALK_FOUND:
            found.append((self.position, self.slot, self.state))
        return found
