# See placement.pyx.

from libc.stdint cimport uint64_t

from amps._core.shared cimport ControlPage


cdef class Placement:
    cdef ControlPage control
    cdef int transports
    cdef uint64_t next_move_ns
    cdef readonly uint64_t moves
