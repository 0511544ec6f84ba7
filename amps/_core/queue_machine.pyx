"""One queue: which message goes to which subscription, and what becomes of it (queues.md §19, §20).

A state machine without I/O and without a clock. Messages come in (`enqueue`), acknowledgements, members, and time; what
is decided goes to a QueueOutput. It is made in three layers: what is in the queue (queue_contents.pyx), who holds what
(queue_holding.pyx), and here, who gets what is available. Nothing here costs more with more messages in the queue: what
is available is found from the first slot that nobody has looked at (`fresh`), and from heaps of what came back or has a
priority.

Order of things: time passes (`pass_time`: leases end, then messages expire), then the queue is served, if it is dirty.

Invariants
- What is AVAILABLE is at or behind `fresh` of the cursor without a filter, or in its heap; for a cursor with a filter
  it is in the heap if it is known to match. Heaps may hold more than that, which is dropped when it comes to the top.
- Nothing behind a barrier is delivered before the barrier.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from amps._core.queue_contents cimport STALE_MAX, QueueShared
from amps._core.queue_heap cimport HeapEntry, heap_free, heap_pop, heap_push
from amps._core.queue_holding cimport QueueHolding
from amps._core.queue_members cimport Cursor, Membership, Subscriber
from amps._core.queue_records cimport DELIVERY_BARRIER, NO_SUBSCRIPTION, QUEUE_DELIVERED, REASON_BARRIER_SENT
from amps._core.queue_slots cimport (
    BLOCK_SLOTS,
    NEVER,
    NO_SLOT,
    SLOT_AVAILABLE,
    SLOT_BARRIER,
    SLOT_DELIVERED,
    SLOT_HAS_PRIORITY,
    SLOT_INACTIVE,
    QueueArena,
    QueueSlot,
)

# How long a message waits for a filter to be evaluated, before it goes to others.
cdef uint64_t EVALUATION_WAIT_NS = 50_000_000


@cython.final
cdef class Queue(QueueHolding):

    def __init__(self, QueueArena arena not None, uint32_t number, counters, settings, QueueShared shared not None):
        """settings: see _QueueSettings in queue_book.pyi."""
        QueueHolding.__init__(self, arena, number, counters, settings, shared)
        self.has_priority = settings.has_priority
        self.fairness = ("fast", "round-robin", "proportional").index(settings.fairness_model)
        self.max_backlog = NEVER if settings.max_backlog is None else settings.max_backlog
        self.everything = Cursor(arena, None, 0)
        self.cursors = [self.everything]
        self.last_order = 0
        self.wait_until_ns = NEVER

    @property
    def heap_entries(self):
        """Entries of all its heaps, stale ones included: memory besides the slots."""
        cdef Cursor cursor
        count = self.barriers.count + self.expiries.count
        for cursor in self.cursors:
            count += cursor.heap.count
        return count

    # --- what may be delivered ------------------------------------------------------------------------

    cdef int place(self, uint32_t number, bint is_barrier) except -1:
        """The same, and nobody has looked at it."""
        if self.everything.fresh == NO_SLOT and not self.has_priority:
            self.everything.fresh = number
        return QueueHolding.place(self, number, is_barrier)

    cdef int offer(self, uint32_t slot) except -1:
        """A message may be delivered: see that every cursor will meet it."""
        cdef Cursor cursor
        for cursor in self.cursors:
            self.offer_to(cursor, slot)
        if self.ready:
            self.mark_dirty()
        return 0

    cdef int offer_to(self, Cursor cursor, uint32_t slot) except -1:
        cdef QueueSlot* message = &self.slots[slot]
        if cursor.takes_all:
            if (
                not self.has_priority and cursor.fresh != NO_SLOT
                and message.position >= self.slots[cursor.fresh].position
            ):
                return 0
        elif message.position >= cursor.evaluated_until or not cursor.has_match(slot):
            return 0
        if cursor.heap.count > 2 * self.live + STALE_MAX:
            return self.gather(cursor)
        return heap_push(
            &cursor.heap, ~message.priority, message.position, slot, not message.flags & SLOT_HAS_PRIORITY
        )

    cdef int gather(self, Cursor cursor) except -1:
        """Make a cursor's heap anew, without what is stale."""
        cdef uint32_t slot = self.head
        heap_free(&cursor.heap)
        if cursor.takes_all and not self.has_priority:
            cursor.fresh = self.head
            return 0
        while slot != NO_SLOT:
            if self.slots[slot].state == SLOT_AVAILABLE:
                self.offer_to(cursor, slot)
            slot = self.next_slot(slot)
        return 0

    cdef int block_dropped(self, uint32_t block, uint32_t next_slot) except -1:
        cdef Cursor cursor
        for cursor in self.cursors:
            if cursor.fresh != NO_SLOT and cursor.fresh // BLOCK_SLOTS == block:
                cursor.fresh = next_slot
            cursor.forget_block(block)
        return QueueHolding.block_dropped(self, block, next_slot)

    cdef int drop_member(self, Membership member) except -1:
        """The same; a filter that nobody has any more is forgotten."""
        QueueHolding.drop_member(self, member)
        if member.cursor.members == 0 and member.cursor is not self.everything:
            self.cursors.remove(member.cursor)
        return 0

    cdef uint64_t undelivered_from(self) noexcept:
        """Log position before which nothing is delivered for the first time any more, or an earlier one; NEVER: all
        that is here was delivered.
        """
        cdef uint32_t slot = self.everything.fresh  # in the order of the log; with priorities there is none
        if self.counters.depth + self.counters.inactive == self.counters.leased:
            return NEVER
        return self.slots[self.head if slot == NO_SLOT else slot].position

    # --- time -----------------------------------------------------------------------------------------

    cdef uint64_t due_ns(self) noexcept:
        return min(self.wait_until_ns, QueueHolding.due_ns(self))

    cdef int pass_time(self, uint64_t now_ns) except -1:
        """The same, and waiting for filters ends."""
        QueueHolding.pass_time(self, now_ns)
        if self.wait_until_ns <= now_ns:
            self.wait_until_ns = NEVER
            self.mark_dirty()
        return 0

    # --- delivery -------------------------------------------------------------------------------------

    cdef int serve(self, uint64_t now_ns) except -1:
        """Deliver what can be delivered."""
        cdef int64_t slot
        self.dirty = False
        self.now_ns = now_ns
        while True:
            if self.counters.inactive:
                self.activate()
            if self.barriers.count and self.release_barrier():
                continue
            if self.ready == 0 or self.counters.leased + self.counters.delivered >= self.max_backlog:
                break
            if self.output.frozen and not self.at_least_once:
                break
            slot = self.choose()
            if slot < 0:
                break
            self.deliver(<uint32_t>slot, self.pick(<uint32_t>slot))
        return 0

    cdef bint release_barrier(self) except -1:
        """Send the first barrier to everybody, if nothing before it is left. False: it has to wait."""
        cdef HeapEntry* entry = &self.barriers.entries[0]
        cdef Membership member
        cdef uint32_t slot = entry.slot
        if self.slots[slot].position != entry.position or self.slots[slot].state != SLOT_BARRIER:
            heap_pop(&self.barriers)
            return self.barriers.count > 0 and self.release_barrier()
        # What was delivered at most once and is not acknowledged is before it, too.
        if self.head != slot or not self.members or self.output.frozen:
            return False
        heap_pop(&self.barriers)
        for transport in sorted({(<Membership>member).subscriber.transport for member in self.members}):
            self.output.deliver(
                transport, NO_SUBSCRIPTION, self.number, slot, self.slots[slot].position, 0, DELIVERY_BARRIER
            )
        self.note_removal(slot, QUEUE_DELIVERED, REASON_BARRIER_SENT)
        self.leave(slot)
        return True

    cdef bint look(self, Cursor cursor) except -1:
        """Find what a cursor would deliver next: `top`. False: nothing."""
        cdef HeapEntry* entry
        cdef uint32_t slot = NO_SLOT
        cdef int state
        while cursor.heap.count:
            entry = &cursor.heap.entries[0]
            if (
                self.slots[entry.slot].position == entry.position
                and self.slots[entry.slot].state == SLOT_AVAILABLE
            ):
                slot = entry.slot
                break
            heap_pop(&cursor.heap)
        while cursor.fresh != NO_SLOT:
            state = self.slots[cursor.fresh].state
            if state == SLOT_AVAILABLE:
                if slot == NO_SLOT or self.slots[cursor.fresh].position < self.slots[slot].position:
                    slot = cursor.fresh
                break
            if state == SLOT_BARRIER or state == SLOT_INACTIVE:
                break
            cursor.fresh = self.next_slot(cursor.fresh)
        if (
            slot != NO_SLOT and self.barriers.count
            and self.slots[slot].position > self.barriers.entries[0].position
        ):
            slot = NO_SLOT
        cursor.top = slot
        return slot != NO_SLOT

    cdef bint precedes(self, uint32_t one, uint32_t other) noexcept nogil:
        """Whether a message is to be delivered before another one."""
        cdef QueueSlot* a = &self.slots[one]
        cdef QueueSlot* b = &self.slots[other]
        if self.has_priority:
            if (a.flags ^ b.flags) & SLOT_HAS_PRIORITY:
                return a.flags & SLOT_HAS_PRIORITY != 0
            if a.priority != b.priority:
                return a.priority > b.priority
        return a.position < b.position

    cdef int64_t choose(self) except -2:
        """The next message that somebody can get. -1: none, or it is not known yet."""
        cdef Cursor cursor
        cdef uint32_t best = NO_SLOT
        cdef uint64_t needed
        for cursor in self.cursors:
            cursor.top = NO_SLOT
            if cursor.ready and self.look(cursor):
                if best == NO_SLOT or self.precedes(cursor.top, best):
                    best = cursor.top
        if best == NO_SLOT:
            return -1
        if PyList_GET_SIZE(self.cursors) > 1:
            needed = self.counters.last_queued_position if self.has_priority else self.slots[best].position
            for cursor in self.cursors:
                if cursor.ready and not cursor.takes_all and cursor.evaluated_until <= needed:
                    if cursor.heard_ns == 0:
                        cursor.heard_ns = self.now_ns
                    if cursor.heard_ns + EVALUATION_WAIT_NS > self.now_ns:
                        self.wait_until_ns = min(self.wait_until_ns, cursor.heard_ns + EVALUATION_WAIT_NS)
                        self.shared.expects(self, self.wait_until_ns)
                        return -1
        return best

    cdef Membership pick(self, uint32_t slot):
        """Who gets a message: among those with room whose next message it is (queues.md §7, §20)."""
        cdef Membership member
        cdef Membership best = None
        cdef Membership first = None
        cdef Subscriber subscriber
        cdef Py_ssize_t at
        for at in range(PyList_GET_SIZE(self.members)):
            member = <Membership>PyList_GET_ITEM(self.members, at)
            subscriber = member.subscriber
            if member.cursor.top != slot or subscriber.outstanding >= subscriber.limit:
                continue
            if self.fairness == FAIRNESS_FAST:
                return member
            if self.fairness == FAIRNESS_ROUND_ROBIN:
                if subscriber.order > self.last_order:
                    return member
                if first is None:
                    first = member
            elif (
                best is None
                or subscriber.outstanding * best.subscriber.limit < best.subscriber.outstanding * subscriber.limit
            ):
                best = member
        return first if best is None else best

    cdef int deliver(self, uint32_t slot, Membership member) except -1:
        cdef QueueSlot* message = &self.slots[slot]
        cdef Subscriber subscriber = member.subscriber
        cdef uint64_t lease_until_ns = 0
        self.last_order = subscriber.order
        if self.at_least_once:
            lease_until_ns = self.begin_lease(slot)
        else:
            message.state = SLOT_DELIVERED
            self.note_removal(slot, QUEUE_DELIVERED, 0)
            self.counters.depth -= 1
            self.counters.delivered += 1
            self.counters.delete_count += 1
        self.hold(member, slot)
        member.cursor.last_delivered_position = message.position
        self.count_backlog(subscriber, 1)
        self.output.deliver(
            subscriber.transport, subscriber.number, self.number, slot, message.position, lease_until_ns, 0
        )
        return 0

    # --- filters --------------------------------------------------------------------------------------

    cdef int hear_match(self, Cursor cursor, uint64_t position, uint32_t hint) except -1:
        """A message matches a cursor's filter."""
        cdef uint32_t slot = self.find(position, hint)
        if slot == NO_SLOT or position < cursor.evaluated_until:
            return 0
        cursor.note_match(slot)
        if self.slots[slot].state == SLOT_AVAILABLE:
            heap_push(
                &cursor.heap, ~self.slots[slot].priority, position, slot,
                not self.slots[slot].flags & SLOT_HAS_PRIORITY,
            )
        return 0

    cdef int heard(self, Cursor cursor, uint64_t evaluated_until, uint64_t now_ns) except -1:
        """All that matches up to a log position has been told."""
        cursor.evaluated_until = max(cursor.evaluated_until, evaluated_until)
        cursor.heard_ns = 0 if cursor.evaluated_until > self.counters.last_queued_position else now_ns
        self.wait_until_ns = NEVER
        return self.mark_dirty()
