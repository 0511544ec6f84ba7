# Evaluates the filters of queue subscriptions, and tells the core what matches (queues.md §9.2).
#
# The core gives each message of a queue to somebody whom it is for, and evaluates no filter itself. For each distinct
# filter on a queue it has a *cursor*; the transport with the subscriptions goes through the messages of the queue, in
# the order of the log, and tells for each cursor which match and how far it has come. So it goes on as the queue
# grows; what was told once is never looked at again.
#
# A *scan* is a place in a queue and the filters that are there. A new filter begins with a scan of its own at the
# oldest message. Scans of a queue that have come to its end are joined: from then on a message is read once for all
# of them.
#
# Invariants: a message is told to a cursor at most once, in the order of the log. What is said to be evaluated lies
# below the limit of the turn, a watermark that was read before: the core had entered all of it. One turn costs at
# most about what it may; nothing waits for the disk here. A message that cannot be read matches nobody; that it
# cannot is told.

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from functools import partial

from amps._core.expressions.machine cimport Filter, EvaluationContext, FilterEntry, FilterSet
from amps._core.journal.reader import LogDamaged
from amps._core.journal.queue_records cimport QueueMatch, QueueMatchesHeader
from amps._core.queues.slots cimport SLOT_BARRIER, SLOT_DELIVERED
from amps._core.queues.manager cimport WALK_END, WALK_LOST, QueueWalk, SlotMemory, WalkStep
from amps._core.journal.record cimport RecordHeader
from amps._core.wire.topics cimport TopicEntry

cdef enum:
    STEP_COST_BYTES = 32           # of a message that need not be read, in bytes of log
    SECTION_MATCHES_MAX = 2048
    RECORD_BYTES_MAX = 65536       # a record is pushed when it has become so long
    MATCHES_MIN = 16


@cython.final
cdef class FilterCursor:

    def __cinit__(self):
        self.matches = NULL

    def __init__(self, uint32_t number, Filter filter_):
        self.number = number
        self.filter = filter_
        self.count = 0
        self.capacity = 0

    def __dealloc__(self):
        free(self.matches)

    cdef int note(self, uint64_t position, uint32_t slot) except -1:
        """A message matches."""
        cdef QueueMatch* grown
        cdef uint32_t capacity
        if self.count == self.capacity:
            capacity = max(<uint32_t>MATCHES_MIN, 2 * self.capacity)
            grown = <QueueMatch*>realloc(self.matches, capacity * sizeof(QueueMatch))
            if grown == NULL:
                raise MemoryError()
            self.matches = grown
            self.capacity = capacity
        self.matches[self.count].position = position
        self.matches[self.count].slot = slot
        self.matches[self.count].unused = 0
        self.count += 1
        return 0


@cython.final
cdef class Scan:

    def __init__(self, QueueWalk walk, TopicEntry entry, EvaluationContext evaluation):
        self.walk = walk
        self.entry = entry
        self.filters = FilterSet(evaluation)
        self.cursors = {}
        self.evaluated_until = 0
        self.caught_up = False
        self.has_message = False
        self.waits = False


@cython.final
cdef class QueueFiltering:
    """All filters of one transport's queue subscriptions."""

    def __init__(
        self, SlotMemory memory not None, MessageReader reader not None, read_ahead, schedule, damaged, push
    ):
        """read_ahead, schedule: as in QueueSender. damaged(LogDamaged): a message cannot be read. push(bytes): has the
        core get the payload of a KIND_QUEUE_MATCHES record.
        """
        self.memory = memory
        self.reader = reader
        self.read_ahead = read_ahead
        self.schedule = schedule
        self.damaged = damaged
        self.push = push
        self.cursors = {}
        self.scans = []
        self.turn = 0
        self.used = 0
        self.idle_at = 0
        self.sections = bytearray()

    def __len__(self):
        return len(self.cursors)

    def begin(
        self, uint32_t number, uint32_t queue, Filter filter_ not None, EvaluationContext evaluation, TopicEntry entry
    ):
        """The core has a new cursor. evaluation: of the queue's message type. entry: of the queue."""
        cdef FilterCursor cursor = FilterCursor(number, filter_)
        cdef Scan scan = Scan(QueueWalk(self.memory, queue), entry, evaluation)
        cursor.scan = scan
        scan.cursors[number] = cursor
        scan.filters.add(filter_, cursor)
        self.cursors[number] = cursor
        self.scans.append(scan)
        self.idle_at = 0

    def end(self, uint32_t number):
        """The core has a cursor no more."""
        cdef FilterCursor cursor = self.cursors.pop(number, None)
        cdef Scan scan
        if cursor is None:
            return
        scan = cursor.scan
        cursor.scan = None
        scan.filters.remove(cursor.filter, cursor)
        del scan.cursors[number]
        if not scan.cursors:
            self.scans.remove(scan)

    def run(self, uint64_t limit, uint64_t bytes_max):
        """Evaluate messages below a log position, for about so many bytes of log. True: there is more to do at once."""
        cdef Scan scan
        cdef bint more = False
        cdef bint catching_up
        cdef uint64_t budget
        cdef Py_ssize_t count = len(self.scans)
        cdef Py_ssize_t at
        if limit == self.idle_at or not count:
            return False
        self.used = 0
        self.turn += 1
        self.reader.begin_turn()
        order = [self.scans[(<Py_ssize_t>(self.turn % <uint64_t>count) + at) % count] for at in range(count)]
        # Who begins has all of a queue before him: half of the turn is for those who have its end.
        for catching_up, budget in ((True, bytes_max // 2), (False, bytes_max)):
            for scan in order:
                if scan.caught_up == catching_up or scan.waits:
                    continue
                if scan.caught_up and (
                    scan.evaluated_until >= limit
                    or self.memory.counters[scan.walk.queue].last_queued_position < scan.evaluated_until
                ):
                    continue
                if self.used >= budget:
                    more = True
                    continue
                self.run_scan(scan, limit, budget)
                if not scan.caught_up and not scan.waits:
                    more = True
        self.flush()
        self.idle_at = 0 if more else limit
        return more

    cdef int run_scan(self, Scan scan, uint64_t limit, uint64_t bytes_max) except -1:
        """Go on with one scan, and lay out what the core is to be told."""
        cdef WalkStep came
        scan.caught_up = False
        while True:
            if not scan.has_message:
                came = scan.walk.step(limit)
                if came == WALK_END:
                    scan.evaluated_until = limit
                    scan.caught_up = True
                    break
                if came == WALK_LOST:
                    scan.evaluated_until = scan.walk.passed + 1
                    self.used = max(self.used, bytes_max)
                    break
                # What is delivered or waits for everybody is nobody's choice.
                scan.has_message = scan.walk.state != SLOT_BARRIER and scan.walk.state != SLOT_DELIVERED
                self.used += STEP_COST_BYTES
            if scan.has_message and not self.evaluate(scan):
                scan.evaluated_until = scan.walk.position
                break
            if self.used >= bytes_max:
                scan.evaluated_until = scan.walk.passed + 1
                break
        self.tell(scan)
        if scan.caught_up:
            self.join(scan)
        return 0

    cdef bint evaluate(self, Scan scan) except -1:
        """Evaluate the filters on the message that was found. False: it has to be read from the disk before."""
        cdef const RecordHeader* record
        cdef FilterCursor cursor
        cdef uint32_t at
        try:
            record = self.reader.read(scan.walk.position)
        except LogDamaged as damage:
            scan.has_message = False
            if scan.walk.is_alive():  # else its journal may have been removed with good reason
                self.damaged(damage)
            return True
        if record == NULL:
            scan.waits = True
            self.read_ahead(
                self.reader.missing_file, self.reader.missing_offset, self.reader.missing_bytes,
                partial(self.wake, scan, self.reader.needed_until),
            )
            return False
        scan.has_message = False
        self.used += self.reader.cost(record) + match_message(scan.filters, record, scan.entry)
        for at in range(scan.filters.matched_count):
            for cursor in (<FilterEntry>scan.filters.matched[at]).members:
                cursor.note(scan.walk.position, scan.walk.slot)
            self.used += sizeof(QueueMatch)
        return True

    def wake(self, Scan scan not None, uint64_t needed_until, problem=None):
        """What a scan waited for was read, or cannot be: then what lies before `problem.offset` was."""
        scan.waits = False
        if problem is not None and problem.offset < needed_until:
            scan.has_message = False
            if scan.walk.is_alive():
                self.damaged(problem)
        self.idle_at = 0
        self.schedule()

    cdef int join(self, Scan scan) except -1:
        """A scan has come to the end of its queue: if another one is there already, it takes over its cursors."""
        cdef Scan other
        cdef FilterCursor cursor
        for other in self.scans:
            if (
                other is not scan and other.walk.queue == scan.walk.queue and other.caught_up
                and other.evaluated_until == scan.evaluated_until
            ):
                for cursor in scan.cursors.values():
                    other.filters.add(cursor.filter, cursor)
                    other.cursors[cursor.number] = cursor
                    cursor.scan = other
                scan.cursors = {}
                self.scans.remove(scan)
                break
        return 0

    # --- what the core is told ------------------------------------------------------------------------

    cdef int tell(self, Scan scan) except -1:
        """Lay out what was found for the cursors of a scan, and how far it has come."""
        cdef FilterCursor cursor
        cdef uint32_t first
        cdef uint32_t count
        cdef uint64_t until
        for cursor in scan.cursors.values():
            first = 0
            while True:
                count = min(cursor.count - first, <uint32_t>SECTION_MATCHES_MAX)
                until = scan.evaluated_until
                if first + count < cursor.count:
                    until = cursor.matches[first + count - 1].position + 1
                self.add_section(cursor, first, count, until)
                first += count
                if first == cursor.count:
                    break
            cursor.count = 0
        return 0

    cdef int add_section(self, FilterCursor cursor, uint32_t first, uint32_t count, uint64_t until) except -1:
        cdef Py_ssize_t length = PyByteArray_GET_SIZE(self.sections)
        cdef size_t matches_bytes = count * sizeof(QueueMatch)
        cdef QueueMatchesHeader* header
        PyByteArray_Resize(self.sections, length + <Py_ssize_t>(sizeof(QueueMatchesHeader) + matches_bytes))
        header = <QueueMatchesHeader*>(PyByteArray_AS_STRING(self.sections) + length)
        header.evaluated_until = until
        header.cursor = cursor.number
        header.count = count
        memcpy(header + 1, cursor.matches + first, matches_bytes)
        if PyByteArray_GET_SIZE(self.sections) >= RECORD_BYTES_MAX:
            self.flush()
        return 0

    def flush(self):
        """Push what is laid out."""
        if self.sections:
            self.push(bytes(self.sections))
            self.sections = bytearray()

    def release(self):
        """Called now and then: let journals go that nothing was read of meanwhile."""
        self.reader.release()
