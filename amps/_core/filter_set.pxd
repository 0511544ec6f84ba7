# All filters of one topic. See filter_set.pyx.

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.expression_vm cimport BoundProgram, Program
from amps._core.fields cimport Extractor, FieldSet, FieldValues
from amps._core.filter_keys cimport FiledSlot, FilterKey, FilterKeys
from amps._core.message_context cimport MessageContext
from amps._core.value cimport Arena, Value


cdef class Filter:
    """A compiled filter, shared by all who use the same one."""

    cdef readonly Program program
    cdef readonly str canonical
    cdef readonly tuple equalities         # (path, constants): each must hold for a match
    cdef readonly bint exact               # the one equality is all there is
    cdef readonly bint asks_message        # needs facts besides the fields
    cdef readonly bint asks_publisher      # of these, who published it
    cdef readonly bint deterministic
    cdef object __weakref__


cdef class FilterEntry:
    """A filter in a set, and who has it."""

    cdef readonly Filter filter
    cdef readonly list members             # of the owner of the set, in the order of adding
    cdef BoundProgram program
    cdef BoundProgram apart_program        # for messages that cannot be read for all fields
    cdef list keys                         # numbers of the keys it is filed under; None = tried on every message
    cdef bint takes_long                   # perhaps
    cdef uint64_t serial                   # of the last message it was considered for


cdef class FilterBench:
    """What evaluating takes: shared by all sets of one message type in a process, one message at a time."""

    cdef readonly Extractor extractor
    cdef readonly FieldValues values
    cdef readonly MessageContext context
    cdef readonly uint64_t unreadable      # messages that could not be read for all the fields that filters need
    cdef readonly uint64_t exhausted       # messages and filters that took more memory than a message may
    cdef public object last_unreadable     # for whom it may concern: what and where the last such message was
    cdef readonly object tell_publisher    # puts what is known of a publisher into the context


@cython.final
cdef class FilterSet:
    """The distinct filters of one topic, and those that match a message."""

    cdef readonly FilterBench bench
    cdef FieldSet fields
    cdef readonly dict entries             # Filter -> FilterEntry
    cdef list scanned                      # entries that are tried on every message
    cdef list scanned_last                 # of these, those that may take long
    cdef list apart                        # pairs of a FieldSet and the entries that need it; None = not made yet
    cdef FilterKeys keys
    cdef list filed                        # by key: list of FilterEntry
    cdef uint32_t given_back               # entries removed since the last rebuilding
    cdef readonly bint asks_message
    cdef readonly bint asks_publisher
    cdef readonly bint may_take_long       # patterns, functions of users, long programs
    cdef uint64_t serial
    cdef void** matched                    # FilterEntry: those that match, which are in `entries`
    cdef uint32_t matched_count
    cdef uint32_t matched_capacity
    cdef readonly uint64_t evaluations     # programs run, for all messages

    cdef int match(self, const uint8_t* data, uint64_t length) except -1
    cdef int look_up_number(self, Value* value, FiledSlot filed) except -1
    cdef bint is_settled(self, Value* value) except -1
    cdef int consider_filed(self, const FilterKey* key) except -1
    cdef int consider_all(self, list entries) except -1
    cdef int match_apart(self, const uint8_t* data, uint64_t length) except -1
    cdef int note_exhausted(self) except -1
    cdef int grow_matched(self) except -1
    cdef int file_under(self, dict found, FilterKey key, object owner) except -1
