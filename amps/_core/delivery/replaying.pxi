# Replays with terms: a beginning or an end, a pace, conflation, or a limit on the number of messages.
#
# A replay without terms is a JournalTailer, which has none of this cost. A ReplayTailer checks for every record whether
# it is in the range, whether a subscription matches it, and whether it may be sent now. If it may not be sent yet, the
# tailer stays at that record, and the caller runs it again at the time that the pace gives. It serves one output
# buffer.
#
# A fully durable replay that has come to the end of the log is *held* at the first message that it may not deliver yet:
# one for which a sync destination is waited for (replication.md §7). Messages of others behind it wait, too, because a
# subscription gets its messages in the order of the log; messages that no subscription matches are passed.
#
# Invariant: A record is passed only if it was delivered or held, or if no subscription matches it. So a client that
# resumes at the position or bookmark of the tailer loses no message; with held messages, use `safe_bookmark`.

from libc.stdint cimport uint64_t

from amps._core.journal.reader cimport LogCursor, LogFile, begin_reading, next_record, skip_record, topic_of
from amps._core.delivery.output cimport OutputBuffer
from amps._core.journal.record cimport KIND_DELTA_PUBLISH, KIND_PUBLISH, RecordHeader
from amps._core.wire.persisted cimport WAIT_NONE, Destinations, Messages
from amps._core.wire.topics cimport TopicEntry

# How a run ended.
REPLAY_REACHED = 0                 # at the limit
REPLAY_UNFINISHED = 1              # more work remains, at once or when the output has been emptied
REPLAY_DUE_LATER = 2               # the next message may not be sent before the pace's `due_ns`
REPLAY_ENDED = 3                   # no message can follow
REPLAY_HELD = 4                    # the next message waits for a destination of replication: see `awaited`

cdef enum:
    REACHED = 0
    UNFINISHED = 1
    DUE_LATER = 2
    ENDED = 3
    HELD = 4

cdef uint64_t EVER = <uint64_t>-1


cdef class ReplayTailer(JournalTailer):
    """A JournalTailer with terms, each of which may be None."""

    cdef readonly ReplayBounds bounds
    cdef readonly Pace pace
    cdef readonly Conflation conflation
    cdef readonly uint64_t messages_left   # number of messages that may still be delivered
    cdef bint flushing                     # the range has ended: all held messages are due
    cdef readonly Destinations destinations  # which are waited for; None = a message need only be durable here
    cdef uint64_t held_from                # log position from which on messages wait for them
    cdef Messages waiting                  # the message at which it is held

    def __init__(
        self,
        LogCursor cursor,
        Group group,
        uint64_t last_publisher_id,
        uint64_t last_sequence,
        ReplayBounds bounds=None,
        Pace pace=None,
        Conflation conflation=None,
        messages_max=None,
        Destinations destinations=None,
        held_from=None,
    ):
        """destinations: from `held_from` on, messages are delivered only when those that are sync have them; None: they
        are not waited for, or from no position on.
        """
        JournalTailer.__init__(self, cursor, group, last_publisher_id, last_sequence)
        self.bounds = bounds
        self.pace = pace
        self.conflation = conflation
        self.messages_left = EVER if messages_max is None else messages_max
        self.flushing = False
        self.destinations = destinations
        self.held_from = EVER if held_from is None else held_from

    def hold_from(self, uint64_t position):
        """Let all messages from a log position on wait for the destinations: history ends there."""
        self.held_from = position

    @property
    def awaited(self):
        """Publisher, the log position behind it, and the destinations (as bits) of the message at which a run that
        returned REPLAY_HELD ended.
        """
        return self.waiting.publisher_id, self.waiting.before, self.waiting.carriers

    @property
    def safe_bookmark(self):
        """Bookmark from which a client can resume without losing held messages."""
        if self.conflation is not None and self.conflation.before_first is not None:
            return self.conflation.before_first
        return self.last_publisher_id, self.last_sequence

    def run_on_terms(
        self,
        uint64_t limit,
        uint64_t log_bytes_max,
        OutputBuffer output,
        uint64_t output_bytes_max,
        uint64_t now_ns,
        uint64_t clock_ns,
    ):
        """Run up to `limit`, at most about `log_bytes_max` bytes of log, or until the output holds `output_bytes_max`.

        now_ns: of the monotonic clock; clock_ns: UNIX time. Returns one of the constants above.
        """
        cdef const RecordHeader* record
        cdef LogCursor cursor = self.cursor
        cdef LogFile file = cursor.file
        cdef Group group = self.group
        cdef uint64_t begin = cursor.position - self.stepped_bytes
        cdef uint64_t work = group.work
        cdef bint steps = self.begin_steps()
        cdef int state
        begin_reading(cursor)
        if self.pace is not None:
            self.pace.begin_turn(now_ns)
        while True:
            if self.messages_left == 0:
                return ENDED
            if steps and not self.step_over(limit):
                return UNFINISHED
            record = next_record(cursor, limit)
            if cursor.file is not file:
                if self.enter_file():
                    return UNFINISHED
                file = cursor.file
                steps = False
            if record == NULL:
                if cursor.position < limit:
                    return UNFINISHED  # the record at the cursor is not in memory
                # At the limit no record gives the time, so held messages are due by the clock.
                state = self.release(clock_ns, output, output_bytes_max)
                return state
            if cursor.position - self.stepped_bytes - begin + (group.work - work) > log_bytes_max:
                return UNFINISHED
            if output.pending_bytes >= output_bytes_max:
                return UNFINISHED
            state = self.step(record, output, output_bytes_max)
            if state == HELD:
                # As at the limit, the record's time says nothing about now.
                state = self.release(clock_ns, output, output_bytes_max)
                return HELD if state == REACHED else state
            if state != REACHED:
                return state
            if record.publisher_id:
                self.last_publisher_id = record.publisher_id
                self.last_sequence = record.sequence
                self.stepped = False
            skip_record(cursor, record)

    def flush(self, OutputBuffer output, uint64_t output_bytes_max, uint64_t now_ns):
        """Deliver all held messages, at the end of the range. Returns as `run_on_terms`."""
        if self.pace is not None:
            self.pace.begin_turn(now_ns)
        self.flushing = True
        return self.release(EVER, output, output_bytes_max)

    def release_all(self, OutputBuffer output):
        """Deliver all held messages regardless of the pace, before the terms change."""
        cdef Pace pace = self.pace
        self.pace = None
        try:
            self.release(EVER, output, EVER)
        finally:
            self.pace = pace

    cdef bint may_step(self) noexcept:
        """Whether the tailer may step. It may not while any record may begin or end the range. With conflation and a
        limit on the number of messages it may not either: any record gives the time, and so may release the last
        message.
        """
        if self.conflation is not None and self.messages_left != EVER:
            return False
        return self.bounds is None or (self.bounds.begin_us == 0 and self.bounds.awaited_count == 0)

    cdef int step(self, const RecordHeader* record, OutputBuffer output, uint64_t output_bytes_max) except -1:
        """Process the record at the cursor. REACHED: it may be passed."""
        cdef TopicEntry entry
        cdef TopicRoutes routes
        cdef uint64_t cost
        cdef int state
        cdef int verdict = VERDICT_WITHIN
        cdef bint wanted
        if self.bounds is not None:
            verdict = self.bounds.judge(record)
            if verdict == VERDICT_BEHIND:
                self.flushing = True
        if self.conflation is not None:
            state = self.release(EVER if self.flushing else record.timestamp_ns, output, output_bytes_max)
            if state != REACHED:
                return state
        if verdict != VERDICT_WITHIN:
            return ENDED if verdict == VERDICT_BEHIND else REACHED
        if record.kind != KIND_PUBLISH and record.kind != KIND_DELTA_PUBLISH:
            return REACHED
        entry = <TopicEntry?>topic_of(self.cursor.file, record.topic_id)
        routes = routes_of(self.group, entry)
        wanted = routes.wants(record, &cost)
        self.group.work += cost
        if not wanted:
            return REACHED
        if self.destinations is not None and record.position >= self.held_from and self.must_wait(record, entry):
            return HELD
        if self.conflation is not None and self.conflation.hold(
            record, entry, self.last_publisher_id, self.last_sequence, self.stepped
        ):
            return REACHED
        if self.pace is not None and not self.pace.allows(record):
            return DUE_LATER
        # Reading the key has changed the evaluation context's values, but the matches of the filters are kept.
        routes.send_wanted(record, self.cursor)
        self.went(record)
        return REACHED

    cdef bint must_wait(self, const RecordHeader* record, TopicEntry entry) except -1:
        """Whether a message waits for a destination."""
        self.waiting.publisher_id = record.publisher_id
        self.waiting.derived_id = 0
        self.waiting.before = record.position + 1
        self.waiting.carriers = self.destinations.carriers_of(entry)
        self.waiting.known_only = 0
        return self.destinations.find(&self.waiting).kind != WAIT_NONE

    cdef int release(self, uint64_t until_ns, OutputBuffer output, uint64_t output_bytes_max) except -1:
        """Deliver held messages that are due by that time. REACHED: all of them were delivered."""
        cdef Conflation conflation = self.conflation
        cdef TopicRoutes routes
        cdef Held held
        if conflation is None:
            return REACHED
        while True:
            held = conflation.first()
            if held is None or not conflation.is_due(held, until_ns):
                return REACHED
            if self.messages_left == 0:
                return ENDED
            if output.pending_bytes >= output_bytes_max:
                return UNFINISHED
            if self.pace is not None and not self.pace.allows(held.record):
                return DUE_LATER
            routes = routes_of(self.group, held.entry)
            routes.send_to_all(held.record, self.cursor)
            self.went(held.record)
            conflation.release(held)

    cdef void went(self, const RecordHeader* record) noexcept:
        """Account for a sent message."""
        if self.pace is not None:
            self.pace.took(record)
        if self.messages_left != EVER:
            self.messages_left -= 1
