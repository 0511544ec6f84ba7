# The matching records of a topic in an order: filled from a snapshot, then kept up to date.
#
# It is filled while changes go on. A key that changes meanwhile has its newest state at once, and what the snapshot
# says about it is ignored. So when the snapshot is complete, the list is the state at the last change, not at the
# snapshot.

from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp

from amps._core.journal.record cimport RecordHeader, record_payload


@cython.final
cdef class Ranking:

    def __init__(self, SortKeys order not None, uint64_t bytes_max):
        """bytes_max: the memory that the list may take."""
        self.records = RankedList()
        self.order = order
        self.changed = set()
        self.bytes_max = bytes_max

    @property
    def is_filled(self):
        """Whether it has all records."""
        return self.changed is None

    @property
    def too_large(self):
        """Whether it takes more memory than it may."""
        return self.is_too_large()

    def filled(self):
        """All records of the snapshot have been taken."""
        self.changed = None

    cdef bint is_too_large(self) noexcept nogil:
        return self.records.memory() > self.bytes_max

    cdef bint take(self, uint64_t key, const RecordHeader* record, uint64_t place) except -1:
        """Take a record of the snapshot. False: the list is too large now."""
        cdef uint64_t rank = 0
        cdef RankedNode* node
        if self.changed is None or key in self.changed or self.records.find(key) != NULL:
            return True
        self.order.make(record_payload(record), record.payload_length)
        node = self.records.insert(key, self.order.made.data, <uint32_t>self.order.made.length, &rank)
        node.txid = record.txid
        node.place = place
        return not self.is_too_large()

    cdef int change(
        self, uint64_t key, const RecordHeader* record, uint64_t place, uint64_t* old_rank, uint64_t* new_rank
    ) except -1:
        """Set the newest value of a key, and tell its ranks before and after; NO_RANK: it had none, has none. record:
        NULL if it does not match, or was removed. place: its log position; 0: it is in the value file.
        """
        cdef RankedNode* node = self.records.find(key)
        cdef uint32_t length
        old_rank[0] = new_rank[0] = NO_RANK
        if self.changed is not None:
            self.changed.add(key)
        if record == NULL:
            if node != NULL:
                old_rank[0] = self.records.remove(node)
            return 0
        self.order.make(record_payload(record), record.payload_length)
        length = <uint32_t>self.order.made.length
        if (
            node != NULL and node.sort_length == length
            and (length == 0 or memcmp(sort_key_of(node), self.order.made.data, length) == 0)
        ):
            old_rank[0] = new_rank[0] = self.records.rank_of(node)
        else:
            if node != NULL:
                old_rank[0] = self.records.remove(node)
            node = self.records.insert(key, self.order.made.data, length, new_rank)
        node.txid = record.txid
        node.place = place
        return 0
