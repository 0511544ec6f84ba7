/* Skipping parts of JSON text, 16 bytes at a time where the processor supports it. No function reads at or beyond
 * `end`. */

#ifndef AMPS_JSON_TEXT_H
#define AMPS_JSON_TEXT_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#define JSON_VECTOR_BYTES 16
static inline uint32_t json_equal(__m128i bytes, char wanted) {
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted)));
}
#endif

/* The first quote or backslash; `end` if there is none. */
static inline const uint8_t *json_string_stop(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    if (end - at >= JSON_VECTOR_BYTES) {
        for (;;) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            uint32_t found = (uint32_t)_mm_movemask_epi8(_mm_or_si128(
                _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))
            ));
            if (found) return at + __builtin_ctz(found);
            at += JSON_VECTOR_BYTES;
            if (at == end) return end;
            if (end - at < JSON_VECTOR_BYTES) at = end - JSON_VECTOR_BYTES; /* bytes compared twice contain neither */
        }
    }
#endif
    while (at < end && *at != '"' && *at != '\\') at++;
    return at;
}

/* The last quote in front of `at`; NULL if there is none from `begin` on. */
static inline const uint8_t *json_quote_before(const uint8_t *at, const uint8_t *begin) {
#if defined(__SSE2__)
    for (; at - begin >= JSON_VECTOR_BYTES; at -= JSON_VECTOR_BYTES) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at - JSON_VECTOR_BYTES));
        uint32_t found = json_equal(bytes, '"');
        if (found) return at - JSON_VECTOR_BYTES + 31 - __builtin_clz(found);
    }
#endif
    while (at > begin)
        if (*--at == '"') return at;
    return 0;
}

/* The first quote, brace or bracket; `end` if there is none. Braces are brackets with bit 5 set. */
static inline const uint8_t *json_structure(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    for (; end - at >= JSON_VECTOR_BYTES; at += JSON_VECTOR_BYTES) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
        uint32_t found = json_equal(bytes, '"') | json_equal(folded, '{') | json_equal(folded, '}');
        if (found) return at + __builtin_ctz(found);
    }
#endif
    while (at < end && *at != '"' && (*at | 0x20) != '{' && (*at | 0x20) != '}') at++;
    return at;
}

static inline int json_is_space(uint8_t byte) {
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* The last byte in front of a position that is not a blank. There must be one. */
static inline uint8_t json_byte_before(const uint8_t *at) {
    do at--;
    while (json_is_space(*at));
    return *at;
}

static inline const uint8_t *json_skip_space(const uint8_t *at, const uint8_t *end) {
    while (at < end && *at <= ' ' && json_is_space(*at)) at++;
    return at;
}

/* The end of a number or literal: a comma, a closing brace or bracket, or a blank. */
static inline const uint8_t *json_scalar_end(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    for (; end - at >= JSON_VECTOR_BYTES; at += JSON_VECTOR_BYTES) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
        /* Blanks and control characters are up to 0x20. */
        __m128i blank = _mm_cmpeq_epi8(_mm_max_epu8(bytes, _mm_set1_epi8(0x20)), _mm_set1_epi8(0x20));
        __m128i stop = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(',')), _mm_cmpeq_epi8(folded, _mm_set1_epi8('}')));
        uint32_t found = (uint32_t)_mm_movemask_epi8(_mm_or_si128(stop, blank));
        if (found) {
            at += __builtin_ctz(found);
            if (*at > ' ' || json_is_space(*at)) return at;
            break; /* other control characters belong to the scalar, and make it malformed */
        }
    }
#endif
    while (at < end && *at != ',' && (*at | 0x20) != '}' && !json_is_space(*at)) at++;
    return at;
}

/* The position behind the closing quote of a string whose first byte is at `at`; NULL: it has no end. */
static inline const uint8_t *json_skip_string(const uint8_t *at, const uint8_t *end) {
    for (;;) {
        at = json_string_stop(at, end);
        if (at == end) return 0;
        if (*at == '"') return at + 1;
        if (end - at < 2) return 0;
        at += 2;
    }
}

/* The position behind an object or array whose content begins at `at`, at any depth; NULL: it has no end. The kinds of
 * brackets are not compared. */
static inline const uint8_t *json_skip_container(const uint8_t *at, const uint8_t *end) {
    uint64_t depth = 1;
    while (depth) {
        at = json_structure(at, end);
        if (at == end) return 0;
        if (*at == '"') {
            at = json_skip_string(at + 1, end);
            if (!at) return 0;
            continue;
        }
        if ((*at | 0x20) == '{') depth++;
        else depth--;
        at++;
    }
    return at;
}

static inline int json_is_digit(uint8_t byte) {
    return byte >= '0' && byte <= '9';
}

/* The first bytes of strings and scalars. */
static const uint8_t JSON_SHORT_VALUE[256] = {
    ['"'] = 1, ['-'] = 1, ['t'] = 1, ['f'] = 1, ['n'] = 1, ['0'] = 1, ['1'] = 1, ['2'] = 1,
    ['3'] = 1, ['4'] = 1, ['5'] = 1, ['6'] = 1, ['7'] = 1, ['8'] = 1, ['9'] = 1,
};

/* The position behind a value that is not needed; NULL: it has no end, or does not begin like a value. */
static inline const uint8_t *json_skip_value(const uint8_t *at, const uint8_t *end) {
    if (*at == '"') return json_skip_string(at + 1, end);
    if (*at == '{' || *at == '[') return json_skip_container(at + 1, end);
    if (!JSON_SHORT_VALUE[*at]) return 0;
    return json_scalar_end(at, end);
}

/* The first string or scalar that is not a name, in an object or behind it; `end` if there is none. */
static inline const uint8_t *json_first_leaf(const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (*at == '"') {
            const uint8_t *string = at;
            at = json_skip_string(at + 1, end);
            if (!at) return end;
            at = json_skip_space(at, end);
            if (at == end || *at != ':') return string;
        } else if ((*at | 0x20) != '{' && (*at | 0x20) != '}' && *at != ',' && !json_is_space(*at)) return at;
        at++;
    }
    return end;
}

/* Whether there is such a leaf in an object or array whose content begins at `at`. */
static inline int json_has_leaf(const uint8_t *at, const uint8_t *end) {
    const uint8_t *behind = json_skip_container(at, end);
    return json_first_leaf(at, behind ? behind : end) < (behind ? behind : end);
}

/* The position behind the longest number of RFC 8259 that begins at `at`; NULL: none begins there. */
static inline const uint8_t *json_number_stop(const uint8_t *at, const uint8_t *end) {
#if defined(__SSE2__)
    /* Most numbers end within these bytes and have no exponent: their end is found without branches on the kind. */
    if (end - at > JSON_VECTOR_BYTES) {
        __m128i bytes = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)at), _mm_set1_epi8('0'));
        uint32_t digits = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(9)), bytes));
        uint32_t sign = *at == '-';
        uint32_t whole = (uint32_t)__builtin_ctz(~(digits >> sign));
        uint32_t point = sign + whole;
        uint32_t behind = (uint32_t)__builtin_ctz(~(digits >> point >> 1));
        uint32_t fraction = (at[point] == '.') & (behind > 0);
        uint32_t length = point + ((behind + 1) & (0 - fraction));
        if (whole && (whole == 1 || at[sign] != '0') && point < JSON_VECTOR_BYTES - 1 && length < JSON_VECTOR_BYTES && (at[length] | 0x20) != 'e')
            return at + length;
    }
#endif
    if (at < end && *at == '-') at++;
    if (at == end || !json_is_digit(*at)) return 0;
    if (*at == '0') at++;
    else while (at < end && json_is_digit(*at)) at++;
    if (end - at >= 2 && *at == '.' && json_is_digit(at[1])) {
        at++;
        while (at < end && json_is_digit(*at)) at++;
    }
    if (at < end && (*at | 0x20) == 'e') {
        const uint8_t *digits = at + 1;
        if (digits < end && (*digits == '+' || *digits == '-')) digits++;
        if (digits == end || !json_is_digit(*digits)) return at;
        at = digits;
        while (at < end && json_is_digit(*at)) at++;
    }
    return at;
}

/* Whether the whole text is a number. */
static inline int json_is_number(const uint8_t *at, const uint8_t *end) {
    return json_number_stop(at, end) == end;
}

static inline int json_is_hex(uint8_t byte) {
    return json_is_digit(byte) || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f');
}

/* Whether every backslash of a text begins an escape of RFC 8259. */
static inline int json_escapes_are_valid(const uint8_t *at, const uint8_t *end) {
    while ((at = json_string_stop(at, end)) < end) {
        if (end - at < 2) return 0;
        switch (at[1]) {
        case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
            at += 2;
            break;
        case 'u':
            if (end - at < 6 || !json_is_hex(at[2]) || !json_is_hex(at[3]) || !json_is_hex(at[4]) || !json_is_hex(at[5]))
                return 0;
            at += 6;
            break;
        default:
            return 0;
        }
    }
    return 1;
}

#define JSON_VALID_DEPTH 65536

/* The position behind a value that is valid in RFC 8259; NULL: malformed, or nested deeper than JSON_VALID_DEPTH. */
static const uint8_t *json_valid_value(const uint8_t *at, const uint8_t *end) {
    uint64_t objects[JSON_VALID_DEPTH / 64]; /* a bit for each level: an object, or an array */
    uint32_t depth = 0;
    uint32_t is_object;
    const uint8_t *stop;
value:
    at = json_skip_space(at, end);
    if (at == end) return 0;
    if (*at == '{' || *at == '[') {
        if (depth == JSON_VALID_DEPTH) return 0;
        is_object = *at == '{';
        objects[depth / 64] &= ~((uint64_t)1 << depth % 64);
        objects[depth / 64] |= (uint64_t)is_object << depth % 64;
        depth++;
        at = json_skip_space(at + 1, end);
        if (at < end && *at == (is_object ? '}' : ']')) goto closed;
        if (is_object) goto key;
        goto value;
    }
    if (*at == '"') {
        stop = json_skip_string(at + 1, end);
        if (!stop || !json_escapes_are_valid(at + 1, stop - 1)) return 0;
    } else {
        stop = json_scalar_end(at, end);
        if (!(stop - at == 4 && (memcmp(at, "true", 4) == 0 || memcmp(at, "null", 4) == 0)) &&
            !(stop - at == 5 && memcmp(at, "false", 5) == 0) && !json_is_number(at, stop))
            return 0;
    }
    at = stop;
behind:
    if (depth == 0) return at;
    is_object = objects[(depth - 1) / 64] >> (depth - 1) % 64 & 1;
    at = json_skip_space(at, end);
    if (at == end) return 0;
    if (*at == ',') {
        at = json_skip_space(at + 1, end);
        if (is_object) goto key;
        goto value;
    }
    if (*at != (is_object ? '}' : ']')) return 0;
closed:
    depth--;
    at++;
    goto behind;
key:
    if (at == end || *at != '"') return 0;
    stop = json_skip_string(at + 1, end);
    if (!stop || !json_escapes_are_valid(at + 1, stop - 1)) return 0;
    at = json_skip_space(stop, end);
    if (at == end || *at != ':') return 0;
    at++;
    goto value;
}

#endif
