"""Delivery: from log records to frames for subscribers, without a Python object per message.

A *tailer* reads a log up to a watermark and hands each message to the routes of its topic (routes.pyx). Three kinds
exist in a transport: one live tailer (journal and transient log merged by transaction id, up to what is written), one
durable tailer (journal, up to what is durable; it serves all bookmark subscriptions that have caught up), and one
tailer per replay. A *group* is the set of subscriptions that one tailer serves, with the routes it has worked out per
topic.

Invariants: a tailer never passes its limit. All subscriptions of a group have seen exactly the messages before the
group's position; that is what makes moving a subscription from a replay to the durable group gapless.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.log_reader cimport LogCursor, begin_reading, next_record, skip_record, topic_of
from amps._core.outlet cimport Outlet
from amps._core.record cimport KIND_DELTA_PUBLISH, KIND_PUBLISH, RecordHeader
from amps._core.routes cimport TopicRoutes
from amps._core.topic_table cimport TopicEntry

cdef enum:
    QUESTION_BYTES = 4096          # working out the routes of a topic costs about what reading so much log does


@cython.final
cdef class Group:

    def __cinit__(self):
        self.asked = NULL

    def __init__(self, find_routes, live=False):
        self.find_routes = find_routes
        self.live = live
        self.routes = []
        self.capacity = 0
        self.generation = 1
        self.work = 0

    def __dealloc__(self):
        free(self.asked)

    def changed(self, TopicEntry entry=None):
        """The subscriptions changed, for one topic or for topics unknown: a new generation begins."""
        if entry is None:
            self.generation += 1
        elif entry.number < <uint32_t>len(self.routes):
            self.routes[entry.number] = None

    def forget(self):
        """Nobody is left: give all routes back."""
        self.routes = []

    cdef int grow(self, uint32_t number) except -1:
        """Make room for a topic."""
        cdef Py_ssize_t known = len(self.routes)
        cdef Py_ssize_t added = <Py_ssize_t>number + 1 - known
        cdef uint64_t* grown
        if number >= self.capacity:
            self.capacity = max(<uint64_t>64, <uint64_t>number * 2)
            grown = <uint64_t*>realloc(self.asked, self.capacity * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError()
            self.asked = grown
        memset(self.asked + known, 0, <size_t>added * sizeof(uint64_t))
        self.routes.extend([None] * added)
        return 0

    cdef TopicRoutes ask(self, TopicEntry entry):
        """Work out the routes of a topic."""
        cdef TopicRoutes found
        cdef uint32_t number = entry.number
        if number >= <uint32_t>len(self.routes):
            self.grow(number)
        found = self.find_routes(entry, self.asked[number], <TopicRoutes>self.routes[number])
        self.routes[number] = found
        self.asked[number] = self.generation
        self.work += QUESTION_BYTES
        return found


cdef inline int deliver(Group group, const RecordHeader* record, LogCursor cursor) except -1:
    cdef TopicRoutes routes
    if record.kind == KIND_PUBLISH or record.kind == KIND_DELTA_PUBLISH:
        routes = routes_of(group, <TopicEntry?>topic_of(cursor.file, record.topic_id))
        group.work += routes.deliver(record, cursor, group.live)
    return 0


cdef class JournalTailer:

    def __init__(self, LogCursor cursor, Group group, uint64_t last_publisher_id, uint64_t last_sequence):
        self.cursor = cursor
        self.group = group
        self.last_publisher_id = last_publisher_id
        self.last_sequence = last_sequence

    @property
    def position(self):
        return self.cursor.position

    def run(self, uint64_t limit, uint64_t log_bytes_max, Outlet outlet=None, uint64_t output_bytes_max=0):
        """Evaluate records up to `limit`, at most about `log_bytes_max` bytes of log, for a replay also until its
        outlet holds `output_bytes_max`. True: the limit was reached.
        """
        cdef const RecordHeader* record
        cdef LogCursor cursor = self.cursor
        cdef Group group = self.group
        cdef uint64_t begin = cursor.position
        cdef uint64_t work = group.work
        begin_reading(cursor)
        while True:
            record = next_record(cursor, limit)
            if record == NULL:
                return True
            if cursor.position - begin + (group.work - work) > log_bytes_max:
                return False
            if outlet is not None and outlet.pending_bytes >= output_bytes_max:
                return False
            deliver(group, record, cursor)
            if record.publisher_id:
                self.last_publisher_id = record.publisher_id
                self.last_sequence = record.sequence
            skip_record(cursor, record)


cdef class LiveTailer:
    """Reads journal and transient log together, in the order of the instance, for ordinary subscriptions."""

    cdef LogCursor journal         # None without a transaction log
    cdef LogCursor transient
    cdef readonly Group group

    def __init__(self, LogCursor journal, LogCursor transient, Group group):
        self.journal = journal
        self.transient = transient
        self.group = group

    @property
    def transient_position(self):
        return self.transient.position

    def run(self, uint64_t journal_limit, uint64_t transient_limit, uint64_t bytes_max):
        """Evaluate records below both limits; True: both were reached. The limits must be one reading (watermarks)."""
        cdef const RecordHeader* recorded = NULL
        cdef const RecordHeader* passing = NULL
        cdef uint64_t seen = 0
        cdef uint64_t work = self.group.work
        if self.journal is not None:
            begin_reading(self.journal)
        while True:
            if self.journal is not None and recorded == NULL:
                recorded = next_record(self.journal, journal_limit)
            if passing == NULL:
                passing = next_record(self.transient, transient_limit)
            if recorded == NULL and passing == NULL:
                return True
            if seen + (self.group.work - work) > bytes_max:
                return False
            if passing == NULL or (recorded != NULL and recorded.txid < passing.txid):
                seen += recorded.length
                deliver(self.group, recorded, self.journal)
                skip_record(self.journal, recorded)
                recorded = NULL
            else:
                seen += passing.length
                deliver(self.group, passing, self.transient)
                skip_record(self.transient, passing)
                passing = NULL
