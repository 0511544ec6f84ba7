# The byte format of protocol buffers. See protobuf_wire.h.

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from "protobuf_wire.h" nogil:
    int PROTOBUF_VARINT, PROTOBUF_FIXED64, PROTOBUF_BYTES, PROTOBUF_GROUP, PROTOBUF_GROUP_END, PROTOBUF_FIXED32

    const uint8_t* protobuf_varint(const uint8_t* at, const uint8_t* end, uint64_t* number)
    const uint8_t* protobuf_key(const uint8_t* at, const uint8_t* end, uint32_t* number, uint8_t* wire_type)
    const uint8_t* protobuf_value_end(
        uint32_t number,
        uint8_t wire_type,
        const uint8_t* at,
        const uint8_t* end,
        const uint8_t** content,
        const uint8_t** content_end,
    )
    uint32_t protobuf_fixed32(const uint8_t* at)
    uint64_t protobuf_fixed64(const uint8_t* at)
