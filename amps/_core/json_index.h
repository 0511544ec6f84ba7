/* Where the structure of a JSON text is: the positions of all braces, brackets, colons and commas outside strings, and of
 * all backslashes, so that who goes from colon to comma meets those, too, and knows that there is more to it.
 *
 * Stepping from quote to quote a processor waits for each step before it can begin the next one. Here it looks at 64
 * bytes at a time, whatever is in them, and the places that are found can then be visited without waiting. A text is
 * indexed in windows, so that who ends early has not looked at all of it. */

#ifndef AMPS_JSON_INDEX_H
#define AMPS_JSON_INDEX_H

#include <stdint.h>
#include <string.h>

#include "json_text.h"
#include "name_bits.h"

#define JSON_WINDOW_BYTES 2048
#define JSON_BLOCK_BYTES 64
/* Positions of a window, and what is written in advance. */
#define JSON_TAPE_ENTRIES (JSON_WINDOW_BYTES + 16)

typedef struct {
    const uint8_t *at;  /* what is indexed next */
    const uint8_t *end;
    uint64_t in_string; /* all ones: it is inside a string */
    uint64_t escaped;   /* 1: its first byte is escaped */
} JsonIndex;

#if defined(__SSE2__)

/* What a block consists of, a bit for each byte. */
typedef struct {
    uint64_t backslashes, quotes, operators;
} JsonBlock;

/* The bytes that a backslash stands before and thereby escapes. Backslashes are rare. */
static inline uint64_t json_escaped(uint64_t backslashes, uint64_t *carry) {
    uint64_t escaped = *carry;
    backslashes &= ~escaped;
    *carry = 0;
    while (backslashes) {
        uint64_t first = backslashes & -backslashes;
        escaped |= first << 1;
        if (first >> 63) *carry = 1;
        backslashes &= ~(first | first << 1);
    }
    return escaped;
}

/* Every bit from a quote to the one before the next quote. */
static inline uint64_t json_between_quotes(uint64_t quotes) {
    quotes ^= quotes << 1;
    quotes ^= quotes << 2;
    quotes ^= quotes << 4;
    quotes ^= quotes << 8;
    quotes ^= quotes << 16;
    quotes ^= quotes << 32;
    return quotes;
}

static inline int json_lowest(uint64_t bits) {
    return __builtin_ctzll(bits | (uint64_t)1 << 63);
}

static inline JsonBlock json_block(const uint8_t *bytes) {
    JsonBlock block = {0, 0, 0};
    for (int at = 0; at < JSON_BLOCK_BYTES; at += 16) {
        __m128i part = _mm_loadu_si128((const __m128i *)(bytes + at));
        __m128i folded = _mm_or_si128(part, _mm_set1_epi8(0x20));
        __m128i operators = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(part, _mm_set1_epi8(',')), _mm_cmpeq_epi8(part, _mm_set1_epi8(':'))),
            _mm_or_si128(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{')), _mm_cmpeq_epi8(folded, _mm_set1_epi8('}'))));
        block.backslashes |= (uint64_t)json_equal(part, '\\') << at;
        block.quotes |= (uint64_t)json_equal(part, '"') << at;
        block.operators |= (uint64_t)(uint32_t)_mm_movemask_epi8(operators) << at;
    }
    return block;
}

/* Index the next window, with these ways to look at a block, to fill what is between quotes, and to find the lowest bit
 * (anything, if there is none). */
#define JSON_INDEX_WINDOW(look, between, lowest)                                                                \
    const uint8_t *at = index->at;                                                                     \
    const uint8_t *end = index->end;                                                                   \
    const uint8_t *stop = end - at > JSON_WINDOW_BYTES ? at + JSON_WINDOW_BYTES : end;                 \
    uint64_t in_string = index->in_string;                                                             \
    uint64_t escaped = index->escaped;                                                                 \
    uint32_t *next = tape;                                                                             \
    while (at < stop) {                                                                                \
        uint8_t last_bytes[JSON_BLOCK_BYTES];                                                          \
        const uint8_t *bytes = at;                                                                     \
        uint32_t offset = (uint32_t)(at - base);                                                       \
        JsonBlock block;                                                                               \
        uint64_t inside, operators;                                                                    \
        uint32_t count;                                                                                \
        if (end - at < JSON_BLOCK_BYTES) {                                                             \
            memset(last_bytes, ' ', JSON_BLOCK_BYTES);                                                 \
            memcpy(last_bytes, at, (size_t)(end - at));                                                \
            bytes = last_bytes;                                                                        \
        }                                                                                              \
        block = look(bytes);                                                                           \
        if (block.backslashes | escaped) block.quotes &= ~json_escaped(block.backslashes, &escaped);   \
        inside = between(block.quotes) ^ in_string;                                                    \
        in_string = 0 - (inside >> 63);                                                                \
        operators = (block.operators & ~inside) | block.backslashes;                                   \
        count = (uint32_t)__builtin_popcountll(operators);                                             \
        /* Eight at once, also where there are fewer: how many there are cannot be foretold. */        \
        for (uint32_t written = 0; written < count; written += 8) {                                    \
            for (uint32_t each = 0; each < 8; each++) {                                                \
                next[written + each] = offset + (uint32_t)lowest(operators);                           \
                operators &= operators - 1;                                                            \
            }                                                                                          \
        }                                                                                              \
        next += count;                                                                                 \
        at += end - at < JSON_BLOCK_BYTES ? end - at : JSON_BLOCK_BYTES;                               \
    }                                                                                                  \
    index->at = at;                                                                                    \
    index->in_string = in_string;                                                                      \
    index->escaped = escaped;                                                                          \
    return (uint32_t)(next - tape);

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define JSON_HAS_WIDE 1
#define JSON_WIDE __attribute__((target("avx2,bmi,bmi2,popcnt,pclmul")))
#if defined(__clang__)
#define JSON_SCALAR
#else
/* Eight positions packed into registers to be stored at once take longer than eight stores. */
#define JSON_SCALAR __attribute__((optimize("no-tree-slp-vectorize")))
#endif

/* The same with wider registers. Operators have low halves of their own, so that one look-up tells them apart; control
 * characters that differ by bit 5 only are taken for operators, too, and are none when somebody looks. */
JSON_WIDE static inline JsonBlock json_wide_block(const uint8_t *bytes) {
    const __m256i operator_of_half = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ':', '{', ',', '}', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ':', '{', ',', '}', 0, 0);
    __m256i low = _mm256_loadu_si256((const __m256i *)bytes);
    __m256i high = _mm256_loadu_si256((const __m256i *)(bytes + 32));
    __m256i low_folded = _mm256_or_si256(low, _mm256_set1_epi8(0x20));
    __m256i high_folded = _mm256_or_si256(high, _mm256_set1_epi8(0x20));
    JsonBlock block;
#define JSON_WIDE_MASK(a, b) \
    ((uint64_t)(uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32)
    block.backslashes = JSON_WIDE_MASK(_mm256_cmpeq_epi8(low, _mm256_set1_epi8('\\')),
                                       _mm256_cmpeq_epi8(high, _mm256_set1_epi8('\\')));
    block.quotes = JSON_WIDE_MASK(_mm256_cmpeq_epi8(low, _mm256_set1_epi8('"')),
                                  _mm256_cmpeq_epi8(high, _mm256_set1_epi8('"')));
    block.operators = JSON_WIDE_MASK(
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(operator_of_half, low_folded), low_folded),
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(operator_of_half, high_folded), high_folded));
    return block;
}

/* A product without carries by ones everywhere. */
JSON_WIDE static inline uint64_t json_wide_between_quotes(uint64_t quotes) {
    __m128i product = _mm_clmulepi64_si128(_mm_set_epi64x(0, (long long)quotes), _mm_set1_epi8((char)0xFF), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

JSON_WIDE JSON_SCALAR static uint32_t json_index_window_wide(JsonIndex *index, const uint8_t *base, uint32_t *tape) {
    JSON_INDEX_WINDOW(json_wide_block, json_wide_between_quotes, _tzcnt_u64)
}

static inline int json_can_go_wide(void) {
    static int known = -1;
    if (known < 0) {
        __builtin_cpu_init();
        known = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("pclmul");
    }
    return known;
}
#endif

static uint32_t json_index_window_plain(JsonIndex *index, const uint8_t *base, uint32_t *tape) {
    JSON_INDEX_WINDOW(json_block, json_between_quotes, json_lowest)
}

/* Index the next window: positions relative to `base`, in order. Returns how many. */
static inline uint32_t json_index_window(JsonIndex *index, const uint8_t *base, uint32_t *tape) {
#if defined(JSON_HAS_WIDE)
    if (json_can_go_wide()) return json_index_window_wide(index, base, tape);
#endif
    return json_index_window_plain(index, base, tape);
}

#else

static uint32_t json_index_window_plain(JsonIndex *index, const uint8_t *base, uint32_t *tape) {
    const uint8_t *at = index->at;
    const uint8_t *stop = index->end - at > JSON_WINDOW_BYTES ? at + JSON_WINDOW_BYTES : index->end;
    uint32_t count = 0;
    for (; at < stop; at++) {
        uint8_t byte = *at;
        uint64_t escaped = index->escaped;
        index->escaped = 0;
        if (byte == '\\') {
            index->escaped = !escaped;
            tape[count++] = (uint32_t)(at - base);
        } else if (byte == '"') index->in_string = escaped ? index->in_string : ~index->in_string;
        else if (!index->in_string && (byte == ',' || byte == ':' || (byte | 0x20) == '{' || (byte | 0x20) == '}'))
            tape[count++] = (uint32_t)(at - base);
    }
    index->at = at;
    return count;
}

static inline uint32_t json_index_window(JsonIndex *index, const uint8_t *base, uint32_t *tape) {
    return json_index_window_plain(index, base, tape);
}

#endif

/* Step over members that nobody wants, from `before`, the brace or comma in front of the next one, as long as they are
 * simple: few blanks, no escapes, no containers, more to come behind. The next token of what is not; `before` moves along.
 * Of values only the ends are looked at. */
static inline const uint32_t *json_skip_members(const uint8_t *begin, const uint32_t *next, const uint32_t *last,
                                                const uint8_t **before, uint64_t names,
                                                uint64_t other_names) {
    const uint8_t *at = *before;
    while (last - next >= 2) {
        const uint8_t *colon = begin + next[0];
        const uint8_t *comma = begin + next[1];
        const uint8_t *name = at + 1 + (at[1] == ' ');
        const uint8_t *value = colon + 1 + (colon[1] == ' ');
        uint32_t look;
        if (*colon != ':' || *comma != ',' || *name != '"' || colon[-1] != '"' || name + 1 >= colon) break;
        look = name_look(name + 1, (uint32_t)(colon - name - 2));
        if (names >> name_bit(look) & other_names >> name_other_bit(look) & 1) break;
        if (!JSON_SHORT_VALUE[*value] || (*value == '"') != (comma[-1] == '"')) break;
        at = comma;
        next += 2;
    }
    *before = at;
    return next;
}

#endif
