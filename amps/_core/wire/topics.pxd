# See wire/topic_table.pxi.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from amps._core.expressions.machine cimport FilterSet
from amps._core.journal.record cimport RecordHeader
from amps._core.values.fields cimport MessageContext


cdef class TopicEntry:
    """A topic of one message type, as one transport knows it."""

    cdef readonly uint32_t number          # this transport's number for it
    cdef readonly str name
    cdef readonly bytes raw_name           # UTF-8
    cdef readonly str message_type
    cdef readonly uint32_t message_type_id
    cdef readonly bytes json_name          # quoted, as it stands in headers
    cdef readonly bint logged              # recorded in the journal
    cdef readonly bint discarded           # accepted and dropped: /AMPS/devnull
    cdef readonly str refusal              # why nothing can be published to it, or None
    cdef readonly bint declared            # the core knows the number
    cdef readonly FilterSet recorded_if    # of a recorded topic: messages that match none are not; None = all are
    cdef readonly TopicEntry unrecorded    # of such a topic: what stands for messages that are not recorded
    cdef readonly int64_t queue            # number of the queue that has this name; -1 = none has
    cdef readonly bint is_own_topic        # of such a queue: it takes what is published under its own name
    cdef readonly TopicEntry target        # of another one: the topic under which publishes to it are recorded


cdef struct TableSlot:
    uint64_t hash
    uint32_t number_plus_one               # 0 = free


cdef class TopicTable:
    cdef readonly list entries             # by number
    cdef TableSlot* slots
    cdef uint64_t capacity
    cdef object classify
    cdef object queues
    cdef dict _message_types

    cdef TopicEntry _new_entry(self, str name, bytes raw, str message_type, uint32_t type_id)
    cdef int _insert(self, uint64_t hash_, uint32_t number) except -1
    cdef void _place(self, uint64_t hash_, uint32_t number_plus_one) noexcept nogil

    cdef TopicEntry find(self, uint32_t message_type_id, const uint8_t* name, uint32_t length, uint64_t hash_)
    cdef uint64_t hash_of(self, uint32_t message_type_id, const uint8_t* name, uint32_t length) noexcept nogil


# What a record tells about its message. See wire/message_facts.pxi.


cdef int tell_facts(
    MessageContext context, const RecordHeader* record, bytes topic, bint recorded, bint live
) except -1
