# Evaluates the filters of queue subscriptions, and reports the matches to the core (queues.md §9.2).
#
# The core assigns each message of a queue to a subscription that it matches, but evaluates no filter itself. It has a
# *cursor* for each distinct filter on a queue. The transport with the subscriptions reads the messages of the queue in
# the order of the log. It reports for each cursor the matches and the log position that it has reached, and continues
# as the queue grows. No message is evaluated again after its result is reported.
#
# A *scan* is a place in a queue and the filters that have reached it. A new filter begins with its own scan at the
# oldest message. Scans that have reached the end of the same queue are joined: then a message is read once for all of
# their filters.
#
# Invariants: A match is reported to a cursor at most once, in the order of the log. The reported position is not above
# the limit of the turn, a watermark that was read before, so the core had entered all messages below it. The cost of a
# turn is limited approximately; no turn waits for the disk. A message that cannot be read matches no filter, and is
# reported as damaged.

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
    STEP_COST_BYTES = 32           # cost of a message that is not read, in bytes of log
    SECTION_MATCHES_MAX = 2048
    RECORD_BYTES_MAX = 65536       # a record is pushed when it has reached this length
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
        """Note a match."""
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
        """read_ahead, schedule: as in QueueSender. damaged(LogDamaged): called when a message cannot be read.
        push(bytes): sends the payload of a KIND_QUEUE_MATCHES record to the core.
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
        """Add a cursor of the core. evaluation: that of the queue's message type. entry: TopicEntry of the queue."""
        cdef FilterCursor cursor = FilterCursor(number, filter_)
        cdef Scan scan = Scan(QueueWalk(self.memory, queue), entry, evaluation)
        cursor.scan = scan
        scan.cursors[number] = cursor
        scan.filters.add(filter_, cursor)
        self.cursors[number] = cursor
        self.scans.append(scan)
        self.idle_at = 0

    def end(self, uint32_t number):
        """Remove a cursor that the core has dropped."""
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
        """Evaluate messages below a log position, for about `bytes_max` bytes of log. True: more work remains."""
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
        # A new scan may have a whole queue to read: half of the turn is reserved for scans at the end of their queue.
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
        """Continue one scan, and add its results to the record for the core."""
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
                # No filter decides on a delivered message or a barrier.
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
        """Evaluate the filters on the found message. False: it has to be read from the disk first."""
        cdef const RecordHeader* record
        cdef FilterCursor cursor
        cdef uint32_t at
        try:
            record = self.reader.read(scan.walk.position)
        except LogDamaged as damage:
            scan.has_message = False
            if scan.walk.is_alive():  # else its journal may have been removed legitimately
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
        """Continue a scan after its pages were read; with a `problem`, only those before `problem.offset` were read."""
        scan.waits = False
        if problem is not None and problem.offset < needed_until:
            scan.has_message = False
            if scan.walk.is_alive():
                self.damaged(problem)
        self.idle_at = 0
        self.schedule()

    cdef int join(self, Scan scan) except -1:
        """Join a scan that has reached the end of its queue with another scan there, which takes over its cursors."""
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

    # --- reports to the core --------------------------------------------------------------------------

    cdef int tell(self, Scan scan) except -1:
        """Add sections with the matches of a scan's cursors, and with the log position that it has reached."""
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
        """Push the sections made so far."""
        if self.sections:
            self.push(bytes(self.sections))
            self.sections = bytearray()

    def release(self):
        """Close the journals if nothing was read since the last call. Called from time to time."""
        self.reader.release()
