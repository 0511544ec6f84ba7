# See conflation.pyx.

cimport cython
from libc.stdint cimport uint64_t

from amps._core.fields cimport FieldSet
from amps._core.filter_set cimport FilterBench
from amps._core.message_builder cimport ByteBuffer
from amps._core.record cimport RecordHeader
from amps._core.topic_table cimport TopicEntry


@cython.final
cdef class Held:
    """The newest message of a key, with bookmark and time of the first one that is held for it."""

    cdef RecordHeader* record      # a copy of our own
    cdef TopicEntry entry
    cdef bytes key
    cdef uint64_t due_ns           # UNIX time
    cdef uint64_t before_publisher_id   # bookmark of the record before the first one
    cdef uint64_t before_sequence
    cdef uint64_t stepped_at       # log position of the first one, if that is the bookmark of an earlier record; else 0

    cdef int keep(self, const RecordHeader* record) except -1


@cython.final
cdef class Conflation:
    cdef FilterBench bench
    cdef FieldSet fields
    cdef ByteBuffer buffer
    cdef readonly uint64_t interval_ns
    cdef readonly bint adapts
    cdef dict by_key
    cdef object in_order           # deque of Held; the first one is due first
    cdef readonly uint64_t held_bytes
    cdef uint64_t held_bytes_max

    cdef bytes key_of(self, const RecordHeader* record, TopicEntry entry)
    cdef bint hold(
        self, const RecordHeader* record, TopicEntry entry, uint64_t before_publisher_id, uint64_t before_sequence,
        bint stepped
    ) except -1
    cdef Held first(self)
    cdef bint is_due(self, Held held, uint64_t now_ns)
    cdef int release(self, Held held) except -1
