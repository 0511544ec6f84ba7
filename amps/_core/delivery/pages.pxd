# Paginated subscriptions. See delivery/pages.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.delivery.bodies cimport Bodies
from amps._core.delivery.delivery cimport LiveConflation, StateFollower
from amps._core.delivery.output cimport OutputBuffer
from amps._core.expressions.machine cimport EvaluationContext, Filter, FilterSet
from amps._core.journal.reader cimport LogCursor
from amps._core.journal.record cimport RecordHeader
from amps._core.sow.ranking cimport RankedNode, Ranking
from amps._core.sow.table cimport StateReader
from amps._core.values.fields cimport FieldSet
from amps._core.wire.topics cimport TopicEntry


# Why a message about a record is to be sent.
cdef enum ShiftKind:
    SHIFT_CAME                     # it is in the window now
    SHIFT_UPDATED                  # it was and is in the window, and has a new value
    SHIFT_MATCH                    # it has left the window
    SHIFT_DELETED
    SHIFT_EXPIRED


cdef struct Shift:
    uint64_t key
    uint64_t place                 # of a removed record: of its last value
    uint64_t kind                  # ShiftKind


# The shifts of one step.
cdef struct Shifts:
    Shift* items
    uint32_t count
    uint32_t capacity


cdef class Window:
    """The records that one subscription sees: those with the ranks from `skip` on."""

    cdef OutputBuffer output
    cdef bytes publish_prefix
    cdef bytes oof_prefix
    cdef uint32_t flags
    cdef uint32_t flags_if_recorded
    cdef Bodies bodies
    cdef LiveConflation conflation # None: messages are sent at once
    cdef readonly uint64_t skip
    cdef readonly uint64_t top
    cdef Shifts left
    cdef Shifts came

    cdef int shift(
        self, Ranking ranking, uint64_t key, uint64_t old_rank, uint64_t new_rank, uint64_t kind, uint64_t place
    ) except -1
    cdef int leave(self, uint64_t key, uint64_t kind, uint64_t place) except -1
    cdef int come(self, uint64_t key, uint64_t kind) except -1


cdef class PageList:
    """The matching records of a topic in an order, with the windows on it."""

    cdef readonly Ranking ranking
    cdef readonly Filter filter    # None: every record
    cdef object too_large
    cdef list windows
    cdef uint64_t matched          # `serial` of the topic, if the filter matches the current record
    cdef bint stopped              # it is too large: nothing is sent any more


cdef class TopicPages(StateFollower):
    """The lists of one topic."""

    cdef StateReader reader
    cdef EvaluationContext evaluation
    cdef FieldSet keys             # fields of the topic's key
    cdef FilterSet filters         # of the lists with a filter; None: there are none
    cdef list lists
    cdef uint64_t serial
    # of the current record
    cdef TopicEntry entry
    cdef const RecordHeader* record
    cdef const RecordHeader* before
    cdef bint before_is_known
    cdef LogCursor cursor

    cdef const RecordHeader* read(self, uint64_t place) except? NULL
    cdef const RecordHeader* value_before(self) except? NULL
    cdef const RecordHeader* current(self, const RankedNode* node) except? NULL
    cdef int check_size(self, PageList pages) except -1
    cdef int send(self, PageList pages, Window window) except -1
    cdef int send_left(self, Window window, const RecordHeader* record, bytes reason) except -1
    cdef int send_whole(self, Window window, const RecordHeader* record) except -1
    cdef int send_updated(self, Window window) except -1
