# The state of queue messages: 64 bytes for each message, in memory that other processes can read.
#
# All queues of an instance share one *arena*, a structured array of *slots*. It is divided into blocks of BLOCK_SLOTS.
# Each queue has a list of blocks in the order of the log, and its messages lie in them in the order of the log. An
# empty queue uses no block. A block is given back when all of its messages are gone, at any place in the list. So a
# message that stays in the queue keeps one block in use, but not the blocks behind it.
#
# The core is the only writer. A reader in another process (statistics, queries) may read a slot while it is being
# written. It reads `position` before and after the other fields, and uses them only if both values are the same.
#
# The memory is a sparse file of its maximum size in the runtime directory; only used parts occupy memory. To read it
# with numpy: `numpy.memmap(path, SLOT_DTYPE, "r", blocks_bytes(capacity))`.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

import numpy

from amps._core.queues.slots cimport (
    BLOCK_SLOTS,
    NO_BLOCK,
    NO_SLOT,
    SLOT_AVAILABLE,
    SLOT_BARRIER,
    SLOT_DELAYED,
    SLOT_DELAYED_HEAD,
    SLOT_DELIVERED,
    SLOT_ELSEWHERE,
    SLOT_GONE,
    SLOT_HAS_PRIORITY,
    SLOT_INACTIVE,
    SLOT_LEASED,
    SLOT_LEASE_ENDS,
    SLOT_OWN_EXPIRY,
    SLOT_REQUEST,
    SLOT_REQUESTS,
    SLOT_WAITING,
    QueueBlock,
    QueueCounters,
    QueueSlot,
)

cdef uint64_t NEVER = 0xFFFFFFFFFFFFFFFF

SLOT_DTYPE = numpy.dtype(
    [
        ("position", "<u8"),
        ("sequence", "<u8"),
        ("expires_ns", "<u8"),
        ("lease_ns", "<u8"),
        ("priority", "<u8"),
        ("publisher", "<u4"),
        ("holder", "<u4"),
        ("previous", "<u4"),
        ("next", "<u4"),
        ("deliveries", "<u2"),
        ("cancels", "<u2"),
        ("state", "u1"),
        ("flags", "u1"),
        ("ownership", "<u2"),
    ]
)
BLOCK_DTYPE = numpy.dtype([("queue_plus_one", "<u4"), ("used", "<u4"), ("live", "<u4"), ("next", "<u4")])
BLOCK_SLOT_COUNT = BLOCK_SLOTS
BLOCKS_MAX = 1 << 18
"""The most blocks that an arena can have: room for 268 million messages in all queues of an instance together."""


def blocks_bytes(uint32_t block_capacity):
    """Size in bytes of the table of blocks, which lies before the slots; a multiple of the page size."""
    return (block_capacity * sizeof(QueueBlock) + 4095) // 4096 * 4096


def arena_bytes(uint32_t block_capacity):
    """Size in bytes of an arena with that many blocks."""
    return blocks_bytes(block_capacity) + <uint64_t>block_capacity * BLOCK_SLOTS * sizeof(QueueSlot)


class QueueMemoryFull(MemoryError):
    """The memory of the queues has no room for another message."""


cdef class QueueArena:

    def __cinit__(self):
        self.key_hashes = NULL
        self.blocks_used = 0

    def __init__(self, memory, uint32_t block_capacity, make_room=None):
        """memory: writable, zeroed, at least `arena_bytes` long. make_room(offset, length): called before that part of
        the memory is written for the first time; may raise OSError.
        """
        cdef unsigned char[::1] view = memory
        if sizeof(QueueSlot) != SLOT_DTYPE.itemsize or sizeof(QueueBlock) != BLOCK_DTYPE.itemsize:
            raise AssertionError("the layout for other processes is not that of the core")
        if <uint64_t>view.shape[0] < <uint64_t>arena_bytes(block_capacity) or block_capacity == 0:
            raise ValueError("the memory is too small for so many blocks")
        self.memory = memory
        self.blocks = <QueueBlock*>&view[0]
        self.slots = <QueueSlot*>(&view[0] + <uint64_t>blocks_bytes(block_capacity))
        self.block_capacity = block_capacity
        self.blocks_used = 0
        self.blocks_ready = 0
        self.first_free = NO_BLOCK
        self.free_count = 0
        self.make_room = make_room
        self.obstacle = None
        self.refusals = 0

    def __dealloc__(self):
        cdef uint32_t block
        if self.key_hashes != NULL:
            for block in range(self.blocks_used):
                free(self.key_hashes[block])
            free(self.key_hashes)

    cdef bint ensure(self, uint32_t count) except -1:
        """Whether that many blocks can be taken. If not, `obstacle` gives the reason."""
        cdef uint64_t length = BLOCK_SLOTS * sizeof(QueueSlot)
        while self.free_count + self.blocks_ready - self.blocks_used < count:
            if self.blocks_ready == self.block_capacity:
                capacity = <uint64_t>self.block_capacity * BLOCK_SLOTS
                self.obstacle = f"the queues of the instance can hold {capacity} messages together"
                self.refusals += 1
                return False
            if self.make_room is not None:
                try:
                    self.make_room(blocks_bytes(self.block_capacity) + self.blocks_ready * length, length)
                except OSError as problem:
                    self.obstacle = str(problem)
                    self.refusals += 1
                    return False
            self.blocks_ready += 1
        return True

    cdef uint32_t take_block(self, uint32_t queue) except? NO_BLOCK:
        """Take a block of free slots for a queue. Raises QueueMemoryFull."""
        cdef uint32_t block = self.first_free
        if block != NO_BLOCK:
            self.first_free = self.blocks[block].next
            self.free_count -= 1
            memset(&self.slots[<uint64_t>block * BLOCK_SLOTS], 0, self.blocks[block].used * sizeof(QueueSlot))
        else:
            if not self.ensure(1):
                raise QueueMemoryFull(self.obstacle)
            block = self.blocks_used
            self.blocks_used += 1
        self.blocks[block].used = 0
        self.blocks[block].live = 0
        self.blocks[block].next = NO_BLOCK
        self.blocks[block].queue_plus_one = queue + 1
        return block

    cdef uint32_t next_slot(self, uint32_t slot) noexcept nogil:
        """The slot behind another one of its queue, gone or not. NO_SLOT: there is none behind it."""
        cdef uint32_t block = slot // BLOCK_SLOTS
        if slot % BLOCK_SLOTS + 1 < self.blocks[block].used:
            return slot + 1
        block = self.blocks[block].next
        return NO_SLOT if block == NO_BLOCK else block * BLOCK_SLOTS

    cdef void give_back(self, uint32_t block) noexcept nogil:
        """Put a block into the list of free blocks."""
        self.blocks[block].queue_plus_one = 0
        self.blocks[block].next = self.first_free
        self.first_free = block
        self.free_count += 1
