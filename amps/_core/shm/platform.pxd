# See platform.h.

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t


cdef extern from "platform.h" nogil:
    uint64_t load_acquire(const uint64_t* address)
    void store_release(uint64_t* address, uint64_t value)
    uint64_t load_relaxed(const uint64_t* address)
    void store_relaxed(uint64_t* address, uint64_t value)
    void full_fence()
    void acquire_fence()
    void release_fence()
    void spin_pause()
    uint64_t monotonic_ns()
    uint64_t thread_time_ns()
    void debug_assert(bint condition)
    uint32_t crc32c(const void* data, size_t length)
    uint32_t crc32c_more(uint32_t sum, const void* data, size_t length)


cdef inline uint64_t align8(uint64_t value) noexcept nogil:
    return (value + 7) & ~(<uint64_t>7)
