# See live_conflation.pyx.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.conflation cimport Conflation
from amps._core.log_reader cimport LogCursor
from amps._core.outlet cimport Outlet
from amps._core.record cimport RecordHeader
from amps._core.topic_table cimport TopicEntry


@cython.final
cdef class LiveConflation:
    cdef Conflation conflation
    cdef Outlet outlet
    cdef bytes sub_id                      # as it stands between the quotes of a header; None = not told
    cdef uint32_t flags
    cdef uint32_t flags_if_recorded
    cdef object holds                      # called when it begins to hold something
    cdef LogCursor cursor                  # of the newest message

    cdef int take(self, const RecordHeader* record, TopicEntry entry, LogCursor cursor) except -1
    cdef int send(self, const RecordHeader* record, TopicEntry entry) except -1
    cdef int release(self, uint64_t until_ns) except -1
