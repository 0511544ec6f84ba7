# The wire format of composite messages, and their fields. See messages/composite_scan.pxi.

from libc.stdint cimport uint32_t, uint64_t, uint8_t


cdef enum:
    PART_PREFIX_BYTES = 4


cdef struct Part:
    const uint8_t* data
    uint64_t length


# Read the part at `at[0]`, and advance `at[0]` behind it. False: there is no part, or it is truncated.
cdef inline bint next_part(const uint8_t** at, const uint8_t* end, Part* part) noexcept nogil:
    cdef const uint8_t* prefix = at[0]
    if end - prefix < PART_PREFIX_BYTES:
        return False
    part.length = <uint32_t>prefix[0] << 24 | <uint32_t>prefix[1] << 16 | <uint32_t>prefix[2] << 8 | prefix[3]
    part.data = prefix + PART_PREFIX_BYTES
    if part.length > <uint64_t>(end - part.data):
        return False
    at[0] = part.data + part.length
    return True
