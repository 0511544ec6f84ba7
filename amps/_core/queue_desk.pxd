# See queue_desk.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_book cimport QueueBook
from amps._core.record cimport RecordHeader


cdef class QueueDesk:
    cdef readonly QueueBook book
    cdef readonly list names               # by queue: (message type, name), both as bytes
    cdef tuple rules                       # by queue: QueueRules, None if it has no expression; None = no queue has any
    cdef public object last_sequence       # publisher id -> the highest sequence in the log
    cdef readonly uint64_t durable_awaited  # log position up to which the journal must be durable for deliveries

    cdef int enqueue(self, const RecordHeader* record, bytes topic, tuple queues, uint64_t now_ns) except -1
    cdef bint may_acknowledge(self, const RecordHeader* record, uint32_t queue, uint64_t client) except -1
    cdef uint32_t acknowledge(
        self, RecordHeader* record, uint32_t queue, uint64_t client, uint64_t now_ns, uint32_t* token,
        uint32_t* matches, uint32_t* removed
    ) except? 0xFFFFFFFF
    cdef uint32_t token_of(self, const RecordHeader* record) noexcept
    cdef int hear(self, const RecordHeader* record, uint64_t now_ns) except -1
    cdef int apply_recorded(self, const RecordHeader* record, uint32_t queue) except -1
    cdef bytearray removal_record(self, uint32_t* queue, uint64_t* count)
    cdef int removals_written(self, uint64_t count) except -1
