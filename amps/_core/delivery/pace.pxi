# How fast a replay may go: messages or bytes per second, or a multiple of the speed at which was published.
#
# A rate is a ceiling. Messages and bytes fill an allowance that never holds more than a fiftieth of a second's, so
# that who could not use it for a while does not get it in one burst. A multiple keeps a timetable: a message is due
# as long after the one before as their times in the log differ, divided by the multiple, and never later than
# `gap_max_ns` after it. A timetable that the reader could not keep is moved, not caught up with (transaction_log.md
# §8, §20 item 21).

cimport cython
from libc.stdint cimport uint64_t

PACE_MESSAGES = 0
PACE_BYTES = 1
PACE_SPEED = 2

cdef enum:
    MESSAGES = 0
    BYTES = 1
    SPEED = 2
    LATE_NS_MAX = 250000000        # how far a timetable may be behind before it is moved

cdef double BURST_S = 0.02


@cython.final
cdef class Pace:

    def __init__(self, int kind, double rate, uint64_t gap_max_ns=0):
        """rate: messages or bytes of payload per second, or a multiple; gap_max_ns: for a multiple, the longest wait
        between two messages; 0: any.
        """
        if not rate > 0:
            raise ValueError("a rate is above zero")
        self.kind = kind
        self.rate = rate
        self.gap_max_ns = gap_max_ns
        self.burst = max(1.0, rate * BURST_S)
        self.begin()

    def begin(self):
        """Begin anew: the next message may go at once."""
        self.due_ns = 0
        self.now_ns = 0
        self.filled_ns = 0
        self.allowance = 1.0
        self.last_due_ns = 0
        self.last_timestamp_ns = 0

    def begin_turn(self, uint64_t now_ns):
        """What the clock (monotonic) says in this turn."""
        self.now_ns = now_ns
        if self.kind == SPEED:
            return
        if self.filled_ns:
            self.allowance = min(self.burst, self.allowance + (now_ns - self.filled_ns) * self.rate / 1e9)
        self.filled_ns = now_ns

    cdef bint allows(self, const RecordHeader* record) noexcept:
        """Whether a message may go in this turn. If not, `due_ns` says when."""
        cdef double wait_ns
        cdef uint64_t gap_ns = 0
        if self.kind == SPEED:
            if self.last_timestamp_ns:
                if record.timestamp_ns > self.last_timestamp_ns:
                    wait_ns = (record.timestamp_ns - self.last_timestamp_ns) / self.rate
                    gap_ns = <uint64_t>wait_ns if wait_ns < 9e18 else <uint64_t>9e18
                if self.gap_max_ns and gap_ns > self.gap_max_ns:
                    gap_ns = self.gap_max_ns
                self.due_ns = self.last_due_ns + gap_ns
            else:
                self.due_ns = self.now_ns
            return self.due_ns <= self.now_ns
        if self.allowance >= (1.0 if self.kind == MESSAGES else 0.0):
            return True
        wait_ns = ((1.0 if self.kind == MESSAGES else 0.0) - self.allowance) / self.rate * 1e9
        self.due_ns = self.now_ns + (<uint64_t>wait_ns if wait_ns < 9e18 else <uint64_t>9e18) + 1
        return False

    cdef void took(self, const RecordHeader* record) noexcept:
        """A message that was allowed has gone."""
        if self.kind == MESSAGES:
            self.allowance -= 1.0
        elif self.kind == BYTES:
            self.allowance -= record.payload_length
        else:
            self.last_due_ns = max(self.due_ns, self.now_ns - LATE_NS_MAX)
            self.last_timestamp_ns = record.timestamp_ns
