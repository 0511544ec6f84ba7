# Watching published messages, for processes that act on messages instead of sending them.
#
# Actions on published messages (operations.md §9.2) run in the services process. A `MessageWatch` reads one log for all
# of them: the journal, or the transient log. All messages of the instance pass through it. So it makes no Python object
# for a record before it knows that somebody watches the topic and that a filter matches.

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from amps._core.expressions.machine cimport FilterEntry, FilterSet
from amps._core.journal.reader cimport LogCursor, begin_reading, next_record, skip_record, topic_of
from amps._core.journal.record cimport (
    EXTENSION_SOURCE,
    KIND_DELTA_PUBLISH,
    KIND_PUBLISH,
    RecordHeader,
    extension_word,
    record_client_id,
    record_payload,
)
from amps._core.wire.topics cimport tell_facts


@cython.final
cdef class WatchedTopic:
    """A topic and those who watch it. The directory of a watch resolves watched topics to this, others to None."""

    cdef bytes raw_name
    cdef readonly str name
    cdef list every
    cdef FilterSet filters

    def __init__(self, str name, list every, FilterSet filters=None):
        """every: watchers of all messages. filters: its members watch the messages that match."""
        self.raw_name = name.encode("utf-8", "surrogateescape")
        self.name = name
        self.every = every
        self.filters = filters

    cdef list watchers(self, const RecordHeader* record, bint recorded):
        """Those who watch a message, each once; the list may be that of the topic."""
        cdef FilterSet filters = self.filters
        cdef list found
        cdef uint64_t unreadable
        cdef uint32_t at
        if filters is None:
            return self.every
        if filters.asks_message:
            tell_facts(filters.evaluation.context, record, self.raw_name, recorded, True)
            if filters.asks_publisher:
                filters.evaluation.tell_publisher(record_client_id(record))
        unreadable = filters.evaluation.unreadable
        filters.match(record_payload(record), record.payload_length)
        if filters.evaluation.unreadable != unreadable:
            filters.evaluation.last_unreadable = (self.name, record.publisher_id, record.sequence)
        if filters.matched_count == 0:
            return self.every
        found = list(self.every)
        for at in range(filters.matched_count):
            found.extend((<FilterEntry>filters.matched[at]).members)
        return found


@cython.final
cdef class MessageWatch:

    cdef readonly LogCursor cursor
    cdef bint recorded

    def __init__(self, LogCursor cursor not None, bint recorded):
        """cursor: its directory resolves a watched topic to a WatchedTopic, others to None. recorded: it reads the
        journal, so messages have bookmarks.
        """
        self.cursor = cursor
        self.recorded = recorded

    @property
    def position(self):
        """Log position up to which messages were read."""
        return self.cursor.position

    def next(self, uint64_t limit, uint64_t bytes_max):
        """The next watched message: (watchers, its WatchedTopic, payload, publisher id, sequence, time in ns, name id
        of the client or 0, True if another instance sent it here). None: the limit is reached. False: `bytes_max`
        bytes were read, and there may be more messages. Raises LogDamaged, LogRemoved.
        """
        cdef const RecordHeader* record
        cdef LogCursor cursor = self.cursor
        cdef WatchedTopic topic
        cdef uint64_t begin = cursor.position
        cdef list watchers
        cdef tuple found
        begin_reading(cursor)
        while True:
            record = next_record(cursor, limit)
            if record == NULL:
                return None
            if cursor.position - begin > bytes_max:
                return False
            found = None
            if record.kind == KIND_PUBLISH or record.kind == KIND_DELTA_PUBLISH:
                watched = topic_of(cursor.file, record.topic_id)
                if watched is not None:
                    topic = <WatchedTopic?>watched
                    watchers = topic.watchers(record, self.recorded)
                    if PyList_GET_SIZE(watchers):
                        found = (
                            watchers,
                            topic,
                            (<const char*>record_payload(record))[: record.payload_length],
                            record.publisher_id,
                            record.sequence,
                            record.timestamp_ns,
                            record_client_id(record),
                            extension_word(record, EXTENSION_SOURCE, 0) != 0,
                        )
            skip_record(cursor, record)
            if found is not None:
                return found
