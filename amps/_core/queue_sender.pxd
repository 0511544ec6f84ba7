# From the core's deliveries to frames. See queue_sender.pyx.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.filter_set cimport FilterSet
from amps._core.outlet cimport Outlet
from amps._core.queue_leases cimport LeaseTable
from amps._core.queue_messages cimport MessageReader
from amps._core.queue_records cimport QueueDelivery
from amps._core.record cimport RecordHeader


@cython.final
cdef class QueueReceiver:
    """One queue subscription."""

    cdef readonly uint32_t number
    cdef readonly object owner
    cdef Outlet outlet
    cdef LeaseTable leases         # of its connection
    cdef uint32_t flags            # of outlet.pyx
    cdef bytes ids                 # the end of a frame's beginning: `,"sids":"…"`, or nothing
    cdef dict beginnings           # by queue: a frame's header up to and including `sids`
    cdef uint32_t last_queue       # and the one that was used last
    cdef bytes last_beginning
    # Deliveries that wait for the disk, and those behind them.
    cdef QueueDelivery* parked
    cdef uint64_t parked_first
    cdef uint64_t parked_end
    cdef uint64_t parked_capacity
    cdef bint is_ready             # what it waited for was read
    cdef FilterSet filters         # with its filter alone, for barriers; None: it has none
    cdef dict entries              # by queue: TopicEntry

    cdef bytes beginning_of(self, uint32_t queue)
    cdef int park(self, const QueueDelivery* delivery) except -1


cdef class Batch:
    cdef bytes record
    cdef uint64_t durable_needed
    cdef uint32_t count
    cdef uint32_t at
    cdef dict barriers             # number of a barrier's delivery -> receivers; None if there is none
    cdef object action             # None, or what is to be done at this place instead


@cython.final
cdef class QueueSender:
    cdef MessageReader reader
    cdef object read_ahead
    cdef object schedule
    cdef object damaged
    cdef dict receivers            # by number: keeps alive what `places` points to
    cdef dict by_queue             # queue -> {number: receiver}
    cdef void** places             # by number, open addressing: QueueReceiver, borrowed
    cdef uint64_t place_count      # a power of two
    cdef object batches            # deque of Batch
    cdef object woken              # deque of receivers whose pages were read
    cdef uint64_t used             # what the turn has cost, in bytes of log

    cdef QueueReceiver find(self, uint32_t number)
    cdef void place(self, QueueReceiver receiver) noexcept
    cdef int rehash(self, uint64_t count) except -1
    cdef int run_batch(self, Batch batch, uint64_t bytes_max) except -1
    cdef int run_parked(self, QueueReceiver receiver, uint64_t bytes_max) except -1
    cdef int deliver(self, QueueReceiver receiver, const QueueDelivery* delivery) except -1
    cdef bint send(self, QueueReceiver receiver, const QueueDelivery* delivery) except -1
    cdef int wake(self, QueueReceiver receiver) except -1
    cdef bint is_for(self, QueueReceiver receiver, uint32_t queue, const RecordHeader* record) except -1
