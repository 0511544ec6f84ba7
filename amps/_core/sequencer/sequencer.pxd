# See sequencer/sequencer.pxi.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from amps._core.journal.writer cimport LogWriter, PublisherMap
from amps._core.queues.manager cimport LogAdapter
from amps._core.shm.memory cimport Ring
from amps._core.journal.record cimport RecordHeader
from amps._core.sow.shaping cimport FieldStage, KeyMaker
from amps._core.sow.table cimport TopicState
from amps._core.values.documents cimport Documents
from amps._core.values.fields cimport ByteBuffer


cdef enum:
    NO_PUBLISHER = 0xFFFFFFFF


cdef struct Publisher:
    uint64_t publisher_id
    uint64_t last_sequence         # highest sequence seen, logged or not
    uint64_t named_in              # number of the last journal known to have its name record, + 1


cdef struct Session:
    uint32_t serial                # serial number of the connection in the slot
    uint32_t publisher             # number of its Publisher; of a flow: its upstream
    uint32_t state                 # SessionState
    uint32_t is_flow               # 1: a flow of replication
    uint32_t recent                # number of the publisher of its last record under another publisher id


cdef enum SessionState:
    SESSION_NONE = 0
    SESSION_ACTIVE = 1
    SESSION_FENCED = 2             # its client name was taken over, or a message was refused: accepts no more


cdef class Topic:
    cdef readonly uint32_t number
    cdef readonly bytes name
    cdef readonly bytes message_type
    cdef readonly uint64_t hash
    cdef readonly bint logged
    cdef tuple feeds               # queues that its messages enter
    cdef int64_t queue             # number of the queue with this name, -1 = none
    cdef SowTopic sow              # the SOW topic that keeps its records; None: there is none
    cdef uint32_t sow_number       # its number in that SOW topic: a topic with a Pattern keeps many topics
    cdef KeyMaker keys             # of its records


cdef class TransportState:
    cdef int index
    cdef Ring ring
    cdef Session* sessions
    cdef uint32_t session_capacity
    cdef list topics               # by the transport's number: Topic
    cdef uint64_t taken            # bytes taken from the ring and not released yet

    cdef Session* session(self, uint32_t slot) except NULL


# See sequencer/states.pxi.


cdef class SowTopic:
    cdef readonly TopicState state
    cdef readonly bint given_keys
    cdef Documents documents
    cdef FieldStage enrichment     # None: there is none
    cdef object generator          # makes the keys; None: transports make them
    cdef readonly uint64_t payload_max  # bytes
    cdef list topics               # by number: the Topic that it keeps
    cdef bint recorded             # its records go to the journal
    cdef public uint64_t replay_from_ns  # UNIX time: a start takes no earlier record of the log

    cdef uint64_t make_key(self, KeyMaker keys, const RecordHeader* record) except? 0


cdef class MergedRecords:
    cdef uint8_t* data
    cdef uint64_t capacity
    cdef uint64_t used
    cdef ByteBuffer enriched       # the last message with computed fields
    cdef ByteBuffer text           # of the message that was merged last
    cdef bytes correlation         # its correlation id
