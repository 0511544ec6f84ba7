# Sums of numbers without any rounding. See exact_sum.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.value cimport Value


# An integer of any size in two's complement, times a power of two that whoever keeps it knows.
cdef struct ExactSum:
    uint64_t* limbs                # 64 bits each, the lowest first; the last one is the sign alone
    uint32_t first                 # place of limbs[0]; everything below it is 0
    uint32_t count                 # 0 = the sum is 0
    uint32_t capacity


# A number as a sum takes it: magnitude * 2 ** (bit - bit of the unit).
cdef struct Term:
    bint negative
    bint real                      # it makes the sum a double: a double, or text
    uint64_t magnitude
    uint32_t bit


# What the sum, the mean and the deviations of some numbers take.
cdef struct Tally:
    uint64_t numbers               # finite ones
    uint64_t reals                 # these of them make the sum a double
    ExactSum total
    ExactSum squares


cdef bint term_of(const Value* value, Term* term) noexcept nogil
cdef int tally_reserve(Tally* tally, const Term* term, bint squares) except -1
cdef void tally_change(Tally* tally, const Term* term, bint removed, bint squares) noexcept nogil
cdef void tally_free(Tally* tally) noexcept nogil
cdef int tally_sum(Tally* tally, Value* result) except -1
cdef int tally_mean(Tally* tally, Value* result) except -1
cdef int tally_deviation(Tally* tally, uint64_t fewer, Value* result) except -1
