# Records of queues that span instances: those that came from other instances, and transfers (replication.md §24.8).
#
# The entries of such a record name messages by bookmark. Their log positions are those of the instance that sent the
# record, so they are set anew before it is written here: readers of this log, and recovery, need the positions of this
# instance. A record of a group local queue carries the *domain* of its queue, because another group may have a queue of
# the same name. It has no effect on this one.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t

from amps._core.journal.queue_records cimport (
    QUEUE_ACKNOWLEDGE,
    QUEUE_DELIVERED,
    QUEUE_EXPIRE,
    QUEUE_TRANSFER,
    TRANSFER_PROXIED,
    QueueAcknowledgementHeader,
    QueueEntry,
    position_gone,
)
from amps._core.journal.record cimport EXTENSION_PATH, KIND_OWNERSHIP_TRANSFER, RecordHeader, extension_word
from amps._core.journal.record cimport record_payload
from amps._core.queues.engine cimport Ownerships, Queue, QueueSpan
from amps._core.queues.slots cimport NO_SLOT

cdef enum:
    NAMES_BYTES_MAX = 4096         # of the text of a transfer
    REQUESTS_WAITING_MAX = 10_000  # further ones are dropped: they are repeated


cdef bint entries_fit(const RecordHeader* record) noexcept:
    """Whether the payload of a queue's record is a header, its entries, and, of a transfer, the names of two instances.
    """
    cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
    cdef uint64_t fixed
    if record.payload_length < sizeof(QueueAcknowledgementHeader):
        return False
    fixed = sizeof(QueueAcknowledgementHeader) + <uint64_t>header.count * sizeof(QueueEntry)
    if record.kind != KIND_OWNERSHIP_TRANSFER:
        return record.payload_length == fixed
    return (
        header.action == QUEUE_TRANSFER and record.payload_length > fixed
        and record.payload_length - fixed <= NAMES_BYTES_MAX and transfer_names(record) is not None
    )


cdef tuple transfer_names(const RecordHeader* record):
    """(name of the owner before, name of the owner after) of a transfer whose lengths fit; None: the text is malformed.
    """
    cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
    cdef uint64_t fixed = sizeof(QueueAcknowledgementHeader) + <uint64_t>header.count * sizeof(QueueEntry)
    cdef bytes text = PyBytes_FromStringAndSize(
        <const char*>header + fixed, <Py_ssize_t>(record.payload_length - fixed)
    )
    names = text.decode("utf-8", "surrogatepass").split("\t") if is_utf8(text) else ()
    return tuple(names) if len(names) == 2 and names[1] else None


cdef bint is_utf8(bytes text):
    try:
        text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


cdef int apply_replicated_record(
    Queue queue, RecordHeader* record, uint64_t now_ns, object last_sequence
) except -1:
    """Apply a sound record of a queue that another instance sent, and set the log positions of its entries."""
    cdef QueueAcknowledgementHeader* header = <QueueAcknowledgementHeader*>record_payload(record)
    cdef QueueEntry* entries = <QueueEntry*>(header + 1)
    cdef QueueSpan span = queue.span
    cdef bint counts
    cdef uint32_t owner = 0
    cdef uint32_t at
    cdef uint32_t slot
    counts = span is not None and header.domain == span.domain and (
        record.kind == KIND_OWNERSHIP_TRANSFER or header.action == QUEUE_ACKNOWLEDGE
        or header.action == QUEUE_EXPIRE or header.action == QUEUE_DELIVERED
    )
    if counts and record.kind == KIND_OWNERSHIP_TRANSFER:
        owner = span.ownerships.owner(transfer_names(record)[1])
    queue.now_ns = now_ns
    for at in range(header.count):
        slot = span.find(entries[at].publisher_id, entries[at].sequence) if counts else NO_SLOT
        if slot != NO_SLOT:
            entries[at].position = queue.slots[slot].position
            if record.kind == KIND_OWNERSHIP_TRANSFER:
                span.transfer(slot, owner, entries[at].slot, entries[at].reasons & TRANSFER_PROXIED)
            else:
                queue.remove_replicated(slot, now_ns)
        elif counts and entries[at].sequence > <uint64_t>last_sequence(entries[at].publisher_id):
            entries[at].position = 0
            apply_early(queue, record, &entries[at], owner, now_ns)
        else:
            entries[at].position = position_gone()
    return 0


cdef int apply_early(
    Queue queue, const RecordHeader* record, const QueueEntry* entry, uint32_t owner, uint64_t now_ns
) except -1:
    """Keep what a record says about a message that has not come yet."""
    if record.kind == KIND_OWNERSHIP_TRANSFER:
        return queue.span.transfer_early(
            entry.publisher_id, entry.sequence, owner, entry.slot, entry.reasons & TRANSFER_PROXIED, now_ns
        )
    return queue.defer(entry.publisher_id, entry.sequence, now_ns, None)


cdef int apply_recorded_transfer(Queue queue, const RecordHeader* record) except -1:
    """Repeat the effect of a recorded transfer, in recovery."""
    cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
    cdef const QueueEntry* entries = <const QueueEntry*>(header + 1)
    cdef uint32_t owner
    cdef uint32_t at
    cdef uint32_t slot
    if queue.span is None:
        return 0
    owner = queue.span.ownerships.owner(transfer_names(record)[1])
    for at in range(header.count):
        if entries[at].position:
            slot = queue.find(entries[at].position, NO_SLOT)
            if slot != NO_SLOT:
                queue.span.transfer(slot, owner, entries[at].slot, entries[at].reasons & TRANSFER_PROXIED)
        else:
            apply_early(queue, record, &entries[at], owner, record.timestamp_ns)
    return 0


cdef class Origins:
    """The instances of publishes, by the paths of records: the first instance of a path (replication.md §24.8)."""

    def __init__(self, Ownerships ownerships not None):
        self.ownerships = ownerships
        self.by_path = {}
        self.recent_path = 0
        self.recent = 0

    def note(self, uint64_t path, str text not None):
        """Learn the text of a path: a line `instance TAB group TAB epoch` for each instance that it has passed."""
        name = text.split("\n", 1)[0].split("\t", 1)[0]
        self.by_path[path] = self.ownerships.owner(name)

    cdef uint32_t of_record(self, const RecordHeader* record) except? 0xFFFFFFFF:
        """The number of the instance to which a message was published; 0: this one. Without a text of the path, it is
        an instance without a name, which can never be reached.
        """
        cdef uint64_t path = extension_word(record, EXTENSION_PATH, 0)
        if path == 0:
            return 0
        if path != self.recent_path:
            number = self.by_path.get(path)
            if number is None:
                return self.ownerships.owner("")
            self.recent = number
            self.recent_path = path
        return self.recent
