# Sends queue messages: from the deliveries that the core decided on to frames, without a Python object per message.
#
# The core assigns messages to subscriptions by log positions. One QueueSender per transport reads the messages at these
# positions from the mapped journal and writes frames to the output buffers of the connections.
#
#     take(record)   takes a batch of deliveries, which waits behind the earlier ones
#     run(durable)   sends the deliveries that the watermark allows: no client may work on a message that a crash of the
#                    machine could remove
#     parked         deliveries of a subscription that wait until the message of the first one is in memory; other
#                    subscriptions are served meanwhile
#
# Invariants: A subscription gets its messages in the order of the core's decisions. A barrier goes to the subscriptions
# that existed when it came, however long it waits. Deliveries for a subscription that has ended are dropped: the core
# ends its leases and assigns the messages to other subscriptions.
#
# Each sent message is noted in the lease table of its connection, so that acknowledgements find it.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove

from collections import deque
from functools import partial

from amps._core.expressions.machine cimport FilterSet
from amps._core.journal.reader import LogDamaged
from amps._core.delivery.bodies cimport Bodies
from amps._core.delivery.output cimport OutputBuffer
from amps._core.wire.ingress cimport LeaseTable
from amps._core.journal.queue_records cimport (
    DELIVERY_BARRIER,
    NO_SUBSCRIPTION,
    QueueDeliveriesHeader,
    QueueDelivery,
)
from amps._core.journal.record cimport KIND_QUEUE_DELIVERIES, RECORD_HEADER_BYTES, RecordHeader, record_payload
from amps._core.shm.memory cimport ControlPage

cdef enum:
    BOOKMARK = 1                   # flags of delivery/output.pyx
    LEASE = 8
    DELIVERY_COST_BYTES = 256      # cost of any delivery, in bytes of log read
    PLACES_MIN = 64

NUMBERS_END = <uint32_t>NO_SUBSCRIPTION      # numbers of subscriptions are lower


@cython.final
cdef class QueueReceiver:

    def __cinit__(self):
        self.parked = NULL

    def __init__(
        self, uint32_t number, owner, OutputBuffer output, LeaseTable leases, uint32_t flags, bytes sub_id, queues,
        Bodies bodies=None,
    ):
        """owner: argument for `damaged`. flags: see delivery/output.pyx; bookmarks are always sent.

        sub_id: as in a header, without quotes; None if frames need no subscription id. queues: number -> name of each
        queue, quoted as in a header. bodies: of its select list; None: whole messages.
        """
        self.number = number
        self.owner = owner
        self.output = output
        self.leases = leases
        self.beginnings = {}
        self.parked_first = self.parked_end = self.parked_capacity = 0
        self.is_ready = False
        self.filters = None
        self.entries = {}
        self.change(flags, sub_id, queues, bodies)

    def __dealloc__(self):
        free(self.parked)

    def change(self, uint32_t flags, bytes sub_id, queues, Bodies bodies=None):
        """Change the subscription. Messages on the way from its former queues are still sent."""
        self.bodies = bodies
        self.flags = flags | BOOKMARK
        self.ids = b"" if sub_id is None else b',"sids":"' + sub_id + b'"'
        for queue, name in queues.items():
            self.beginnings[queue] = b'{"c":"p","t":' + name + self.ids
        self.last_queue = NO_SUBSCRIPTION
        self.last_beginning = None

    def select(self, FilterSet filters, entries):
        """Set the filter of the subscription for barriers; the core already selects all other messages by the filter.

        filters: a set with its filter alone; None: no filter. entries: number -> TopicEntry of each queue.
        """
        self.filters = filters
        self.entries.update(entries)

    cdef bytes beginning_of(self, uint32_t queue):
        """A frame's header up to and including `sids`; None if the subscription never included that queue."""
        if queue != self.last_queue:
            self.last_beginning = self.beginnings.get(queue)
            self.last_queue = queue
        return self.last_beginning

    cdef int park(self, const QueueDelivery* delivery) except -1:
        """Append a delivery to the parked ones."""
        cdef QueueDelivery* grown
        cdef uint64_t capacity
        if self.parked_end == self.parked_capacity:
            if self.parked_first * 2 > self.parked_capacity:
                self.parked_end -= self.parked_first
                memmove(self.parked, self.parked + self.parked_first, self.parked_end * sizeof(QueueDelivery))
                self.parked_first = 0
            else:
                capacity = max(<uint64_t>16, self.parked_capacity * 2)
                grown = <QueueDelivery*>realloc(self.parked, capacity * sizeof(QueueDelivery))
                if grown == NULL:
                    raise MemoryError()
                self.parked = grown
                self.parked_capacity = capacity
        self.parked[self.parked_end] = delivery[0]
        self.parked_end += 1
        return 0


cdef class Batch:
    """Deliveries that came in one record, or an action to run in order with them."""


@cython.final
cdef class QueueSender:
    """The deliveries of one transport."""

    def __cinit__(self):
        self.places = NULL

    def __init__(self, directory, ControlPage control not None, read_ahead, schedule, damaged):
        """directory: the journal's LogDirectory. read_ahead(file, offset, length, done): reads a part of a file in
        another thread, then calls `done`. schedule(): schedules a call of `run`. damaged(owner, LogDamaged): called
        when a message for that receiver's owner cannot be read.
        """
        self.reader = MessageReader(directory, control)
        self.read_ahead = read_ahead
        self.schedule = schedule
        self.damaged = damaged
        self.receivers = {}
        self.by_queue = {}
        self.batches = deque()
        self.woken = deque()
        self.used = 0
        self.rehash(PLACES_MIN)

    def __dealloc__(self):
        free(self.places)

    # --- subscriptions --------------------------------------------------------------------------------

    def add(self, QueueReceiver receiver not None):
        """Add a receiver; its deliveries are sent from now on."""
        if receiver.number in self.receivers or receiver.number == NO_SUBSCRIPTION:
            raise ValueError(f"the number {receiver.number} is in use")
        self.receivers[receiver.number] = receiver
        if <uint64_t>len(self.receivers) * 2 > self.place_count:
            self.rehash(self.place_count * 2)
        else:
            self.place(receiver)

    def remove(self, uint32_t number):
        """Remove a receiver; nothing more is sent for it."""
        cdef QueueReceiver receiver = self.receivers.pop(number)
        cdef uint64_t mask = self.place_count - 1
        cdef uint64_t hole = number & mask
        cdef uint64_t at
        cdef uint64_t home
        for members in self.by_queue.values():
            members.pop(number, None)
        while self.places[hole] != <void*>receiver:
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            if self.places[at] == NULL:
                break
            home = (<QueueReceiver>self.places[at]).number & mask
            if ((at - home) & mask) >= ((at - hole) & mask):
                self.places[hole] = self.places[at]
                hole = at
        self.places[hole] = NULL

    def set_queues(self, uint32_t number, queues):
        """Set the queues from which a subscription gets barriers."""
        cdef QueueReceiver receiver = self.receivers[number]
        for queue, members in self.by_queue.items():
            if queue not in queues:
                members.pop(number, None)
        for queue in queues:
            self.by_queue.setdefault(queue, {})[number] = receiver

    cdef QueueReceiver find(self, uint32_t number):
        """The receiver with that number, or None."""
        cdef uint64_t mask = self.place_count - 1
        cdef uint64_t at = number & mask
        while self.places[at] != NULL:
            if (<QueueReceiver>self.places[at]).number == number:
                return <QueueReceiver>self.places[at]
            at = (at + 1) & mask
        return None

    cdef void place(self, QueueReceiver receiver) noexcept:
        # Numbers are assigned consecutively, so a number is its own hash.
        cdef uint64_t mask = self.place_count - 1
        cdef uint64_t at = receiver.number & mask
        while self.places[at] != NULL:
            at = (at + 1) & mask
        self.places[at] = <void*>receiver

    cdef int rehash(self, uint64_t count) except -1:
        cdef void** places = <void**>calloc(count, sizeof(void*))
        if places == NULL:
            raise MemoryError()
        free(self.places)
        self.places = places
        self.place_count = count
        for receiver in self.receivers.values():
            self.place(<QueueReceiver>receiver)
        return 0

    # --- deliveries -----------------------------------------------------------------------------------

    def take(self, bytes record not None):
        """Take a record of KIND_QUEUE_DELIVERIES."""
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(record)
        cdef const QueueDeliveriesHeader* header
        cdef const QueueDelivery* delivery
        cdef Batch batch = Batch()
        cdef uint32_t at
        if <uint64_t>len(record) < RECORD_HEADER_BYTES + sizeof(QueueDeliveriesHeader):
            raise ValueError("a record of deliveries is cut off")
        header = <const QueueDeliveriesHeader*>record_payload(<const RecordHeader*>data)
        delivery = <const QueueDelivery*>(<const uint8_t*>header + sizeof(QueueDeliveriesHeader))
        if <const uint8_t*>(delivery + header.count) > data + <uint64_t>len(record):
            raise ValueError("a record of deliveries is cut off")
        batch.record = record
        batch.durable_needed = header.durable_needed
        batch.count = header.count
        batch.at = 0
        for at in range(header.count):
            if delivery[at].flags & DELIVERY_BARRIER:
                if batch.barriers is None:
                    batch.barriers = {}
                batch.barriers[at] = list(self.by_queue.get(delivery[at].queue, {}).values())
        self.batches.append(batch)

    def when_sent(self, action):
        """Call an action when all deliveries taken so far are sent; at once if none waits."""
        cdef Batch batch
        if not self.batches:
            action()
            return
        batch = Batch()
        batch.durable_needed = 0
        batch.action = action
        self.batches.append(batch)

    def run(self, uint64_t durable, uint64_t bytes_max):
        """Send deliveries that may be sent, for about `bytes_max` bytes of log. True: more work remains."""
        cdef Batch batch
        cdef QueueReceiver receiver
        self.reader.begin_turn()
        self.used = 0
        while self.woken and self.used < bytes_max:
            receiver = self.woken.popleft()
            receiver.is_ready = False
            self.run_parked(receiver, bytes_max)
        while self.batches:
            batch = self.batches[0]
            if batch.durable_needed > durable:
                break
            if self.used >= bytes_max:
                return True
            if batch.action is not None:
                self.batches.popleft()
                batch.action()
                continue
            self.run_batch(batch, bytes_max)
            if batch.at == batch.count:
                self.batches.popleft()
        return len(self.woken) > 0

    cdef int run_batch(self, Batch batch, uint64_t bytes_max) except -1:
        cdef const QueueDelivery* deliveries = <const QueueDelivery*>(
            record_payload(<const RecordHeader*>PyBytes_AS_STRING(batch.record)) + sizeof(QueueDeliveriesHeader)
        )
        cdef const QueueDelivery* delivery
        cdef QueueReceiver receiver
        while batch.at < batch.count and self.used < bytes_max:
            delivery = &deliveries[batch.at]
            batch.at += 1
            if delivery.flags & DELIVERY_BARRIER:
                for receiver in batch.barriers[batch.at - 1]:
                    if self.find(receiver.number) is receiver:
                        self.deliver(receiver, delivery)
                continue
            receiver = self.find(delivery.subscription)
            if receiver is not None:
                self.deliver(receiver, delivery)
        return 0

    cdef int run_parked(self, QueueReceiver receiver, uint64_t bytes_max) except -1:
        """Send the parked deliveries of a receiver, after the pages of the first one were read."""
        while receiver.parked_first < receiver.parked_end:
            if self.find(receiver.number) is not receiver:
                break
            if self.used >= bytes_max:
                self.wake(receiver)
                return 0
            if not self.send(receiver, &receiver.parked[receiver.parked_first]):
                return 0
            receiver.parked_first += 1
        receiver.parked_first = receiver.parked_end = 0
        return 0

    def was_read(self, QueueReceiver receiver not None, uint64_t needed_until, problem=None):
        """Continue a receiver after its pages were read; with a `problem`, only those before its `offset` were."""
        if problem is not None and problem.offset < needed_until and receiver.parked_first < receiver.parked_end:
            receiver.parked_first += 1
            if self.find(receiver.number) is receiver:
                self.damaged(receiver.owner, problem)
        self.wake(receiver)

    cdef int wake(self, QueueReceiver receiver) except -1:
        """Schedule the sending of a receiver's parked deliveries."""
        if not receiver.is_ready:
            receiver.is_ready = True
            self.woken.append(receiver)
            self.schedule()
        return 0

    cdef int deliver(self, QueueReceiver receiver, const QueueDelivery* delivery) except -1:
        """Send a message, or park the delivery until the message is in memory."""
        if receiver.parked_first < receiver.parked_end or not self.send(receiver, delivery):
            receiver.park(delivery)
        return 0

    cdef bint send(self, QueueReceiver receiver, const QueueDelivery* delivery) except -1:
        """Send a message. False: it has to be read from the disk first, which has been requested."""
        cdef bytes beginning = receiver.beginning_of(delivery.queue)
        cdef uint32_t flags = receiver.flags
        cdef const RecordHeader* record
        if beginning is None:
            return True
        try:
            record = self.reader.read(delivery.position)
        except LogDamaged as damage:
            self.damaged(receiver.owner, damage)
            return True
        if record == NULL:
            self.used += DELIVERY_COST_BYTES
            self.read_ahead(
                self.reader.missing_file, self.reader.missing_offset, self.reader.missing_bytes,
                partial(self.was_read, receiver, self.reader.needed_until),
            )
            return False
        self.used += self.reader.cost(record)
        if delivery.flags & DELIVERY_BARRIER and not self.is_for(receiver, delivery.queue, record):
            return True
        # Other client libraries recognise messages to acknowledge by the lease field, so it is sent even if the lease
        # has no end. Barriers have none.
        if not delivery.flags & DELIVERY_BARRIER:
            flags |= LEASE
            receiver.output.lease_until_ns = delivery.lease_until_ns
        if receiver.bodies is None:
            receiver.output.publish(
                PyBytes_AS_STRING(beginning), <uint64_t>PyBytes_GET_SIZE(beginning), flags, record, self.reader.cursor
            )
        else:
            receiver.bodies.make(record)
            receiver.output.publish_body(
                PyBytes_AS_STRING(beginning), <uint64_t>PyBytes_GET_SIZE(beginning), flags, record,
                receiver.bodies.body, receiver.bodies.length, None,
            )
        if not delivery.flags & DELIVERY_BARRIER:
            receiver.leases.note(
                record.publisher_id, record.sequence, delivery.position, delivery.slot, delivery.queue
            )
        return True

    cdef bint is_for(self, QueueReceiver receiver, uint32_t queue, const RecordHeader* record) except -1:
        """Whether a barrier matches the filter of a receiver (queues.md §12)."""
        if receiver.filters is None:
            return True
        self.used += match_message(receiver.filters, record, receiver.entries[queue])
        return receiver.filters.matched_count > 0

    def release(self):
        """Close the journals if nothing was read since the last call. Called from time to time."""
        self.reader.release()
