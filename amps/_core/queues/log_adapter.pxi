# The adapter between the sequencer and the queues: applies records to queues, and makes records of their decisions.
#
# Every permanent change of a queue is a record of the journal: the messages, the acknowledgements, and the removals
# that no client requested. The sequencer applies them by `enqueue`, `acknowledge` and `removal_record`. Recovery
# repeats that with the records of the journal (`enqueue`, `apply_recorded`), and gets the same queues.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from amps._core.queues.engine cimport Membership, NewMessage, Ownerships, Queue, QueueSpan, Removal
from amps._core.journal.queue_records cimport (
    QUEUE_ACKNOWLEDGE,
    QUEUE_DELAYED,
    QUEUE_DELIVERED,
    QUEUE_EXPIRE,
    QUEUE_TRANSFER,
    REASON_BARRIER_SENT,
    REASON_MAX_CANCELS,
    REASON_MAX_DELIVERIES,
    QueueAcknowledgementHeader,
    QueueDeliveriesHeader,
    QueueDelivery,
    QueueEntry,
    QueueMatch,
    QueueMatchesHeader,
)
from amps._core.queues.slots cimport NO_SLOT, SLOT_LEASED
from amps._core.journal.record cimport (
    EXTENSION_DELIVER_AT,
    EXTENSION_SOURCE,
    KIND_OWNERSHIP_TRANSFER,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_QUEUE_DELIVERIES,
    KIND_QUEUE_EXPIRY,
    NO_EXPIRATION,
    RECORD_HEADER_BYTES,
    RecordHeader,
    align8,
    extension_word,
    record_expiry_ns,
    record_parts_fit,
    record_payload,
)

cdef enum:
    ENTRIES_MAX = 4096             # in one removal record
    DELIVERIES_MAX = 4096          # in one deliveries record


cdef class LogAdapter:

    def __init__(self, QueueManager manager not None, names, rules=()):
        """names: (name, message type) of each queue. rules: the QueueRules of each queue, None for a queue without
        expressions; empty if no queue has any. The caller must set `last_sequence` before use.
        """
        cdef QueueRules of_queue
        given = []
        self.manager = manager
        self.names = [(message_type.encode(), name.encode("utf-8", "surrogatepass")) for name, message_type in names]
        for of_queue in rules:
            given.append(of_queue)
        if given and len(given) != len(self.names):
            raise ValueError("rules must be given for each queue, or for none")
        self.rules = tuple(given) if any(given) else None
        self.last_sequence = None
        self.durable_awaited = 0
        self.origins = Origins(manager.shared.ownerships)
        self.publisher_id = 0

    cdef int enqueue(self, const RecordHeader* record, bytes topic, tuple queues, uint64_t now_ns) except -1:
        """Let a message of the journal enter those queues of its topic whose filters it matches."""
        cdef NewMessage message
        cdef Queue queue
        cdef QueueRules rules
        message.position = record.position
        message.publisher_id = record.publisher_id
        message.sequence = record.sequence
        message.publisher = self.manager.shared.publisher(record.publisher_id)
        message.timestamp_ns = record.timestamp_ns
        message.expiry_ns = record_expiry_ns(record)
        message.deliver_at_ns = extension_word(record, EXTENSION_DELIVER_AT, 0)
        message.has_priority = False
        message.priority = 0
        message.is_barrier = False
        message.key_hash = 0
        message.origin = self.origins.of_record(record) if record.extension_length else 0
        if self.rules is None:
            for queue in queues:
                queue.enqueue(&message, now_ns)
            return 0
        for queue in queues:
            rules = <QueueRules>self.rules[queue.number]
            if rules is None:
                message.has_priority = False
                message.priority = 0
                message.is_barrier = False
                message.key_hash = 0
            elif not rules.judge(record, topic, &message):
                continue
            queue.enqueue(&message, now_ns)
        return 0

    cdef int drop_duplicate(self, const RecordHeader* record, tuple queues) except -1:
        """A message from another instance is not taken, because it is in the log already: only its origin counts."""
        cdef uint32_t origin = self.origins.of_record(record)
        cdef uint32_t slot
        cdef Queue queue
        if origin:
            for queue in queues:
                if queue.span is not None and queue.live > queue.counters.foreign:
                    slot = queue.span.find(record.publisher_id, record.sequence)
                    if slot != NO_SLOT:
                        queue.span.published_elsewhere(slot, origin)
        return 0

    def ordering_seed(self, uint32_t queue):
        """The seed of the hashes of a queue's keys; None: it has no OrderingKey."""
        cdef QueueRules rules = None if self.rules is None else self.rules[queue]
        return None if rules is None else rules.ordering_seed

    def use_ordering_seed(self, uint32_t queue, bytes seed not None):
        """Go on with the seed of messages that are restored. The queue must have an OrderingKey. Raises ValueError."""
        (<QueueRules>self.rules[queue]).use_ordering_seed(seed)

    cdef bint may_acknowledge(self, const RecordHeader* record, uint32_t queue, uint64_t client) except -1:
        """Whether the limits allow the entries of a client's acknowledgement that will be deferred."""
        cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
        if (
            record.payload_length < sizeof(QueueAcknowledgementHeader)
            or record.payload_length != sizeof(QueueAcknowledgementHeader) + <uint64_t>header.count * sizeof(QueueEntry)
        ):
            raise ValueError("a transport pushed an acknowledgement whose entries do not add up to its length")
        return self.manager.may_defer(
            <Queue>self.manager.shared.queues[queue],
            client,
            header,
            <const QueueEntry*>(header + 1),
            self.last_sequence,
        )

    cdef bint holds(self, const RecordHeader* record, uint32_t queue, uint64_t client) except -1:
        """Whether all messages of a transaction's acknowledgement are leased to a client now (the fence).

        Raises ValueError for a malformed record, such as one whose entries are not in the order of the log.
        """
        cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
        cdef const QueueEntry* entries = <const QueueEntry*>(header + 1)
        cdef Queue tracked = self.manager.shared.queues[queue]
        cdef Membership holder
        cdef uint64_t before = 0
        cdef uint32_t at
        cdef uint32_t slot
        if (
            record.payload_length < sizeof(QueueAcknowledgementHeader)
            or record.payload_length != sizeof(QueueAcknowledgementHeader) + <uint64_t>header.count * sizeof(QueueEntry)
            or header.action != QUEUE_ACKNOWLEDGE or header.count == 0
        ):
            raise ValueError("a transport pushed a transaction whose acknowledgement is malformed")
        for at in range(header.count):
            if entries[at].position == 0:
                return False  # it is not in the log
        for at in range(header.count):
            if entries[at].position <= before:
                raise ValueError("a transport pushed a transaction that acknowledges a message twice")
            before = entries[at].position
            slot = tracked.find(entries[at].position, entries[at].slot)
            if slot == NO_SLOT or tracked.slots[slot].state != SLOT_LEASED:
                return False
            holder = tracked.holder_of(slot)
            if holder.subscriber.client != client:
                return False
        return True

    cdef set undecided_owners(self, const RecordHeader* record, uint32_t queue):
        """Whether another instance may have recorded a transaction whose fence does not hold here (decision 25.93): it
        owns one of the messages, or one has not come here yet. What has left is decided: its owner's log has said so.

        None: it cannot. Else the names of the owners of its messages, as far as they are other instances and known.
        """
        cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
        cdef const QueueEntry* entries = <const QueueEntry*>(header + 1)
        cdef Queue tracked = self.manager.shared.queues[queue]
        cdef Ownerships ownerships = self.manager.shared.ownerships
        cdef set owners = set()
        cdef bint is_missing = False
        cdef uint32_t at
        cdef uint32_t slot
        if tracked.span is None:
            return None
        for at in range(header.count):
            if entries[at].position == 0:
                is_missing = True
                continue
            slot = tracked.find(entries[at].position, entries[at].slot)
            if slot != NO_SLOT and not tracked.span.owns(slot):
                owners.add(ownerships.names[ownerships.table[tracked.slots[slot].ownership].owner])
        return owners if owners or is_missing else None

    cdef uint64_t deferred_ns(self, uint32_t queue) except? 0xFFFFFFFFFFFFFFFF:
        """The DeferredAckExpiration of a queue."""
        return (<Queue>self.manager.shared.queues[queue]).deferred_ns

    cdef int count_transaction(self, uint32_t queue, bint held) except -1:
        """Count a transaction of a queue's messages that has its effect, or, if the fence did not hold, has none."""
        cdef Queue tracked = self.manager.shared.queues[queue]
        if held:
            tracked.counters.transactions += 1
        else:
            tracked.counters.transactions_lease_lost += 1
        return 0

    cdef uint32_t acknowledge(
        self, RecordHeader* record, uint32_t queue, uint64_t client, uint64_t now_ns, uint32_t* token,
        uint32_t* matches, uint32_t* removed
    ) except? 0xFFFFFFFF:
        """Apply a client's permitted acknowledgement, and reduce its record in place to the entries that the journal
        must record. Returns their number.
        """
        cdef QueueAcknowledgementHeader* header = <QueueAcknowledgementHeader*>record_payload(record)
        cdef QueueEntry* entries = <QueueEntry*>(header + 1)
        cdef AcknowledgedCounts counts
        cdef uint32_t dropped
        self.manager.acknowledge_entries(
            <Queue>self.manager.shared.queues[queue], client, header, entries, self.last_sequence, now_ns, &counts
        )
        token[0] = header.token
        matches[0] = counts.matches
        removed[0] = counts.removed
        dropped = (header.count - counts.kept) * <uint32_t>sizeof(QueueEntry)
        header.count = counts.kept
        header.token = 0
        header.searched_until = 0
        header.domain = self.domain_of(queue)
        if dropped:
            record.length -= dropped
            record.payload_length -= dropped
            memset(<uint8_t*>record + record.length, 0, align8(record.length) - record.length)
        return counts.kept

    cdef uint32_t domain_of(self, uint32_t queue) except? 0xFFFFFFFF:
        cdef QueueSpan span = (<Queue>self.manager.shared.queues[queue]).span
        return 0 if span is None else span.domain

    def note_path(self, uint64_t path, str text not None):
        """Learn the text of the path with a name id, before the first message that has passed it."""
        self.origins.note(path, text)

    cdef bint waits_for_others(self, const RecordHeader* record, uint32_t queue) except -1:
        """Whether the client of an acknowledgement relies on its messages being gone on other instances."""
        cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
        return header.action == QUEUE_ACKNOWLEDGE and (<Queue>self.manager.shared.queues[queue]).span is not None

    cdef bint is_sound(self, const RecordHeader* record) except -1:
        """Whether a queue's record from another instance is well formed. If not, it must not enter the log."""
        return entries_fit(record)

    cdef int apply_replicated(self, RecordHeader* record, uint32_t queue, uint64_t now_ns) except -1:
        """Apply a sound record that another instance sent to its queue, and set its log positions to those of this
        instance. It is written afterwards.
        """
        return apply_replicated_record(
            <Queue>self.manager.shared.queues[queue], record, now_ns, self.last_sequence
        )

    def replicate(self, bytearray record not None, uint32_t queue, uint64_t now_ns):
        """Do the same as `apply_replicated`, from Python, if the record is sound. False: it is not."""
        cdef RecordHeader* replicated = <RecordHeader*><char*>record
        if len(record) < RECORD_HEADER_BYTES or <uint64_t>len(record) < replicated.length:
            return False
        if not record_parts_fit(replicated) or not entries_fit(replicated):
            return False
        self.apply_replicated(replicated, queue, now_ns)
        return True

    def repeat(self, bytes record not None, uint32_t queue):
        """Apply a whole record of a queue from the log, in recovery, from Python. Raises ValueError."""
        self.apply_recorded(<const RecordHeader*><const char*>record, queue)

    def take_decision(self):
        """Take the first decisions that the journal must record: (queue number, record without its place in the log,
        whether other instances must know it). None: there are none.
        """
        cdef uint32_t queue = 0
        cdef uint64_t count = 0
        if self.manager.output.removal_count == 0:
            return None
        memory = self.removal_record(&queue, &count)
        self.removals_written(count)
        return queue, memory, (<const RecordHeader*><const char*>memory).publisher_id != 0

    cdef uint32_t token_of(self, const RecordHeader* record) noexcept:
        """The token of a client's acknowledgement; 0 = no answer is requested."""
        if record.payload_length < sizeof(QueueAcknowledgementHeader):
            return 0
        return (<const QueueAcknowledgementHeader*>record_payload(record)).token

    cdef int hear(self, const RecordHeader* record, uint64_t now_ns) except -1:
        """Take the matches of filters from a transport's record. Raises ValueError if the record is malformed."""
        cdef const uint8_t* at = record_payload(record)
        cdef const uint8_t* end = at + record.payload_length
        cdef const QueueMatchesHeader* section
        while at < end:
            section = <const QueueMatchesHeader*>at
            if <uint64_t>(end - at) < sizeof(QueueMatchesHeader):
                raise ValueError("a transport pushed a record of matches that is cut off")
            at += sizeof(QueueMatchesHeader)
            if <uint64_t>(end - at) < section.count * <uint64_t>sizeof(QueueMatch):
                raise ValueError("a transport pushed a record of matches that is cut off")
            at += section.count * <uint64_t>sizeof(QueueMatch)
            self.manager.hear_section(section, now_ns)
        return 0

    cdef int apply_recorded(self, const RecordHeader* record, uint32_t queue) except -1:
        """Apply a queue's record in recovery. Raises ValueError if the record is malformed."""
        cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
        cdef const QueueEntry* entries = <const QueueEntry*>(header + 1)
        cdef Queue tracked = self.manager.shared.queues[queue]
        cdef uint32_t at
        if not entries_fit(record):
            raise ValueError("its entries do not add up to its length")
        if record.position < tracked.start_position:
            return 0
        tracked.now_ns = record.timestamp_ns
        if record.kind == KIND_OWNERSHIP_TRANSFER:
            return apply_recorded_transfer(tracked, record)
        if header.action == QUEUE_DELAYED:
            for at in range(header.count):
                tracked.delay_recorded(entries[at].position, header.extension_ns)
            return 0
        for at in range(header.count):
            if entries[at].position:
                tracked.remove_recorded(entries[at].position, NO_SLOT)
            else:
                tracked.defer(entries[at].publisher_id, entries[at].sequence, record.timestamp_ns, None)
        return 0

    def begin(self):
        """Start the counters of the queues, after recovery."""
        cdef Queue queue
        for queue in self.manager.queues:
            queue.counters.insert_count = queue.counters.depth + queue.counters.delayed
            queue.counters.delete_count = 0
            queue.counters.transferred_in = 0
            queue.counters.transferred_out = 0

    # --- decisions of the queues ----------------------------------------------------------------------

    cdef bytearray removal_record(self, uint32_t* queue, uint64_t* count):
        """Make a record of the first decisions not yet in the journal, all of the same queue and action, and of the
        same time of a delay or the same owners. Sets queue and count. There must be at least one. What other instances
        must know has the publisher id of this instance's queues, else 0.
        """
        cdef Removal* removals = self.manager.output.removals
        cdef uint64_t limit = min(self.manager.output.removal_count, <uint64_t>ENTRIES_MAX)
        cdef uint64_t found = 0
        cdef uint32_t length
        cdef RecordHeader* record
        cdef QueueAcknowledgementHeader* header
        cdef QueueEntry* entries
        cdef bytes names = b""
        cdef bint is_shared = self.is_shared(&removals[0])
        while (
            found < limit and removals[found].queue == removals[0].queue
            and removals[found].action == removals[0].action and removals[found].until_ns == removals[0].until_ns
            and self.is_shared(&removals[found]) == is_shared
        ):
            found += 1
        if removals[0].action == QUEUE_TRANSFER:
            names = self.names_of(removals[0].until_ns)
        length = <uint32_t>(
            RECORD_HEADER_BYTES + sizeof(QueueAcknowledgementHeader) + found * sizeof(QueueEntry) + len(names)
        )
        memory = bytearray(align8(length))
        record = <RecordHeader*><char*>memory
        record.length = length
        record.kind = (
            <int>KIND_QUEUE_EXPIRY if removals[0].action == QUEUE_EXPIRE
            else <int>KIND_OWNERSHIP_TRANSFER if removals[0].action == QUEUE_TRANSFER
            else <int>KIND_QUEUE_ACKNOWLEDGEMENT
        )
        record.publisher_id = self.publisher_id if is_shared else 0
        record.expiration_s = NO_EXPIRATION
        record.payload_length = length - RECORD_HEADER_BYTES
        header = <QueueAcknowledgementHeader*>record_payload(record)
        header.action = removals[0].action
        header.extension_ns = 0 if names else removals[0].until_ns
        header.count = <uint32_t>found
        header.domain = self.domain_of(removals[0].queue)
        entries = <QueueEntry*>(header + 1)
        for at in range(found):
            memcpy(&entries[at], &removals[at].entry, sizeof(QueueEntry))
        if names:
            memcpy(&entries[found], <const char*>names, len(names))
        queue[0] = removals[0].queue
        count[0] = found
        return memory

    cdef bint is_shared(self, const Removal* removal) except -1:
        """Whether other instances must know a decision (queues.md §17): not what each of them decides for itself."""
        if (<Queue>self.manager.shared.queues[removal.queue]).span is None:
            return False
        if removal.action == QUEUE_EXPIRE:
            return removal.entry.reasons & (REASON_MAX_CANCELS | REASON_MAX_DELIVERIES) != 0
        if removal.action == QUEUE_DELIVERED:
            return not removal.entry.reasons & REASON_BARRIER_SENT
        return removal.action == QUEUE_TRANSFER

    cdef bytes names_of(self, uint64_t owners):
        """The text of a transfer between two owners, given as in a Removal."""
        cdef Ownerships ownerships = self.manager.shared.ownerships
        before, after = ownerships.names[owners >> 32], ownerships.names[owners & 0xFFFFFFFF]
        return f"{before}\t{after}".encode("utf-8", "surrogatepass")

    cdef int removals_written(self, uint64_t count) except -1:
        """Drop the first removals, which are in the journal now."""
        cdef Removal* removals = self.manager.output.removals
        self.manager.output.removal_count -= count
        if self.manager.output.removal_count:
            memmove(removals, removals + count, self.manager.output.removal_count * sizeof(Removal))
        return 0

    def take_deliveries(self, uint64_t removed_until):
        """[(transport, record)] of all deliveries. A record may be sent when its messages are durable and the journal
        is durable up to `removed_until`, the end of the record of at-most-once deliveries.
        """
        cdef const QueueDelivery* delivery
        cdef uint32_t at
        cdef uint32_t length
        cdef RecordHeader* record
        cdef QueueDeliveriesHeader* header
        cdef uint32_t count
        cdef bytes taken
        records = []
        for transport in self.manager.output.transports:
            while True:
                taken = self.manager.output.take_deliveries(transport, DELIVERIES_MAX)
                if not taken:
                    break
                count = <uint32_t>(len(taken) // sizeof(QueueDelivery))
                length = <uint32_t>(RECORD_HEADER_BYTES + sizeof(QueueDeliveriesHeader) + len(taken))
                memory = bytearray(length)
                record = <RecordHeader*><char*>memory
                record.length = length
                record.kind = KIND_QUEUE_DELIVERIES
                record.payload_length = length - RECORD_HEADER_BYTES
                header = <QueueDeliveriesHeader*>record_payload(record)
                header.durable_needed = removed_until
                header.count = count
                memcpy(header + 1, <char*>taken, len(taken))
                delivery = <const QueueDelivery*>(header + 1)
                for at in range(count):
                    # The durable position is always the end of a record.
                    header.durable_needed = max(header.durable_needed, delivery[at].position + 1)
                self.durable_awaited = max(self.durable_awaited, header.durable_needed)
                records.append((transport, bytes(memory)))
        return records


cdef enum:
    SLOT_SHIFT = 32


def client_key(uint64_t transport, uint64_t slot, uint64_t serial):
    """The key by which the queues identify a connection."""
    return transport << TRANSPORT_SHIFT | slot << SLOT_SHIFT | serial
