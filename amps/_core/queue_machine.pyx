"""One queue: which message goes to which subscription, and what becomes of it (queues.md §19, §20).

A state machine without I/O and without a clock. Messages come in (`enqueue`), acknowledgements, members, and time; what
is decided goes to a QueueOutput. Nothing here costs more with more messages in the queue: what is available is found
from the first slot that nobody has looked at (`fresh`), and from heaps of what came back or has a priority.

Order of things: time passes (`pass_time`: leases end, then messages expire), then the queue is served. Whoever
changes something that may let a message go marks the queue dirty, and the book serves it.

Invariants
- A message has one state, and only a message that is LEASED or DELIVERED has a holder; it is in that member's list, and
  counts once in the subscription's `outstanding`.
- `ready` counts the members whose subscription may get one more; the same for each cursor.
- What is AVAILABLE is at or behind `fresh` of the cursor without a filter, or in its heap; for a cursor with a filter
  it is in the heap if it is known to match. Heaps may hold more than that, which is dropped when it comes to the top.
- Nothing behind a barrier is delivered before the barrier.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from amps._core.bookmark_index cimport PublisherMap
from amps._core.queue_heap cimport HeapEntry, heap_free, heap_pop, heap_push
from amps._core.queue_lease_order cimport LeaseOrder
from amps._core.queue_list cimport MessageList
from amps._core.queue_members cimport Cursor, Membership, Subscriber
from amps._core.queue_output cimport QueueOutput
from amps._core.queue_records cimport (
    DELIVERY_BARRIER,
    NO_SUBSCRIPTION,
    QUEUE_ACKNOWLEDGE,
    QUEUE_ANSWERED,
    QUEUE_CANCEL,
    QUEUE_DELIVERED,
    QUEUE_EXPIRE,
    QUEUE_EXTEND_LEASE,
    REASON_BARRIER_SENT,
    REASON_MAX_CANCELS,
    REASON_MAX_DELIVERIES,
    REASON_TIME_LIMIT,
)
from amps._core.queue_slots cimport (
    BLOCK_SLOTS,
    NEVER,
    NO_SLOT,
    SLOT_AVAILABLE,
    SLOT_BARRIER,
    SLOT_DELIVERED,
    SLOT_GONE,
    SLOT_HAS_PRIORITY,
    SLOT_INACTIVE,
    SLOT_LEASE_ENDS,
    SLOT_LEASED,
    SLOT_OWN_EXPIRY,
    QueueArena,
    QueueSlot,
)
from amps._core.record cimport NO_EXPIRATION

cdef enum:
    COUNT_MAX = 65535              # deliveries and cancels of one message
    STALE_MAX = 64                 # stale entries of a heap that are put up with, whatever its size

# How long a message waits for a filter to be evaluated, before it goes to others.
cdef uint64_t EVALUATION_WAIT_NS = 50_000_000


cdef class QueueShared:

    def __cinit__(self):
        self.timers.entries = NULL
        self.timers.count = 0
        self.timers.capacity = 0
        self.publisher_ids = NULL

    def __init__(self, QueueOutput output not None):
        self.output = output
        self.queues = []
        self.memberships = []
        self.free_memberships = []
        self.dirty = []
        self.publisher_numbers = PublisherMap()
        self.publisher_count = 0
        self.publisher_capacity = 0

    def __dealloc__(self):
        heap_free(&self.timers)
        free(self.publisher_ids)

    cdef uint32_t publisher(self, uint64_t publisher_id) except? 0xFFFFFFFF:
        """The number by which slots know a publisher."""
        cdef uint64_t* place = self.publisher_numbers.find(publisher_id)
        cdef uint64_t* grown
        if place != NULL:
            return <uint32_t>place[0]
        if self.publisher_count == self.publisher_capacity:
            self.publisher_capacity = max(64, 2 * self.publisher_capacity)
            grown = <uint64_t*>realloc(self.publisher_ids, self.publisher_capacity * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError()
            self.publisher_ids = grown
        self.publisher_ids[self.publisher_count] = publisher_id
        place = self.publisher_numbers.insert(publisher_id)
        place[0] = self.publisher_count
        self.publisher_count += 1
        return self.publisher_count - 1

    cdef uint32_t known_publisher(self, uint64_t publisher_id) noexcept:
        """The same, of one that has a message in a queue or had one; else NO_PUBLISHER."""
        cdef uint64_t* place = self.publisher_numbers.find(publisher_id)
        return <uint32_t>place[0] if place != NULL else NO_PUBLISHER

    cdef uint64_t publisher_id(self, uint32_t number) noexcept nogil:
        return self.publisher_ids[number]

    cdef int expects(self, Queue queue, uint64_t due_ns) except -1:
        """A queue has something to do at that time."""
        if due_ns < queue.expected_ns:
            queue.expected_ns = due_ns
            heap_push(&self.timers, due_ns, queue.number, queue.number, 0)
        return 0

    cdef int count_backlog(self, Subscriber subscriber, int change) except -1:
        """A subscription holds more or fewer messages."""
        cdef bint before = subscriber.outstanding < subscriber.limit
        cdef bint after
        cdef Membership member
        subscriber.outstanding += change
        after = subscriber.outstanding < subscriber.limit
        if before != after:
            for member in subscriber.memberships:
                (<Queue>self.queues[member.queue]).member_became(member, after)
        return 0

    cdef int forget_membership(self, Membership member) except -1:
        """Nothing refers to its number any more."""
        self.memberships[member.number] = None
        member.subscriber.alive.remove(member)
        self.free_memberships.append(member.number)
        return 0


cdef class Queue(MessageList):

    def __cinit__(self):
        self.barriers.entries = NULL
        self.barriers.count = 0
        self.barriers.capacity = 0
        self.expiries.entries = NULL
        self.expiries.count = 0
        self.expiries.capacity = 0

    def __init__(self, QueueArena arena not None, uint32_t number, counters, settings, QueueShared shared not None):
        """settings: see _QueueSettings in queue_book.pyi."""
        MessageList.__init__(self, arena, number, counters)
        self.settings = settings
        self.at_least_once = settings.at_least_once
        self.strict = settings.strict_leasing
        self.has_priority = settings.has_priority
        self.fairness = ("fast", "round-robin", "proportional").index(settings.fairness_model)
        self.expiration_model = ("default", "queue", "latest", "earliest").index(settings.expiration_model)
        self.lease_period_ns = settings.lease_period_ns or 0
        self.max_backlog = NEVER if settings.max_backlog is None else settings.max_backlog
        self.member_limit = settings.max_per_subscription_backlog
        self.expiration_ns = NEVER if settings.expiration_ns is None else settings.expiration_ns
        self.max_deliveries = settings.max_deliveries
        self.max_cancels = settings.max_cancels
        self.target_depth = NEVER if settings.target_queue_depth is None else settings.target_queue_depth
        self.deferred_ns = settings.deferred_ack_expiration_ns
        self.shared = shared
        self.output = shared.output
        self.members = []
        self.holders = []
        self.everything = Cursor(arena, None, 0)
        self.cursors = [self.everything]
        self.ready = 0
        self.last_order = 0
        self.expiry_next = NO_SLOT
        self.inactive_next = NO_SLOT
        self.lease_due_ns = NEVER
        self.leases = LeaseOrder(arena, self.lease_period_ns)
        self.wait_until_ns = NEVER
        self.expected_ns = NEVER
        self.deferred = {}
        self.dirty = False
        self.now_ns = 0
        self.start_position = 0

    def __dealloc__(self):
        heap_free(&self.barriers)
        heap_free(&self.expiries)

    @property
    def heap_entries(self):
        """Entries of all its heaps, stale ones included: memory besides the slots."""
        cdef Cursor cursor
        count = self.barriers.count + self.expiries.count
        for cursor in self.cursors:
            count += cursor.heap.count
        return count

    cdef int mark_dirty(self) except -1:
        if not self.dirty:
            self.dirty = True
            self.shared.dirty.append(self)
        return 0

    # --- messages -------------------------------------------------------------------------------------

    cdef int enqueue(self, const NewMessage* message, uint64_t now_ns) except -1:
        """A message enters, unless it is known already. Raises QueueMemoryFull."""
        cdef uint32_t number
        cdef QueueSlot* slot
        cdef bint own = False
        if message.position <= self.counters.last_queued_position:
            # Only when the log is read again: its acknowledgement came first, and has done what it had to do.
            if self.deferred and self.deferred.pop((message.publisher_id, message.sequence), None) is not None:
                self.counters.deferred = len(self.deferred)
            return 0
        self.counters.last_queued_position = message.position
        self.now_ns = now_ns
        if self.deferred:
            until = self.deferred.pop((message.publisher_id, message.sequence), None)
            if until is not None:
                self.counters.deferred = len(self.deferred)
                if until > now_ns:
                    # The acknowledgement may lie before all that will be read of the log one day.
                    return self.output.remove(
                        self.number, QUEUE_ANSWERED, message.publisher_id, message.sequence, message.position, 0
                    )
        number = self.append(message.position)
        slot = &self.slots[number]
        slot.sequence = message.sequence
        slot.publisher = message.publisher
        slot.expires_ns = self.expiry(message, &own)
        if message.has_priority:
            slot.flags |= SLOT_HAS_PRIORITY
            slot.priority = message.priority
        if own:
            slot.flags |= SLOT_OWN_EXPIRY
        return self.place(number, message.is_barrier)

    cdef int place(self, uint32_t number, bint is_barrier) except -1:
        """A message has its slot, all of it but its state: it is one of the queue's from now on."""
        cdef QueueSlot* slot = &self.slots[number]
        if slot.flags & SLOT_OWN_EXPIRY:
            if slot.expires_ns != NEVER:
                self.remember_expiry(number)
        elif self.expiry_next == NO_SLOT and slot.expires_ns != NEVER:
            self.expiry_next = number
        if slot.expires_ns < self.expected_ns:
            self.shared.expects(self, slot.expires_ns)
        if self.everything.fresh == NO_SLOT and not self.has_priority:
            self.everything.fresh = number
        if is_barrier:
            slot.state = SLOT_BARRIER
            self.counters.depth += 1
            self.counters.insert_count += 1
            heap_push(&self.barriers, 0, slot.position, number, 0)
            self.mark_dirty()
        elif self.counters.inactive or self.counters.depth >= self.target_depth:
            slot.state = SLOT_INACTIVE
            self.counters.inactive += 1
            if self.inactive_next == NO_SLOT:
                self.inactive_next = number
        else:
            self.set_available(number)
        return 0

    cdef uint64_t expiry(self, const NewMessage* message, bint* own) noexcept:
        """When a message's time is over (queues.md §10, D-13). own: not in the order of the log."""
        cdef uint64_t of_queue = NEVER
        cdef uint64_t of_message = NEVER
        cdef uint64_t chosen
        if self.expiration_ns != NEVER:
            of_queue = message.timestamp_ns + self.expiration_ns
        own[0] = self.expiration_ns == NEVER
        if message.expiration_s == NO_EXPIRATION:
            return of_queue
        if message.expiration_s:
            of_message = message.timestamp_ns + <uint64_t>message.expiration_s * 1_000_000_000
        if self.expiration_model == EXPIRATION_DEFAULT:
            chosen = of_message
        elif self.expiration_model == EXPIRATION_QUEUE:
            chosen = of_queue
        elif self.expiration_model == EXPIRATION_LATEST:
            chosen = max(of_message, of_queue)
        else:
            chosen = min(of_message, of_queue)
        own[0] = own[0] or chosen != of_queue
        return chosen

    cdef int remember_expiry(self, uint32_t slot) except -1:
        cdef Heap kept
        cdef HeapEntry* entry
        cdef uint64_t at
        if self.expiries.count > 2 * self.live + STALE_MAX:
            kept.entries = NULL
            kept.count = 0
            kept.capacity = 0
            for at in range(self.expiries.count):
                entry = &self.expiries.entries[at]
                if self.slots[entry.slot].position == entry.position and self.slots[entry.slot].state != SLOT_GONE:
                    heap_push(&kept, entry.rank, entry.position, entry.slot, 0)
            heap_free(&self.expiries)
            self.expiries = kept
        return heap_push(&self.expiries, self.slots[slot].expires_ns, self.slots[slot].position, slot, 0)

    cdef int set_available(self, uint32_t slot) except -1:
        self.slots[slot].state = SLOT_AVAILABLE
        self.counters.depth += 1
        self.counters.insert_count += 1
        return self.offer(slot)

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
        if self.expiry_next != NO_SLOT and self.expiry_next // BLOCK_SLOTS == block:
            self.expiry_next = next_slot
        if self.inactive_next != NO_SLOT and self.inactive_next // BLOCK_SLOTS == block:
            self.inactive_next = next_slot
        return 0

    cdef int leave(self, uint32_t slot) except -1:
        """An active message that nobody holds leaves the queue."""
        self.counters.depth -= 1
        self.counters.delete_count += 1
        self.gone(slot)
        if self.barriers.count or self.counters.inactive:
            self.mark_dirty()
        return 0

    cdef int expire(self, uint32_t slot, uint32_t reasons) except -1:
        """An active message that nobody holds leaves the queue, and not because somebody worked on it."""
        self.note_removal(slot, QUEUE_EXPIRE, reasons)
        return self.leave(slot)

    cdef int note_removal(self, uint32_t slot, uint32_t action, uint32_t reasons) except -1:
        return self.output.remove(
            self.number, action, self.shared.publisher_id(self.slots[slot].publisher), self.slots[slot].sequence,
            self.slots[slot].position, reasons,
        )

    cdef int activate(self) except -1:
        """While there is room for active messages, make them out of those beyond the target depth."""
        cdef uint32_t slot
        while self.counters.inactive and self.counters.depth < self.target_depth:
            slot = self.inactive_next
            while self.slots[slot].state != SLOT_INACTIVE:
                slot = self.next_slot(slot)
            self.inactive_next = self.next_slot(slot)
            self.counters.inactive -= 1
            if self.deferred and self.deferred.pop(self.bookmark(slot), None) is not None:
                self.counters.deferred = len(self.deferred)
                self.gone(slot)
            elif self.slots[slot].expires_ns <= self.now_ns:
                self.note_removal(slot, QUEUE_EXPIRE, REASON_TIME_LIMIT)
                self.counters.insert_count += 1
                self.counters.delete_count += 1
                self.gone(slot)
            else:
                self.set_available(slot)
        return 0

    cdef tuple bookmark(self, uint32_t slot):
        return self.shared.publisher_id(self.slots[slot].publisher), self.slots[slot].sequence

    cdef int remove_recorded(self, uint64_t position) except -1:
        """The journal says that a message has left. 1: it was here."""
        cdef uint32_t slot = self.find(position, NO_SLOT)
        if slot == NO_SLOT:
            return 0
        if self.slots[slot].state == SLOT_INACTIVE:
            self.counters.inactive -= 1
            self.gone(slot)
        else:
            self.leave(slot)
        return 1

    # --- acknowledgements -----------------------------------------------------------------------------

    cdef int acknowledge(
        self, uint64_t client, uint64_t position, uint32_t hint, uint32_t action, uint64_t extension_ns,
        uint64_t now_ns
    ) except -1:
        """Apply an acknowledgement to the message at a log position. Returns an Outcome."""
        cdef uint32_t slot = self.find(position, hint)
        if slot == NO_SLOT:
            return OUTCOME_NOT_FOUND
        return self.acknowledge_slot(client, slot, action, extension_ns, now_ns)

    cdef int acknowledge_slot(
        self, uint64_t client, uint32_t slot, uint32_t action, uint64_t extension_ns, uint64_t now_ns
    ) except -1:
        cdef int state = self.slots[slot].state
        cdef Membership holder
        self.now_ns = now_ns
        if state == SLOT_INACTIVE:
            if not self.defers(action):
                return OUTCOME_NOTHING
            publisher_id, sequence = self.bookmark(slot)
            # Who tells of removals reads them in the journal: it knows of each once.
            known = (publisher_id, sequence) in self.deferred
            self.defer(publisher_id, sequence, now_ns)
            return OUTCOME_NOTHING if known else OUTCOME_DEFERRED
        if state == SLOT_LEASED or state == SLOT_DELIVERED:
            holder = self.holder_of(slot)
            if holder.subscriber.client != client and (self.strict or action == QUEUE_EXTEND_LEASE):
                return OUTCOME_REFUSED
            if action == QUEUE_EXTEND_LEASE:
                if state == SLOT_DELIVERED:
                    return OUTCOME_NOTHING
                self.extend(holder, slot, now_ns + extension_ns)
                return OUTCOME_EXTENDED
            if state == SLOT_DELIVERED:
                self.free_delivered(slot)
                return OUTCOME_FREED
            if action == QUEUE_CANCEL:
                if self.slots[slot].cancels < COUNT_MAX:
                    self.slots[slot].cancels += 1
                self.let_go(slot)
                return OUTCOME_EXPIRED if self.give_back(slot, True) else OUTCOME_RETURNED
            self.let_go(slot)
        elif not self.defers(action):
            return OUTCOME_NOTHING
        self.leave(slot)
        return OUTCOME_REMOVED

    cdef uint32_t find_since(self, uint32_t publisher, uint64_t sequence, uint64_t position) noexcept nogil:
        """The slot of a bookmark that came at a log position or behind it; NO_SLOT: it did not."""
        cdef uint64_t at = self.block_count
        cdef uint32_t slot
        cdef uint32_t first
        while at:
            at -= 1
            first = self.blocks[self.first_block + at] * BLOCK_SLOTS
            slot = first + self.arena.blocks[first // BLOCK_SLOTS].used
            while slot > first:
                slot -= 1
                if self.slots[slot].position < position:
                    return NO_SLOT
                if self.slots[slot].sequence == sequence and self.slots[slot].publisher == publisher:
                    return slot if self.slots[slot].state != SLOT_GONE else NO_SLOT
        return NO_SLOT

    cdef int defer(self, uint64_t publisher_id, uint64_t sequence, uint64_t now_ns) except -1:
        """Remember an acknowledgement until its message comes (queues.md §8.5), or anew if it is remembered already."""
        self.deferred.pop((publisher_id, sequence), None)
        self.deferred[publisher_id, sequence] = now_ns + self.deferred_ns
        self.counters.deferred = len(self.deferred)
        return self.shared.expects(self, self.due_ns())

    cdef bint defers(self, uint32_t action) noexcept nogil:
        """Whether an acknowledgement takes a message away that nobody has got yet (D-06)."""
        return action == QUEUE_ACKNOWLEDGE or (action == QUEUE_EXPIRE and self.at_least_once)

    cdef Membership holder_of(self, uint32_t slot):
        return <Membership>self.shared.memberships[self.slots[slot].holder]

    cdef int hold(self, Membership member, uint32_t slot) except -1:
        """Enter a slot in the list of what a member holds, by the end of its lease."""
        cdef uint32_t before = member.last
        cdef uint64_t end = self.lease_end(slot)
        while before != NO_SLOT and self.lease_end(before) > end:
            before = self.slots[before].previous
        self.slots[slot].previous = before
        if before == NO_SLOT:
            self.slots[slot].next = member.first
            member.first = slot
        else:
            self.slots[slot].next = self.slots[before].next
            self.slots[before].next = slot
        if self.slots[slot].next == NO_SLOT:
            member.last = slot
        else:
            self.slots[self.slots[slot].next].previous = slot
        self.slots[slot].holder = member.number
        member.held += 1
        return 0

    cdef uint64_t lease_end(self, uint32_t slot) noexcept nogil:
        return self.slots[slot].lease_ns if self.slots[slot].flags & SLOT_LEASE_ENDS else NEVER

    cdef int unhold(self, Membership member, uint32_t slot) except -1:
        cdef uint32_t previous = self.slots[slot].previous
        cdef uint32_t following = self.slots[slot].next
        if previous == NO_SLOT:
            member.first = following
        else:
            self.slots[previous].next = following
        if following == NO_SLOT:
            member.last = previous
        else:
            self.slots[following].previous = previous
        member.held -= 1
        return 0

    cdef int let_go(self, uint32_t slot) except -1:
        """A leased message has no holder any more; its state is the caller's to set."""
        cdef Membership member = self.holder_of(slot)
        self.unhold(member, slot)
        self.leases.end(slot)
        self.counters.oldest_lease_ns = self.leases.oldest_ns
        self.slots[slot].flags &= <unsigned char>~SLOT_LEASE_ENDS
        self.counters.leased -= 1
        self.freed(member)
        return 0

    cdef int free_delivered(self, uint32_t slot) except -1:
        """A message delivered at most once counts in no backlog any more."""
        cdef Membership member = self.holder_of(slot)
        self.unhold(member, slot)
        self.counters.delivered -= 1
        self.gone(slot)
        self.freed(member)
        return 0

    cdef int freed(self, Membership member) except -1:
        """A member holds one message less."""
        self.shared.count_backlog(member.subscriber, -1)
        if not member.current and member.held == 0:
            self.holders.remove(member)
            self.shared.forget_membership(member)
        if self.ready or self.barriers.count:
            self.mark_dirty()
        return 0

    cdef int extend(self, Membership member, uint32_t slot, uint64_t end_ns) except -1:
        self.unhold(member, slot)
        self.leases.extend(slot)
        self.slots[slot].lease_ns = end_ns
        self.slots[slot].flags |= SLOT_LEASE_ENDS
        self.hold(member, slot)
        self.lease_due_ns = min(self.lease_due_ns, end_ns)
        return self.shared.expects(self, end_ns)

    cdef int give_back(self, uint32_t slot, bint cancelled) except -1:
        """A message that was leased comes back, or expires (queues.md §11, `ret`). 1: it has expired."""
        cdef uint32_t reasons = 0
        if self.slots[slot].expires_ns <= self.now_ns:
            reasons |= REASON_TIME_LIMIT
        if cancelled and self.max_cancels and self.slots[slot].cancels >= self.max_cancels:
            reasons |= REASON_MAX_CANCELS
        if self.max_deliveries and self.slots[slot].deliveries >= self.max_deliveries:
            reasons |= REASON_MAX_DELIVERIES
        self.slots[slot].state = SLOT_AVAILABLE
        if reasons:
            self.expire(slot, reasons)
            return 1
        self.offer(slot)
        return 0

    # --- members --------------------------------------------------------------------------------------

    cdef int add_member(self, Membership member) except -1:
        """A subscription gets messages from now on."""
        cdef uint64_t at = <uint64_t>len(self.members)
        while at and (<Membership>self.members[at - 1]).subscriber.order > member.subscriber.order:
            at -= 1
        self.members.insert(at, member)
        if member not in self.holders:
            self.holders.append(member)
        member.current = True
        member.cursor.members += 1
        self.counters.members += 1
        if member.subscriber.outstanding < member.subscriber.limit:
            self.member_became(member, True)
        return self.mark_dirty()

    cdef int drop_member(self, Membership member) except -1:
        """A subscription gets nothing more; what it holds, it holds."""
        self.members.remove(member)
        member.current = False
        member.cursor.members -= 1
        self.counters.members -= 1
        if member.subscriber.outstanding < member.subscriber.limit:
            self.member_became(member, False)
        if member.cursor.members == 0 and member.cursor is not self.everything:
            self.cursors.remove(member.cursor)
        if member.held == 0:
            self.holders.remove(member)
            self.shared.forget_membership(member)
        return self.mark_dirty()

    cdef int member_became(self, Membership member, bint ready) except -1:
        """A current member may get a message now, or may not any more."""
        if ready:
            self.ready += 1
            member.cursor.ready += 1
            return self.mark_dirty()
        self.ready -= 1
        member.cursor.ready -= 1
        return 0

    cdef int return_all(self, Membership member, uint64_t now_ns) except -1:
        """A subscription has ended: what it held comes back, or is free."""
        cdef uint32_t slot
        self.now_ns = now_ns
        while member.first != NO_SLOT:
            slot = member.first
            if self.slots[slot].state == SLOT_DELIVERED:
                self.free_delivered(slot)
            else:
                self.let_go(slot)
                self.give_back(slot, False)
        return 0

    # --- time -----------------------------------------------------------------------------------------

    cdef uint64_t due_ns(self) noexcept:
        """When `pass_time` has something to do at the earliest."""
        cdef uint64_t due = min(self.lease_due_ns, self.wait_until_ns)
        if self.expiries.count:
            due = min(due, self.expiries.entries[0].rank)
        if self.expiry_next != NO_SLOT:
            due = min(due, self.slots[self.expiry_next].expires_ns)
        for until in self.deferred.values():
            due = min(due, <uint64_t>until)
            break  # they are in the order in which they end
        return due

    cdef int pass_time(self, uint64_t now_ns) except -1:
        """Leases end, then messages expire, then acknowledgements are forgotten."""
        self.now_ns = now_ns
        if self.lease_due_ns <= now_ns:
            self.end_leases()
        self.expire_own()
        self.expire_in_order()
        while self.deferred:
            bookmark, until = next(iter(self.deferred.items()))
            if until > now_ns:
                break
            del self.deferred[bookmark]
            self.counters.deferred = len(self.deferred)
        if self.counters.inactive:
            self.activate()
        if self.wait_until_ns <= now_ns:
            self.wait_until_ns = NEVER
            self.mark_dirty()
        return 0

    cdef int end_leases(self) except -1:
        cdef Membership member
        cdef uint32_t slot
        self.lease_due_ns = NEVER
        for member in list(self.holders):
            while member.first != NO_SLOT and self.lease_end(member.first) <= self.now_ns:
                slot = member.first
                self.counters.expired_leases += 1
                self.let_go(slot)
                self.give_back(slot, False)
            if member.first != NO_SLOT:
                self.lease_due_ns = min(self.lease_due_ns, self.lease_end(member.first))
        return 0

    cdef int expire_own(self) except -1:
        cdef HeapEntry entry
        cdef int state
        while self.expiries.count and self.expiries.entries[0].rank <= self.now_ns:
            entry = self.expiries.entries[0]
            heap_pop(&self.expiries)
            state = self.slots[entry.slot].state
            # What is leased or inactive is looked at when it comes back, or is activated.
            if self.slots[entry.slot].position == entry.position and (
                state == SLOT_AVAILABLE or state == SLOT_BARRIER
            ):
                self.expire(entry.slot, REASON_TIME_LIMIT)
        return 0

    cdef int expire_in_order(self) except -1:
        cdef uint32_t slot
        cdef int state
        while self.expiry_next != NO_SLOT:
            slot = self.expiry_next
            state = self.slots[slot].state
            if state != SLOT_GONE and not self.slots[slot].flags & SLOT_OWN_EXPIRY:
                if self.slots[slot].expires_ns > self.now_ns:
                    return 0
            self.expiry_next = self.next_slot(slot)
            if state == SLOT_AVAILABLE or state == SLOT_BARRIER:
                if not self.slots[slot].flags & SLOT_OWN_EXPIRY:
                    self.expire(slot, REASON_TIME_LIMIT)
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
            message.state = SLOT_LEASED
            message.lease_ns = self.now_ns
            if message.deliveries < COUNT_MAX:
                message.deliveries += 1
            if self.lease_period_ns:
                lease_until_ns = message.lease_ns = self.now_ns + self.lease_period_ns
                message.flags |= SLOT_LEASE_ENDS
                if lease_until_ns < self.lease_due_ns:
                    self.lease_due_ns = lease_until_ns
                    self.shared.expects(self, lease_until_ns)
            self.leases.give(slot, self.now_ns, self.counters.leased)
            self.counters.oldest_lease_ns = self.leases.oldest_ns
            self.counters.leased += 1
        else:
            message.state = SLOT_DELIVERED
            self.note_removal(slot, QUEUE_DELIVERED, 0)
            self.counters.depth -= 1
            self.counters.delivered += 1
            self.counters.delete_count += 1
        self.hold(member, slot)
        member.cursor.last_delivered_position = message.position
        self.shared.count_backlog(subscriber, 1)
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
