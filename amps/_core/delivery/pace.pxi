# The pace of a replay: messages or bytes per second, or a multiple of the speed of publishing.
#
# A rate is an upper limit. Messages and bytes fill an allowance that never exceeds a fiftieth of a second's worth, so a
# replay that could not use it for a while does not send a large burst. A multiple defines a schedule: a message is due
# after the previous one by the difference of their times in the log, divided by the multiple, and at most `gap_max_ns`
# after it. A schedule that the reader could not keep is moved; the replay does not catch up (transaction_log.md §8,
# §20 item 21).

cimport cython
from libc.stdint cimport uint64_t

PACE_MESSAGES = 0
PACE_BYTES = 1
PACE_SPEED = 2

cdef enum:
    MESSAGES = 0
    BYTES = 1
    SPEED = 2
    LATE_NS_MAX = 250000000        # how far a replay may be behind its schedule before it is moved

cdef double BURST_S = 0.02


@cython.final
cdef class Pace:

    def __init__(self, int kind, double rate, uint64_t gap_max_ns=0):
        """rate: messages or bytes of payload per second, or a multiple; gap_max_ns: for a multiple, the longest wait
        between two messages; 0: no limit.
        """
        if not rate > 0:
            raise ValueError("a rate must be above zero")
        self.kind = kind
        self.rate = rate
        self.gap_max_ns = gap_max_ns
        self.burst = max(1.0, rate * BURST_S)
        self.begin()

    def begin(self):
        """Begin anew: the next message may be sent at once."""
        self.due_ns = 0
        self.now_ns = 0
        self.filled_ns = 0
        self.allowance = 1.0
        self.last_due_ns = 0
        self.last_timestamp_ns = 0

    def begin_turn(self, uint64_t now_ns):
        """Begin a turn at that time (monotonic)."""
        self.now_ns = now_ns
        if self.kind == SPEED:
            return
        if self.filled_ns:
            self.allowance = min(self.burst, self.allowance + (now_ns - self.filled_ns) * self.rate / 1e9)
        self.filled_ns = now_ns

    cdef bint allows(self, const RecordHeader* record) noexcept:
        """Whether a message may be sent in this turn. If not, `due_ns` is the time at which it may."""
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
        """Account for an allowed message that was sent."""
        if self.kind == MESSAGES:
            self.allowance -= 1.0
        elif self.kind == BYTES:
            self.allowance -= record.payload_length
        else:
            self.last_due_ns = max(self.due_ns, self.now_ns - LATE_NS_MAX)
            self.last_timestamp_ns = record.timestamp_ns
