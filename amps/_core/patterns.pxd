# Patterns of LIKE and of the REGEXP functions. See patterns.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.effort cimport Deadline


cdef class Pattern:
    """A pattern; looked for anywhere in a text unless it is anchored."""

    cdef readonly bytes text
    cdef readonly bint raw
    cdef bytes literal             # what is looked for without an engine; None = the engine is needed
    cdef const uint8_t* literal_text
    cdef uint32_t literal_length
    cdef bint anchored_start
    cdef bint anchored_end
    cdef bint ignores_case
    cdef bytes compiled            # as it is given to the engine
    cdef object engine
    cdef object interpreted        # for texts with which the compiled machine code runs out of stack
    cdef object guarded            # for long texts
    cdef Deadline deadline
    cdef readonly uint64_t given_up

    cdef bint search(self, const uint8_t* text, uint32_t length) except -1
    cdef bint search_literal(self, const uint8_t* text, uint32_t length) noexcept nogil
    cdef object search_engine(self, bytes subject, Py_ssize_t start)
    cdef object first_match(self, bytes subject)
    cdef object replaced(self, bytes subject, bytes replacement, uint64_t bytes_max)


cdef const uint8_t* find_text(
    const uint8_t* text, uint64_t length, const uint8_t* part, uint64_t part_length, bint ignores_case
) noexcept nogil
cdef bint same_text(const uint8_t* left, const uint8_t* right, uint64_t length, bint ignores_case) noexcept nogil
