/* The byte format of MessagePack: read one item at a time, or skip any number of items.
 *
 * An item is a scalar, or the head of an array or a map, which is followed by its items. Every length is compared with
 * the rest of the message before it is used. Only `msgpack_find_leaf` is recursive, with a bounded depth.
 */
#ifndef AMPS_MSGPACK_WIRE_H
#define AMPS_MSGPACK_WIRE_H

#include <stdint.h>
#include <string.h>

enum {
    MSGPACK_NIL = 0,
    MSGPACK_BOOLEAN = 1,
    MSGPACK_INTEGER = 2,
    MSGPACK_UNSIGNED = 3,  /* above the largest signed integer */
    MSGPACK_DOUBLE = 4,
    MSGPACK_TEXT = 5,      /* str and bin */
    MSGPACK_EXTENSION = 6, /* text without the byte of the type */
    MSGPACK_ARRAY = 7,
    MSGPACK_MAP = 8
};

typedef struct {
    int kind;
    uint32_t length; /* of text in bytes, of arrays in items, of maps in pairs */
    const uint8_t *text;
    int64_t integer; /* of an unsigned integer its bits */
    double number;
} msgpack_item;

enum { MSGPACK_LEAF_DEPTH_MAX = 1000 };

/* The first scalar among several items. */
typedef struct {
    const uint8_t *place; /* the position behind it; NULL = there is none */
    int innermost;        /* index in `around` of the innermost container */
    const uint8_t *around[MSGPACK_LEAF_DEPTH_MAX + 1]; /* first items of the containers around it, the outermost last */
} msgpack_leaf;

static inline uint16_t msgpack_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t msgpack_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t msgpack_u64(const uint8_t *at)
{
    return (uint64_t)msgpack_u32(at) << 32 | msgpack_u32(at + 4);
}

static inline const uint8_t *msgpack_text(const uint8_t *at, const uint8_t *end, uint32_t length, int kind,
                                          msgpack_item *item)
{
    if ((uint64_t)(end - at) < length)
        return NULL;
    item->kind = kind;
    item->text = at;
    item->length = length;
    return at + length;
}

static inline const uint8_t *msgpack_integer(const uint8_t *at, int64_t integer, msgpack_item *item)
{
    item->kind = MSGPACK_INTEGER;
    item->integer = integer;
    return at;
}

static inline const uint8_t *msgpack_head(const uint8_t *at, uint32_t length, int kind, msgpack_item *item)
{
    item->kind = kind;
    item->length = length;
    return at;
}

/* Read the item at `at`. Return the position behind it (of an array or map, behind its head); NULL: malformed. */
static inline const uint8_t *msgpack_read(const uint8_t *at, const uint8_t *end, msgpack_item *item)
{
    if (at >= end)
        return NULL;
    uint8_t head = *at++;
    uint64_t left = (uint64_t)(end - at);
    if (head < 0x80)
        return msgpack_integer(at, head, item);
    if (head >= 0xE0)
        return msgpack_integer(at, (int8_t)head, item);
    if (head >= 0xA0 && head < 0xC0)
        return msgpack_text(at, end, head & 0x1F, MSGPACK_TEXT, item);
    if (head < 0x90)
        return msgpack_head(at, head & 0x0F, MSGPACK_MAP, item);
    if (head < 0xA0)
        return msgpack_head(at, head & 0x0F, MSGPACK_ARRAY, item);
    switch (head) {
    case 0xC0:
        item->kind = MSGPACK_NIL;
        return at;
    case 0xC2:
    case 0xC3:
        item->kind = MSGPACK_BOOLEAN;
        item->integer = head & 1;
        return at;
    case 0xC4: /* bin 8 */
    case 0xD9: /* str 8 */
        return left < 1 ? NULL : msgpack_text(at + 1, end, at[0], MSGPACK_TEXT, item);
    case 0xC5:
    case 0xDA:
        return left < 2 ? NULL : msgpack_text(at + 2, end, msgpack_u16(at), MSGPACK_TEXT, item);
    case 0xC6:
    case 0xDB:
        return left < 4 ? NULL : msgpack_text(at + 4, end, msgpack_u32(at), MSGPACK_TEXT, item);
    case 0xC7: /* ext 8, 16, 32: length, type, data */
        return left < 2 ? NULL : msgpack_text(at + 2, end, at[0], MSGPACK_EXTENSION, item);
    case 0xC8:
        return left < 3 ? NULL : msgpack_text(at + 3, end, msgpack_u16(at), MSGPACK_EXTENSION, item);
    case 0xC9:
        return left < 5 ? NULL : msgpack_text(at + 5, end, msgpack_u32(at), MSGPACK_EXTENSION, item);
    case 0xD4: /* fixext 1, 2, 4, 8, 16: type, data */
    case 0xD5:
    case 0xD6:
    case 0xD7:
    case 0xD8:
        return left < 1 ? NULL : msgpack_text(at + 1, end, 1u << (head - 0xD4), MSGPACK_EXTENSION, item);
    case 0xCA: {
        if (left < 4)
            return NULL;
        uint32_t bits = msgpack_u32(at);
        float number;
        memcpy(&number, &bits, 4);
        item->kind = MSGPACK_DOUBLE;
        item->number = number;
        return at + 4;
    }
    case 0xCB: {
        if (left < 8)
            return NULL;
        uint64_t bits = msgpack_u64(at);
        memcpy(&item->number, &bits, 8);
        item->kind = MSGPACK_DOUBLE;
        return at + 8;
    }
    case 0xCC:
        return left < 1 ? NULL : msgpack_integer(at + 1, at[0], item);
    case 0xCD:
        return left < 2 ? NULL : msgpack_integer(at + 2, msgpack_u16(at), item);
    case 0xCE:
        return left < 4 ? NULL : msgpack_integer(at + 4, msgpack_u32(at), item);
    case 0xCF: {
        if (left < 8)
            return NULL;
        uint64_t integer = msgpack_u64(at);
        item->kind = integer > INT64_MAX ? MSGPACK_UNSIGNED : MSGPACK_INTEGER;
        item->integer = (int64_t)integer;
        return at + 8;
    }
    case 0xD0:
        return left < 1 ? NULL : msgpack_integer(at + 1, (int8_t)at[0], item);
    case 0xD1:
        return left < 2 ? NULL : msgpack_integer(at + 2, (int16_t)msgpack_u16(at), item);
    case 0xD2:
        return left < 4 ? NULL : msgpack_integer(at + 4, (int32_t)msgpack_u32(at), item);
    case 0xD3:
        return left < 8 ? NULL : msgpack_integer(at + 8, (int64_t)msgpack_u64(at), item);
    case 0xDC:
        return left < 2 ? NULL : msgpack_head(at + 2, msgpack_u16(at), MSGPACK_ARRAY, item);
    case 0xDD:
        return left < 4 ? NULL : msgpack_head(at + 4, msgpack_u32(at), MSGPACK_ARRAY, item);
    case 0xDE:
        return left < 2 ? NULL : msgpack_head(at + 2, msgpack_u16(at), MSGPACK_MAP, item);
    case 0xDF:
        return left < 4 ? NULL : msgpack_head(at + 4, msgpack_u32(at), MSGPACK_MAP, item);
    default: /* 0xC1 is never used */
        return NULL;
    }
}

/* The length of an item by its first byte; 0: it does not follow from that byte. */
static const uint8_t msgpack_sizes[256] = {
    [0x00 ... 0x7F] = 1, /* small integers, also below */
    [0xE0 ... 0xFF] = 1,
    [0x80] = 1, /* an empty map and an empty array */
    [0x90] = 1,
    [0xA0] = 1, /* short texts */
    2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
    [0xC0] = 1, /* nil, false, true */
    [0xC2] = 1,
    [0xC3] = 1,
    [0xCA] = 5, /* floats, unsigned and signed integers */
    [0xCB] = 9,
    [0xCC] = 2,
    [0xCD] = 3,
    [0xCE] = 5,
    [0xCF] = 9,
    [0xD0] = 2,
    [0xD1] = 3,
    [0xD2] = 5,
    [0xD3] = 9,
    [0xD4] = 3, /* extensions */
    [0xD5] = 4,
    [0xD6] = 6,
    [0xD7] = 10,
    [0xD8] = 18,
};

/* The position behind a number of items with their contents, at any depth. NULL: malformed. */
static inline const uint8_t *msgpack_skip(const uint8_t *at, const uint8_t *end, uint64_t items)
{
    while (items) {
        /* Each item takes at least one byte. This check also prevents an overflow of the count. */
        if (items > (uint64_t)(end - at))
            return NULL;
        items -= 1;
        uint8_t size = msgpack_sizes[at[0]];
        if (size) {
            if (size > (uint64_t)(end - at))
                return NULL;
            at += size;
            continue;
        }
        msgpack_item item;
        at = msgpack_read(at, end, &item);
        if (at == NULL)
            return NULL;
        if (item.kind == MSGPACK_ARRAY)
            items += item.length;
        else if (item.kind == MSGPACK_MAP)
            items += 2 * (uint64_t)item.length;
    }
    return at;
}

/* Read the key of a pair. Its text and length are the name. If `text` is NULL, the key has no name in paths.
 * `digits`: 24 bytes, in which the name of an integer key is written. */
static inline const uint8_t *msgpack_name(const uint8_t *at, const uint8_t *end, msgpack_item *key, uint8_t *digits)
{
    if (at < end && (at[0] & 0xE0) == 0xA0) { /* true for nearly every key */
        key->kind = MSGPACK_TEXT;
        key->text = at + 1;
        key->length = at[0] & 0x1F;
        return key->length < (uint64_t)(end - at) ? at + 1 + key->length : NULL;
    }
    const uint8_t *begin = at;
    at = msgpack_read(at, end, key);
    if (at == NULL || key->kind == MSGPACK_TEXT)
        return at;
    key->text = NULL;
    if (key->kind == MSGPACK_ARRAY || key->kind == MSGPACK_MAP)
        return msgpack_skip(begin, end, 1);
    if (key->kind == MSGPACK_INTEGER || key->kind == MSGPACK_UNSIGNED) {
        int negative = key->kind == MSGPACK_INTEGER && key->integer < 0;
        uint64_t magnitude = negative ? 0 - (uint64_t)key->integer : (uint64_t)key->integer;
        int place = 24;
        do {
            digits[--place] = (uint8_t)('0' + magnitude % 10);
            magnitude /= 10;
        } while (magnitude);
        if (negative)
            digits[--place] = '-';
        key->text = digits + place;
        key->length = (uint32_t)(24 - place);
    }
    return at;
}

/* Find the first scalar among `count` items, or pairs of a map. Return the position behind the items if there is none.
 * NULL without a place of the leaf: malformed, or deeper than `depth`. */
static const uint8_t *msgpack_find_leaf(const uint8_t *at, const uint8_t *end, uint32_t count, int in_map, int depth,
                                        msgpack_leaf *leaf)
{
    const uint8_t *begin = at;
    leaf->place = NULL;
    while (count--) {
        msgpack_item item;
        if (in_map)
            at = msgpack_skip(at, end, 1);
        if (at == NULL || depth == 0)
            return NULL;
        at = msgpack_read(at, end, &item);
        if (at == NULL)
            return NULL;
        if (item.kind != MSGPACK_ARRAY && item.kind != MSGPACK_MAP) {
            leaf->place = at;
            leaf->innermost = depth;
            leaf->around[depth] = begin;
            return NULL;
        }
        at = msgpack_find_leaf(at, end, item.length, item.kind == MSGPACK_MAP, depth - 1, leaf);
        if (at == NULL) {
            leaf->around[depth] = begin;
            return NULL;
        }
    }
    return at;
}

/* Whether the leaf is in the container whose first item is at `at`. */
static inline int msgpack_is_around(const msgpack_leaf *leaf, const uint8_t *at)
{
    int low = leaf->innermost, high = MSGPACK_LEAF_DEPTH_MAX;
    while (low < high) {
        int middle = (low + high) / 2;
        if (leaf->around[middle] > at)
            low = middle + 1;
        else
            high = middle;
    }
    return leaf->around[low] == at;
}

#endif
