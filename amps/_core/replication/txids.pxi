# Sets of transaction ids: all up to one of them, except some ranges. An acknowledgement is such a set.
#
# Invariants: the ranges are sorted, disjoint and not empty, and end at or before `through`.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef enum:
    RANGES_MAX = 16384
    ACK_HEADER_BYTES = 16

EXCEPTIONS_MAX = RANGES_MAX
"""So many exceptions at most are in one acknowledgement. Its maker joins ranges if there are more."""


class StreamError(ValueError):
    """The other side of a link broke the protocol: the link must be closed (BYE with the code PROTOCOL)."""


cdef struct TxidRange:
    uint64_t first
    uint64_t last


cdef packed struct AckHeader:
    uint64_t through               # transaction id at the source
    uint32_t count                 # of exceptions
    uint32_t unused


@cython.final
cdef class TxidSet:
    """All transaction ids up to `through`, except some ranges."""

    cdef readonly uint64_t through
    cdef TxidRange* ranges
    cdef uint32_t count
    cdef uint32_t capacity

    def __cinit__(self):
        self.ranges = NULL
        self.count = 0
        self.capacity = 0

    def __init__(self, uint64_t through=0, exceptions=()):
        """exceptions: pairs (first, last), both included. Raises StreamError if they are not sorted and disjoint."""
        self.through = through
        for first, last in exceptions:
            self.except_range(first, last)
        self.check()

    def __dealloc__(self):
        free(self.ranges)

    cdef int except_range(self, uint64_t first, uint64_t last) except -1:
        """Add an exception behind the others."""
        cdef TxidRange* grown
        if self.count == self.capacity:
            grown = <TxidRange*>realloc(self.ranges, max(16, self.capacity * 2) * sizeof(TxidRange))
            if grown == NULL:
                raise MemoryError()
            self.ranges = grown
            self.capacity = max(16, self.capacity * 2)
        self.ranges[self.count].first = first
        self.ranges[self.count].last = last
        self.count += 1
        return 0

    cdef int check(self) except -1:
        cdef uint32_t at
        for at in range(self.count):
            if (
                self.ranges[at].first > self.ranges[at].last or self.ranges[at].last > self.through
                or self.ranges[at].first == 0 or (at and self.ranges[at].first <= self.ranges[at - 1].last)
            ):
                raise StreamError("the exceptions of an acknowledgement are not sorted ranges below its end")
        return 0

    @property
    def exceptions(self):
        """[(first, last)] of the ids that are not in the set though they are not above `through`."""
        return [(self.ranges[at].first, self.ranges[at].last) for at in range(self.count)]

    @property
    def first_missing(self):
        """The lowest id from 1 on that is not in the set."""
        return self.lowest_missing()

    cdef inline uint64_t lowest_missing(self) noexcept:
        return self.ranges[0].first if self.count else self.through + 1

    cdef uint32_t range_at(self, uint64_t txid) noexcept:
        """Number of the first range that ends at or behind an id."""
        cdef uint32_t low = 0
        cdef uint32_t high = self.count
        cdef uint32_t middle
        while low < high:
            middle = (low + high) // 2
            if self.ranges[middle].last < txid:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bint holds_all(self, uint64_t first, uint64_t last) noexcept:
        cdef uint32_t at
        if last > self.through:
            return False
        if self.count == 0 or last < self.ranges[0].first:
            return True
        at = self.range_at(first)
        return at == self.count or self.ranges[at].first > last

    def __contains__(self, uint64_t txid):
        return self.holds_all(txid, txid)

    def __len__(self):
        return self.count

    def __eq__(self, other):
        return isinstance(other, TxidSet) and self.is_equal(<TxidSet>other)

    cdef bint is_equal(self, TxidSet other) noexcept:
        return self.through == other.through and self.begins_as(other, self.through)

    cdef bint begins_as(self, TxidSet other, uint64_t until) noexcept:
        """Whether both have the same exceptions up to an id."""
        cdef uint32_t at = 0
        cdef TxidRange mine
        cdef TxidRange others
        while True:
            mine.first = self.ranges[at].first if at < self.count else until + 1
            others.first = other.ranges[at].first if at < other.count else until + 1
            if mine.first > until and others.first > until:
                return True
            if mine.first != others.first:
                return False
            mine.last = min(self.ranges[at].last, until)
            others.last = min(other.ranges[at].last, until)
            if mine.last != others.last:
                return False
            at += 1

    cdef TxidSet with_through(self, uint64_t through):
        """The same exceptions, up to another id behind them."""
        cdef TxidSet made = TxidSet(through)
        cdef uint32_t at
        for at in range(self.count):
            made.except_range(self.ranges[at].first, self.ranges[at].last)
        return made

    cdef TxidSet joined(self, TxidSet other):
        """All ids that are in this set, or in another one that does not reach further."""
        cdef TxidSet made = TxidSet(self.through)
        cdef TxidRange mine
        cdef uint32_t at
        cdef uint32_t theirs = 0
        cdef uint32_t next_
        for at in range(self.count):
            mine = self.ranges[at]
            while theirs < other.count and other.ranges[theirs].last < mine.first:
                theirs += 1
            next_ = theirs
            while next_ < other.count and other.ranges[next_].first <= mine.last:
                made.except_range(max(mine.first, other.ranges[next_].first), min(mine.last, other.ranges[next_].last))
                next_ += 1
            if mine.last > other.through:
                made.except_range(max(mine.first, other.through + 1), mine.last)
        return made

    def covers(self, uint64_t first, uint64_t last):
        """Whether the set has all ids of a range, both ends included."""
        return self.holds_all(first, last)

    def to_payload(self):
        """The payload of an ACK frame (docs/replication.md)."""
        cdef AckHeader header
        cdef bytes made = PyBytes_FromStringAndSize(NULL, ACK_HEADER_BYTES + self.count * sizeof(TxidRange))
        cdef char* at = PyBytes_AS_STRING(made)
        header.through = self.through
        header.count = self.count
        header.unused = 0
        memcpy(at, &header, ACK_HEADER_BYTES)
        if self.count:
            memcpy(at + ACK_HEADER_BYTES, self.ranges, self.count * sizeof(TxidRange))
        return made

    @staticmethod
    def from_payload(payload):
        """The set that the payload of an ACK frame states. Raises StreamError."""
        cdef const unsigned char[::1] view = payload
        cdef AckHeader header
        cdef TxidSet made = TxidSet()
        if view.shape[0] < ACK_HEADER_BYTES:
            raise StreamError(f"an acknowledgement has {view.shape[0]} bytes")
        memcpy(&header, &view[0], ACK_HEADER_BYTES)
        if header.count > RANGES_MAX or view.shape[0] != <Py_ssize_t>(
            ACK_HEADER_BYTES + header.count * sizeof(TxidRange)
        ):
            raise StreamError(f"an acknowledgement of {view.shape[0]} bytes says {header.count} exceptions")
        made.through = header.through
        if header.count:
            made.ranges = <TxidRange*>malloc(header.count * sizeof(TxidRange))
            if made.ranges == NULL:
                raise MemoryError()
            made.count = made.capacity = header.count
            memcpy(made.ranges, &view[ACK_HEADER_BYTES], header.count * sizeof(TxidRange))
        made.check()
        return made
