# The byte format of MessagePack. See msgpack_wire.h.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "msgpack_wire.h" nogil:
    int MSGPACK_NIL, MSGPACK_BOOLEAN, MSGPACK_INTEGER, MSGPACK_UNSIGNED, MSGPACK_DOUBLE, MSGPACK_TEXT
    int MSGPACK_EXTENSION, MSGPACK_ARRAY, MSGPACK_MAP

    ctypedef struct msgpack_item:
        int kind
        uint32_t length
        const uint8_t* text
        int64_t integer
        double number

    enum:
        MSGPACK_LEAF_DEPTH_MAX

    ctypedef struct msgpack_leaf:
        const uint8_t* place

    const uint8_t* msgpack_read(const uint8_t* at, const uint8_t* end, msgpack_item* item)
    const uint8_t* msgpack_name(const uint8_t* at, const uint8_t* end, msgpack_item* key, uint8_t* digits)
    const uint8_t* msgpack_skip(const uint8_t* at, const uint8_t* end, uint64_t items)
    const uint8_t* msgpack_find_leaf(
        const uint8_t* at, const uint8_t* end, uint32_t count, bint in_map, int depth, msgpack_leaf* leaf
    )
    bint msgpack_is_around(const msgpack_leaf* leaf, const uint8_t* at)
