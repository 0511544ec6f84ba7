# Looking for messages in queues. See queue_search.pyx.

cimport cython
from libc.stdint cimport uint64_t

from amps._core.filter_set cimport FilterSet
from amps._core.queue_acks cimport AckList
from amps._core.queue_messages cimport MessageReader
from amps._core.queue_walk cimport QueueWalk
from amps._core.topic_table cimport TopicEntry


@cython.final
cdef class QueueSearch:
    cdef QueueWalk walk
    cdef MessageReader reader
    cdef TopicEntry entry                  # of the queue
    cdef FilterSet filters                 # the one filter; None: everything matches
    cdef frozenset keys                    # transaction ids of what may match; None: any
    cdef uint64_t limit                    # log position below which is searched
    cdef bint has_message                  # the walk has found one that was not evaluated yet
    cdef readonly AckList found            # what matches
    cdef readonly uint64_t compared
    cdef readonly uint64_t matched
    cdef bint shows                        # what matches is shown, not acknowledged
    cdef uint64_t skip_count               # of what matches, so many are not shown yet
    cdef uint64_t row_limit                # and then so many at most
    cdef list rows

    cdef uint64_t look(self) except? 0
