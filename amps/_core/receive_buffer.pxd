# See receive_buffer.pyx.

from libc.stdint cimport uint8_t, uint64_t


cdef class ReceiveBuffer:
    cdef uint64_t frame_bytes_max
    # bytes received and not parsed: data[at:end], in scratch or in `kept`
    cdef uint8_t* data
    cdef uint64_t at
    cdef uint64_t end
    cdef uint8_t* kept
    cdef uint64_t kept_capacity
    cdef readonly uint64_t bytes_received
