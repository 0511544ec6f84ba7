# Details of one queue for the administration interface: counters, subscriptions, and the first messages.
#
# The answer consists of rows of values that msgpack can encode, each of a few hundred bytes at most, so that it can be
# split anywhere. The receiver takes other facts about a message from the log. The core does no other work while it
# makes an answer, so there are bounds: on messages, on slots checked for them (many may be gone), on subscriptions.

from libc.stdint cimport uint32_t, uint64_t

from itertools import islice

from amps._core.queues.engine cimport Cursor, Membership, Queue, Subscriber
from amps._core.queues.slots cimport (
    BLOCK_SLOTS,
    NO_SLOT,
    SLOT_AVAILABLE,
    SLOT_DELAYED,
    SLOT_DELIVERED,
    SLOT_GONE,
    SLOT_HAS_PRIORITY,
    SLOT_LEASED,
    QueueCounters,
    QueueSlot,
)

MESSAGES_MAX = 1000
SLOTS_MAX = 65536
CURSORS_MAX = 1000
SUBSCRIPTIONS_MAX = 1000

cdef enum:
    CLIENT_TRANSPORT_SHIFT = 56    # see client_key of queues/log_adapter.pxi
    CLIENT_SLOT_SHIFT = 32
    CLIENT_SLOT_MASK = 0xFFFFFF


def describe_queue(QueueManager manager not None, uint32_t number, names):
    """Rows about a queue: tuples whose first item is the type of the row. Raises IndexError.

    names: {(transport, connection slot): client name}.
    - ("queue", its counters as in memory, number of slots in its blocks)
    - ("cursor", number, state, log position of the last message that it has checked, log position of the last message
      that it delivered (0: none), messages of this queue that its subscriptions hold)
    - ("subscription", number of its cursor, client name, subscription id, topic, filter, messages that it holds of all
      its queues, its limit of messages)
    - ("message", log position, publisher id, sequence, 1 if it is available else 0, priority or None, name of the
      client that holds its lease or None, UNIX time in ns at which the lease began or 0, UNIX time in ns at which it
      becomes available or 0, 1 if this instance owns it else 0)
    """
    cdef Queue queue = manager.shared.queues[number]
    cdef bytes counters = (<char*>queue.counters)[: sizeof(QueueCounters)]
    rows = [("queue", counters, queue.block_count * BLOCK_SLOTS)]
    describe_cursors(rows, queue, names)
    describe_messages(rows, manager, queue, names)
    return rows


cdef str name_of_client(dict names, uint64_t client):
    """The client name of a connection; empty if no name is known for its slot."""
    name = names.get((client >> CLIENT_TRANSPORT_SHIFT, client >> CLIENT_SLOT_SHIFT & CLIENT_SLOT_MASK))
    return name or ""


cdef int describe_cursors(list rows, Queue queue, dict names) except -1:
    cdef Cursor cursor
    cdef Membership member
    cdef dict held = {}
    for member in queue.members:
        held[member.cursor.number] = held.get(member.cursor.number, 0) + member.held
    for cursor in queue.cursors[:CURSORS_MAX]:
        rows.append((
            "cursor", cursor.number, state_of(queue, cursor),
            # `fresh` moves only when the cursor searches, so it may be behind the last delivery.
            max(processed_position(queue, cursor), cursor.last_delivered_position),
            cursor.last_delivered_position, held.get(cursor.number, 0),
        ))
    for member in queue.members[:SUBSCRIPTIONS_MAX]:
        rows.append((
            "subscription", member.cursor.number, *describe_subscriber(member.subscriber, names),
        ))
    return 0


cdef tuple describe_subscriber(Subscriber subscriber, dict names):
    return (
        name_of_client(names, subscriber.client), *subscriber.shown, subscriber.outstanding, subscriber.limit,
    )


def describe_subscriptions(QueueManager manager not None, uint64_t skip, names):
    """Rows about subscriptions to queues, in the order of their creation, without the first `skip` ones. At most
    SUBSCRIPTIONS_MAX rows are returned; fewer mean that there are no more.

    A row is (transport, number of the subscription in the transport, number of one of its queues or None, client name,
    subscription id, topic, filter, messages that it holds, its limit of messages).
    """
    cdef Subscriber subscriber
    cdef Membership member
    rows = []
    for subscriber in islice(manager.subscribers.values(), skip, skip + SUBSCRIPTIONS_MAX):
        queue = None
        for member in subscriber.alive:
            queue = member.queue
            break
        rows.append((subscriber.transport, subscriber.number, queue, *describe_subscriber(subscriber, names)))
    return rows


cdef str state_of(Queue queue, Cursor cursor):
    if cursor.members == 0:
        return "idle"
    if cursor.ready == 0:
        return "full"
    if not cursor.takes_all and cursor.evaluated_until <= queue.counters.last_queued_position:
        return "evaluating"
    return "waiting"


cdef uint64_t processed_position(Queue queue, Cursor cursor) noexcept:
    """Log position of the last message that a cursor has checked; 0 = none that is still known."""
    cdef uint64_t until
    cdef uint64_t place
    cdef uint32_t block
    cdef uint32_t slot
    if not cursor.takes_all:
        until = cursor.evaluated_until
    elif queue.has_priority or cursor.fresh == NO_SLOT:
        return queue.counters.last_queued_position
    else:
        until = queue.slots[cursor.fresh].position
    if until > queue.counters.last_queued_position:
        return queue.counters.last_queued_position
    if until == 0 or queue.block_count == 0:
        return 0
    place = queue.place_of_block(until - 1)
    block = queue.blocks[place]
    slot = block * BLOCK_SLOTS + queue.arena.blocks[block].used
    while slot > block * BLOCK_SLOTS:
        slot -= 1
        if queue.slots[slot].position < until:
            return queue.slots[slot].position
    return 0


cdef int describe_messages(list rows, QueueManager manager, Queue queue, dict names) except -1:
    cdef uint32_t slot = queue.head
    cdef uint32_t looked_at = 0
    cdef uint32_t found = 0
    cdef QueueSlot* message
    while slot != NO_SLOT and looked_at < <uint32_t>SLOTS_MAX and found < <uint32_t>MESSAGES_MAX:
        message = &queue.slots[slot]
        looked_at += 1
        # A message delivered at most once has left the queue; it only counts in a backlog.
        if message.state != SLOT_GONE and message.state != SLOT_DELIVERED:
            found += 1
            client = None
            began_ns = 0
            if message.state == SLOT_LEASED:
                client = name_of_client(names, queue.holder_of(slot).subscriber.client)
                began_ns = queue.leases.began_ns(slot)
            rows.append((
                "message", message.position, manager.shared.publisher_id(message.publisher), message.sequence,
                1 if message.state == SLOT_AVAILABLE else 0,
                message.priority if message.flags & SLOT_HAS_PRIORITY else None, client, began_ns,
                message.lease_ns if message.state == SLOT_DELAYED else 0,
                1 if queue.span is None or queue.span.owns(slot) else 0,
            ))
        slot = queue.arena.next_slot(slot)
    return 0
