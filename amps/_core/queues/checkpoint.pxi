# Copying what a queue holds, so that a start need not read the whole log again, and taking such a copy back.
#
# A copy is made in steps between turns of the core, so it is not of one moment: each queue is copied from its oldest
# message to the newest that it had when its copying began (`until`), and what leaves meanwhile may be in the copy or
# not. It is taken for a state together with the log position P at which the copying of all queues began: reading the
# log from P on makes it whole. What left after P is a record behind P, so it leaves again; what entered up to `until`
# is passed over, because it is either in the copy or has left; what entered later enters again.
#
# What is stored of a message: 24 bytes, 40 if it may expire or has a priority. Leases, and counts of deliveries and
# cancels, are not stored: they begin anew (queues.md §17). What was delivered at most once has left.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.queues.engine cimport NEVER, Queue
from amps._core.queues.slots cimport (
    BLOCK_SLOTS,
    NO_SLOT,
    SLOT_BARRIER,
    SLOT_DELIVERED,
    SLOT_GONE,
    SLOT_HAS_PRIORITY,
    SLOT_INACTIVE,
    SLOT_OWN_EXPIRY,
    QueueSlot,
)


cdef enum StoredFlag:
    STORED_HAS_PRIORITY = 1
    STORED_OWN_EXPIRY = 2
    STORED_BARRIER = 4
    STORED_KNOWN = 7


cdef packed struct StoredMessage:
    uint64_t position
    uint64_t sequence
    uint32_t publisher             # place in the table of publishers
    uint32_t flags                 # StoredFlag
    uint64_t expires_ns            # this one and the next only if any message of the piece has them
    uint64_t priority


cdef uint64_t NARROW_BYTES = 24
WIDE_BYTES = sizeof(StoredMessage)


class CopyDamaged(ValueError):
    """What is given for a copy of messages is none."""


def publisher_table(QueueManager manager not None):
    """The publisher ids that copies refer to by place, 8 bytes each; to be taken when the last copy is made."""
    if manager.shared.publisher_count == 0:
        return b""
    return (<const char*>manager.shared.publisher_ids)[: manager.shared.publisher_count * sizeof(uint64_t)]


def copy_messages(Queue queue not None, uint64_t after, uint64_t until, uint32_t slots_max):
    """Copy messages behind the log position `after`, up to `until`, looking at no more than `slots_max` slots.

    Returns (copy, whether its messages are wide, slots looked at, position to go on after); that position is `until`
    when it is all.
    """
    cdef uint32_t slot = first_slot_after(queue, after)
    cdef uint32_t looked_at = 0
    cdef uint64_t count = 0
    cdef uint64_t at
    cdef bint wide = False
    cdef QueueSlot* message
    cdef StoredMessage stored
    cdef bytearray memory = bytearray(<uint64_t>slots_max * sizeof(StoredMessage))
    cdef char* copy = memory
    while slot != NO_SLOT and looked_at < slots_max:
        message = &queue.slots[slot]
        if message.position > until:
            slot = NO_SLOT
            break
        looked_at += 1
        after = message.position
        if message.state != SLOT_GONE and message.state != SLOT_DELIVERED:
            stored.position = message.position
            stored.sequence = message.sequence
            stored.publisher = message.publisher
            stored.expires_ns = message.expires_ns
            stored.priority = message.priority
            stored.flags = 0
            if message.flags & SLOT_HAS_PRIORITY:
                stored.flags |= STORED_HAS_PRIORITY
            if message.flags & SLOT_OWN_EXPIRY:
                stored.flags |= STORED_OWN_EXPIRY
            if message.state == SLOT_BARRIER:
                stored.flags |= STORED_BARRIER
            wide = wide or stored.expires_ns != NEVER or stored.flags & STORED_HAS_PRIORITY
            memcpy(copy + count * sizeof(StoredMessage), &stored, sizeof(StoredMessage))
            count += 1
        slot = queue.next_slot(slot)
    if slot == NO_SLOT:
        after = until
    if wide:
        return bytes(memory[: count * sizeof(StoredMessage)]), True, looked_at, after
    for at in range(1, count):
        # To the front, so nothing is overwritten that is still to be moved.
        memcpy(copy + at * NARROW_BYTES, copy + at * sizeof(StoredMessage), NARROW_BYTES)
    return bytes(memory[: count * NARROW_BYTES]), False, looked_at, after


cdef uint32_t first_slot_after(Queue messages, uint64_t position) noexcept:
    """The first slot behind a log position, alive or not."""
    cdef uint32_t slot
    if messages.block_count == 0:
        return NO_SLOT
    slot = messages.blocks[messages.place_of_block(position)] * BLOCK_SLOTS
    while slot != NO_SLOT and messages.slots[slot].position <= position:
        slot = messages.next_slot(slot)
    return slot


def restore_messages(
    Queue queue not None, copy, bint wide, publishers, uint64_t from_position
):
    """Let the messages of a copy enter a queue, behind what it holds; those before `from_position` are in no journal
    any more. publishers: a publisher table. Raises CopyDamaged, QueueMemoryFull.
    """
    cdef const unsigned char[::1] stored_bytes = copy
    cdef const unsigned char[::1] publisher_bytes = publishers
    cdef uint64_t size = sizeof(StoredMessage) if wide else NARROW_BYTES
    cdef uint64_t count = <uint64_t>stored_bytes.shape[0] // size
    cdef uint64_t publisher_count = <uint64_t>publisher_bytes.shape[0] // sizeof(uint64_t)
    cdef uint64_t publisher_id
    cdef uint64_t at
    cdef uint32_t number
    cdef QueueSlot* message
    cdef StoredMessage stored
    stored.expires_ns = NEVER
    stored.priority = 0
    if count * size != <uint64_t>stored_bytes.shape[0]:
        raise CopyDamaged("it does not end with a message")
    for at in range(count):
        memcpy(&stored, &stored_bytes[at * size], size)
        if stored.position <= queue.counters.last_queued_position:
            raise CopyDamaged("its messages are not in the order of the log")
        if stored.publisher >= publisher_count or stored.flags & ~<uint32_t>STORED_KNOWN:
            raise CopyDamaged("one of its messages makes no sense")
        queue.counters.last_queued_position = stored.position
        if stored.position < from_position:
            continue
        number = queue.append(stored.position)
        message = &queue.slots[number]
        memcpy(&publisher_id, &publisher_bytes[stored.publisher * sizeof(uint64_t)], sizeof(uint64_t))
        message.publisher = queue.shared.publisher(publisher_id)
        message.sequence = stored.sequence
        message.expires_ns = stored.expires_ns
        message.priority = stored.priority
        if stored.flags & STORED_HAS_PRIORITY:
            message.flags |= SLOT_HAS_PRIORITY
        if stored.flags & STORED_OWN_EXPIRY:
            message.flags |= SLOT_OWN_EXPIRY
        queue.place(number, stored.flags & STORED_BARRIER != 0)


def restore_rest(Queue queue not None, uint64_t until, deferred):
    """After its messages: what a queue has seen of the log, and [(publisher id, sequence, UNIX time in ns until which
    it is remembered)] of the acknowledgements that wait for their messages.
    """
    if until < queue.counters.last_queued_position:
        raise CopyDamaged("it has messages behind its end")
    queue.counters.last_queued_position = until
    for publisher_id, sequence, until_ns in sorted(deferred, key=until_of):
        queue.remember((publisher_id, sequence), until_ns, None)
    queue.shared.expects(queue, queue.due_ns())


def until_of(deferred):
    """The time of a deferred acknowledgement: they are kept in the order in which they end."""
    return deferred[2]


def deferred_acknowledgements(Queue queue not None):
    """[(publisher id, sequence, UNIX time in ns)], as `restore_rest` takes them."""
    return [(publisher_id, sequence, until) for (publisher_id, sequence), (until, _) in queue.deferred.items()]


def forget_answered(Queue queue not None, last_sequence):
    """After the log was read: forget acknowledgements whose messages cannot come any more, because their publisher has
    published later ones (`last_sequence(publisher id)`), unless they wait beyond the target depth.
    """
    cdef uint32_t slot = queue.inactive_next
    waiting = set()
    if queue.deferred:
        while slot != NO_SLOT and queue.counters.inactive:
            if queue.slots[slot].state == SLOT_INACTIVE:
                waiting.add(queue.bookmark(slot))
            slot = queue.next_slot(slot)
    for bookmark in list(queue.deferred):
        if bookmark[1] <= last_sequence(bookmark[0]) and bookmark not in waiting:
            queue.recall(bookmark)


def oldest_needed(Queue queue not None):
    """Log position of the oldest message whose record must stay in the log (queues.md §14.6); None: of none.

    What was delivered at most once has left; a barrier that waits for a subscription does not count (D-16).
    """
    cdef uint32_t slot = queue.head
    cdef int state
    while slot != NO_SLOT:
        state = queue.slots[slot].state
        if state != SLOT_GONE and state != SLOT_DELIVERED and (state != SLOT_BARRIER or queue.members):
            return queue.slots[slot].position
        slot = queue.next_slot(slot)
    return None


def seen_until(Queue queue not None):
    """Log position of the newest message that a queue has seen."""
    return queue.counters.last_queued_position
