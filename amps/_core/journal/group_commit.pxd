# See journal/page_release.pxi.

from libc.stdint cimport uint64_t

from amps._core.shm.memory cimport ControlPage


cdef enum:
    FILES_MAX = 64


cdef struct JournalInMemory:
    uint64_t start_position
    int descriptor


cdef class PageRelease:
    cdef ControlPage control
    cdef int transports
    cdef JournalInMemory[FILES_MAX] journals   # a ring, oldest first
    # The core's thread writes, the flusher reads.
    cdef uint64_t used                 # journals ever added
    cdef uint64_t needed_from          # log position from which queues need messages
    cdef uint64_t asked_at             # end of the log at the last call of `keep_from`
    cdef uint64_t asked_ns             # time of that call
    # The flusher writes.
    cdef uint64_t finished             # journals of which no pages are left to release
    cdef uint64_t given_back           # log position up to which pages were released

    cdef void advance(self, uint64_t durable) noexcept nogil
    cdef bint is_too_much(self, uint64_t used) noexcept nogil
    cdef void finish_journal(self) noexcept nogil
    cdef uint64_t bound(self, uint64_t durable) noexcept nogil
