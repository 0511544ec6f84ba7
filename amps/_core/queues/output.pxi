# The decisions of queues that the core has still to carry out: deliveries for transports, removals for the journal.
#
# Removals that no client requested (expired, delivered at most once, released barriers) have already happened in the
# queues; until the journal has them, a restart would bring the messages back. The same holds for messages that come
# back with a delay, or get another owner, which are noted among the removals. While the journal accepts no records
# (`frozen`), they wait here, and at-most-once queues deliver nothing, because the record of such a delivery must not be
# lost.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from amps._core.journal.queue_records cimport QUEUE_DELAYED, QUEUE_DELIVERED, QUEUE_TRANSFER, TRANSFER_PROXIED

cdef enum:
    OUTPUT_CAPACITY_FIRST = 256


cdef class QueueOutput:

    def __cinit__(self):
        self.deliveries = NULL
        self.transport_count = 0
        self.removals = NULL

    def __init__(self, uint32_t transports):
        self.deliveries = <DeliveryBuffer*>calloc(max(transports, <uint32_t>1), sizeof(DeliveryBuffer))
        if self.deliveries == NULL:
            raise MemoryError()
        self.transport_count = transports
        self.removal_count = 0
        self.removal_capacity = 0
        self.frozen = False

    def __dealloc__(self):
        cdef uint32_t index
        for index in range(self.transport_count):
            free(self.deliveries[index].items)
        free(self.deliveries)
        free(self.removals)

    cdef int deliver(
        self, uint32_t transport, uint32_t subscription, uint32_t queue, uint32_t slot, uint64_t position,
        uint64_t lease_until_ns, uint32_t flags
    ) except -1:
        cdef DeliveryBuffer* buffer = &self.deliveries[transport]
        cdef QueueDelivery* grown
        cdef QueueDelivery* item
        if buffer.count == buffer.capacity:
            grown = <QueueDelivery*>realloc(
                buffer.items, max(<uint64_t>OUTPUT_CAPACITY_FIRST, 2 * buffer.capacity) * sizeof(QueueDelivery)
            )
            if grown == NULL:
                raise MemoryError()
            buffer.items = grown
            buffer.capacity = max(<uint64_t>OUTPUT_CAPACITY_FIRST, 2 * buffer.capacity)
        item = &buffer.items[buffer.count]
        item.position = position
        item.lease_until_ns = lease_until_ns
        item.subscription = subscription
        item.slot = slot
        item.queue = queue
        item.flags = flags
        buffer.count += 1
        return 0

    cdef int remove(
        self, uint32_t queue, uint32_t action, uint64_t publisher_id, uint64_t sequence, uint64_t position,
        uint32_t deliveries, uint32_t reasons
    ) except -1:
        cdef Removal* grown
        cdef Removal* item
        if self.removal_count == self.removal_capacity:
            grown = <Removal*>realloc(
                self.removals, max(<uint64_t>OUTPUT_CAPACITY_FIRST, 2 * self.removal_capacity) * sizeof(Removal)
            )
            if grown == NULL:
                raise MemoryError()
            self.removals = grown
            self.removal_capacity = max(<uint64_t>OUTPUT_CAPACITY_FIRST, 2 * self.removal_capacity)
        item = &self.removals[self.removal_count]
        item.queue = queue
        item.action = action
        item.until_ns = 0
        item.entry.publisher_id = publisher_id
        item.entry.sequence = sequence
        item.entry.position = position
        item.entry.slot = deliveries
        item.entry.reasons = reasons
        self.removal_count += 1
        return 0

    cdef int delay(
        self, uint32_t queue, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t deliveries,
        uint64_t until_ns
    ) except -1:
        """Note for the journal that a message has come back, and becomes available at a time."""
        self.remove(queue, QUEUE_DELAYED, publisher_id, sequence, position, deliveries, 0)
        self.removals[self.removal_count - 1].until_ns = until_ns
        return 0

    cdef int transfer(
        self, uint32_t queue, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t owner_before,
        uint32_t owner, uint32_t epoch, bint is_proxied
    ) except -1:
        """Note for the journal that a message has another owner."""
        self.remove(
            queue, QUEUE_TRANSFER, publisher_id, sequence, position, epoch, <int>TRANSFER_PROXIED if is_proxied else 0
        )
        self.removals[self.removal_count - 1].until_ns = <uint64_t>owner_before << 32 | owner
        return 0

    @property
    def has_unwritten_deliveries(self):
        """Whether an at-most-once delivery is not recorded in the journal yet."""
        cdef uint64_t at
        for at in range(self.removal_count):
            if self.removals[at].action == QUEUE_DELIVERED:
                return True
        return False

    @property
    def transports(self):
        """Transports with waiting deliveries."""
        cdef uint32_t index
        return [index for index in range(self.transport_count) if self.deliveries[index].count]

    def take_deliveries(self, uint32_t transport, uint64_t count_max):
        """Take out the first deliveries for a transport, as the entries of a deliveries record.

        A caller that takes a part of them must take the rest before queues make further decisions.
        """
        cdef DeliveryBuffer* buffer
        cdef uint64_t count
        cdef uint64_t at
        if transport >= self.transport_count:
            raise IndexError("no such transport")
        buffer = &self.deliveries[transport]
        count = min(buffer.count, count_max)
        taken = (<const char*>buffer.items)[:count * sizeof(QueueDelivery)] if count else b""
        for at in range(count, buffer.count):
            buffer.items[at - count] = buffer.items[at]
        buffer.count -= count
        return taken

    def take_removals(self):
        """Take out all removals: [(queue, action, publisher id, sequence, position, reasons, UNIX time in ns until
        which the message is delayed, or the numbers of both owners)].
        """
        cdef uint64_t at
        cdef Removal* item
        taken = []
        for at in range(self.removal_count):
            item = &self.removals[at]
            taken.append(
                (item.queue, item.action, item.entry.publisher_id, item.entry.sequence, item.entry.position,
                 item.entry.reasons, item.until_ns)
            )
        self.removal_count = 0
        return taken
