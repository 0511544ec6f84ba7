# The messages of one queue that wait for a time: published with a delay, or cancelled with one
# (docs/spec/queue_guarantees.md §1, §2).
#
# A delayed message is in state SLOT_DELAYED, and `lease_ns` of its slot is the time at which it becomes available. A
# heap gives the earliest of them, so no step costs more than the logarithm of their number. The entry of a message that
# has left the queue stays until it comes to the top, or until most entries are stale.
#
# Invariants: `next_ns` is the time of the first entry, which is never stale; without entries, it is NEVER.

from libc.math cimport pow
from libc.stdint cimport uint32_t, uint64_t

cdef uint64_t RETURN_AT_ONCE = 0xFFFFFFFFFFFFFFFF
CANCEL_WITHOUT_DELAY = RETURN_AT_ONCE
"""As the delay of a cancel: none, also where the queue has a `CancelDelay`."""


cdef class DelayOrder:

    def __cinit__(self):
        self.heap.entries = NULL
        self.heap.count = 0
        self.heap.capacity = 0

    def __init__(self, QueueArena arena not None, settings):
        """settings: of the queue; see _QueueSettings in manager.pyi."""
        self.slots = arena.slots
        self.next_ns = NEVER
        self.used = False
        self.cancel_ns = settings.cancel_delay_ns
        self.cancel_factor = settings.cancel_delay_factor
        self.cancel_max_ns = settings.cancel_delay_max_ns

    def __dealloc__(self):
        heap_free(&self.heap)

    @property
    def entries(self):
        """Number of entries, including stale ones."""
        return self.heap.count

    cdef int add(self, uint32_t slot, uint64_t delayed) except -1:
        """Add a delayed message, whose slot has its state and time. delayed: number of delayed messages, with it."""
        if self.heap.count > 2 * delayed + STALE_MAX:
            self.gather()
        self.used = True
        heap_push(&self.heap, self.slots[slot].lease_ns, self.slots[slot].position, slot, 0)
        self.drop_stale()  # it may have had another time before
        return 0

    cdef uint32_t take(self, uint64_t now_ns) noexcept:
        """Take out the first message whose time has come; NO_SLOT: there is none. The caller changes its state.

        A message that got the same time twice has two entries. A copy of the queue and the record behind it do that.
        """
        cdef uint32_t slot
        if self.next_ns > now_ns:
            return NO_SLOT
        slot = self.heap.entries[0].slot
        heap_pop(&self.heap)
        self.slots[slot].lease_ns = 0  # another entry with the same time is stale now
        self.drop_stale()
        return slot

    cdef void drop_stale(self) noexcept:
        """Drop stale entries at the top. Called when a delayed message has left the queue, or has got another time."""
        while self.heap.count and not self.waits(&self.heap.entries[0]):
            heap_pop(&self.heap)
        self.next_ns = self.heap.entries[0].rank if self.heap.count else NEVER

    cdef bint waits(self, const HeapEntry* entry) noexcept nogil:
        """Whether an entry is not stale."""
        cdef const QueueSlot* slot = &self.slots[entry.slot]
        return slot.state == SLOT_DELAYED and slot.position == entry.position and slot.lease_ns == entry.rank

    cdef int gather(self) except -1:
        """Remove all stale entries."""
        cdef Heap kept
        cdef uint64_t at
        kept.entries = NULL
        kept.count = 0
        kept.capacity = 0
        for at in range(self.heap.count):
            if self.waits(&self.heap.entries[at]):
                heap_push(
                    &kept, self.heap.entries[at].rank, self.heap.entries[at].position, self.heap.entries[at].slot, 0
                )
        heap_free(&self.heap)
        self.heap = kept
        return 0

    cdef uint64_t after_cancel(self, uint32_t cancels, uint64_t requested_ns) noexcept nogil:
        """How long a cancelled message is delayed; 0: not at all.

        cancels: how often it was cancelled, this time included. requested_ns: the delay that the client requested;
        0 = none, so that the queue's own delay holds.
        """
        cdef double delay_ns
        if requested_ns:
            return 0 if requested_ns == RETURN_AT_ONCE else requested_ns
        if self.cancel_ns == 0:
            return 0
        delay_ns = <double>self.cancel_ns * pow(self.cancel_factor, cancels - 1.0)
        return self.cancel_max_ns if delay_ns >= <double>self.cancel_max_ns else <uint64_t>delay_ns
