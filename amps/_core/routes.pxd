# Who gets the messages of one topic. See routes.pyx.

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from amps._core.filter_set cimport Filter, FilterBench, FilterSet
from amps._core.live_conflation cimport LiveConflation
from amps._core.log_reader cimport LogCursor
from amps._core.message_builder cimport ByteBuffer
from amps._core.outlet cimport Outlet
from amps._core.record cimport RecordHeader
from amps._core.topic_table cimport TopicEntry


cdef class Member:
    """One subscription of a topic."""

    cdef Receiver receiver
    cdef Filter filter                     # None: every message
    cdef bytes sub_id                      # as it stands between the quotes of a header; None = not told
    cdef bytes prefix                      # of a frame for this subscription alone
    cdef uint32_t flags


cdef class Receiver:
    """Who gets one frame: a connection, or a subscription that is served by itself."""

    cdef object key
    cdef Outlet outlet
    cdef LiveConflation conflation         # holds the messages of its only member back; None for most
    cdef list always                       # members without a filter
    cdef bytes prefix                      # of a frame for these
    cdef uint32_t flags
    cdef uint32_t members                  # with a filter and without
    cdef int64_t place                     # among those who get every message; -1 = not among them
    # of the current message
    cdef uint64_t serial
    cdef Member first                      # a member whose filter matched
    cdef list more                         # the others, or None


@cython.final
cdef class TopicRoutes:
    cdef readonly TopicEntry entry
    cdef FilterBench bench
    cdef FilterSet filters                 # None: nobody has one
    cdef bytes head                        # every frame begins with this
    cdef dict members                      # by key
    cdef dict receivers                    # by key
    cdef list every                        # receivers of every message
    cdef list touched                      # receivers whose filters matched the current message; then others
    cdef uint32_t touched_count
    cdef uint64_t serial
    cdef ByteBuffer joined                 # a header's beginning with several ids

    cdef uint64_t deliver(self, const RecordHeader* record, LogCursor cursor, bint live) except? 0xFFFFFFFFFFFFFFFF
    cdef bint wants(self, const RecordHeader* record, uint64_t* cost) except -1
    cdef int send_wanted(self, const RecordHeader* record, LogCursor cursor) except -1
    cdef int send_to_all(self, const RecordHeader* record, LogCursor cursor) except -1
    cdef int send_to_matching(self, FilterSet filters, const RecordHeader* record, LogCursor cursor) except -1
    cdef int touch(self, Member member) except -1
    cdef int send_matched(self, Receiver receiver, const RecordHeader* record, LogCursor cursor) except -1
