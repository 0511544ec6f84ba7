# Finding the messages that left queues: a scan of the log that skips all other records.
#
# The watcher of queues (for actions on messages that expired or were acknowledged) tails the log with a `RemovalScan`.
# All messages of the instance pass through it. So it makes no Python objects for a record before it knows that the
# record belongs to a watched queue.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.journal.reader import LogDamaged
from amps._core.journal.reader cimport LogCursor, begin_reading, next_record, skip_record, topic_of
from amps._core.journal.queue_records cimport (
    QUEUE_ACKNOWLEDGE,
    QUEUE_EXPIRE,
    REASON_ELSEWHERE,
    QueueAcknowledgementHeader,
    QueueEntry,
    position_gone,
)
from amps._core.journal.record cimport (
    EXTENSION_SOURCE,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_QUEUE_EXPIRY,
    RecordHeader,
    extension_word,
    record_payload,
)

ENTRY_BYTES = sizeof(QueueEntry)


cdef class RemovalScan:

    cdef LogCursor cursor

    def __init__(self, LogCursor cursor not None):
        """cursor: its directory resolves a watched topic to the object that `next` returns for it, others to None."""
        self.cursor = cursor

    @property
    def position(self):
        """Log position up to which the scan has read."""
        return self.cursor.position

    def next(self, uint64_t limit, uint64_t bytes_max):
        """The next record of removals from a watched queue: (log position of the record, resolved object of its topic,
        True if the messages expired, [(log position of the message, reasons)]). None: the limit is reached. False:
        `bytes_max` bytes were read, and there may be more records.

        Entries keep their order of the record. An entry without a log position is for a message that had not arrived.
        Messages that left an at-most-once queue when they were sent, and released barriers, do not count as removals.
        Of a queue that spans instances, messages expire where they are owned, and are expired by the instance that took
        the command; an acknowledgement counts on each instance that has the message (queues.md D-19, D-30).
        Raises LogDamaged.
        """
        cdef const RecordHeader* record
        cdef LogCursor cursor = self.cursor
        cdef uint64_t begin = cursor.position
        begin_reading(cursor)
        while True:
            record = next_record(cursor, limit)
            if record == NULL:
                return None
            if cursor.position - begin > bytes_max:
                return False
            if record.kind == KIND_QUEUE_EXPIRY or record.kind == KIND_QUEUE_ACKNOWLEDGEMENT:
                watched = topic_of(cursor.file, record.topic_id)
                found = None if watched is None else self.removals(record, watched)
                skip_record(cursor, record)
                if found is not None:
                    return found
            else:
                skip_record(cursor, record)

    cdef tuple removals(self, const RecordHeader* record, object watched):
        """The result of `next` for a record; None if the record removes no messages."""
        cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
        cdef const QueueEntry* entries = <const QueueEntry*>(header + 1)
        cdef uint32_t at
        if (
            record.payload_length < sizeof(QueueAcknowledgementHeader)
            or record.payload_length != sizeof(QueueAcknowledgementHeader) + <uint64_t>header.count * sizeof(QueueEntry)
        ):
            raise LogDamaged(
                self.cursor.file.path, record.position - self.cursor.file.start_position,
                "the entries of a queue's record do not add up to its length",
            )
        if header.action != QUEUE_EXPIRE and header.action != QUEUE_ACKNOWLEDGE:
            return None
        if header.action == QUEUE_EXPIRE and extension_word(record, EXTENSION_SOURCE, 0):
            return None
        found = []
        for at in range(header.count):
            if entries[at].position != position_gone() and not entries[at].reasons & REASON_ELSEWHERE:
                found.append((entries[at].position, entries[at].reasons))
        if not found:
            return None
        return record.position, watched, header.action == QUEUE_EXPIRE, found
