/* The byte format of protocol buffers: keys, varints, and skipping fields.
 *
 * A field is a key, which contains its number and a wire type, and a value whose end follows from the wire type. Every
 * length is compared with the rest of the message before it is used. Groups, which have an end marker instead of a
 * length, are skipped without recursion.
 */
#ifndef AMPS_PROTOBUF_WIRE_H
#define AMPS_PROTOBUF_WIRE_H

#include <stdint.h>
#include <string.h>

enum {
    PROTOBUF_VARINT = 0,
    PROTOBUF_FIXED64 = 1,
    PROTOBUF_BYTES = 2,
    PROTOBUF_GROUP = 3,
    PROTOBUF_GROUP_END = 4,
    PROTOBUF_FIXED32 = 5,
    PROTOBUF_GROUP_DEPTH_MAX = 100
};

/* Read a varint. Return the position behind it; NULL: it has no end, or more than 10 bytes. Bits above 64 are cut. */
static inline const uint8_t *protobuf_varint(const uint8_t *at, const uint8_t *end, uint64_t *number)
{
    if (at < end && at[0] < 0x80) {
        *number = at[0];
        return at + 1;
    }
    if (end - at >= 2 && at[1] < 0x80) {
        *number = (at[0] & 0x7Fu) | (uint64_t)at[1] << 7;
        return at + 2;
    }
    uint64_t made = 0;
    for (int shift = 0; at < end && shift < 70; shift += 7) {
        uint8_t byte = *at++;
        made |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = made;
            return at;
        }
    }
    return NULL;
}

/* Read the key of a field. Return the position behind it; NULL: malformed. */
static inline const uint8_t *protobuf_key(const uint8_t *at, const uint8_t *end, uint32_t *number, uint8_t *wire_type)
{
    uint64_t key;
    at = protobuf_varint(at, end, &key);
    if (at == NULL || key > 0xFFFFFFFFULL || key >> 3 == 0)
        return NULL;
    *number = (uint32_t)(key >> 3);
    *wire_type = key & 7;
    return at;
}

/* The end of a value that is not a group, and the beginning of its content; NULL: malformed. */
static inline const uint8_t *protobuf_plain_end(uint8_t wire_type, const uint8_t *at, const uint8_t *end,
                                                const uint8_t **content)
{
    uint64_t length;
    *content = at;
    /* The most frequent type is compared first. A jump table would be predicted worse than these comparisons. */
    if (wire_type == PROTOBUF_BYTES) {
        at = protobuf_varint(at, end, &length);
        if (at == NULL)
            return NULL;
        *content = at;
    } else if (wire_type == PROTOBUF_VARINT) {
        return protobuf_varint(at, end, &length);
    } else if (wire_type == PROTOBUF_FIXED64) {
        length = 8;
    } else if (wire_type == PROTOBUF_FIXED32) {
        length = 4;
    } else {
        return NULL;
    }
    return length <= (uint64_t)(end - at) ? at + length : NULL;
}

/* The position behind the group with this number whose fields begin at `at`; `content_end` is the end of the fields.
 * NULL: malformed, or nested too deep. Not inlined: groups are rare, and this function needs a large stack frame. */
__attribute__((noinline)) static const uint8_t *protobuf_group_end(uint32_t number, const uint8_t *at,
                                                                   const uint8_t *end,
                                                                   const uint8_t **content_end)
{
    uint32_t open[PROTOBUF_GROUP_DEPTH_MAX];
    int depth = 0;
    uint8_t wire_type;
    const uint8_t *ignored;
    open[depth++] = number;
    while (depth) {
        *content_end = at;
        at = protobuf_key(at, end, &number, &wire_type);
        if (at == NULL)
            return NULL;
        if (wire_type == PROTOBUF_GROUP) {
            if (depth == PROTOBUF_GROUP_DEPTH_MAX)
                return NULL;
            open[depth++] = number;
        } else if (wire_type == PROTOBUF_GROUP_END) {
            if (open[--depth] != number)
                return NULL;
        } else {
            at = protobuf_plain_end(wire_type, at, end, &ignored);
            if (at == NULL)
                return NULL;
        }
    }
    return at;
}

/* The position behind a value of the field with this number, and the bounds of its content; NULL: malformed. */
static inline const uint8_t *protobuf_value_end(uint32_t number, uint8_t wire_type, const uint8_t *at,
                                                const uint8_t *end, const uint8_t **content,
                                                const uint8_t **content_end)
{
    if (wire_type == PROTOBUF_GROUP) {
        *content = at;
        return protobuf_group_end(number, at, end, content_end);
    }
    at = protobuf_plain_end(wire_type, at, end, content);
    *content_end = at;
    return at;
}

static inline uint32_t protobuf_fixed32(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static inline uint64_t protobuf_fixed64(const uint8_t *at)
{
    return (uint64_t)protobuf_fixed32(at + 4) << 32 | protobuf_fixed32(at);
}

#endif
