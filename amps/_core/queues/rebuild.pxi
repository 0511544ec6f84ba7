# Making queues out of the log: what the sequencer did with each record is done again.
#
# Records are read in their order, with their checksums. A message enters the queues of its topic; what has left by an
# acknowledgement, by expiry or by a delivery leaves again. Leases and counts of deliveries were never written down:
# they begin anew (queues.md §17).

from libc.stdint cimport int64_t, uint64_t

from amps._core.journal.reader cimport LogCursor, begin_reading, next_record, skip_record, topic_of
from amps._core.journal.record cimport (
    KIND_DELTA_PUBLISH,
    KIND_PUBLISH,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_QUEUE_EXPIRY,
    RecordHeader,
)


cdef class RecordedTopic:
    """A topic of the log: its name, the queues that its messages enter, the queue with its name (-1: there is none)."""

    cdef readonly bytes name
    cdef readonly tuple feeds
    cdef readonly int64_t queue

    def __init__(self, bytes name not None, feeds, queue):
        self.name = name
        self.feeds = tuple(feeds)
        self.queue = queue


def rebuild(LogCursor cursor, LogAdapter adapter, uint64_t limit, uint64_t bytes_max):
    """Read on, up to a log position and at most about so many bytes. True: the position is reached.

    The cursor's directory resolves topics to RecordedTopic. Raises LogDamaged, QueueMemoryFull, ValueError for a record
    that makes no sense.
    """
    cdef const RecordHeader* record
    cdef RecordedTopic topic
    cdef uint64_t begin = cursor.position
    begin_reading(cursor)
    while True:
        record = next_record(cursor, limit)
        if record == NULL:
            return True
        if cursor.position - begin > bytes_max:
            return False
        if record.kind == KIND_PUBLISH or record.kind == KIND_DELTA_PUBLISH:
            topic = <RecordedTopic?>topic_of(cursor.file, record.topic_id)
            if topic.feeds:
                adapter.enqueue(record, topic.name, topic.feeds, record.timestamp_ns)
        elif record.kind == KIND_QUEUE_ACKNOWLEDGEMENT or record.kind == KIND_QUEUE_EXPIRY:
            topic = <RecordedTopic?>topic_of(cursor.file, record.topic_id)
            # A queue that is not configured any more is nobody's business.
            if topic.queue >= 0:
                adapter.apply_recorded(record, <unsigned int>topic.queue)
        skip_record(cursor, record)
