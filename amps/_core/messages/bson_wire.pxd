# The byte format of BSON. See bson_wire.h.

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from "bson_wire.h" nogil:
    int BSON_DOUBLE, BSON_STRING, BSON_DOCUMENT, BSON_ARRAY, BSON_BINARY, BSON_UNDEFINED, BSON_OBJECT_ID, BSON_BOOLEAN
    int BSON_DATETIME, BSON_NULL, BSON_REGEX, BSON_DB_POINTER, BSON_CODE, BSON_SYMBOL, BSON_CODE_WITH_SCOPE
    int BSON_INT32, BSON_TIMESTAMP, BSON_INT64, BSON_DECIMAL128, BSON_MAX_KEY, BSON_MIN_KEY
    int BSON_BINARY_OLD, BSON_DECIMAL_TEXT_MAX

    uint32_t bson_u32(const uint8_t* at)
    uint64_t bson_u64(const uint8_t* at)
    const uint8_t* bson_name_end(const uint8_t* at, const uint8_t* end)
    const uint8_t* bson_document_end(const uint8_t* at, const uint8_t* end)
    const uint8_t* bson_value_end(uint8_t type, const uint8_t* at, const uint8_t* end)
    const uint8_t* bson_leaf(const uint8_t* at, const uint8_t* end)
    void bson_hex(const uint8_t* bytes, uint32_t count, uint8_t* out)
    uint32_t bson_decimal_text(const uint8_t* at, uint8_t* out)
