# See topic_steps.pyx.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.log_file cimport LogFile
from amps._core.topic_index cimport TopicIndexReader

cdef enum:
    STEPS_BATCH = 1024


cdef struct Row:
    uint32_t place                 # of the topic's next entry: file offset in units of 8 bytes
    uint64_t at                    # of that entry: index into the places of the topic index
    uint64_t end                   # of the topic's entries there


@cython.final
cdef class TopicSteps:
    """The entries of some topics of one full journal, in the order of the file, found without reading it."""

    cdef readonly TopicIndexReader index
    cdef readonly uint64_t limit_offset    # file offset up to which entries may be stepped over
    # choosing
    cdef readonly uint64_t next_topic      # the first topic id that was not looked at
    cdef uint64_t generation               # of the group for which was chosen
    cdef readonly bint prepared
    cdef readonly uint64_t wanted_count    # entries of the chosen topics from the place on at which was chosen
    cdef readonly uint64_t left_count      # entries of all topics from there on
    # merging: a heap, the row with the lowest place first
    cdef Row* rows
    cdef uint64_t row_count
    cdef uint64_t capacity
    # what comes next
    cdef uint64_t batch[STEPS_BATCH]       # file offsets
    cdef uint32_t batch_at
    cdef uint32_t batch_count
    cdef uint32_t batch_max
    cdef uint32_t looks                    # how often was asked what of the batch is not in memory
    cdef uint32_t batch_there              # entries before that one are in memory; all, where nobody looks

    cdef void begin_choice(self, uint64_t generation) noexcept
    cdef object learn_topic(self, LogFile file, object resolver)
    cdef uint64_t left_of_topic(self, uint64_t offset) noexcept nogil
    cdef int choose_topic(self, uint64_t offset) except -1
    cdef void end_choice(self) noexcept
    cdef uint64_t entry_bytes(self) noexcept nogil
    cdef bint fill(self, uint64_t offset) noexcept nogil
    cdef bint next_from(self, uint64_t offset, uint64_t* found) noexcept nogil
