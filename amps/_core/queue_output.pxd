# See queue_output.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_records cimport QueueDelivery, QueueEntry


cdef struct DeliveryBuffer:
    QueueDelivery* items
    uint64_t count
    uint64_t capacity


cdef packed struct Removal:
    uint32_t queue
    uint32_t action                # QueueAction: QUEUE_EXPIRE or QUEUE_DELIVERED
    QueueEntry entry


cdef class QueueOutput:
    cdef DeliveryBuffer* deliveries        # by transport
    cdef uint32_t transport_count
    cdef Removal* removals
    cdef readonly uint64_t removal_count
    cdef uint64_t removal_capacity
    cdef public bint frozen

    cdef int deliver(
        self, uint32_t transport, uint32_t subscription, uint32_t queue, uint32_t slot, uint64_t position,
        uint64_t lease_until_ns, uint32_t flags
    ) except -1
    cdef int remove(
        self, uint32_t queue, uint32_t action, uint64_t publisher_id, uint64_t sequence, uint64_t position,
        uint32_t deliveries, uint32_t reasons
    ) except -1
