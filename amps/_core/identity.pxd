# See identity.pyx.

from libc.stdint cimport uint8_t, uint64_t


cdef uint64_t hash_bytes(const uint8_t* data, Py_ssize_t length, uint64_t start) noexcept nogil
