# Messages of queues, read from the log. See queues/messages.pxi.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.delivery.bodies cimport Bodies
from amps._core.delivery.output cimport OutputBuffer
from amps._core.expressions.machine cimport Filter, FilterSet
from amps._core.journal.queue_records cimport QueueDelivery, QueueMatch
from amps._core.journal.reader cimport LogCursor, LogFile
from amps._core.journal.record cimport RecordHeader
from amps._core.queues.manager cimport QueueWalk, SlotMemory
from amps._core.shm.memory cimport ControlPage
from amps._core.wire.ingress cimport AckList, LeaseTable
from amps._core.wire.topics cimport TopicEntry


@cython.final
cdef class MessageReader:
    cdef object directory          # LogDirectory
    cdef ControlPage control
    cdef list cursors              # one in each recently used file, the last used one first
    cdef LogCursor cursor          # in the file of the last message read
    cdef LogFile looked_at         # file with a part known to be in memory, in this turn
    cdef uint64_t resident_from
    cdef uint64_t resident_until
    cdef LogFile missing_file      # file of the record that was not in memory
    cdef uint64_t missing_offset
    cdef uint64_t missing_bytes
    cdef uint64_t needed_until     # file offset; `missing_bytes` also covers bytes behind it, which may be needed next
    cdef bint idle                 # nothing was read since the last `release`

    cdef void begin_turn(self) noexcept
    cdef const RecordHeader* read(self, uint64_t position) except? NULL
    cdef uint64_t cost(self, const RecordHeader* record) noexcept
    cdef LogCursor cursor_for(self, uint64_t position)
    cdef bint is_resident(self, LogFile file, uint64_t offset) except -1
    cdef bint look(self, LogFile file, uint64_t offset, uint64_t length) noexcept


cdef uint64_t match_message(
    FilterSet filters, const RecordHeader* record, TopicEntry entry
) except? 0xFFFFFFFFFFFFFFFF


# Filters of queue subscriptions, as a transport evaluates them. See queues/filtering.pxi.


@cython.final
cdef class FilterCursor:
    """One filter on one queue, with its matches that are not yet reported to the core."""

    cdef readonly uint32_t number          # number of the cursor in the core
    cdef Filter filter
    cdef Scan scan
    cdef QueueMatch* matches
    cdef uint32_t count
    cdef uint32_t capacity

    cdef int note(self, uint64_t position, uint32_t slot) except -1


@cython.final
cdef class Scan:
    """The filters that are evaluated up to the same message of a queue."""

    cdef QueueWalk walk
    cdef TopicEntry entry                  # of the queue
    cdef FilterSet filters                 # members: FilterCursor
    cdef dict cursors                      # by number
    cdef uint64_t evaluated_until          # log position
    cdef bint caught_up                    # the last run reached the end of the queue
    cdef bint has_message                  # the walk has found a message that is not evaluated yet
    cdef bint waits                        # until that message is read from the disk


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
    cdef uint64_t turn                     # turns counted, so that each scan comes first in turn
    cdef uint64_t used                     # cost of this turn, in bytes of log
    cdef uint64_t idle_at                  # no work remains up to this limit; 0 = there may be work
    cdef bytearray sections                # sections of the record being made

    cdef int run_scan(self, Scan scan, uint64_t limit, uint64_t bytes_max) except -1
    cdef bint evaluate(self, Scan scan) except -1
    cdef int tell(self, Scan scan) except -1
    cdef int add_section(self, FilterCursor cursor, uint32_t first, uint32_t count, uint64_t until) except -1
    cdef int join(self, Scan scan) except -1


# A search for messages in a queue. See queues/search.pxi.


@cython.final
cdef class QueueSearch:
    cdef QueueWalk walk
    cdef MessageReader reader
    cdef TopicEntry entry                  # of the queue
    cdef FilterSet filters                 # a set with one filter; None: every message matches
    cdef frozenset keys                    # transaction ids of messages that may match; None: any
    cdef uint64_t limit                    # log position at which the search ends
    cdef bint has_message                  # the walk has found a message that is not evaluated yet
    cdef readonly AckList found            # matches, unless they are returned as rows
    cdef readonly uint64_t compared
    cdef readonly uint64_t matched
    cdef bint shows                        # matches are returned, not acknowledged
    cdef uint64_t skip_count               # number of matches still to skip
    cdef uint64_t row_limit                # number of rows still to return
    cdef list rows

    cdef uint64_t look(self) except? 0


# From the core's deliveries to frames. See queues/sender.pxi.


@cython.final
cdef class QueueReceiver:
    """One queue subscription."""

    cdef readonly uint32_t number
    cdef readonly object owner
    cdef OutputBuffer output
    cdef LeaseTable leases         # lease table of its connection
    cdef uint32_t flags            # of delivery/output.pyx
    cdef Bodies bodies             # of its select list; None: whole messages
    cdef bytes ids                 # last part of each of `beginnings`: `,"sids":"…"`, or empty
    cdef dict beginnings           # by queue: a frame's header up to and including `sids`
    cdef uint32_t last_queue       # the queue of `last_beginning`
    cdef bytes last_beginning
    # Deliveries that wait for the disk, and the deliveries behind them.
    cdef QueueDelivery* parked
    cdef uint64_t parked_first
    cdef uint64_t parked_end
    cdef uint64_t parked_capacity
    cdef bint is_ready             # the pages that it waited for were read
    cdef FilterSet filters         # a set with its filter alone, for barriers; None: no filter
    cdef dict entries              # by queue: TopicEntry

    cdef bytes beginning_of(self, uint32_t queue)
    cdef int park(self, const QueueDelivery* delivery) except -1


cdef class Batch:
    cdef bytes record
    cdef uint64_t durable_needed
    cdef uint32_t count
    cdef uint32_t at
    cdef dict barriers             # index of a barrier's delivery -> receivers; None without barriers
    cdef object action             # None, or a function to call at this place instead


@cython.final
cdef class QueueSender:
    cdef MessageReader reader
    cdef object read_ahead
    cdef object schedule
    cdef object damaged
    cdef dict receivers            # by number; keeps alive the objects to which `places` points
    cdef dict by_queue             # queue -> {number: receiver}
    cdef void** places             # by number, open addressing: QueueReceiver, borrowed
    cdef uint64_t place_count      # a power of two
    cdef object batches            # deque of Batch
    cdef object woken              # deque of receivers whose pages were read
    cdef uint64_t used             # cost of this turn, in bytes of log

    cdef QueueReceiver find(self, uint32_t number)
    cdef void place(self, QueueReceiver receiver) noexcept
    cdef int rehash(self, uint64_t count) except -1
    cdef int run_batch(self, Batch batch, uint64_t bytes_max) except -1
    cdef int run_parked(self, QueueReceiver receiver, uint64_t bytes_max) except -1
    cdef int deliver(self, QueueReceiver receiver, const QueueDelivery* delivery) except -1
    cdef bint send(self, QueueReceiver receiver, const QueueDelivery* delivery) except -1
    cdef int wake(self, QueueReceiver receiver) except -1
    cdef bint is_for(self, QueueReceiver receiver, uint32_t queue, const RecordHeader* record) except -1
