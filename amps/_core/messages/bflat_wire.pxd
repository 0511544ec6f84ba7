# The byte format of BFlat. See bflat_wire.h.

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef extern from "bflat_wire.h" nogil:
    int BFLAT_NULL, BFLAT_STRING, BFLAT_BINARY, BFLAT_INT8, BFLAT_INT16, BFLAT_INT32, BFLAT_INT64, BFLAT_DOUBLE
    int BFLAT_DATETIME, BFLAT_LEB128, BFLAT_ARRAY

    ctypedef struct bflat_field:
        uint8_t type
        const uint8_t* tag
        uint64_t tag_length
        uint64_t count

    const uint8_t* bflat_unsigned(const uint8_t* at, const uint8_t* end, uint64_t* number)
    const uint8_t* bflat_signed(const uint8_t* at, const uint8_t* end, int64_t* number)
    const uint8_t* bflat_head(const uint8_t* at, const uint8_t* end, bflat_field* field)
    const uint8_t* bflat_value_end(uint8_t type, const uint8_t* at, const uint8_t* end)
    const uint8_t* bflat_values_end(const bflat_field* field, const uint8_t* at, const uint8_t* end)
