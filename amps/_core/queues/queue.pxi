# One queue: messages enter, are delivered to subscriptions, come back, and leave (queues.md §19, §20).
#
# A state machine without I/O and without a clock. The caller passes messages, acknowledgements, members and the time;
# decisions go to a QueueOutput. It is one class in four parts, each with its invariants: the messages in the order of
# the log; messages enter, wait, run out of time, and leave; who holds which messages; which message goes to which
# subscription. What a queue that spans instances has besides is in queues/span.pxi.
#
# Order of operations: first `pass_time` ends leases and then expires messages; then the queue is served, if it is
# dirty.

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from amps._core.journal.queue_records cimport (
    DELIVERY_BARRIER,
    NO_SUBSCRIPTION,
    QUEUE_ACKNOWLEDGE,
    QUEUE_ANSWERED,
    QUEUE_CANCEL,
    QUEUE_DELIVERED,
    QUEUE_EXPIRE,
    QUEUE_EXTEND_LEASE,
    REASON_BARRIER_SENT,
    REASON_ELSEWHERE,
    REASON_MAX_CANCELS,
    REASON_MAX_DELIVERIES,
    REASON_TIME_LIMIT,
)
from amps._core.journal.writer cimport PublisherMap
from amps._core.shm.platform cimport debug_assert

COUNTERS_BYTES = sizeof(QueueCounters)
COUNTER_NAMES = (
    "depth", "inactive", "leased", "delivered", "insert_count", "delete_count", "expired_leases", "deferred",
    "transferred_in", "transferred_out", "oldest_position", "last_queued_position", "last_acked_position",
    "first_block_plus_one", "members", "oldest_lease_ns", "delayed", "next_delivery_ns", "waiting", "transactions",
    "transactions_lease_lost", "foreign", "proxied", "unused_23",
)

cdef enum:
    COUNT_MAX = 65535              # deliveries and cancels of one message
    DELAYS_PER_TURN = 1024         # messages that become available in one turn of the core, which may take 1 ms

# How long a message waits for the evaluation of filters before it goes to a subscription that is known to match.
cdef uint64_t EVALUATION_WAIT_NS = 50_000_000


@cython.final
cdef class Queue:

    def __cinit__(self):
        self.blocks = NULL
        self.barriers.entries = NULL
        self.barriers.count = 0
        self.barriers.capacity = 0

    def __init__(self, QueueArena arena not None, uint32_t number, counters, settings, QueueShared shared not None):
        """counters: writable memory of COUNTERS_BYTES that other processes read; it is cleared. settings: see
        _QueueSettings in manager.pyi.
        """
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
        self.counters.next_delivery_ns = NEVER
        self.first_block = 0
        self.block_count = 0
        self.block_capacity = 0
        self.live = 0
        self.head = NO_SLOT
        self.settings = settings
        self.at_least_once = settings.at_least_once
        self.target_depth = NEVER if settings.target_queue_depth is None else settings.target_queue_depth
        self.deferred_ns = settings.deferred_ack_expiration_ns
        self.shared = shared
        self.output = shared.output
        self.expiries = ExpiryOrder(arena, settings)
        self.inactive_next = NO_SLOT
        self.expected_ns = NEVER
        self.deferred = {}
        self.delays = DelayOrder(arena, settings)
        self.dirty = False
        self.keys = OrderingKeys(arena) if settings.has_ordering_key else None
        self.now_ns = 0
        self.start_position = 0
        self.strict = settings.strict_leasing
        self.lease_period_ns = settings.lease_period_ns or 0
        self.member_limit = settings.max_per_subscription_backlog
        self.max_deliveries = settings.max_deliveries
        self.max_cancels = settings.max_cancels
        self.members = []
        self.holders = []
        self.ready = 0
        self.lease_due_ns = NEVER
        self.leases = LeaseOrder(arena, self.lease_period_ns)
        self.has_priority = settings.has_priority
        self.fairness = ("fast", "round-robin", "proportional").index(settings.fairness_model)
        self.max_backlog = NEVER if settings.max_backlog is None else settings.max_backlog
        self.everything = Cursor(arena, None, 0)
        self.cursors = [self.everything]
        self.last_order = 0
        self.wait_until_ns = NEVER
        self.span = QueueSpan(self, settings, shared.ownerships) if settings.spans else None

    def __dealloc__(self):
        free(self.blocks)
        heap_free(&self.barriers)

    # --- time -----------------------------------------------------------------------------------------

    cdef uint64_t due_ns(self) noexcept:
        """The earliest time at which `pass_time` has something to do."""
        cdef uint64_t due = min(min(self.lease_due_ns, self.wait_until_ns), self.delays.next_ns)
        due = min(due, self.expiries.due_ns())
        if self.span is not None:
            due = min(due, self.span.due_ns())
        for until, _ in self.deferred.values():
            due = min(due, <uint64_t>until)
            break  # in the order of expiration
        return due

    cdef int pass_time(self, uint64_t now_ns) except -1:
        """End leases, then expire messages, then forget deferred acknowledgements, then end delays, then end the wait
        for filters. Not all delays may end at once: then it is due again.
        """
        cdef uint32_t slot
        self.now_ns = now_ns
        if self.lease_due_ns <= now_ns:
            self.end_leases()
        while True:
            slot = self.expiries.take(now_ns)
            if slot == NO_SLOT:
                break
            self.expire(slot, REASON_TIME_LIMIT)
        while self.deferred:
            bookmark, (until, _) = next(iter(self.deferred.items()))
            if until > now_ns:
                break
            self.recall(bookmark)
        if self.counters.inactive:
            self.activate()
        if self.delays.next_ns <= now_ns:
            self.end_delays()
        if self.wait_until_ns <= now_ns:
            self.wait_until_ns = NEVER
            self.mark_dirty()
        if self.span is not None:
            self.span.pass_time()
        return 0

    # --- references to slots in all parts -----------------------------------------------------------------

    cdef int block_dropped(self, uint32_t block, uint32_t next_slot) except -1:
        """Drop all references to slots of a block; `next_slot` is the first slot of the block behind it."""
        cdef Cursor cursor
        for cursor in self.cursors:
            if cursor.fresh != NO_SLOT and cursor.fresh // BLOCK_SLOTS == block:
                cursor.fresh = next_slot
            cursor.forget_block(block)
        self.expiries.block_dropped(block, next_slot)
        if self.inactive_next != NO_SLOT and self.inactive_next // BLOCK_SLOTS == block:
            self.inactive_next = next_slot
        if self.span is not None:
            self.span.block_dropped(block, next_slot)
        return 0

    # === the messages in the order of the log ====================================================================
    #
    # The cost of appending and removing does not depend on the number of messages. Finding by log position is a binary
    # search. A message keeps its slot as long as it is in the queue, so the number of the slot can serve as a hint. The
    # log position tells whether the slot now belongs to another message.
    #
    # Invariants: Positions rise from slot to slot. A slot that is gone keeps its position until its block is given
    # back, so that a binary search can use it. A block is given back when all its slots are gone and it is full, or
    # when the queue is empty.

    cdef uint32_t append(self, uint64_t position) except? 0xFFFFFFFF:
        """Append a slot for the message at that position. The caller sets its state, to one that is not SLOT_GONE."""
        cdef uint32_t block = NO_BLOCK
        cdef uint32_t last
        cdef uint32_t slot
        if self.block_count:
            block = self.blocks[self.first_block + self.block_count - 1]
        if block == NO_BLOCK or self.arena.blocks[block].used == BLOCK_SLOTS:
            last = block
            self._make_room()
            block = self._take_block()
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

    def _take_block(self):
        cdef uint32_t block = self.arena.take_block(self.number)
        if self.keys is not None:
            try:
                self.keys.take_block(block)
            except MemoryError:
                self.arena.give_back(block)
                raise
        return block

    def _make_room(self):
        """Make room for one more block in the list."""
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
        """Log position from which the log must be read to rebuild this queue; `position` is the end of the log."""
        return min(position, self.counters.oldest_position)

    cdef uint64_t place_of_block(self, uint64_t position) noexcept nogil:
        """Index in the list of the last block that begins at or before a position; the list must not be empty."""
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
        """The slot of the message at a log position; NO_SLOT if it is not in the queue. hint: its slot at an earlier
        time.
        """
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
        """Mark a message as gone: it has left the queue."""
        cdef uint32_t block = slot // BLOCK_SLOTS
        cdef uint64_t position = self.slots[slot].position
        if self.span is not None:
            self.span.left(slot)
        self.slots[slot].state = SLOT_GONE
        self.arena.blocks[block].live -= 1
        self.live -= 1
        if position > self.counters.last_acked_position:
            self.counters.last_acked_position = position
        if slot == self.head:
            while self.head != NO_SLOT and self.slots[self.head].state == SLOT_GONE:
                self.head = self.arena.next_slot(self.head)
            self.counters.oldest_position = NEVER if self.head == NO_SLOT else self.slots[self.head].position
        if self.arena.blocks[block].live == 0 and (self.arena.blocks[block].used == BLOCK_SLOTS or self.live == 0):
            self.drop_block(self.place_of_block(position))
            if self.live == 0:
                while self.block_count:
                    self.drop_block(self.first_block)
        return 0

    cdef int drop_block(self, uint64_t place) except -1:
        """Give back a block whose slots are all gone."""
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
        if self.keys is not None:
            self.keys.forget_block(block)
        self.arena.give_back(block)
        return 0

    # === messages enter, wait, run out of time, and leave ========================================================
    #
    # A message enters once (`enqueue`; a log position that was seen before is ignored). It is then available, a
    # barrier, delayed, or inactive if the queue has reached its target depth. It leaves when it is acknowledged,
    # delivered at most once, or expired. With an OrderingKey, a message that becomes active may have to wait for others
    # of its key (`keys`), until it becomes available. `expiries` tells which message expires. An acknowledgement may
    # come before its message is active, or before it is in the queue: then it is kept for a while (`deferred`). The
    # number of those without a message is limited, per client and for all queues (`QueueShared.may_defer`).
    #
    # Each change that may allow a delivery marks the queue dirty, and the queue manager serves it.
    #
    # Invariants
    # - A message has one state. `depth` counts those that are active (available, leased, waiting, barriers), `delayed`
    #   those that wait for a time, `inactive` the others, the first of which is at or behind `inactive_next`.
    # - A delayed message with SLOT_DELAYED_HEAD is the head of its key; any other one has not joined its key.
    # - A leased or inactive message that can expire is checked when it comes back or becomes active.
    # - `expected_ns` is the time of the queue's timer; nothing is due before it.
    # - Heaps may hold stale entries, which are dropped when they come to the top.

    cdef int mark_dirty(self) except -1:
        if not self.dirty:
            self.dirty = True
            self.shared.dirty.append(self)
        return 0

    # --- entering -------------------------------------------------------------------------------------

    cdef int enqueue(self, const NewMessage* message, uint64_t now_ns) except -1:
        """Let a message enter, unless it is known already. Raises QueueMemoryFull."""
        cdef uint32_t number
        cdef QueueSlot* slot
        cdef bint own = False
        if message.position <= self.counters.last_queued_position:
            # Happens only in recovery. A deferred acknowledgement of the message has had its effect already.
            if self.deferred:
                self.recall((message.publisher_id, message.sequence))
            return 0
        self.counters.last_queued_position = message.position
        self.now_ns = now_ns
        if self.deferred:
            found = self.recall((message.publisher_id, message.sequence))
            if found is not None and found[0] > now_ns:
                # A later recovery may begin behind the record of the acknowledgement, so the journal records this.
                return self.output.remove(
                    self.number, QUEUE_ANSWERED, message.publisher_id, message.sequence, message.position, 0, 0
                )
        number = self.append(message.position)
        slot = &self.slots[number]
        slot.sequence = message.sequence
        slot.publisher = message.publisher
        slot.expires_ns = self.expiries.expiry(message, &own)
        if message.has_priority:
            slot.flags |= SLOT_HAS_PRIORITY
            slot.priority = message.priority
        if own:
            slot.flags |= SLOT_OWN_EXPIRY
        if self.keys is not None:
            self.keys.set_hash(number, 0 if message.is_barrier else message.key_hash)
        if self.span is not None:
            self.span.enter(number, message.origin)
        return self.place(number, message.is_barrier, message.deliver_at_ns, False)

    cdef int place(self, uint32_t number, bint is_barrier, uint64_t deliver_at_ns, bint is_head) except -1:
        """Set the state of a message whose slot is filled otherwise, and make it known to the parts of the queue. A
        barrier is not delayed. is_head: while it is delayed, it is the head of its key.
        """
        cdef QueueSlot* slot = &self.slots[number]
        if self.everything.fresh == NO_SLOT and not self.has_priority:
            self.everything.fresh = number
        self.expiries.add(number, self.live)
        if slot.expires_ns < self.expected_ns:
            self.shared.expects(self, slot.expires_ns)
        if is_barrier:
            slot.state = SLOT_BARRIER
            self.counters.depth += 1
            self.counters.insert_count += 1
            heap_push(&self.barriers, 0, slot.position, number, 0)
            self.mark_dirty()
        elif deliver_at_ns > self.now_ns:
            self.counters.insert_count += 1
            if is_head:
                self.become_head(number)
            self.delay(number, deliver_at_ns)
        elif self.counters.inactive or self.counters.depth >= self.target_depth:
            slot.state = SLOT_INACTIVE
            self.counters.inactive += 1
            if self.inactive_next == NO_SLOT:
                self.inactive_next = number
        else:
            self.set_available(number)
        return 0

    cdef int set_available(self, uint32_t slot) except -1:
        """Make a new message active."""
        self.counters.insert_count += 1
        return self.make_available(slot)

    cdef int make_available(self, uint32_t slot) except -1:
        """Make a message active: it is available, or waits for the messages of its key."""
        cdef uint32_t waits = NO_SLOT
        self.counters.depth += 1
        if self.keys is not None:
            waits = self.keys.join(slot)
            if waits != NO_SLOT:
                self.counters.waiting += 1
            if waits == slot:
                return 0
        return self.open_(slot)

    cdef int open_(self, uint32_t slot) except -1:
        """Make a message available that waits for nothing here. If another instance owns it, it waits for that one."""
        if self.slots[slot].ownership and not self.span.owns(slot):
            return self.span.wait_for_owner(slot)
        self.slots[slot].state = SLOT_AVAILABLE
        return self.offer(slot)

    cdef int come_back(self, uint32_t slot) except -1:
        """Make the head of a key, or a message without a key, available again. An earlier message of its key may have
        come meanwhile, which had been delayed: then that one is the head.
        """
        cdef uint32_t first = NO_SLOT
        if self.keys is not None:
            first = self.keys.first_waiting(slot)
            if first != NO_SLOT and self.slots[first].position < self.slots[slot].position:
                self.slots[slot].state = SLOT_AVAILABLE
                self.keys.leave(slot)
                self.promote(first)
                self.keys.join(slot)
                self.counters.waiting += 1
                return 0
        return self.open_(slot)

    cdef int promote(self, uint32_t slot) except -1:
        """Make a waiting message, which is the head of its key now, available."""
        self.counters.waiting -= 1
        return self.open_(slot)

    cdef int activate(self) except -1:
        """Activate inactive messages while the depth is below the target depth."""
        while self.counters.inactive and self.counters.depth < self.target_depth:
            self.activate_next()
        return 0

    cdef int activate_next(self) except -1:
        """Activate the first inactive message; there must be one."""
        cdef uint32_t slot = self.inactive_next
        while self.slots[slot].state != SLOT_INACTIVE:
            slot = self.arena.next_slot(slot)
        self.inactive_next = self.arena.next_slot(slot)
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

    cdef int activate_until(self, uint32_t slot) except -1:
        """Activate an inactive message, and all that are before it (replication.md §14.2)."""
        cdef uint64_t position = self.slots[slot].position
        while self.slots[slot].position == position and self.slots[slot].state == SLOT_INACTIVE:
            self.activate_next()
        return 0

    # --- leaving --------------------------------------------------------------------------------------

    cdef int leave(self, uint32_t slot) except -1:
        """Remove an active or delayed message without a holder from the queue."""
        cdef bint was_delayed = self.slots[slot].state == SLOT_DELAYED
        cdef uint32_t following = NO_SLOT
        if self.keys is not None and (not was_delayed or self.slots[slot].flags & SLOT_DELAYED_HEAD):
            following = self.keys.leave(slot)
            if self.slots[slot].state == SLOT_WAITING:
                self.counters.waiting -= 1
        self.counters.delete_count += 1
        self.gone(slot)
        if was_delayed:
            self.counters.delayed -= 1
            self.delays.drop_stale()
            self.counters.next_delivery_ns = self.delays.next_ns
        else:
            self.counters.depth -= 1
        if following != NO_SLOT:
            self.promote(following)
        if self.barriers.count or self.counters.inactive:
            self.mark_dirty()
        return 0

    cdef int expire(self, uint32_t slot, uint32_t reasons) except -1:
        """Remove an active or delayed message without a holder from the queue unacknowledged, and note the removal."""
        self.note_removal(slot, QUEUE_EXPIRE, reasons)
        return self.leave(slot)

    cdef int note_removal(self, uint32_t slot, uint32_t action, uint32_t reasons) except -1:
        if action == QUEUE_EXPIRE and self.slots[slot].ownership and not self.span.owns(slot):
            reasons |= REASON_ELSEWHERE
        return self.output.remove(
            self.number, action, self.shared.publisher_id(self.slots[slot].publisher), self.slots[slot].sequence,
            self.slots[slot].position, self.slots[slot].deliveries, reasons,
        )

    cdef int remove_recorded(self, uint64_t position, uint32_t hint) except -1:
        """Remove a message whose removal is in the journal. hint: see `find`. Returns 1 if it was in the queue."""
        cdef uint32_t slot = self.find(position, hint)
        if slot == NO_SLOT:
            return 0
        if self.slots[slot].state == SLOT_INACTIVE:
            self.counters.inactive -= 1
            self.gone(slot)
        else:
            self.leave(slot)
        return 1

    cdef int remove_replicated(self, uint32_t slot, uint64_t now_ns) except -1:
        """Remove a message that has left the queue on another instance; leases here do not count (queues.md D-21)."""
        cdef uint64_t position = self.slots[slot].position
        self.now_ns = now_ns
        self.span.acknowledged(slot)
        if self.slots[slot].state == SLOT_DELIVERED:
            return 0  # it has left, and counts in the backlog of a subscription here
        if self.slots[slot].state == SLOT_LEASED:
            self.let_go(slot)
        if self.slots[slot].state == SLOT_INACTIVE:
            self.recall(self.bookmark(slot))
        self.remove_recorded(position, slot)
        return self.drop_barriers(position)

    cdef int drop_barriers(self, uint64_t position) except -1:
        """Without subscriptions here, drop barriers that wait for nothing else, and are before a message at that
        position which was acknowledged elsewhere (queues.md D-16).
        """
        cdef HeapEntry* entry
        cdef uint32_t slot
        while self.barriers.count and not self.members:
            entry = &self.barriers.entries[0]
            slot = entry.slot
            if self.slots[slot].position == entry.position and self.slots[slot].state == SLOT_BARRIER:
                if self.head != slot or entry.position > position:
                    break
                self.note_removal(slot, QUEUE_DELIVERED, REASON_BARRIER_SENT)
                heap_pop(&self.barriers)
                self.leave(slot)
            else:
                heap_pop(&self.barriers)
        return 0

    # --- delays ---------------------------------------------------------------------------------------

    cdef int delay(self, uint32_t slot, uint64_t until_ns) except -1:
        """Let a message that is counted in no state wait until a time."""
        if self.keys is not None:
            self.keys.expect_delays()
        self.slots[slot].state = SLOT_DELAYED
        self.slots[slot].lease_ns = until_ns
        self.counters.delayed += 1
        self.delays.add(slot, self.counters.delayed)
        self.counters.next_delivery_ns = self.delays.next_ns
        return self.shared.expects(self, until_ns)

    cdef int become_head(self, uint32_t slot) except -1:
        """Make a message that will be delayed the head of its key again, in recovery."""
        if self.keys is not None and not self.slots[slot].flags & SLOT_DELAYED_HEAD:
            self.slots[slot].flags |= SLOT_DELAYED_HEAD
            if self.keys.take_over(slot) != NO_SLOT:
                self.counters.waiting += 1
        return 0

    cdef int end_delays(self) except -1:
        """Make messages available whose time has come, at most DELAYS_PER_TURN."""
        cdef uint32_t slot
        for _ in range(DELAYS_PER_TURN):
            slot = self.delays.take(self.now_ns)
            if slot == NO_SLOT:
                break
            self.counters.delayed -= 1
            if self.slots[slot].flags & SLOT_DELAYED_HEAD:
                self.slots[slot].flags &= <unsigned char>~SLOT_DELAYED_HEAD
                self.counters.depth += 1
                self.come_back(slot)
            else:
                self.make_available(slot)
        self.counters.next_delivery_ns = self.delays.next_ns
        return 0

    cdef int delay_recorded(self, uint64_t position, uint64_t until_ns) except -1:
        """Delay a message whose delay is recorded in the journal, in recovery. It was the head of its key."""
        cdef uint32_t slot = self.find(position, NO_SLOT)
        cdef int state
        if slot == NO_SLOT:
            return 0
        state = self.slots[slot].state
        if state == SLOT_AVAILABLE or state == SLOT_ELSEWHERE or state == SLOT_WAITING:
            self.counters.depth -= 1
            if state == SLOT_WAITING:
                self.counters.waiting -= 1
                self.keys.leave(slot)
                self.become_head(slot)
            elif self.keys is not None:
                self.slots[slot].flags |= SLOT_DELAYED_HEAD
        elif state == SLOT_DELAYED:
            self.counters.delayed -= 1
            self.become_head(slot)
        elif state == SLOT_INACTIVE:
            self.counters.inactive -= 1
            self.counters.insert_count += 1
            self.become_head(slot)
        else:
            return 0
        if self.counters.inactive:
            self.mark_dirty()  # it no longer counts in the depth
        return self.delay(slot, until_ns)

    # --- deferred acknowledgements --------------------------------------------------------------------

    cdef bint defers(self, uint32_t action) noexcept nogil:
        """Whether an acknowledgement removes a message that was not delivered yet (queues.md D-06)."""
        return action == QUEUE_ACKNOWLEDGE or (action == QUEUE_EXPIRE and self.at_least_once)

    cdef int defer(self, uint64_t publisher_id, uint64_t sequence, uint64_t now_ns, client) except -1:
        """Keep an acknowledgement until its message comes (queues.md §8.5). A kept one gets a new expiration."""
        self.remember((publisher_id, sequence), now_ns + self.deferred_ns, client)
        return self.shared.expects(self, self.due_ns())

    cdef int remember(self, tuple bookmark, until, client) except -1:
        self.recall(bookmark)  # the dict stays in the order of expiration
        self.deferred[bookmark] = until, client
        self.counters.deferred = len(self.deferred)
        return self.shared.note_deferred(client)

    cdef tuple recall(self, tuple bookmark):
        """Take out a deferred acknowledgement: (UNIX time of its expiration, client). None: there is none."""
        cdef tuple found = self.deferred.pop(bookmark, None)
        if found is not None:
            self.counters.deferred = len(self.deferred)
            self.shared.note_undeferred(found[1])
        return found

    cdef tuple bookmark(self, uint32_t slot):
        return self.shared.publisher_id(self.slots[slot].publisher), self.slots[slot].sequence

    cdef uint32_t find_since(self, uint32_t publisher, uint64_t sequence, uint64_t position) noexcept nogil:
        """The slot of the message with a bookmark at or behind a log position. NO_SLOT: there is none."""
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

    # === who holds which messages, and how they come back ========================================================
    #
    # A delivered message is held by a member, the membership of a subscription in this queue. It is held until it is
    # acknowledged or cancelled, or its lease or the subscription ends. It then leaves the queue or comes back to it. A
    # message that comes back too often, or too late, expires. A message delivered at most once has left already; it is
    # held only to count in its subscription's backlog.
    #
    # Invariants
    # - Only a message that is LEASED or DELIVERED has a holder. It is in that member's list, in the order in which
    #   leases end, and counts once in the subscription's `outstanding`.
    # - `ready` counts the members whose subscription has room for a message; each cursor has such a count, too.
    # - No lease ends before `lease_due_ns`.
    # - A membership exists, and is in `holders`, while it is current or holds messages.

    # --- acknowledgements -----------------------------------------------------------------------------

    cdef int acknowledge_slot(
        self, uint64_t client, uint32_t slot, uint32_t action, uint64_t extension_ns, uint64_t now_ns
    ) except -1:
        """Apply an acknowledgement to a message. Returns an Outcome."""
        cdef int state = self.slots[slot].state
        cdef uint64_t delay_ns
        cdef Membership holder
        self.now_ns = now_ns
        if state == SLOT_INACTIVE:
            if not self.defers(action):
                return OUTCOME_NOTHING
            publisher_id, sequence = self.bookmark(slot)
            # Removals are reported from the journal, so it records each of them once.
            known = (publisher_id, sequence) in self.deferred
            self.defer(publisher_id, sequence, now_ns, client)
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
                delay_ns = self.delays.after_cancel(self.slots[slot].cancels, extension_ns)
                return OUTCOME_EXPIRED if self.give_back(slot, True, delay_ns) else OUTCOME_RETURNED
            self.let_go(slot)
        elif not self.defers(action):
            return OUTCOME_NOTHING
        self.leave(slot)
        return OUTCOME_REMOVED

    # --- holding --------------------------------------------------------------------------------------

    cdef uint64_t begin_lease(self, uint32_t slot) except? 0xFFFFFFFFFFFFFFFF:
        """Begin the lease of a message; `hold` sets the holder. Returns the UNIX time of its end; 0 = no end."""
        cdef QueueSlot* message = &self.slots[slot]
        cdef uint64_t lease_until_ns = 0
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
        return lease_until_ns

    cdef int extend(self, Membership member, uint32_t slot, uint64_t end_ns) except -1:
        self.unhold(member, slot)
        self.leases.extend(slot)
        self.slots[slot].lease_ns = end_ns
        self.slots[slot].flags |= SLOT_LEASE_ENDS
        self.hold(member, slot)
        self.lease_due_ns = min(self.lease_due_ns, end_ns)
        return self.shared.expects(self, end_ns)

    cdef Membership holder_of(self, uint32_t slot):
        return <Membership>self.shared.memberships[self.slots[slot].holder]

    cdef int hold(self, Membership member, uint32_t slot) except -1:
        """Insert a slot into a member's list, in the order of lease ends."""
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
        """End the lease of a message and take it from its holder. The caller sets its state."""
        cdef Membership member = self.holder_of(slot)
        self.unhold(member, slot)
        self.leases.end(slot)
        self.counters.oldest_lease_ns = self.leases.oldest_ns
        self.slots[slot].flags &= <unsigned char>~SLOT_LEASE_ENDS
        self.counters.leased -= 1
        self.freed(member)
        return 0

    cdef int free_delivered(self, uint32_t slot) except -1:
        """Take a message delivered at most once out of its backlog."""
        cdef Membership member = self.holder_of(slot)
        self.unhold(member, slot)
        self.counters.delivered -= 1
        self.gone(slot)
        self.freed(member)
        return 0

    cdef int freed(self, Membership member) except -1:
        """Account for a message that a member no longer holds."""
        self.count_backlog(member.subscriber, -1)
        if not member.current and member.held == 0:
            self.holders.remove(member)
            self.shared.forget_membership(member)
        if self.span is not None:
            self.span.prompt()
        if self.ready or self.barriers.count:
            self.mark_dirty()
        return 0

    cdef int count_backlog(self, Subscriber subscriber, int change) except -1:
        """Change the number of messages that a subscription holds, and update its readiness in all its queues."""
        cdef bint before = subscriber.outstanding < subscriber.limit
        cdef bint after
        cdef Membership member
        subscriber.outstanding += change
        after = subscriber.outstanding < subscriber.limit
        if before != after:
            for member in subscriber.memberships:
                (<Queue>self.shared.queues[member.queue]).member_became(member, after)
        return 0

    cdef int give_back(self, uint32_t slot, bint cancelled, uint64_t delay_ns) except -1:
        """Return a message to the queue after its lease, at once or after a delay, or expire it (queues.md §11, `ret`).
        1: it has expired.
        """
        cdef uint32_t reasons = 0
        # Another instance may have become the owner while the lease ran. Then limits and delays are its business.
        cdef bint is_own = self.slots[slot].ownership == 0 or self.span.owns(slot)
        if self.slots[slot].expires_ns <= self.now_ns:
            reasons |= REASON_TIME_LIMIT
        if is_own and cancelled and self.max_cancels and self.slots[slot].cancels >= self.max_cancels:
            reasons |= REASON_MAX_CANCELS
        if is_own and self.max_deliveries and self.slots[slot].deliveries >= self.max_deliveries:
            reasons |= REASON_MAX_DELIVERIES
        self.slots[slot].state = SLOT_AVAILABLE
        if reasons:
            self.expire(slot, reasons)
            return 1
        if delay_ns == 0 or not is_own:
            return self.come_back(slot)
        self.counters.depth -= 1
        if self.keys is not None:
            self.slots[slot].flags |= SLOT_DELAYED_HEAD
        self.delay(slot, self.now_ns + delay_ns)
        if self.counters.inactive:
            self.mark_dirty()
        return self.output.delay(
            self.number, self.shared.publisher_id(self.slots[slot].publisher), self.slots[slot].sequence,
            self.slots[slot].position, self.slots[slot].deliveries, self.now_ns + delay_ns,
        )

    cdef int return_all(self, Membership member, uint64_t now_ns) except -1:
        """Return all messages of a subscription that has ended."""
        cdef uint32_t slot
        self.now_ns = now_ns
        while member.first != NO_SLOT:
            slot = member.first
            if self.slots[slot].state == SLOT_DELIVERED:
                self.free_delivered(slot)
            else:
                self.let_go(slot)
                self.give_back(slot, False, 0)
        return 0

    # --- members --------------------------------------------------------------------------------------

    cdef int add_member(self, Membership member) except -1:
        """Add a member, to which messages can be delivered from now on."""
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
        """Remove a member from delivery; it keeps the messages that it holds. A cursor without members is dropped."""
        self.members.remove(member)
        member.current = False
        member.cursor.members -= 1
        self.counters.members -= 1
        if member.subscriber.outstanding < member.subscriber.limit:
            self.member_became(member, False)
        if member.held == 0:
            self.holders.remove(member)
            self.shared.forget_membership(member)
        if member.cursor.members == 0 and member.cursor is not self.everything:
            self.cursors.remove(member.cursor)
        return self.mark_dirty()

    cdef int member_became(self, Membership member, bint ready) except -1:
        """Note that a current member has room for a message now, or has none any more."""
        if ready:
            self.ready += 1
            member.cursor.ready += 1
            if self.span is not None:
                self.span.prompt()
            return self.mark_dirty()
        self.ready -= 1
        member.cursor.ready -= 1
        return 0

    # --- the end of leases ----------------------------------------------------------------------------

    cdef int end_leases(self) except -1:
        """Return the messages whose leases have ended (queues.md §19 row 16), and set `lease_due_ns` for the others."""
        cdef Membership member
        cdef uint32_t slot
        self.lease_due_ns = NEVER
        for member in list(self.holders):
            while member.first != NO_SLOT and self.lease_end(member.first) <= self.now_ns:
                slot = member.first
                self.counters.expired_leases += 1
                self.let_go(slot)
                self.give_back(slot, False, 0)
            if member.first != NO_SLOT:
                self.lease_due_ns = min(self.lease_due_ns, self.lease_end(member.first))
        return 0

    # === which message goes to which subscription ================================================================
    #
    # The cost of each operation does not depend on the number of messages in the queue. Available messages are found
    # from the first slot not checked yet (`fresh`), and from heaps of messages that came back, match a filter, or have
    # a priority.
    #
    # Invariants
    # - For the cursor without a filter, an AVAILABLE message is at or behind `fresh`, or in the heap. For a cursor with
    #   a filter, it is in the heap if it is known to match. Heaps may hold stale entries, which are dropped when they
    #   come to the top.
    # - No message behind a barrier is delivered before the barrier.

    @property
    def heap_entries(self):
        """Number of entries of all its heaps, including stale ones: memory besides the slots."""
        cdef Cursor cursor
        count = self.barriers.count + self.expiries.heap.count + self.delays.heap.count
        for cursor in self.cursors:
            count += cursor.heap.count
        return count

    # --- available messages ---------------------------------------------------------------------------

    cdef int offer(self, uint32_t slot) except -1:
        """Offer an available message to all cursors."""
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
        """Rebuild a cursor's heap without stale entries."""
        cdef uint32_t slot = self.head
        heap_free(&cursor.heap)
        if cursor.takes_all and not self.has_priority:
            cursor.fresh = self.head
            return 0
        while slot != NO_SLOT:
            if self.slots[slot].state == SLOT_AVAILABLE:
                self.offer_to(cursor, slot)
            slot = self.arena.next_slot(slot)
        return 0

    cdef uint64_t undelivered_from(self) noexcept:
        """A log position before which every message has been delivered at least once; not always the highest such.
        NEVER: every message in the queue has been delivered, or is delayed.
        """
        # In the order of the log; NO_SLOT with priorities.
        cdef uint32_t slot = NO_SLOT if self.delays.used else self.everything.fresh
        if self.counters.depth + self.counters.inactive == self.counters.leased:
            return NEVER
        if slot == NO_SLOT or self.counters.waiting or self.counters.foreign:
            slot = self.head  # a message that waits, here or for its owner, may be before `fresh`
        return self.slots[slot].position

    # --- delivery -------------------------------------------------------------------------------------

    cdef int serve(self, uint64_t now_ns) except -1:
        """Deliver all messages that can be delivered."""
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
                if self.span is not None and self.span.look():
                    continue
                break
            self.deliver(<uint32_t>slot, self.pick(<uint32_t>slot))
        if self.span is not None and self.span.look_ns <= now_ns:
            self.span.look_ns = NEVER  # nobody can take a message; when that changes, it is prompted again
        return 0

    cdef bint release_barrier(self) except -1:
        """Send the first barrier to all subscriptions, if no message before it is left. False: it has to wait."""
        cdef HeapEntry* entry = &self.barriers.entries[0]
        cdef Membership member
        cdef uint32_t slot = entry.slot
        if self.slots[slot].position != entry.position or self.slots[slot].state != SLOT_BARRIER:
            heap_pop(&self.barriers)
            return self.barriers.count > 0 and self.release_barrier()
        # A message delivered at most once and not acknowledged also counts as before it.
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
        """Set `top`, the next message that a cursor can deliver. False: there is none."""
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
            # Inactive messages are behind all available ones, unless delayed ones became available there.
            if state == SLOT_BARRIER or (state == SLOT_INACTIVE and not self.delays.used):
                break
            cursor.fresh = self.arena.next_slot(cursor.fresh)
        if (
            slot != NO_SLOT and self.barriers.count
            and self.slots[slot].position > self.barriers.entries[0].position
        ):
            slot = NO_SLOT
        cursor.top = slot
        return slot != NO_SLOT

    cdef bint precedes(self, uint32_t one, uint32_t other) noexcept nogil:
        """Whether one message is delivered before the other."""
        return is_before(&self.slots[one], &self.slots[other], self.has_priority)

    cdef int64_t choose(self) except -2:
        """Choose the next message to deliver. -1: there is none, or delivery waits for the evaluation of a filter."""
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
        """Choose the member that gets a message, among those with room whose next message it is (queues.md §7, §20)."""
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

    cdef bint is_wanted(self, uint32_t slot) except -1:
        """Whether a subscription here has room for a message, and its filter is known to match."""
        cdef Cursor cursor
        for cursor in self.cursors:
            if cursor.ready and (
                cursor.takes_all
                or (self.slots[slot].position < cursor.evaluated_until and cursor.has_match(slot))
            ):
                return True
        return False

    cdef bint may_take(self, uint32_t slot) except -1:
        """Whether a subscription here can take an available message, now or when its filter has been evaluated. A
        message behind a barrier counts as taken: nobody can take it anywhere.
        """
        cdef Cursor cursor
        if self.barriers.count and self.slots[slot].position > self.barriers.entries[0].position:
            return True
        if self.counters.leased + self.counters.delivered >= self.max_backlog:
            return False
        for cursor in self.cursors:
            if cursor.ready and (
                cursor.takes_all
                or self.slots[slot].position >= cursor.evaluated_until
                or cursor.has_match(slot)
            ):
                return True
        return False

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
        """Note that a message matches a cursor's filter."""
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
        """Note that all matches up to a log position have been reported."""
        cursor.evaluated_until = max(cursor.evaluated_until, evaluated_until)
        cursor.heard_ns = 0 if cursor.evaluated_until > self.counters.last_queued_position else now_ns
        self.wait_until_ns = NEVER
        if self.span is not None:
            self.span.prompt()
        return self.mark_dirty()
