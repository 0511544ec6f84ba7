/* Find the ends of tags and values of FIX and NVFIX. A block of 64 bytes is compared once and gives two masks, in which
 * tags and values are found, because most are shorter than a vector. Nothing at or beyond `end` is read. */

#ifndef AMPS_FIX_TEXT_H
#define AMPS_FIX_TEXT_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { FIX_BLOCK_BYTES = 64 };

typedef struct {
    const uint8_t *block;
    const uint8_t *end;
    uint64_t equals;     /* bit n: byte n of the block is an equals sign */
    uint64_t separators;
    uint8_t separator;
} fix_cursor;

static inline uint64_t fix_equal(const uint8_t *block, uint8_t wanted) {
    uint64_t found = 0;
#if defined(__SSE2__)
    __m128i pattern = _mm_set1_epi8((char)wanted);
    for (int part = 0; part < 4; part++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 16 * part));
        found |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, pattern)) << (16 * part);
    }
#else
    for (int byte = 0; byte < FIX_BLOCK_BYTES; byte++) found |= (uint64_t)(block[byte] == wanted) << byte;
#endif
    return found;
}

static inline void fix_load(fix_cursor *cursor, const uint8_t *block) {
    uint8_t padded[FIX_BLOCK_BYTES];
    uint64_t mask = ~(uint64_t)0;
    cursor->block = block;
    if (cursor->end - block < FIX_BLOCK_BYTES) {
        size_t left = (size_t)(cursor->end - block);
        memset(padded, 0, sizeof padded);
        if (left) memcpy(padded, block, left);
        mask = ((uint64_t)1 << left) - 1;
        block = padded;
    }
    cursor->equals = fix_equal(block, '=') & mask;
    cursor->separators = fix_equal(block, cursor->separator) & mask;
}

static inline void fix_begin(fix_cursor *cursor, const uint8_t *data, const uint8_t *end, uint8_t separator) {
    cursor->end = end;
    cursor->separator = separator;
    fix_load(cursor, data);
}

/* The first separator at or behind `at`, in a tag also the first equals sign; `end` if there is none. `at` must not be
 * in front of the position found last. */
static inline const uint8_t *fix_stop(fix_cursor *cursor, const uint8_t *at, int in_tag) {
    while (at < cursor->end) {
        uint64_t found;
        if (at - cursor->block >= FIX_BLOCK_BYTES) fix_load(cursor, cursor->block + FIX_BLOCK_BYTES);
        found = (in_tag ? cursor->separators | cursor->equals : cursor->separators) >> (at - cursor->block);
        if (found) return at + __builtin_ctzll(found);
        if (cursor->end - cursor->block <= FIX_BLOCK_BYTES) break;
        at = cursor->block + FIX_BLOCK_BYTES;
    }
    return cursor->end;
}

static inline int fix_is_tag_number(const uint8_t *at, const uint8_t *end) {
    for (; at < end; at++)
        if ((uint8_t)(*at - '0') > 9) return 0;
    return 1;
}

#endif
