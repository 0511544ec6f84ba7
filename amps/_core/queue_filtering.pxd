# Filters of queue subscriptions, as a transport evaluates them. See queue_filtering.pyx.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.filter_set cimport Filter, FilterSet
from amps._core.queue_messages cimport MessageReader
from amps._core.queue_records cimport QueueMatch
from amps._core.queue_walk cimport QueueWalk, SlotMemory
from amps._core.topic_table cimport TopicEntry


@cython.final
cdef class FilterCursor:
    """One filter on one queue, and what matches it that the core has not been told."""

    cdef readonly uint32_t number          # the core's number of it
    cdef Filter filter
    cdef Scan scan
    cdef QueueMatch* matches
    cdef uint32_t count
    cdef uint32_t capacity

    cdef int note(self, uint64_t position, uint32_t slot) except -1


@cython.final
cdef class Scan:
    """Filters that have been evaluated up to the same message of a queue."""

    cdef QueueWalk walk
    cdef TopicEntry entry                  # of the queue
    cdef FilterSet filters                 # members: FilterCursor
    cdef dict cursors                      # by number
    cdef uint64_t evaluated_until          # log position
    cdef bint caught_up                    # there was nothing further when it was looked at last
    cdef bint has_message                  # the walk has found one that was not evaluated yet
    cdef bint waits                        # for it to be read from the disk


@cython.final
cdef class QueueFiltering:
    cdef SlotMemory memory
    cdef MessageReader reader
    cdef object read_ahead
    cdef object schedule
    cdef object damaged
    cdef object push
    cdef dict cursors                      # by number
    cdef list scans
    cdef uint64_t turn                     # counts, so that everybody comes first once
    cdef uint64_t used                     # what the turn has cost, in bytes of log
    cdef uint64_t idle_at                  # the limit up to which there is nothing to do; 0 = there may be
    cdef bytearray sections                # of the record that is being made

    cdef int run_scan(self, Scan scan, uint64_t limit, uint64_t bytes_max) except -1
    cdef bint evaluate(self, Scan scan) except -1
    cdef int tell(self, Scan scan) except -1
    cdef int add_section(self, FilterCursor cursor, uint32_t first, uint32_t count, uint64_t until) except -1
    cdef int join(self, Scan scan) except -1
