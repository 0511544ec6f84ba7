# How much may be done for one message. See effort.pyx.

from libc.stdint cimport uint64_t


cdef enum:
    MESSAGE_NS = 250_000_000       # thousands of searches in a message of ordinary size
    BYTE_NS = 10                   # of the message: some ten times what a search in linear time takes
    LARGE_BYTES = 16384            # here what takes linear time can take long, too


# What counts is the thread's processor time; before the clock says so it cannot be over.
cdef struct Deadline:
    uint64_t clock_ns              # of the monotonic clock
    uint64_t work_ns               # of the thread


cdef struct Effort:
    uint64_t allowance_ns          # of the current message; 0 = there is none
    Deadline deadline              # clock_ns 0 = nobody has asked yet
    uint64_t worked_bytes          # since the clock was read
    uint64_t given_up              # searches, in all messages


cdef Effort effort                 # of the process


# What every message asks, without a call.
cdef inline void begin_message(uint64_t bytes_) noexcept nogil:
    effort.worked_bytes = 0
    effort.allowance_ns = MESSAGE_NS + bytes_ * BYTE_NS
    effort.deadline.clock_ns = 0


cdef inline void end_message() noexcept nogil:
    effort.allowance_ns = 0


# Whether the current message is so large that every step must ask.
cdef inline bint is_large() noexcept nogil:
    return effort.allowance_ns > <uint64_t>MESSAGE_NS + LARGE_BYTES * BYTE_NS


cdef inline bint is_large_and_over() noexcept nogil:
    return is_large() and is_over()


cdef inline uint64_t given_up_so_far() noexcept nogil:
    return effort.given_up


cdef Deadline deadline_after(uint64_t at_most_ns) noexcept nogil
cdef bint has_passed(Deadline* deadline) noexcept nogil
cdef bint is_over() noexcept nogil
cdef bint is_overworked(uint64_t bytes_) noexcept nogil
cdef void give_up() noexcept nogil
