# Fields of messages as columns of a batch. See field_columns.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "column_store.h" nogil:
    ctypedef struct column:
        uint8_t kind
        uint8_t precision
        uint8_t scale
        uint32_t length
        uint32_t child_count
        uint8_t* validity
        uint8_t* values
        int32_t* offsets
        uint8_t* data
        uint64_t data_length
        column* children
    ctypedef struct column_store:
        int failure
        uint8_t* scratch


# What messages are read into, for who has no Python object at hand.
cdef struct FieldRows:
    column_store store                 # its `failure` is what the last message could not be added for; 0 = nothing
    column root
    int format
    uint8_t separator
    uint64_t malformed                 # messages that could not be parsed, over all batches


cdef bint add_message(FieldRows* fields, const uint8_t* payload, uint32_t length) noexcept nogil


cdef class FieldColumns:
    """Rows of wanted fields, one for each message."""

    cdef FieldRows fields
    cdef readonly object arrow_type    # of what `finish` makes

    cdef int check(self) except -1
    cdef int begin(self, column* made, object of, uint32_t depth) except -1
    cdef object take(self, column* taken, object arrow_type, bint is_root)
