/* The byte format of BFlat: a message is a sequence of fields, each with a head, a tag and one value or an array of
 * values.
 *
 * Head: bit 7 array, bits 6 to 3 type, bits 2 to 0 length of the tag (0: it follows as an unsigned LEB128). An array's
 * count is an unsigned LEB128. Numbers are little-endian; strings and binaries begin with their length. Every length is
 * compared with the rest of the message before it is used.
 */
#ifndef AMPS_BFLAT_WIRE_H
#define AMPS_BFLAT_WIRE_H

#include <stdint.h>
#include <string.h>

enum {
    BFLAT_NULL = 0x00,
    BFLAT_STRING = 0x08,
    BFLAT_BINARY = 0x10,
    BFLAT_INT8 = 0x18,
    BFLAT_INT16 = 0x20,
    BFLAT_INT32 = 0x28,
    BFLAT_INT64 = 0x30,
    BFLAT_DOUBLE = 0x38,
    BFLAT_DATETIME = 0x40,
    BFLAT_LEB128 = 0x48,
    BFLAT_ARRAY = 0x80
};

typedef struct {
    uint8_t type;
    const uint8_t *tag;
    uint64_t tag_length;
    uint64_t count; /* of values; without the array flag 1 */
} bflat_field;

/* Read an unsigned LEB128. Return the position behind it; NULL: it has no end, or needs more than 64 bits. */
static inline const uint8_t *bflat_unsigned(const uint8_t *at, const uint8_t *end, uint64_t *number)
{
    uint64_t made = 0;
    if (at < end && at[0] < 0x80) {
        *number = at[0];
        return at + 1;
    }
    for (int shift = 0; at < end && shift < 70; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        made |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = made;
            return at;
        }
    }
    return NULL;
}

/* The same for a signed LEB128. */
static inline const uint8_t *bflat_signed(const uint8_t *at, const uint8_t *end, int64_t *number)
{
    uint64_t made = 0;
    for (int shift = 0; at < end && shift < 70; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte != 0 && byte != 0x7F)
            return NULL;
        made |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (shift < 57 && byte & 0x40)
                made |= ~(uint64_t)0 << (shift + 7);
            *number = (int64_t)made;
            return at;
        }
    }
    return NULL;
}

/* Read the head of a field. Return the position of its first value; NULL: malformed. */
static inline const uint8_t *bflat_head(const uint8_t *at, const uint8_t *end, bflat_field *field)
{
    uint8_t head = *at++;
    field->type = head & 0x78;
    field->tag_length = head & 7;
    field->count = 1;
    if (field->type > BFLAT_LEB128)
        return NULL;
    if (field->tag_length == 0) {
        at = bflat_unsigned(at, end, &field->tag_length);
        if (at == NULL || field->tag_length == 0)
            return NULL;
    }
    if (field->tag_length > (uint64_t)(end - at))
        return NULL;
    field->tag = at;
    at += field->tag_length;
    return head & BFLAT_ARRAY ? bflat_unsigned(at, end, &field->count) : at;
}

/* The length of values by type; 0: it does not follow from the type. */
static const uint8_t bflat_sizes[BFLAT_LEB128 + 1] = {
    [BFLAT_INT8] = 1,  [BFLAT_INT16] = 2,  [BFLAT_INT32] = 4,
    [BFLAT_INT64] = 8, [BFLAT_DOUBLE] = 8, [BFLAT_DATETIME] = 8,
};

/* The position behind a value; NULL: malformed. */
static inline const uint8_t *bflat_value_end(uint8_t type, const uint8_t *at, const uint8_t *end)
{
    uint64_t length = bflat_sizes[type];
    int64_t ignored;
    if (length == 0) {
        if (type == BFLAT_NULL)
            return at;
        if (type == BFLAT_LEB128)
            return bflat_signed(at, end, &ignored);
        at = bflat_unsigned(at, end, &length);
    }
    return at != NULL && length <= (uint64_t)(end - at) ? at + length : NULL;
}

/* The position behind all values of a field; NULL: malformed. Nulls take no bytes, whatever their count. */
static inline const uint8_t *bflat_values_end(const bflat_field *field, const uint8_t *at, const uint8_t *end)
{
    if (field->type == BFLAT_NULL)
        return at;
    for (uint64_t left = field->count; left && at != NULL; left--)
        at = bflat_value_end(field->type, at, end);
    return at;
}

#endif
