# The bag: the values of a group, sorted and counted. See expressions/value_bag.pxi.

from libc.stdint cimport int32_t, uint32_t, uint64_t

from amps._core.expressions.machine cimport BoundProgram
from amps._core.values.fields cimport FieldSet, FieldValues, MessageBuilder, MessageContext
from amps._core.values.value cimport Arena, Value


# A value as the message holds it. If it has text, the text is stored directly behind the node.
cdef struct BagNode:
    BagNode* left
    BagNode* right
    uint64_t priority              # heap order: not below the priority of the children
    uint64_t count                 # number of occurrences of the value
    Value value
    Value number                   # key of the order: a number in canonical form, or text that is not a number


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


# Sums of numbers without any rounding. See expressions/exact_sum.pxi.


# An integer of any size in two's complement. Its unit is a power of two, which the user of the struct defines.
cdef struct ExactSum:
    uint64_t* limbs                # 64 bits each, the lowest first; the last one holds only the sign
    uint32_t first                 # place of limbs[0]; everything below it is 0
    uint32_t count                 # 0 = the sum is 0
    uint32_t capacity


# A number in the form in which sums add it: magnitude * 2 ** (bit - bit of the unit).
cdef struct Term:
    bint negative
    bint real                      # the number is a double or text, so the sum becomes a double
    uint64_t magnitude
    uint32_t bit


# The state from which sum, mean and deviations of a set of numbers are calculated.
cdef struct Tally:
    uint64_t numbers               # count of finite numbers
    uint64_t reals                 # count of those numbers that make the sum a double
    ExactSum total
    ExactSum squares


cdef bint term_of(const Value* value, Term* term) noexcept nogil
cdef int tally_reserve(Tally* tally, const Term* term, bint squares) except -1
cdef void tally_change(Tally* tally, const Term* term, bint removed, bint squares) noexcept nogil
cdef void tally_free(Tally* tally) noexcept nogil
cdef int tally_sum(Tally* tally, Value* result) except -1
cdef int tally_mean(Tally* tally, Value* result) except -1
cdef int tally_deviation(Tally* tally, uint64_t fewer, Value* result) except -1


# The state of groups of messages. See expressions/aggregates.pxi.


cdef enum AggregateFunction:
    AGGREGATE_ANY = 0
    AGGREGATE_AVG
    AGGREGATE_COUNT
    AGGREGATE_COUNT_DISTINCT
    AGGREGATE_GROUP_CONCAT
    AGGREGATE_MAX
    AGGREGATE_MIN
    AGGREGATE_STDDEV_POP
    AGGREGATE_STDDEV_SAMP
    AGGREGATE_SUM
    AGGREGATE_UNIQUE
    AGGREGATE_NONE                 # the value of the last message


# The argument of one or several aggregate functions, and the state that these functions need.
cdef struct Argument:
    bint sums
    bint squares
    bint bag
    uint64_t delimiter_bytes       # of the longest delimiter of its GROUP_CONCATs


# A part of the outputs: an aggregate, or a value of the last message.
cdef struct Part:
    int function
    uint32_t source                # number of its argument, or of its kept value
    bint whole                     # kept values only: all values of a field instead of the first
    int32_t slot                   # slot of the row from which the outputs are evaluated


# The state of one argument in one group.
cdef struct ArgumentState:
    uint64_t count                 # values other than NULL
    Tally tally                    # of the finite numbers among them
    Bag bag


# Values of the last message and their text, in one block of memory.
cdef struct Kept:
    Value* values
    uint32_t count
    uint64_t bytes_


# The effect that adding or removing a message has on one argument.
cdef struct Change:
    Value value
    Term term
    bint counts                    # the value is not NULL
    bint summed
    bint is_nan
    BagNode* known
    BagNode* made


cdef class BoundProjection:
    """The fields of a projection, bound to one set of fields that messages are read for."""

    cdef Argument* arguments
    cdef Part* parts
    cdef Change* changes           # of the current message
    cdef Kept* kept_anew
    cdef Value* results
    cdef uint32_t argument_count
    cdef uint32_t part_count
    cdef uint32_t kept_count
    cdef uint32_t output_count
    cdef readonly uint64_t limit_bytes
    cdef list argument_programs
    cdef list kept_programs
    cdef list kept_whole
    cdef list delimiters           # by part
    cdef list outputs
    cdef list optional             # by output: True if the field is left out of the message when it is NULL
    cdef FieldSet row_fields
    cdef FieldValues row

    cdef int evaluate(self, FieldValues values, MessageContext message) except -1
    cdef int keep(self, uint32_t at, FieldValues values, MessageContext message) except -1


cdef class Group:
    """The state of one group of messages, as its projection needs it."""

    cdef readonly BoundProjection projection
    cdef ArgumentState* states
    cdef Kept* kept
    cdef readonly uint64_t records
    cdef readonly uint64_t used_bytes

    cdef int insert(self, FieldValues values, MessageContext message) except -1
    cdef int take(self, FieldValues values, MessageContext message) except -1
    cdef Value* work_out(self) except NULL
    cdef int result_of(self, const Part* part, bytes delimiter, Value* result) except -1
