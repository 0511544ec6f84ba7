# The values of a group, in order and counted. See value_bag.pyx.

from libc.stdint cimport uint64_t

from amps._core.value cimport Arena, Value


# A value as it was written; its text, if it has one, stands behind the node.
cdef struct BagNode:
    BagNode* left
    BagNode* right
    uint64_t priority              # above those below it
    uint64_t count                 # how often the value is there
    Value value
    Value number                   # what it counts as: a number in canonical form, or text that is none


cdef struct Bag:
    BagNode* root
    uint64_t distinct              # without NaN
    uint64_t nans


cdef void bag_key(const Value* value, Value* number) noexcept nogil
cdef BagNode* bag_find(const Bag* bag, const Value* value) except? NULL
cdef uint64_t bag_node_bytes(const Value* value) noexcept nogil
cdef BagNode* bag_new_node(const Value* value) except NULL
cdef int bag_insert(Bag* bag, BagNode* node) except -1
cdef uint64_t bag_take(Bag* bag, BagNode* node) except? 0
cdef void bag_free(Bag* bag) noexcept nogil
cdef BagNode* bag_lowest(const Bag* bag) noexcept nogil
cdef BagNode* bag_highest(const Bag* bag) except? NULL
cdef int bag_concat(const Bag* bag, bytes delimiter, Value* result, Arena arena) except -1
