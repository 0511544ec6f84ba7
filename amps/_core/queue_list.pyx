"""The messages of one queue in the order of the log, in blocks of the arena.

Appending, finding by log position and taking one out cost the same however many there are. A message keeps its slot for
as long as it is in the queue, so its number can be given away as a hint; a slot that belongs to another message by then
is recognised by its log position.

Invariants: positions rise from slot to slot; a slot that is gone keeps its position until its block is given back, so
that a search can go by it; a block is given back when nothing in it is alive and it is full, or the queue is empty.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from amps._core.platform cimport debug_assert
from amps._core.queue_slots cimport BLOCK_SLOTS, NEVER, NO_BLOCK, NO_SLOT, SLOT_GONE, QueueArena

COUNTERS_BYTES = sizeof(QueueCounters)
COUNTER_NAMES = (
    "depth", "inactive", "leased", "delivered", "insert_count", "delete_count", "expired_leases", "deferred",
    "transferred_in", "transferred_out", "oldest_position", "last_queued_position", "last_acked_position",
    "first_block_plus_one", "members", "oldest_lease_ns",
)


cdef class MessageList:

    def __cinit__(self):
        self.blocks = NULL

    def __init__(self, QueueArena arena not None, uint32_t number, counters):
        """counters: writable memory of COUNTERS_BYTES that other processes read; it is cleared."""
        cdef unsigned char[::1] view = counters
        cdef Py_ssize_t at
        if view.shape[0] < <Py_ssize_t>sizeof(QueueCounters):
            raise ValueError("no room for the counters")
        for at in range(<Py_ssize_t>sizeof(QueueCounters)):
            view[at] = 0
        self.number = number
        self.arena = arena
        self.slots = arena.slots
        self.counters = <QueueCounters*>&view[0]
        self.counters_memory = counters
        self.counters.oldest_position = NEVER
        self.counters.oldest_lease_ns = NEVER
        self.first_block = 0
        self.block_count = 0
        self.block_capacity = 0
        self.live = 0
        self.head = NO_SLOT

    def __dealloc__(self):
        free(self.blocks)

    cdef uint32_t append(self, uint64_t position) except? 0xFFFFFFFF:
        """A slot for the message at that position, behind all others. Its state is the caller's to set, to something
        alive.
        """
        cdef uint32_t block = NO_BLOCK
        cdef uint32_t last
        cdef uint32_t slot
        if self.block_count:
            block = self.blocks[self.first_block + self.block_count - 1]
        if block == NO_BLOCK or self.arena.blocks[block].used == BLOCK_SLOTS:
            last = block
            self._make_room()
            block = self.arena.take_block(self.number)
            self.blocks[self.first_block + self.block_count] = block
            self.block_count += 1
            if last != NO_BLOCK:
                self.arena.blocks[last].next = block
            else:
                self.counters.first_block_plus_one = block + 1
        slot = block * BLOCK_SLOTS + self.arena.blocks[block].used
        self.slots[slot].position = position
        self.arena.blocks[block].used += 1
        self.arena.blocks[block].live += 1
        self.live += 1
        if self.head == NO_SLOT:
            self.head = slot
            self.counters.oldest_position = position
        return slot

    def _make_room(self):
        """For one more block in the list."""
        cdef uint32_t* grown
        cdef uint64_t capacity
        if self.first_block + self.block_count < self.block_capacity:
            return
        if self.first_block > self.block_capacity // 2:
            memmove(self.blocks, self.blocks + self.first_block, self.block_count * sizeof(uint32_t))
        else:
            capacity = max(<uint64_t>4, 2 * self.block_capacity)
            grown = <uint32_t*>malloc(capacity * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError()
            if self.block_count:
                memmove(grown, self.blocks + self.first_block, self.block_count * sizeof(uint32_t))
            free(self.blocks)
            self.blocks = grown
            self.block_capacity = capacity
        self.first_block = 0

    def begins_at(self, uint64_t position):
        """Log position from which on the log is needed to make this queue, of a log that ends at `position`."""
        return min(position, self.counters.oldest_position)

    cdef uint32_t next_slot(self, uint32_t slot) noexcept nogil:
        """The slot behind one, alive or not; NO_SLOT: that was the newest."""
        cdef uint32_t block = slot // BLOCK_SLOTS
        if slot % BLOCK_SLOTS + 1 < self.arena.blocks[block].used:
            return slot + 1
        block = self.arena.blocks[block].next
        return NO_SLOT if block == NO_BLOCK else block * BLOCK_SLOTS

    cdef uint64_t place_of_block(self, uint64_t position) noexcept nogil:
        """Place in the list of the last block that begins at a position or before it; there must be one."""
        cdef uint64_t low = self.first_block
        cdef uint64_t high = self.first_block + self.block_count
        cdef uint64_t middle
        while high - low > 1:
            middle = (low + high) // 2
            if self.slots[<uint64_t>self.blocks[middle] * BLOCK_SLOTS].position <= position:
                low = middle
            else:
                high = middle
        return low

    cdef uint32_t find(self, uint64_t position, uint32_t hint) noexcept nogil:
        """The slot of the message at a log position, NO_SLOT if it is not in the queue. hint: where it was once."""
        cdef uint32_t block
        cdef uint32_t low
        cdef uint32_t high
        cdef uint32_t middle
        if hint != NO_SLOT and hint // BLOCK_SLOTS < self.arena.blocks_used:
            block = hint // BLOCK_SLOTS
            if (
                self.arena.blocks[block].queue_plus_one == self.number + 1
                and hint % BLOCK_SLOTS < self.arena.blocks[block].used
                and self.slots[hint].position == position
            ):
                return hint if self.slots[hint].state != SLOT_GONE else NO_SLOT
        if self.block_count == 0:
            return NO_SLOT
        block = self.blocks[self.place_of_block(position)]
        low = block * BLOCK_SLOTS
        high = low + self.arena.blocks[block].used
        while high - low > 1:
            middle = (low + high) // 2
            if self.slots[middle].position <= position:
                low = middle
            else:
                high = middle
        if self.slots[low].position != position or self.slots[low].state == SLOT_GONE:
            return NO_SLOT
        return low

    cdef int gone(self, uint32_t slot) except -1:
        """A message has left the queue for good."""
        cdef uint32_t block = slot // BLOCK_SLOTS
        cdef uint64_t position = self.slots[slot].position
        self.slots[slot].state = SLOT_GONE
        self.arena.blocks[block].live -= 1
        self.live -= 1
        if position > self.counters.last_acked_position:
            self.counters.last_acked_position = position
        if slot == self.head:
            while self.head != NO_SLOT and self.slots[self.head].state == SLOT_GONE:
                self.head = self.next_slot(self.head)
            self.counters.oldest_position = NEVER if self.head == NO_SLOT else self.slots[self.head].position
        if self.arena.blocks[block].live == 0 and (self.arena.blocks[block].used == BLOCK_SLOTS or self.live == 0):
            self.drop_block(self.place_of_block(position))
            if self.live == 0:
                while self.block_count:
                    self.drop_block(self.first_block)
        return 0

    cdef int drop_block(self, uint64_t place) except -1:
        """Give back a block in which nothing is alive."""
        cdef uint32_t block = self.blocks[place]
        cdef uint32_t next_block = self.arena.blocks[block].next
        debug_assert(self.arena.blocks[block].live == 0)
        self.block_dropped(block, NO_SLOT if next_block == NO_BLOCK else next_block * BLOCK_SLOTS)
        if place == self.first_block:
            self.first_block += 1
            self.counters.first_block_plus_one = 0 if next_block == NO_BLOCK else next_block + 1
        else:
            self.arena.blocks[self.blocks[place - 1]].next = next_block
            memmove(
                self.blocks + place, self.blocks + place + 1,
                (self.first_block + self.block_count - place - 1) * sizeof(uint32_t),
            )
        self.block_count -= 1
        self.arena.give_back(block)
        return 0

    cdef int block_dropped(self, uint32_t block, uint32_t next_slot) except -1:
        """Nobody may remember a slot of that block: what follows it begins at `next_slot`."""
        return 0
