# Rebuilds queues from the log, by repeating the effect that each record had on the queues.
#
# Records are read in their order, and their checksums are verified. A message enters the queues of its topic. A message
# that left by an acknowledgement, by expiry or by a delivery leaves again. Leases and counts of deliveries are not
# recorded: they begin anew (queues.md §17). Transfers between instances have their effect again.

from libc.stdint cimport int64_t, uint64_t

from amps._core.journal.reader cimport LogCursor, begin_reading, next_record, skip_record, topic_of
from amps._core.journal.record cimport (
    KIND_DELTA_PUBLISH,
    KIND_OWNERSHIP_TRANSFER,
    KIND_PUBLISH,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_QUEUE_EXPIRY,
    RecordHeader,
)


cdef class RecordedTopic:
    """A topic of the log: its name, the queues that its messages enter, the number of the queue with its name or -1."""

    cdef readonly bytes name
    cdef readonly tuple feeds
    cdef readonly int64_t queue

    def __init__(self, bytes name not None, feeds, queue):
        self.name = name
        self.feeds = tuple(feeds)
        self.queue = queue


def rebuild(LogCursor cursor, LogAdapter adapter, uint64_t limit, uint64_t bytes_max):
    """Read and apply records up to the log position `limit`, at most about `bytes_max` bytes. True: `limit` is reached.

    The cursor's directory resolves topics to RecordedTopic. It tells the adapter the paths of messages
    (`LogCursor.learns_names`). Raises LogDamaged, QueueMemoryFull, ValueError for a
    malformed record.
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
        elif (
            record.kind == KIND_QUEUE_ACKNOWLEDGEMENT or record.kind == KIND_QUEUE_EXPIRY
            or record.kind == KIND_OWNERSHIP_TRANSFER
        ):
            topic = <RecordedTopic?>topic_of(cursor.file, record.topic_id)
            # Records of a queue that is not configured any more are ignored.
            if topic.queue >= 0:
                adapter.apply_recorded(record, <unsigned int>topic.queue)
        skip_record(cursor, record)
