# The order of the records of a SOW topic. See sow/sort_keys.pxi.

from libc.stdint cimport uint32_t, uint64_t, uint8_t

from amps._core.journal.record cimport RecordHeader
from amps._core.values.fields cimport ByteBuffer, Extractor, FieldSet, FieldValues
from amps._core.values.value cimport Value


cdef struct SortField:
    uint32_t slot
    bint descending
    bint as_text


cdef class SortKeys:
    """Makes the sort keys of messages for one order."""

    cdef Extractor extractor
    cdef FieldSet fields
    cdef FieldValues values
    cdef SortField* sorted         # by field of the order
    cdef uint32_t count
    cdef ByteBuffer made           # the last sort key

    cdef int make(self, const uint8_t* payload, uint64_t length) except -1
    cdef int add(self, Value* value, SortField* field) except -1


# See sow/ranked_list.pxi.


cdef enum:
    LEAF_RECORDS = 256
    BRANCH_LEAVES = 256


# One record. Behind it lie the bytes of its sort key.
cdef struct RankedNode:
    uint64_t key
    uint64_t txid                  # of the value
    uint64_t place                 # log position of the value; 0 = the slot of the key tells it
    uint32_t sort_length
    uint32_t unused


cdef struct RankedEntry:
    uint64_t prefix                # the first 8 bytes of the sort key as a number, padded with zeros
    RankedNode* node


# Consecutive records.
cdef struct RankedLeaf:
    uint32_t count
    uint32_t unused
    RankedEntry entries[256]       # LEAF_RECORDS


# Consecutive leaves.
cdef struct RankedBranch:
    uint32_t count
    uint32_t unused
    uint64_t records               # in all leaves
    RankedLeaf* leaves[256]        # BRANCH_LEAVES
    uint32_t counts[256]           # of the leaves
    RankedEntry firsts[256]        # the first record of each leaf


# A place in the list.
cdef struct RankedSpot:
    uint64_t branch
    uint32_t leaf
    uint32_t at
    uint64_t rank


cdef class RankedList:
    """Records in their order, which are found by rank and by key."""

    cdef RankedBranch** branches
    cdef RankedEntry* firsts       # the first record of each branch
    cdef uint64_t branch_count
    cdef uint64_t branch_capacity
    cdef uint64_t leaf_count
    cdef RankedNode** table        # by hash of the key: open addressing
    cdef uint64_t capacity         # a power of two
    cdef uint64_t multiplier       # of the hash: odd
    cdef uint64_t node_bytes
    cdef readonly uint64_t count

    cdef uint64_t home(self, uint64_t key) noexcept nogil
    cdef int make_room(self) except -1
    cdef void enter(self, RankedNode* node) noexcept nogil
    cdef void forget(self, uint64_t key) noexcept nogil
    cdef RankedNode* find(self, uint64_t key) noexcept nogil
    cdef void locate(self, RankedSpot* spot, RankedEntry* wanted) noexcept nogil
    cdef int add_branch(self, uint64_t number) except -1
    cdef int split(self, RankedSpot* spot) except -1
    cdef void first_changed(self, uint64_t branch, uint32_t leaf) noexcept nogil
    cdef void drop_leaf(self, uint64_t branch, uint32_t leaf) noexcept nogil
    cdef void drop_branch(self, uint64_t branch) noexcept nogil
    cdef void join(self, uint64_t branch, uint32_t leaf) noexcept nogil
    cdef void join_branches(self, uint64_t branch) noexcept nogil
    cdef RankedNode* insert(self, uint64_t key, const uint8_t* order, uint32_t length, uint64_t* rank) except NULL
    cdef uint64_t remove(self, RankedNode* node) noexcept nogil
    cdef uint64_t rank_of(self, RankedNode* node) noexcept nogil
    cdef bint seek(self, uint64_t rank, RankedSpot* spot) noexcept nogil
    cdef RankedNode* at(self, uint64_t rank) noexcept nogil
    cdef uint64_t memory(self) noexcept nogil


# See sow/ranking.pxi.


cdef enum:
    NO_RANK = 0xFFFFFFFFFFFFFFFF


cdef class Ranking:
    """The matching records of a topic, in an order."""

    cdef readonly RankedList records
    cdef SortKeys order
    cdef set changed               # while it is filled: keys that changed since; None: it is filled
    cdef uint64_t bytes_max

    cdef bint is_too_large(self) noexcept nogil
    cdef bint take(self, uint64_t key, const RecordHeader* record, uint64_t place) except -1
    cdef int change(
        self, uint64_t key, const RecordHeader* record, uint64_t place, uint64_t* old_rank, uint64_t* new_rank
    ) except -1
