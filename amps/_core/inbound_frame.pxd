# See inbound_frame.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.receive_buffer cimport ReceiveBuffer
from amps._core.record cimport RecordHeader
from amps._core.topic_table cimport TopicEntry
from amps._core.wire cimport HeaderView


cdef enum:
    PART_LIMIT = 65535     # longest correlation id, user id or SOW key: records count them in 16 bits


cdef inline uint32_t part_length(const HeaderView* view, int field) noexcept nogil:
    return view.field[field].length if view.present & (<uint64_t>1 << field) else 0


cdef class InboundFrame(ReceiveBuffer):
    """The current frame of a connection, and who sends it."""

    cdef readonly uint32_t slot
    cdef readonly uint32_t serial
    # identity, set at logon
    cdef bint numbered                     # publishes without a sequence are numbered by the server
    cdef uint64_t publisher_id
    cdef uint64_t derived_id
    cdef bytes user_id
    # the current frame
    cdef HeaderView view
    cdef uint32_t header_length
    cdef uint64_t given_sequence           # 0 = none, or none that is a number
    cdef const uint8_t* frame
    cdef uint32_t frame_length

    cdef uint64_t record_length(self, uint64_t sequence) noexcept
    cdef int fill_record(
        self, RecordHeader* record, uint32_t length, TopicEntry entry, uint64_t sequence
    ) except -1
    cdef bint is_recorded(self, TopicEntry entry, const RecordHeader* record, const uint8_t* payload) except -1
