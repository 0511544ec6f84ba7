# See log_file.pyx.

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.frames cimport FrameMap
from amps._core.record cimport TOPIC_PREFIX_BYTES, RecordHeader, record_payload


cdef class LogFile:
    """One mapped file of a log, with the meaning of the topic ids that its records use."""

    cdef object __weakref__
    cdef readonly object path
    cdef int descriptor            # of a file that is not compressed
    cdef readonly FrameMap frames  # of a compressed file, else None
    cdef const uint8_t* data
    cdef readonly uint64_t number
    cdef readonly uint64_t size
    cdef readonly uint64_t start_position
    cdef readonly object instance_name
    cdef list topics               # by topic id: what the resolver made of the topic record, or None

    cdef int learn_topic(self, const RecordHeader* record, object resolver) except -1
    cpdef int need(self, uint64_t offset, uint64_t length) except -1
    cdef int check_readable(self, uint64_t offset, uint64_t length, uint64_t readable) except -1
    cpdef uint64_t readable_bytes(self) except? 0
    cdef const RecordHeader* record_at(self, uint64_t offset) except NULL
    cdef uint64_t ready_at(self, uint64_t offset) except? 0


cdef inline object topic_of(LogFile file, uint32_t topic_id):
    return file.topics[topic_id] if topic_id < <uint32_t>PyList_GET_SIZE(file.topics) else None


# Whether the parts of a topic record's payload add up to its length.
cdef inline bint topic_record_fits(const RecordHeader* record) noexcept nogil:
    cdef const uint8_t* payload = record_payload(record)
    return record.payload_length >= TOPIC_PREFIX_BYTES and record.payload_length == (
        <uint64_t>TOPIC_PREFIX_BYTES + (<const uint32_t*>(payload + 16))[0] + (<const uint32_t*>(payload + 20))[0]
    )


cdef tuple topic_of_record(const RecordHeader* record)
