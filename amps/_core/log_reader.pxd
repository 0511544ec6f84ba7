# See log_reader.pyx.

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.record cimport KIND_TOPIC, RecordHeader, align8


cdef class LogFile:
    """One mapped file of a log, with the meaning of the topic ids that its records use."""

    cdef object __weakref__
    cdef readonly object path
    cdef object memory
    cdef const uint8_t* data
    cdef readonly uint64_t number
    cdef readonly uint64_t size
    cdef readonly uint64_t start_position
    cdef list topics               # by topic id: what the resolver made of the topic record, or None

    cdef int learn_topic(self, const RecordHeader* record, object resolver) except -1


cdef inline object topic_of(LogFile file, uint32_t topic_id):
    return file.topics[topic_id] if topic_id < <uint32_t>PyList_GET_SIZE(file.topics) else None


@cython.final
cdef class LogCursor:
    """A place in a log, moving forward record by record."""

    cdef object directory          # LogDirectory
    cdef readonly LogFile file
    cdef readonly uint64_t position
    cdef readonly bint verify      # check every record's checksum

    cdef const RecordHeader* next(self, uint64_t limit) except? NULL


# The record at a cursor, or NULL at the limit. Most of them are found without a call.
cdef inline const RecordHeader* next_record(LogCursor cursor, uint64_t limit) except? NULL:
    cdef const RecordHeader* record
    cdef LogFile file = cursor.file
    cdef uint64_t offset = cursor.position - file.start_position
    if cursor.position < limit and offset < file.size and not cursor.verify:
        record = <const RecordHeader*>(file.data + offset)
        if (
            record.kind < KIND_TOPIC
            and record.position == cursor.position
            and record.length <= file.size - offset
        ):
            return record
    return cursor.next(limit)


# Move past the record that was found.
cdef inline void skip_record(LogCursor cursor, const RecordHeader* record) noexcept:
    cursor.position += align8(record.length)
