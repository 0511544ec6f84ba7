# See wire/topic_table.pxi.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from amps._core.expressions.machine cimport FilterSet
from amps._core.journal.record cimport RecordHeader
from amps._core.sow.shaping cimport FieldStage, KeyMaker
from amps._core.values.documents cimport Documents
from amps._core.values.fields cimport ByteBuffer, MessageContext


# What a publish to a SOW topic needs to become a record. See wire/sow_rules.pxi.


cdef class SowRules:
    cdef readonly KeyMaker keys
    cdef readonly Documents documents      # of the message type; None: it has no deltas
    cdef readonly bint given_keys          # publishers provide the keys
    cdef readonly uint64_t payload_max     # bytes
    cdef readonly uint64_t lifetime_ns     # of a publish that says nothing about it; 0 = unlimited
    cdef readonly uint32_t number          # of the SOW topic in the configuration
    cdef readonly FieldStage preprocessing  # None: there is none
    cdef readonly bint generated_keys      # the core makes the keys, by a key generator
    cdef readonly bint is_enriched         # the core computes fields of it
    cdef ByteBuffer text                   # of the last preprocessed message
    cdef ByteBuffer merged

    cdef bint is_readable(self, const uint8_t* payload, uint64_t length) except -1


cdef class TopicEntry:
    """A topic of one message type in one transport."""

    cdef readonly uint32_t number          # number of the topic in this transport
    cdef readonly str name
    cdef readonly bytes raw_name           # UTF-8
    cdef readonly str message_type
    cdef readonly uint32_t message_type_id
    cdef readonly bytes json_name          # quoted, as in headers
    cdef readonly bint logged              # recorded in the journal
    cdef readonly bint discarded           # accepted and dropped: /AMPS/devnull
    cdef readonly str refusal              # the reason why publishes to it are refused, or None
    cdef readonly bint declared            # the number has been declared to the core
    cdef readonly FilterSet recorded_if    # messages that match none of its filters are not recorded; None = all are
    cdef readonly TopicEntry unrecorded    # with `recorded_if`: the entry for messages that are not recorded
    cdef readonly int64_t queue            # number of the queue with this name; -1 = none
    cdef readonly bint is_own_topic        # of a queue: it takes messages published under its own name
    cdef readonly TopicEntry target        # of any other queue: the topic under which publishes to it are recorded
    cdef readonly SowRules sow             # None: it is no SOW topic


cdef struct TableSlot:
    uint64_t hash
    uint32_t number_plus_one               # 0 = free


cdef class TopicTable:
    cdef readonly list entries             # by number
    cdef TableSlot* slots
    cdef uint64_t capacity
    cdef object classify
    cdef object queues
    cdef object sow_rules
    cdef dict _message_types

    cdef TopicEntry _new_entry(self, str name, bytes raw, str message_type, uint32_t type_id)
    cdef int _insert(self, uint64_t hash_, uint32_t number) except -1
    cdef void _place(self, uint64_t hash_, uint32_t number_plus_one) noexcept nogil

    cdef TopicEntry find(self, uint32_t message_type_id, const uint8_t* name, uint32_t length, uint64_t hash_)
    cdef uint64_t hash_of(self, uint32_t message_type_id, const uint8_t* name, uint32_t length) noexcept nogil


# The facts about a message that its record holds. See wire/message_facts.pxi.


cdef int tell_facts(
    MessageContext context, const RecordHeader* record, bytes topic, bint recorded, bint live
) except -1
