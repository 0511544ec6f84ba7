# The order in which the messages of one queue expire (queues.md §10).
#
# Most messages expire in the order of the log: `next` is the first of them. A heap has the others, which have a
# lifetime of their own. The entry of a message that has left the queue stays until it comes to the top, or until most
# entries are stale.
#
# Invariant: a message that can expire, and is active or delayed and not held, is at or behind `next`, or in the heap. A
# leased or inactive message is passed over; the queue checks it when it comes back or becomes active.

from libc.stdint cimport uint32_t, uint64_t


cdef class ExpiryOrder:

    def __cinit__(self):
        self.heap.entries = NULL
        self.heap.count = 0
        self.heap.capacity = 0

    def __init__(self, QueueArena arena not None, settings):
        """settings: of the queue; see _QueueSettings in manager.pyi."""
        self.arena = arena
        self.slots = arena.slots
        self.next = NO_SLOT
        self.model = ("default", "queue", "latest", "earliest").index(settings.expiration_model)
        self.lifetime_ns = NEVER if settings.expiration_ns is None else settings.expiration_ns

    def __dealloc__(self):
        heap_free(&self.heap)

    cdef uint64_t expiry(self, const NewMessage* message, bint* own) noexcept:
        """The time at which a message expires (queues.md §10, D-13). Sets own: not in the order of the log."""
        cdef uint64_t of_queue = NEVER
        cdef uint64_t of_message
        cdef uint64_t chosen
        if self.lifetime_ns != NEVER:
            of_queue = message.timestamp_ns + self.lifetime_ns
        own[0] = self.lifetime_ns == NEVER
        if message.expiry_ns == 0:
            return of_queue
        of_message = message.expiry_ns
        if self.model == EXPIRATION_DEFAULT:
            chosen = of_message
        elif self.model == EXPIRATION_QUEUE:
            chosen = of_queue
        elif self.model == EXPIRATION_LATEST:
            chosen = max(of_message, of_queue)
        else:
            chosen = min(of_message, of_queue)
        own[0] = own[0] or chosen != of_queue
        return chosen

    cdef int add(self, uint32_t slot, uint64_t live) except -1:
        """Add a message whose slot has its position, flags and time. live: number of messages in the queue, with it."""
        if self.slots[slot].expires_ns == NEVER:
            return 0
        if not self.slots[slot].flags & SLOT_OWN_EXPIRY:
            if self.next == NO_SLOT:
                self.next = slot
            return 0
        if self.heap.count > 2 * live + STALE_MAX:
            self.gather()
        return heap_push(&self.heap, self.slots[slot].expires_ns, self.slots[slot].position, slot, 0)

    cdef uint64_t due_ns(self) noexcept nogil:
        """The earliest time at which `take` has something to do."""
        cdef uint64_t due = NEVER
        if self.heap.count:
            due = self.heap.entries[0].rank
        if self.next != NO_SLOT:
            due = min(due, self.slots[self.next].expires_ns)
        return due

    cdef uint32_t take(self, uint64_t now_ns) noexcept nogil:
        """Take out a message that expires now; NO_SLOT: there is none. The caller removes it from the queue."""
        cdef uint32_t slot
        cdef uint64_t position
        while self.heap.count and self.heap.entries[0].rank <= now_ns:
            slot = self.heap.entries[0].slot
            position = self.heap.entries[0].position
            heap_pop(&self.heap)
            if self.slots[slot].position == position and self.may_expire(slot):
                return slot
        while self.next != NO_SLOT:
            slot = self.next
            if self.slots[slot].state != SLOT_GONE and not self.slots[slot].flags & SLOT_OWN_EXPIRY:
                if self.slots[slot].expires_ns > now_ns:
                    return NO_SLOT
            self.next = self.arena.next_slot(slot)
            if self.may_expire(slot) and not self.slots[slot].flags & SLOT_OWN_EXPIRY:
                return slot
        return NO_SLOT

    cdef bint may_expire(self, uint32_t slot) noexcept nogil:
        """Whether a message is active or delayed, and not held."""
        cdef int state = self.slots[slot].state
        return (
            state == SLOT_AVAILABLE or state == SLOT_ELSEWHERE or state == SLOT_BARRIER or state == SLOT_DELAYED
            or state == SLOT_WAITING
        )

    cdef void block_dropped(self, uint32_t block, uint32_t next_slot) noexcept nogil:
        """Refer to a block no longer; `next_slot` is the first slot of the block behind it."""
        if self.next != NO_SLOT and self.next // BLOCK_SLOTS == block:
            self.next = next_slot

    cdef int gather(self) except -1:
        """Remove all stale entries from the heap."""
        cdef Heap kept
        cdef HeapEntry* entry
        cdef uint64_t at
        kept.entries = NULL
        kept.count = 0
        kept.capacity = 0
        for at in range(self.heap.count):
            entry = &self.heap.entries[at]
            if self.slots[entry.slot].position == entry.position and self.slots[entry.slot].state != SLOT_GONE:
                heap_push(&kept, entry.rank, entry.position, entry.slot, 0)
        heap_free(&self.heap)
        self.heap = kept
        return 0
