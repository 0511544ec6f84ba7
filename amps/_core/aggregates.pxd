# The state of groups of messages. See aggregates.pyx.

from libc.stdint cimport int32_t, uint32_t, uint64_t

from amps._core.exact_sum cimport Tally, Term
from amps._core.expression_vm cimport BoundProgram
from amps._core.fields cimport FieldSet, FieldValues
from amps._core.message_builder cimport MessageBuilder
from amps._core.message_context cimport MessageContext
from amps._core.value cimport Value
from amps._core.value_bag cimport Bag, BagNode


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


# What is aggregated, by one function or several, and what that takes.
cdef struct Argument:
    bint sums
    bint squares
    bint bag
    uint64_t delimiter_bytes       # of its GROUP_CONCATs, the longest


# A part of the outputs: an aggregate, or a value of the last message.
cdef struct Part:
    int function
    uint32_t source                # number of its argument, or of the kept value
    bint whole                     # kept: all values of a field instead of the first
    int32_t slot                   # of the row that the outputs are worked out from


# What a group knows of one argument.
cdef struct ArgumentState:
    uint64_t count                 # values other than NULL
    Tally tally                    # of those that are finite numbers
    Bag bag


# Values of the last message, with their text behind them, in one piece of memory.
cdef struct Kept:
    Value* values
    uint32_t count
    uint64_t bytes_


# What adding or removing a message will do to one argument.
cdef struct Change:
    Value value
    Term term
    bint counts                    # it is not NULL
    bint summed
    bint is_nan
    BagNode* known
    BagNode* made


cdef class BoundProjection:
    """The fields of a projection, for messages read for one set of fields."""

    cdef Argument* arguments
    cdef Part* parts
    cdef Change* changes           # of the message at hand
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
    cdef list optional             # by output: left out of a message if it is NULL
    cdef FieldSet row_fields
    cdef FieldValues row

    cdef int evaluate(self, FieldValues values, MessageContext message) except -1
    cdef int keep(self, uint32_t at, FieldValues values, MessageContext message) except -1


cdef class Group:
    """The messages of one group, as far as a projection needs to know them."""

    cdef readonly BoundProjection projection
    cdef ArgumentState* states
    cdef Kept* kept
    cdef readonly uint64_t records
    cdef readonly uint64_t used_bytes

    cdef int insert(self, FieldValues values, MessageContext message) except -1
    cdef int take(self, FieldValues values, MessageContext message) except -1
    cdef Value* work_out(self) except NULL
    cdef int result_of(self, const Part* part, bytes delimiter, Value* result) except -1
