# Writing messages with known fields. See message_builder.pyx.

from libc.stdint cimport uint8_t, uint64_t

from amps._core.value cimport Arena, Value


cdef class ByteBuffer:
    """Bytes that grow; the memory is used again for the next message."""

    cdef uint8_t* data
    cdef uint64_t length
    cdef uint64_t capacity

    cdef uint8_t* reserve(self, uint64_t length) except NULL
    cdef int append(self, const void* added, uint64_t length) except -1
    cdef int append_byte(self, uint8_t added) except -1


cdef class MessageBuilder:
    """Writes messages of one type whose fields are known beforehand, into `output`."""

    cdef readonly tuple paths
    cdef ByteBuffer output
    cdef Arena arena

    cdef int write(self, Value** values, Arena arena) except -1
    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1
