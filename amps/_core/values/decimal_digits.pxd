# Writing numbers in decimal digits. See decimal_digits.h.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "decimal_digits.h" nogil:
    const int DECIMAL_DIGITS_MAX
    uint32_t decimal_digits_write(uint8_t* at, uint64_t value)
