# How much may be done for one message. See effort.pyx.

from libc.stdint cimport uint64_t


cdef void begin_message(uint64_t bytes_) noexcept nogil
cdef void end_message() noexcept nogil
cdef uint64_t deadline_ns(uint64_t at_most_ns) noexcept nogil
cdef bint is_over() noexcept nogil
cdef bint is_large() noexcept nogil
cdef bint is_large_and_over() noexcept nogil
cdef bint is_overworked(uint64_t bytes_) noexcept nogil
cdef void give_up() noexcept nogil
cdef uint64_t given_up_so_far() noexcept nogil
