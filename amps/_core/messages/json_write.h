/* The parts of writing JSON that reading (json_text.h) does not need. */

#ifndef AMPS_JSON_WRITE_H
#define AMPS_JSON_WRITE_H

#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The first byte that must be escaped in a string: quote, backslash, control character; `end` if there is none. */
static inline const uint8_t *json_plain_end(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                     _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes));
        uint32_t mask = (uint32_t)_mm_movemask_epi8(found);
        if (mask) return at + __builtin_ctz(mask);
    }
#endif
    while (at < end && *at != '"' && *at != '\\' && *at >= 0x20) at++;
    return at;
}

/* Write the escape of such a byte, at most six bytes. Return the number of bytes. */
static inline uint32_t json_escape(uint8_t byte, uint8_t *out) {
    static const char digits[] = "0123456789abcdef";
    out[0] = '\\';
    switch (byte) {
    case '"': case '\\': out[1] = byte; return 2;
    case '\b': out[1] = 'b'; return 2;
    case '\f': out[1] = 'f'; return 2;
    case '\n': out[1] = 'n'; return 2;
    case '\r': out[1] = 'r'; return 2;
    case '\t': out[1] = 't'; return 2;
    default: break;
    }
    out[1] = 'u';
    out[2] = out[3] = '0';
    out[4] = (uint8_t)digits[byte >> 4];
    out[5] = (uint8_t)digits[byte & 15];
    return 6;
}

#endif
