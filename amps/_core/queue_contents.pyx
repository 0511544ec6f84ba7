"""What is in a queue: messages come in, wait, run out of time and leave (queues.md §10, §19).

The first of three layers of a queue; who holds messages is told in queue_holding.pyx, who gets them in
queue_machine.pyx. None of them does I/O or has a clock: what is decided goes to a QueueOutput, and time is told.

A message enters once (`enqueue`; its log position says whether it is known), and is available, a barrier, or inactive,
if the queue is as deep as it may be. It leaves when it is acknowledged, delivered at most once, or its time is over.
Time passes for most messages in the order of the log (`expiry_next`), for others by a heap (`expiries`).
An acknowledgement may come before its message is active, or is there at all: it is remembered for a while (`deferred`).
Of messages that are not there so many may be, per client and in all queues (`QueueShared.may_defer`).

Whoever changes something that may let a message go marks the queue dirty, and the book serves it.

Invariants
- A message has one state. `depth` counts those that are active (available, leased, barriers), `inactive` the others,
  the first of which is at or behind `inactive_next`.
- A message that waits and whose time will be over is at or behind `expiry_next`, or in `expiries`. What is leased or
  inactive is looked at when it comes back, or becomes active.
- `expected_ns` is when the queue's timer rings; nothing is due before that.
- Heaps may hold more than they should, which is dropped when it comes to the top.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from amps._core.bookmark_index cimport PublisherMap
from amps._core.queue_heap cimport Heap, HeapEntry, heap_free, heap_pop, heap_push
from amps._core.queue_list cimport MessageList
from amps._core.queue_members cimport Membership
from amps._core.queue_output cimport QueueOutput
from amps._core.queue_records cimport QUEUE_ACKNOWLEDGE, QUEUE_ANSWERED, QUEUE_EXPIRE, REASON_TIME_LIMIT
from amps._core.queue_slots cimport (
    BLOCK_SLOTS,
    NEVER,
    NO_SLOT,
    SLOT_AVAILABLE,
    SLOT_BARRIER,
    SLOT_GONE,
    SLOT_HAS_PRIORITY,
    SLOT_INACTIVE,
    SLOT_OWN_EXPIRY,
    QueueArena,
    QueueSlot,
)
from amps._core.record cimport NO_EXPIRATION


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
        self.deferred = 0
        self.deferred_by_client = {}
        self.deferred_max = NEVER
        self.deferred_per_client_max = NEVER

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

    cdef int expects(self, QueueContents queue, uint64_t due_ns) except -1:
        """A queue has something to do at that time."""
        if due_ns < queue.expected_ns:
            queue.expected_ns = due_ns
            heap_push(&self.timers, due_ns, queue.number, queue.number, 0)
        return 0

    cdef int forget_membership(self, Membership member) except -1:
        """Nothing refers to its number any more."""
        self.memberships[member.number] = None
        member.subscriber.alive.remove(member)
        self.free_memberships.append(member.number)
        return 0

    # client: None for what was read in the log
    cdef int note_deferred(self, client) except -1:
        self.deferred += 1
        if client is not None:
            self.deferred_by_client[client] = self.deferred_by_client.get(client, 0) + 1
        return 0

    cdef int note_undeferred(self, client) except -1:
        self.deferred -= 1
        count = self.deferred_by_client.get(client)
        if count is not None:
            if count > 1:
                self.deferred_by_client[client] = count - 1
            else:
                del self.deferred_by_client[client]
        return 0

    cdef int forget_deferring(self, client) except -1:
        """A client has gone: what it has acknowledged stays, and is nobody's."""
        self.deferred_by_client.pop(client, None)
        return 0

    cdef bint may_defer(self, client, uint64_t count) except -1:
        """Whether a client may acknowledge so many more messages that are not there."""
        cdef uint64_t of_client = self.deferred_by_client.get(client, 0)
        return self.deferred + count <= self.deferred_max and of_client + count <= self.deferred_per_client_max


cdef class QueueContents(MessageList):

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
        self.expiration_model = ("default", "queue", "latest", "earliest").index(settings.expiration_model)
        self.expiration_ns = NEVER if settings.expiration_ns is None else settings.expiration_ns
        self.target_depth = NEVER if settings.target_queue_depth is None else settings.target_queue_depth
        self.deferred_ns = settings.deferred_ack_expiration_ns
        self.shared = shared
        self.output = shared.output
        self.expiry_next = NO_SLOT
        self.inactive_next = NO_SLOT
        self.expected_ns = NEVER
        self.deferred = {}
        self.dirty = False
        self.now_ns = 0
        self.start_position = 0

    def __dealloc__(self):
        heap_free(&self.barriers)
        heap_free(&self.expiries)

    cdef int mark_dirty(self) except -1:
        if not self.dirty:
            self.dirty = True
            self.shared.dirty.append(self)
        return 0

    # --- entering -------------------------------------------------------------------------------------

    cdef int enqueue(self, const NewMessage* message, uint64_t now_ns) except -1:
        """A message enters, unless it is known already. Raises QueueMemoryFull."""
        cdef uint32_t number
        cdef QueueSlot* slot
        cdef bint own = False
        if message.position <= self.counters.last_queued_position:
            # Only when the log is read again: its acknowledgement came first, and has done what it had to do.
            if self.deferred:
                self.recall((message.publisher_id, message.sequence))
            return 0
        self.counters.last_queued_position = message.position
        self.now_ns = now_ns
        if self.deferred:
            found = self.recall((message.publisher_id, message.sequence))
            if found is not None and found[0] > now_ns:
                # The acknowledgement may lie before all that will be read of the log one day.
                return self.output.remove(
                    self.number, QUEUE_ANSWERED, message.publisher_id, message.sequence, message.position, 0, 0
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
        """A message may be delivered; who delivers (Queue) says what follows from that."""
        return 0

    cdef int activate(self) except -1:
        """While there is room for active messages, make them out of those beyond the target depth."""
        cdef uint32_t slot
        while self.counters.inactive and self.counters.depth < self.target_depth:
            slot = self.inactive_next
            while self.slots[slot].state != SLOT_INACTIVE:
                slot = self.next_slot(slot)
            self.inactive_next = self.next_slot(slot)
            self.counters.inactive -= 1
            if self.deferred and self.recall(self.bookmark(slot)) is not None:
                self.gone(slot)
            elif self.slots[slot].expires_ns <= self.now_ns:
                self.note_removal(slot, QUEUE_EXPIRE, REASON_TIME_LIMIT)
                self.counters.insert_count += 1
                self.counters.delete_count += 1
                self.gone(slot)
            else:
                self.set_available(slot)
        return 0

    # --- leaving --------------------------------------------------------------------------------------

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
            self.slots[slot].position, self.slots[slot].deliveries, reasons,
        )

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

    cdef int block_dropped(self, uint32_t block, uint32_t next_slot) except -1:
        if self.expiry_next != NO_SLOT and self.expiry_next // BLOCK_SLOTS == block:
            self.expiry_next = next_slot
        if self.inactive_next != NO_SLOT and self.inactive_next // BLOCK_SLOTS == block:
            self.inactive_next = next_slot
        return 0

    # --- acknowledgements that come early -------------------------------------------------------------

    cdef bint defers(self, uint32_t action) noexcept nogil:
        """Whether an acknowledgement takes a message away that nobody has got yet (D-06)."""
        return action == QUEUE_ACKNOWLEDGE or (action == QUEUE_EXPIRE and self.at_least_once)

    cdef int defer(self, uint64_t publisher_id, uint64_t sequence, uint64_t now_ns, client) except -1:
        """Remember an acknowledgement until its message comes (queues.md §8.5), or anew if it is remembered already."""
        self.remember((publisher_id, sequence), now_ns + self.deferred_ns, client)
        return self.shared.expects(self, self.due_ns())

    cdef int remember(self, tuple bookmark, until, client) except -1:
        self.recall(bookmark)  # they are in the order in which they end
        self.deferred[bookmark] = until, client
        self.counters.deferred = len(self.deferred)
        return self.shared.note_deferred(client)

    cdef tuple recall(self, tuple bookmark):
        """Take an acknowledgement out that was remembered: (until when, of which client). None: there is none."""
        cdef tuple found = self.deferred.pop(bookmark, None)
        if found is not None:
            self.counters.deferred = len(self.deferred)
            self.shared.note_undeferred(found[1])
        return found

    cdef tuple bookmark(self, uint32_t slot):
        return self.shared.publisher_id(self.slots[slot].publisher), self.slots[slot].sequence

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

    # --- time -----------------------------------------------------------------------------------------

    cdef uint64_t due_ns(self) noexcept:
        """When `pass_time` has something to do at the earliest."""
        cdef uint64_t due = NEVER
        if self.expiries.count:
            due = self.expiries.entries[0].rank
        if self.expiry_next != NO_SLOT:
            due = min(due, self.slots[self.expiry_next].expires_ns)
        for until, _ in self.deferred.values():
            due = min(due, <uint64_t>until)
            break  # they are in the order in which they end
        return due

    cdef int pass_time(self, uint64_t now_ns) except -1:
        """Messages expire, then acknowledgements are forgotten."""
        self.now_ns = now_ns
        self.expire_own()
        self.expire_in_order()
        while self.deferred:
            bookmark, (until, _) = next(iter(self.deferred.items()))
            if until > now_ns:
                break
            self.recall(bookmark)
        if self.counters.inactive:
            self.activate()
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
