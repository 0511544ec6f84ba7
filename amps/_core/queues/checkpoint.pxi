# Copies the messages of queues, so that a start need not read the whole log, and restores queues from such copies.
#
# A copy is made in steps between turns of the core, so it does not show one moment. Each queue is copied from its
# oldest message to the newest message that it had when its copying began (`until`). A message that leaves during the
# copying may be in the copy or not. The log position P at which the copying of all queues began is stored with the
# copies; reading the log from P on completes them. A message that left after P has a record behind P, so it leaves
# again. A message up to `until` is ignored by that reading, because it is either in the copy or has left. A later
# message enters again.
#
# A stored message takes 24 bytes, or 40 if it can expire or has a priority, or 48 if it is delayed: that is the *width*
# of a copy, the same for all its messages (0, 1 or 2). In a queue with an OrderingKey the hashes of the keys follow, 4
# bytes per message: to compute them again, a start would have to read each message. Messages of queues that span
# instances name their ownership by a number in their flags; each copy has a list of those that it uses, because numbers
# are used again. Leases, and counts of deliveries
# and cancels, are not stored: they begin anew (queues.md §17). Messages delivered at most once have left the queue.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from amps._core.queues.engine cimport NEVER, Ownership, Queue, QueueSpan
from amps._core.queues.slots cimport (
    BLOCK_SLOTS,
    NO_SLOT,
    SLOT_BARRIER,
    SLOT_DELAYED,
    SLOT_DELAYED_HEAD,
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
    STORED_DELAYED = 8
    STORED_DELAYED_HEAD = 16       # and it is the head of its key
    STORED_KNOWN = 31
    STORED_OWNERSHIP_SHIFT = 16    # the number of the ownership is in the bits from here on


cdef packed struct StoredMessage:
    uint64_t position
    uint64_t sequence
    uint32_t publisher             # index in the table of publishers
    uint32_t flags                 # StoredFlag
    uint64_t expires_ns            # this field and the next not in copies of width 0
    uint64_t priority
    uint64_t deliver_at_ns         # only in copies of width 2; of a message that is not delayed: 0


WIDEST = 2
cdef uint64_t[3] STORED_BYTES = [24, 40, sizeof(StoredMessage)]


class CopyDamaged(ValueError):
    """The bytes are not a valid copy of messages."""


def publisher_table(QueueManager manager not None):
    """The publisher ids to which copies refer by index, 8 bytes each. Call it after the last copy is made."""
    if manager.shared.publisher_count == 0:
        return b""
    return (<const char*>manager.shared.publisher_ids)[: manager.shared.publisher_count * sizeof(uint64_t)]


def copy_messages(Queue queue not None, uint64_t after, uint64_t until, uint32_t slots_max):
    """Copy messages behind the log position `after`, up to `until`, from at most `slots_max` slots.

    Returns (copy, its width, number of slots read, position to continue after, ownerships that the copy uses). That
    position is `until` when the copy is complete. The ownerships are {number: (name of the owner, epoch, whether a
    proxy decided)}.
    """
    cdef uint32_t slot = first_slot_after(queue, after)
    cdef uint32_t looked_at = 0
    cdef uint64_t count = 0
    cdef uint64_t at
    cdef int width = 0
    cdef uint64_t size
    cdef QueueSlot* message
    cdef StoredMessage stored
    cdef bytearray memory = bytearray(<uint64_t>slots_max * sizeof(StoredMessage))
    cdef char* copy = memory
    cdef uint32_t key_hash
    cdef bytearray hashes = bytearray()
    cdef Ownership* entry
    cdef dict ownerships = {}
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
            stored.deliver_at_ns = 0
            if message.flags & SLOT_HAS_PRIORITY:
                stored.flags |= STORED_HAS_PRIORITY
            if message.flags & SLOT_OWN_EXPIRY:
                stored.flags |= STORED_OWN_EXPIRY
            if message.state == SLOT_BARRIER:
                stored.flags |= STORED_BARRIER
            if message.ownership:
                stored.flags |= <uint32_t>message.ownership << STORED_OWNERSHIP_SHIFT
                if message.ownership not in ownerships:
                    entry = &queue.span.ownerships.table[message.ownership]
                    ownerships[message.ownership] = (
                        queue.span.ownerships.names[entry.owner], entry.epoch, entry.is_proxied != 0,
                    )
            if message.state == SLOT_DELAYED:
                stored.flags |= STORED_DELAYED
                if message.flags & SLOT_DELAYED_HEAD:
                    stored.flags |= STORED_DELAYED_HEAD
                stored.deliver_at_ns = message.lease_ns
                width = 2
            elif stored.expires_ns != NEVER or stored.flags & STORED_HAS_PRIORITY:
                width = max(width, 1)
            memcpy(copy + count * sizeof(StoredMessage), &stored, sizeof(StoredMessage))
            count += 1
            if queue.keys is not None:
                key_hash = queue.keys.hash_of(slot)
                hashes += (<const char*>&key_hash)[:sizeof(uint32_t)]
        slot = queue.arena.next_slot(slot)
    if slot == NO_SLOT:
        after = until
    size = STORED_BYTES[width]
    for at in range(1, count):
        # Messages move to the front, so none is overwritten before it is moved.
        memmove(copy + at * size, copy + at * sizeof(StoredMessage), size)
    return bytes(memory[: count * size] + hashes), width, looked_at, after, ownerships


cdef uint32_t first_slot_after(Queue messages, uint64_t position) noexcept:
    """The first slot behind a log position, gone or not."""
    cdef uint32_t slot
    if messages.block_count == 0:
        return NO_SLOT
    slot = messages.blocks[messages.place_of_block(position)] * BLOCK_SLOTS
    while slot != NO_SLOT and messages.slots[slot].position <= position:
        slot = messages.arena.next_slot(slot)
    return slot


def restore_messages(
    Queue queue not None, copy, int width, publishers, uint64_t from_position, dict ownerships not None
):
    """Let the messages of a copy of that width enter a queue, behind its messages. Messages before `from_position`,
    which are in no journal any more, are skipped. publishers: a publisher table. ownerships: those of `copy_messages`.
    Raises CopyDamaged, QueueMemoryFull.
    """
    cdef const unsigned char[::1] stored_bytes = copy
    cdef const unsigned char[::1] publisher_bytes = publishers
    cdef uint64_t size
    cdef uint64_t hash_size = 0 if queue.keys is None else sizeof(uint32_t)
    cdef uint64_t count
    cdef uint64_t publisher_count = <uint64_t>publisher_bytes.shape[0] // sizeof(uint64_t)
    cdef uint64_t publisher_id
    cdef uint64_t at
    cdef uint32_t number
    cdef uint32_t key_hash = 0
    cdef QueueSlot* message
    cdef StoredMessage stored
    stored.expires_ns = NEVER
    stored.priority = 0
    stored.deliver_at_ns = 0
    if not 0 <= width <= WIDEST:
        raise CopyDamaged(f"its messages have the unknown width {width}")
    size = STORED_BYTES[width]
    count = <uint64_t>stored_bytes.shape[0] // (size + hash_size)
    if count * (size + hash_size) != <uint64_t>stored_bytes.shape[0]:
        raise CopyDamaged("its length is not a multiple of the size of a message")
    for at in range(count):
        memcpy(&stored, &stored_bytes[at * size], size)
        if stored.position <= queue.counters.last_queued_position:
            raise CopyDamaged("its messages are not in the order of the log")
        if stored.publisher >= publisher_count or stored.flags & 0xFFFF & ~<uint32_t>STORED_KNOWN:
            raise CopyDamaged("a message has an unknown publisher or unknown flags")
        if stored.flags >> STORED_OWNERSHIP_SHIFT:
            owned = ownerships.get(stored.flags >> STORED_OWNERSHIP_SHIFT)
            if owned is None:
                raise CopyDamaged("a message has an unknown owner")
        else:
            owned = None, 0, False
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
        if queue.keys is not None:
            memcpy(&key_hash, &stored_bytes[count * size + at * hash_size], sizeof(uint32_t))
            queue.keys.set_hash(number, key_hash)
        if queue.span is not None:
            queue.span.restore(number, owned[0], owned[1], owned[2])
        queue.place(
            number, stored.flags & STORED_BARRIER != 0, stored.deliver_at_ns,
            stored.flags & STORED_DELAYED_HEAD != 0,
        )


def restore_rest(Queue queue not None, uint64_t until, deferred, early=()):
    """Restore the rest of a queue, after its messages: the log position up to which it has seen the log, its deferred
    acknowledgements as [(publisher id, sequence, UNIX time in ns of the expiration)], and what `early_transfers` gave.
    Raises CopyDamaged.
    """
    cdef QueueSpan span = queue.span
    if until < queue.counters.last_queued_position:
        raise CopyDamaged("it has messages behind the log position at which it ends")
    queue.counters.last_queued_position = until
    for publisher_id, sequence, until_ns in sorted(deferred, key=until_of):
        queue.remember((publisher_id, sequence), until_ns, None)
    if span is not None:
        for publisher_id, sequence, owner, epoch, is_proxied, until_ns in sorted(early, key=until_of_early):
            span.early[publisher_id, sequence] = span.ownerships.owner(owner), epoch, is_proxied, until_ns
    queue.shared.expects(queue, queue.due_ns())


def until_of(deferred):
    """The expiration of a deferred acknowledgement, by which a queue keeps them in order."""
    return deferred[2]


def until_of_early(early):
    """The expiration of an early transfer, by which a queue keeps them in order."""
    return early[5]


def early_transfers(Queue queue not None):
    """The transfers of messages that have not come: [(publisher id, sequence, name of the owner, epoch, whether a proxy
    decided, UNIX time in ns of the expiration)].
    """
    cdef QueueSpan span = queue.span
    if span is None:
        return []
    return [
        (publisher_id, sequence, span.ownerships.names[owner], epoch, is_proxied, until)
        for (publisher_id, sequence), (owner, epoch, is_proxied, until) in span.early.items()
    ]


def deferred_acknowledgements(Queue queue not None):
    """The deferred acknowledgements as `restore_rest` takes them: [(publisher id, sequence, UNIX time in ns)]."""
    return [(publisher_id, sequence, until) for (publisher_id, sequence), (until, _) in queue.deferred.items()]


def forget_answered(Queue queue not None, last_sequence):
    """After recovery, forget deferred acknowledgements and early transfers whose messages cannot come any more. These
    are the ones whose publisher has published a later message (`last_sequence(publisher id)`), except those of inactive
    messages.
    """
    cdef uint32_t slot = queue.inactive_next
    waiting = set()
    if queue.deferred:
        while slot != NO_SLOT and queue.counters.inactive:
            if queue.slots[slot].state == SLOT_INACTIVE:
                waiting.add(queue.bookmark(slot))
            slot = queue.arena.next_slot(slot)
    for bookmark in list(queue.deferred):
        if bookmark[1] <= last_sequence(bookmark[0]) and bookmark not in waiting:
            queue.recall(bookmark)
    if queue.span is not None:
        for bookmark in list(queue.span.early):
            if bookmark[1] <= last_sequence(bookmark[0]):
                del queue.span.early[bookmark]


def oldest_needed(Queue queue not None):
    """Log position of the oldest message whose record must stay in the log (queues.md §14.6); None: there is none.

    A message delivered at most once has left the queue. A barrier that waits for a subscription does not count (D-16).
    """
    cdef uint32_t slot = queue.head
    cdef int state
    while slot != NO_SLOT:
        state = queue.slots[slot].state
        if state != SLOT_GONE and state != SLOT_DELIVERED and (state != SLOT_BARRIER or queue.members):
            return queue.slots[slot].position
        slot = queue.arena.next_slot(slot)
    return None


def seen_until(Queue queue not None):
    """Log position of the newest message that a queue has seen."""
    return queue.counters.last_queued_position
