/* The byte format of BSON: ends of names and values, and the text of decimal numbers.
 *
 * A document is its length, elements and a zero byte. An element is a byte for its type, a name that ends in a zero
 * byte, and a value. Containers begin with their length, so that containers that are not needed are skipped without
 * being read. Every length is compared with the rest of the message before it is used.
 */
#ifndef AMPS_BSON_WIRE_H
#define AMPS_BSON_WIRE_H

#include <stdint.h>
#include <string.h>

enum {
    BSON_DOUBLE = 0x01,
    BSON_STRING = 0x02,
    BSON_DOCUMENT = 0x03,
    BSON_ARRAY = 0x04,
    BSON_BINARY = 0x05,
    BSON_UNDEFINED = 0x06,
    BSON_OBJECT_ID = 0x07,
    BSON_BOOLEAN = 0x08,
    BSON_DATETIME = 0x09,
    BSON_NULL = 0x0A,
    BSON_REGEX = 0x0B,
    BSON_DB_POINTER = 0x0C,
    BSON_CODE = 0x0D,
    BSON_SYMBOL = 0x0E,
    BSON_CODE_WITH_SCOPE = 0x0F,
    BSON_INT32 = 0x10,
    BSON_TIMESTAMP = 0x11,
    BSON_INT64 = 0x12,
    BSON_DECIMAL128 = 0x13,
    BSON_MAX_KEY = 0x7F,
    BSON_MIN_KEY = 0xFF,
    BSON_BINARY_OLD = 0x02, /* a binary subtype that contains its length again */
    BSON_DECIMAL_TEXT_MAX = 48
};

static inline uint32_t bson_u32(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static inline uint64_t bson_u64(const uint8_t *at)
{
    return (uint64_t)bson_u32(at + 4) << 32 | bson_u32(at);
}

/* The position behind the zero byte of a name; NULL: there is no zero byte. */
static inline const uint8_t *bson_name_end(const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= 8; at += 8) {
        uint64_t word = bson_u64(at);
        /* The lowest bit that remains is the top bit of the first zero byte. */
        uint64_t zeros = (word - 0x0101010101010101ULL) & ~word & 0x8080808080808080ULL;
        if (zeros)
            return at + __builtin_ctzll(zeros) / 8 + 1;
    }
    while (at < end)
        if (*at++ == 0)
            return at;
    return NULL;
}

/* The position behind a document; NULL: malformed. */
static inline const uint8_t *bson_document_end(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 5)
        return NULL;
    uint32_t length = bson_u32(at);
    if (length < 5 || length > (uint64_t)(end - at) || at[length - 1] != 0)
        return NULL;
    return at + length;
}

/* The position behind a string, whose length includes its final zero byte; NULL: malformed. */
static inline const uint8_t *bson_string_end(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 5)
        return NULL;
    uint32_t length = bson_u32(at);
    if (length < 1 || length > (uint64_t)(end - at - 4) || at[4 + length - 1] != 0)
        return NULL;
    return at + 4 + length;
}

/* The length of values by type; 0: it does not follow from the type. */
static const uint8_t bson_sizes[256] = {
    [BSON_DOUBLE] = 8,     [BSON_OBJECT_ID] = 12, [BSON_DATETIME] = 8,    [BSON_INT32] = 4,
    [BSON_TIMESTAMP] = 8,  [BSON_INT64] = 8,      [BSON_DECIMAL128] = 16,
};

/* The position behind a value; NULL: malformed, or of unknown type. */
static inline const uint8_t *bson_value_end(uint8_t type, const uint8_t *at, const uint8_t *end)
{
    uint64_t left = (uint64_t)(end - at);
    uint64_t needed = bson_sizes[type];
    if (needed)
        return needed <= left ? at + needed : NULL;
    switch (type) {
    case BSON_UNDEFINED:
    case BSON_NULL:
    case BSON_MIN_KEY:
    case BSON_MAX_KEY:
        return at;
    case BSON_BOOLEAN:
        return left >= 1 && at[0] <= 1 ? at + 1 : NULL;
    case BSON_STRING:
    case BSON_CODE:
    case BSON_SYMBOL:
        return bson_string_end(at, end);
    case BSON_DOCUMENT:
    case BSON_ARRAY:
        return bson_document_end(at, end);
    case BSON_BINARY:
        if (left < 5)
            return NULL;
        needed = 5 + (uint64_t)bson_u32(at);
        break;
    case BSON_REGEX:
        at = bson_name_end(at, end);
        return at ? bson_name_end(at, end) : NULL;
    case BSON_DB_POINTER:
        at = bson_string_end(at, end);
        return at && end - at >= 12 ? at + 12 : NULL;
    case BSON_CODE_WITH_SCOPE:
        if (left < 14)
            return NULL;
        needed = bson_u32(at);
        if (needed < 14 || needed > left)
            return NULL;
        end = at + needed;
        at = bson_string_end(at + 4, end);
        return at && bson_document_end(at, end) == end ? end : NULL;
    default:
        return NULL;
    }
    return needed <= left ? at + needed : NULL;
}

/* The first scalar in a document whose elements begin at `at`; `end` if there is none; NULL: malformed. The heads of
 * containers are skipped and their contents are read as if they were part of the document, so no stack is needed. */
static inline const uint8_t *bson_leaf(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        const uint8_t *element = at;
        uint8_t type = *at++;
        if (type == 0)
            continue; /* the end of a document; the last one ends at `end` */
        at = bson_name_end(at, end);
        if (at == NULL)
            return NULL;
        if (type != BSON_DOCUMENT && type != BSON_ARRAY)
            return element;
        if (bson_document_end(at, end) == NULL)
            return NULL;
        at += 4;
    }
    return end;
}

static inline void bson_hex(const uint8_t *bytes, uint32_t count, uint8_t *out)
{
    static const char digits[] = "0123456789abcdef";
    for (uint32_t place = 0; place < count; place++) {
        out[2 * place] = (uint8_t)digits[bytes[place] >> 4];
        out[2 * place + 1] = (uint8_t)digits[bytes[place] & 15];
    }
}

/* Write the text of a decimal number of 128 bits, in the notation of IEEE 754; at most BSON_DECIMAL_TEXT_MAX bytes. */
static inline uint32_t bson_decimal_text(const uint8_t *at, uint8_t *out)
{
    uint64_t low = bson_u64(at), high = bson_u64(at + 8);
    uint8_t *to = out;
    uint8_t digits[40];
    int count = 0;
    int32_t exponent;

    if ((high >> 58 & 0x1F) == 0x1F) {
        memcpy(out, "NaN", 3);
        return 3;
    }
    if (high >> 63)
        *to++ = '-';
    if ((high >> 58 & 0x1F) == 0x1E) {
        memcpy(to, "Infinity", 8);
        return (uint32_t)(to + 8 - out);
    }
    if ((high >> 61 & 3) == 3) {
        /* The coefficient is above the maximum, which means zero. */
        exponent = (int32_t)(high >> 47 & 0x3FFF);
        low = high = 0;
    } else {
        exponent = (int32_t)(high >> 49 & 0x3FFF);
        high &= 0x1FFFFFFFFFFFFULL;
    }
    exponent -= 6176;
    unsigned __int128 coefficient = (unsigned __int128)high << 64 | low;
    do {
        digits[count++] = (uint8_t)('0' + (int)(coefficient % 10));
        coefficient /= 10;
    } while (coefficient);
    if (count > 34) {
        count = 1;
        digits[0] = '0';
    }

    int32_t scientific = exponent + count - 1;
    int place = count;
    if (exponent <= 0 && scientific >= -6) {
        int32_t whole = count + exponent; /* digits before the point */
        if (whole <= 0) {
            *to++ = '0';
            *to++ = '.';
            for (; whole < 0; whole++)
                *to++ = '0';
            while (place)
                *to++ = digits[--place];
        } else {
            while (place) {
                *to++ = digits[--place];
                if (--whole == 0 && place)
                    *to++ = '.';
            }
        }
        return (uint32_t)(to - out);
    }
    *to++ = digits[--place];
    if (place)
        *to++ = '.';
    while (place)
        *to++ = digits[--place];
    *to++ = 'E';
    *to++ = scientific < 0 ? '-' : '+';
    uint32_t magnitude = (uint32_t)(scientific < 0 ? -scientific : scientific);
    uint8_t reversed[8];
    int written = 0;
    do {
        reversed[written++] = (uint8_t)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude);
    while (written)
        *to++ = reversed[--written];
    return (uint32_t)(to - out);
}

#endif
