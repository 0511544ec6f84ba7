# See log_reader.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.record cimport RecordHeader


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
    cdef object topic(self, uint32_t topic_id)


cdef class LogCursor:
    """A place in a log, moving forward record by record."""

    cdef object directory          # LogDirectory
    cdef readonly LogFile file
    cdef readonly uint64_t position
    cdef readonly bint verify      # check every record's checksum

    cdef const RecordHeader* next(self, uint64_t limit) except? NULL
    cdef void skip(self, const RecordHeader* record) noexcept nogil
