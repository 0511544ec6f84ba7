# Delivery: from log records to frames for subscribers, without a Python object per message.
#
# A *tailer* reads a log up to a watermark and passes each message to the routes of its topic (delivery/routes.pxi). A
# transport has three kinds of tailers:
# - one live tailer, which merges journal and transient log by transaction id, up to the written watermark;
# - one durable tailer, which reads the journal up to the durable watermark for all bookmark subscriptions that have
#   caught up;
# - one tailer per replay.
#
# A *group* is the set of subscriptions that one tailer serves, with their routes per topic.
#
# Invariants: A tailer never passes its limit. All subscriptions of a group have seen exactly the messages before the
# group's position. So a subscription can move from a replay to the durable group without a gap.
#
# A replay that has the topic index of a journal steps over records of topics without subscriptions in its group
# (journal/topic_steps.pxi), and does not read them. The delivered messages and the positions at which a run stops are
# the same. Only the bookmark of the last record before such a position may be unknown (`stepped`).

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from cpython.dict cimport PyDict_Size

from amps._core.journal.reader cimport LogCursor, LogFile, begin_reading, next_record, skip_record, topic_of
from amps._core.delivery.output cimport OutputBuffer
from amps._core.journal.record cimport (
    KIND_DELTA_PUBLISH,
    KIND_PUBLISH,
    KIND_SOW_DELETE,
    KIND_SOW_EXPIRY,
    RecordHeader,
)
from amps._core.journal.search cimport TopicIndexReader, TopicSteps
from amps._core.wire.topics cimport TopicEntry

cdef enum:
    QUESTION_BYTES = 4096          # cost of computing the routes of a topic, as reading that many bytes of log
    LOOK_BYTES = 128               # cost of looking up a known topic, in the same unit
    STEP_BYTES = 256               # cost of a step, which causes cache misses, in the same unit


cdef class StateFollower:

    cdef uint64_t take_value(
        self, TopicEntry entry, const RecordHeader* record, LogCursor cursor
    ) except? 0xFFFFFFFFFFFFFFFF:
        """Take a new value. Returns the cost, in bytes of log."""
        raise NotImplementedError

    cdef uint64_t take_removal(
        self, TopicEntry entry, const RecordHeader* record, LogCursor cursor
    ) except? 0xFFFFFFFFFFFFFFFF:
        """Take a deletion, or an expiry. Returns the cost, in bytes of log."""
        raise NotImplementedError


@cython.final
cdef class Group:

    def __cinit__(self):
        self.asked = NULL

    def __init__(self, find_routes, live=False):
        self.find_routes = find_routes
        self.live = live
        self.routes = []
        self.followers = None
        self.capacity = 0
        self.generation = 1
        self.work = 0

    def __dealloc__(self):
        free(self.asked)

    def changed(self, TopicEntry entry=None):
        """Note a change of subscriptions: drop the routes of one topic, or begin a new generation for all topics."""
        if entry is None:
            self.generation += 1
        elif entry.number < <uint32_t>len(self.routes):
            self.routes[entry.number] = None

    def follow(self, uint32_t number, StateFollower follower):
        """Let a topic's changes go to a follower, too; None: to none any more."""
        followers = dict(self.followers or {})
        followers.pop(number, None)
        if follower is not None:
            followers[number] = follower
        self.followers = followers or None

    @property
    def is_followed(self):
        """Whether a topic has a follower."""
        return self.followers is not None

    def forget(self):
        """Drop all routes, when the group has no subscriptions left."""
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
        """Get the routes of a topic from `find_routes`."""
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
    elif group.live and (record.kind == KIND_SOW_DELETE or record.kind == KIND_SOW_EXPIRY):
        routes = routes_of(group, <TopicEntry?>topic_of(cursor.file, record.topic_id))
        if routes.focus is not None:
            group.work += deliver_removal(routes, record, cursor)
    else:
        return 0
    if group.followers is not None:
        follow(group, <TopicEntry>topic_of(cursor.file, record.topic_id), record, cursor)
    return 0


cdef int follow(Group group, TopicEntry entry, const RecordHeader* record, LogCursor cursor) except -1:
    """Pass a change on to the follower of its topic, if there is one."""
    cdef StateFollower follower = group.followers.get(entry.number)
    if follower is None:
        return 0
    if record.kind == KIND_PUBLISH or record.kind == KIND_DELTA_PUBLISH:
        group.work += follower.take_value(entry, record, cursor)
    else:
        group.work += follower.take_removal(entry, record, cursor)
    return 0


cdef class JournalTailer:

    def __init__(self, LogCursor cursor, Group group, uint64_t last_publisher_id, uint64_t last_sequence):
        self.cursor = cursor
        self.group = group
        self.last_publisher_id = last_publisher_id
        self.last_sequence = last_sequence
        self.stops_at_files = False
        self.steps = None
        self.stepped = False
        self.stepped_bytes = 0

    @property
    def position(self):
        return self.cursor.position

    @property
    def chooses(self):
        """Whether `choose` must first select the file's topics that have subscriptions in the group."""
        return self.steps is not None and not (
            self.steps.prepared and self.steps.generation == self.group.generation
        )

    @property
    def steps_ahead(self):
        """Whether the next run steps; if so, fill the batch of `steps`."""
        return self.begin_steps()

    def stop_at_files(self):
        """End each run when the cursor enters another file, so that the caller can look up its topic index."""
        self.stops_at_files = True

    def use_index(self, TopicIndexReader index, uint64_t limit_offset):
        """Step through the file at the cursor, as soon as `choose` has selected its topics. Every record behind
        `limit_offset` is read. Raises ValueError if `index` is not the topic index of that file.
        """
        cdef LogFile file = self.cursor.file
        if (index.file_number, index.start_position, index.file_size) != (file.number, file.start_position, file.size):
            raise ValueError("the topic index is that of another journal")
        self.steps = TopicSteps(index, limit_offset)

    def choose(self, uint64_t work_max):
        """Select the topics of the file, from the cursor on, that have subscriptions; stop after about `work_max` (in
        bytes of log). False: more topics remain. If most of the remaining records are selected, no record is stepped
        over.
        """
        cdef TopicSteps steps = self.steps
        cdef Group group = self.group
        cdef uint64_t work = group.work
        cdef uint64_t offset = self.cursor.position - self.cursor.file.start_position
        cdef uint64_t left
        cdef TopicEntry entry
        if steps.generation != group.generation:
            steps.begin_choice(group.generation)
        while steps.next_topic < steps.index.topic_count:
            if group.work - work > work_max:
                return False
            entry = <TopicEntry?>steps.learn_topic(self.cursor.file, self.cursor.directory.resolver)
            group.work += LOOK_BYTES
            left = steps.left_of_topic(offset)
            if left and PyDict_Size(routes_of(group, entry).members):
                steps.choose_topic(offset)
            steps.left_count += left
            steps.next_topic += 1
        # A step causes cache misses, and the entries of several topics have to be merged. That costs about as much as
        # reading a small record, so stepping pays only if more records are stepped over than selected.
        if 2 * steps.wanted_count > steps.left_count:
            self.steps = None
        else:
            steps.end_choice()
        return True

    def settle(self, uint64_t publisher_id, uint64_t sequence):
        """Set the bookmark of the last record before the cursor, after records were stepped over."""
        self.last_publisher_id = publisher_id
        self.last_sequence = sequence
        self.stepped = False

    cdef bint may_step(self) noexcept:
        """Whether the tailer may step over records of topics without subscriptions now."""
        return True

    cdef bint begin_steps(self) except -1:
        """Whether a run that begins now steps; if so, fill the batch with the next records."""
        cdef TopicSteps steps = self.steps
        cdef uint64_t offset = self.cursor.position - self.cursor.file.start_position
        if (
            steps is None or not steps.prepared or steps.generation != self.group.generation
            or offset >= steps.limit_offset or not self.may_step()
        ):
            return False
        steps.fill(offset)
        return True

    cdef bint step_over(self, uint64_t limit) noexcept:
        """Move to the next record of a selected topic, at most to the limit. False: the run ends here."""
        cdef LogCursor cursor = self.cursor
        cdef TopicSteps steps = self.steps
        cdef uint64_t start = cursor.file.start_position
        cdef uint64_t offset = cursor.position - start
        cdef uint64_t found
        cdef uint64_t target
        if offset >= steps.limit_offset:
            return offset >= steps.index.file_size
        if not steps.next_from(offset, &found):
            return False
        target = min(start + min(found, steps.limit_offset), limit)
        if target > cursor.position:
            self.stepped_bytes += target - cursor.position
            self.group.work += STEP_BYTES
            self.stepped = True
            cursor.position = target
            # It is not known yet whether a record at `limit_offset` is in memory.
            return found < steps.limit_offset or target == start + steps.index.file_size
        return True

    cdef bint enter_file(self) noexcept:
        """Note that the cursor has entered another file. Returns whether the run ends here."""
        self.steps = None
        return self.stops_at_files

    def run(self, uint64_t limit, uint64_t log_bytes_max, OutputBuffer output=None, uint64_t output_bytes_max=0):
        """Deliver records up to `limit`, at most about `log_bytes_max` bytes of log; a replay also stops when its
        output holds `output_bytes_max`. True: the limit was reached.
        """
        cdef const RecordHeader* record
        cdef LogCursor cursor = self.cursor
        cdef LogFile file = cursor.file
        cdef Group group = self.group
        cdef uint64_t begin = cursor.position - self.stepped_bytes
        cdef uint64_t work = group.work
        cdef bint steps = self.begin_steps()
        begin_reading(cursor)
        while True:
            if steps and not self.step_over(limit):
                return False
            record = next_record(cursor, limit)
            if cursor.file is not file:
                if self.enter_file():
                    return False
                file = cursor.file
                steps = False
            if record == NULL:
                return cursor.position >= limit  # else the record at the cursor is not in memory
            if cursor.position - self.stepped_bytes - begin + (group.work - work) > log_bytes_max:
                return False
            if output is not None and output.pending_bytes >= output_bytes_max:
                return False
            deliver(group, record, cursor)
            if record.publisher_id:
                self.last_publisher_id = record.publisher_id
                self.last_sequence = record.sequence
                self.stepped = False
            skip_record(cursor, record)


cdef class LiveTailer:
    """Reads journal and transient log together, in the order of the instance, for ordinary subscriptions."""

    cdef readonly LogCursor journal   # None without a transaction log
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
        """Deliver records below both limits, which must be from one reading of watermarks. True: both are reached."""
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
