# The onward tracker of one upstream: which of its records are fully persisted here, and so acknowledged to it.
#
# A record of the upstream that is in this log is a first arrival. It is persisted when it is durable, and acknowledged
# by each destination that is sync now and to which it goes on. A record that the core dropped as a duplicate is in this
# log under another origin. It is acknowledged as soon as the original is durable (replication.md §24.7). The sink flow
# says up to which record everything is in the log before a position, or was dropped (`reach`).
#
# While no record of the upstream can go on to a destination that is sync, the log is not read: nothing goes back to the
# upstream itself. So in a pair of instances a sink reads no record twice.
#
# A record that waits for destinations is a *waiting run* of one. If there are very many, neighbours are joined.
#
# Invariants
# - A record is not acknowledged before the tracker has passed its place in the log, up to the durable watermark.
# - The exceptions of `acknowledged` contain every record that waits. They contain no others while there are at most
#   JOINED_FROM of them.

from collections import deque
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from amps._core.journal.record cimport EXTENSION_SOURCE

cdef enum:
    DESTINATIONS = 64              # bits of a mask
    WAITING_MAX = 1 << 18          # more of them are joined
    JOINED_FROM = 1024             # an acknowledgement joins neighbours if there are more
    REACHED_MAX = 4096


cdef struct Waiting:
    uint64_t first                 # transaction ids at the upstream
    uint64_t last
    uint64_t local_first           # transaction ids here
    uint64_t local_last
    uint64_t position              # log position here of the last one
    uint64_t destinations          # a bit for each that it waits for
    uint32_t records               # in the run
    bint follows                   # in this log, no other record of the upstream is between the previous run and it


@cython.final
cdef class OnwardTracker:
    """Follows the log for the records of one upstream.

    cursor: before the first record of the upstream behind `acked_txid`. Its topics are TopicEntry objects; it, and the
    names, know what is before it in its journal. upstream_id: name id of the upstream. destinations: the SourceFlow
    of each destination that is configured sync, None for others; at most 64; the owner may replace its items. names:
    as for Rules. acked_txid: the upstream needs no acknowledgement up to there. upstream: name and epoch of the
    upstream. cursor_at(position): a cursor that is at a log position or shortly before it, as `cursor`; None: the
    tracker reads the log even if nothing goes on. trusted_from: as for SourceFlow.
    """

    cdef LogCursor cursor          # None: nothing goes on, or it is not known yet that something does
    cdef tuple upstream
    cdef object cursor_at
    cdef uint64_t passed           # log position up to which it has not looked at records
    cdef uint64_t trusted_from
    cdef uint64_t upstream_id
    cdef list destinations
    cdef dict names
    cdef uint64_t acked_txid
    cdef uint64_t through
    cdef object reached            # deque of (log position, transaction id at the upstream)
    cdef uint64_t reached_position  # of the last one that was added
    cdef uint64_t reached_txid
    cdef Waiting* waiting
    cdef uint64_t count
    cdef uint64_t capacity
    cdef uint64_t waiting_max      # from here on neighbours are joined
    cdef bint last_waits           # the last record of the upstream that was passed waits

    def __cinit__(self):
        self.waiting = NULL
        self.count = 0
        self.capacity = 0

    def __init__(
        self, LogCursor cursor not None, uint64_t upstream_id, list destinations not None, dict names not None,
        uint64_t acked_txid=0, uint64_t waiting_max=WAITING_MAX, tuple upstream=None, cursor_at=None,
        uint64_t trusted_from=NOTHING_TRUSTED,
    ):
        if len(destinations) > DESTINATIONS:
            raise ValueError(f"a tracker takes at most {DESTINATIONS} destinations")
        self.use(cursor)
        self.upstream = upstream
        self.cursor_at = cursor_at
        self.passed = 0
        self.trusted_from = trusted_from
        self.upstream_id = upstream_id
        self.destinations = destinations
        self.names = names
        self.acked_txid = self.through = acked_txid
        self.reached = deque()
        self.reached_position = 0
        self.reached_txid = acked_txid
        self.waiting_max = waiting_max
        self.last_waits = False

    def __dealloc__(self):
        free(self.waiting)

    cdef int use(self, LogCursor cursor) except -1:
        self.cursor = cursor
        cursor.fetch()
        cursor.shows_structure = True
        return 0

    @property
    def scanned_position(self):
        """Log position up to which it has followed the log."""
        return self.passed if self.cursor is None else self.cursor.position

    @property
    def pending(self):
        """The number of runs of records that wait for destinations."""
        return self.count

    def reach(self, uint64_t txid, uint64_t position):
        """Every record of the upstream up to a transaction id is in the log before a position, or was dropped.

        Positions rise from call to call. A transaction id that is not above the last one says nothing new.
        """
        if txid <= self.reached_txid:
            return
        self.reached_txid = txid
        if self.reached and (position == self.reached_position or len(self.reached) >= REACHED_MAX):
            self.reached.pop()
        self.reached.append((position, txid))
        self.reached_position = position

    def scan(self, uint64_t limit, uint64_t bytes_max):
        """Read about `bytes_max` bytes of the log up to `limit`, the durable watermark. True: the limit is reached.

        Raises LogDamaged, LogRemoved.
        """
        cdef const RecordHeader* record
        cdef LogCursor cursor
        cdef uint64_t begin
        cdef bint done = False
        if self.cursor_at is not None and not self.goes_on():
            self.pass_over(limit)
            return True
        if self.cursor is None:
            self.use(self.cursor_at(self.passed))
        cursor = self.cursor
        begin = cursor.position
        trust(cursor, self.trusted_from)
        begin_reading(cursor)
        while cursor.position - begin < bytes_max:
            record = next_record(cursor, limit)
            if record == NULL:
                done = True
                break
            prefetch_ahead(record)
            if record.kind == KIND_NAME:
                learn_name(self.names, record, cursor)
            elif record.position < self.passed:
                pass
            elif record.extension_length and extension_word(record, EXTENSION_SOURCE, 0) == self.upstream_id:
                self.take(record)
            skip_record(cursor, record)
        self.advance(cursor.position)
        return done

    cdef bint goes_on(self) except -1:
        """Whether records of the upstream may go on to a destination that is waited for."""
        cdef SourceFlow flow
        for flow in self.destinations:
            if flow is not None and (flow.rules.peer is None or flow.rules.peer != self.upstream):
                return True
        return False

    cdef int pass_over(self, uint64_t limit) except -1:
        """Take all records up to a durable watermark as persisted."""
        self.passed = max(limit, self.scanned_position)
        self.cursor = None
        self.last_waits = False
        return self.advance(self.passed)

    cdef int advance(self, uint64_t position) except -1:
        """The log was followed up to a position."""
        while self.reached and self.reached[0][0] <= position:
            self.through = max(self.through, <uint64_t>self.reached.popleft()[1])
        return 0

    cdef int take(self, const RecordHeader* record) except -1:
        """Note a record of the upstream."""
        cdef SourceFlow flow
        cdef uint64_t txid = extension_word(record, EXTENSION_SOURCE, 1)
        cdef uint64_t bits = 0
        cdef Waiting* added
        cdef Py_ssize_t number
        if txid <= self.acked_txid:
            return 0
        for number in range(len(self.destinations)):
            flow = self.destinations[number]
            if flow is not None and flow.rules.goes(record, self.cursor):
                bits |= <uint64_t>1 << number
        if bits:
            if self.count == self.capacity:
                self.grow()
            added = &self.waiting[self.count]
            added.first = added.last = txid
            added.local_first = added.local_last = record.txid
            added.position = record.position
            added.destinations = bits
            added.records = 1
            added.follows = self.last_waits
            self.count += 1
        self.last_waits = bits != 0
        return 0

    cdef int grow(self) except -1:
        cdef uint64_t capacity
        cdef Waiting* grown
        if self.count >= self.waiting_max:
            self.drop_settled()
            if self.count >= self.waiting_max // 4 * 3:
                self.join_neighbours()
            if self.count < self.capacity:
                return 0
        capacity = max(<uint64_t>64, self.capacity * 2)
        grown = <Waiting*>realloc(self.waiting, capacity * sizeof(Waiting))
        if grown == NULL:
            raise MemoryError()
        self.waiting = grown
        self.capacity = capacity
        return 0

    cdef void join_neighbours(self) noexcept:
        """Join each run with the next one. A run is then acknowledged as a whole, later than its first records."""
        cdef uint64_t kept = 0
        cdef uint64_t at = 0
        cdef Waiting run
        while at < self.count:
            run = self.waiting[at]
            if at + 1 < self.count:
                at += 1
                run.last = self.waiting[at].last
                run.local_last = self.waiting[at].local_last
                run.position = self.waiting[at].position
                run.destinations |= self.waiting[at].destinations
                run.records += self.waiting[at].records
            self.waiting[kept] = run
            kept += 1
            at += 1
        self.count = kept

    cdef int drop_settled(self) except -1:
        """Drop the runs that wait for no destination any more."""
        cdef Waiting* run
        cdef uint64_t kept = 0
        cdef uint64_t at
        cdef uint64_t bits
        cdef SourceFlow flow
        cdef Py_ssize_t number
        cdef Py_ssize_t known = len(self.destinations)
        cdef bint after_gap = False
        for at in range(self.count):
            run = &self.waiting[at]
            bits = run.destinations
            for number in range(known):
                if bits >> number & 1:
                    flow = self.destinations[number]
                    if (
                        flow is None or not flow.waits or run.position < flow.upgraded_at
                        or holds_run(flow, run.local_first, run.local_last)
                    ):
                        bits &= ~(<uint64_t>1 << number)
            run.destinations = bits
            if bits == 0:
                after_gap = True
                continue
            if after_gap:
                run.follows = False
            after_gap = False
            self.waiting[kept] = run[0]
            kept += 1
        if after_gap:
            self.last_waits = False
        self.count = kept
        return 0

    def acknowledged(self):
        """The transaction ids at the upstream that are fully persisted here, as a TxidSet."""
        cdef TxidSet made = TxidSet(self.through)
        cdef uint64_t least = 0
        cdef uint64_t at = 0
        cdef TxidRange exception
        cdef bint joins
        self.drop_settled()
        joins = self.count > JOINED_FROM
        # Each range takes at least so many runs, so that there are not too many.
        least = self.count // RANGES_MAX + 1 if joins else 1
        while at < self.count and self.waiting[at].first <= self.through:
            exception.first = self.waiting[at].first
            exception.last = self.waiting[at].last
            at += 1
            number = 1
            while at < self.count and self.waiting[at].first <= self.through and (
                number < least or (joins and self.waiting[at].follows)
            ):
                exception.last = self.waiting[at].last
                at += 1
                number += 1
            made.except_range(exception.first, min(exception.last, self.through))
        return made


cdef inline bint holds_run(SourceFlow self, uint64_t first, uint64_t last) noexcept:
    """Whether all records in a range of transaction ids are acknowledged, as far as they go there."""
    return last <= self.cleared_txid or self.acks.holds_all(max(first, self.cleared_txid + 1), last)
