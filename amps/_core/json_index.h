/* Where to look closer in a JSON text: an index of the few places, or tokens, that matter to who wants certain members.
 *
 * Going through a text from quote to quote a processor waits for each step before it can begin the next one. Here it
 * looks at 64 bytes at a time, whatever is in them: each kind of byte becomes a word with a bit for each place, and some
 * arithmetic on such words tells what is inside a string. Tokens are
 *
 * - every brace and bracket outside strings;
 * - the opening quote of every string that begins as a wanted name does (or of every one);
 * - every backslash: there may be a name with escapes.
 *
 * A member that nobody wants leaves no token, unless its value is a container. A byte that is none of these may be taken
 * for one where nothing but a number or literal can be ('y', 'Y', '_', 0x7F outside strings).
 *
 * A text is indexed in windows, so that who ends early has not looked at all of it. */

#ifndef AMPS_JSON_INDEX_H
#define AMPS_JSON_INDEX_H

#include <stdint.h>
#include <string.h>

#include "json_text.h"
#include "name_bits.h"

#define JSON_WINDOW_BYTES 1024
#define JSON_BLOCK_BYTES 64
/* How far behind a block is looked for what names begin with. */
#define JSON_AHEAD_BYTES NAME_OPENING_BYTES
/* Positions of a window, and what is written in advance. */
#define JSON_TAPE_ENTRIES (JSON_WINDOW_BYTES + 8)

#define JSON_INLINE static inline __attribute__((always_inline))

typedef struct {
    const uint8_t *at;  /* what is indexed next */
    const uint8_t *end;
    uint64_t in_string; /* all ones: it is inside a string */
    uint64_t escaped;   /* 1: its first byte is escaped */
} JsonIndex;

/* What a block consists of, a bit for each byte. */
typedef struct {
    uint64_t quotes, backslashes, brackets;
    uint64_t wanted; /* the bytes behind are what some wanted name begins with */
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

/* Write places of tokens, two at least, also where there are fewer: how many there are cannot be foretold. */
JSON_INLINE uint32_t *json_write_tokens(uint32_t *next, uint64_t tokens, uint32_t offset) {
    uint32_t count = (uint32_t)__builtin_popcountll(tokens);
    uint32_t written = 0;
    do {
        for (uint32_t each = 0; each < 2; each++) {
            next[written + each] = offset + (uint32_t)__builtin_ctzll(tokens | (uint64_t)1 << 63);
            tokens &= tokens - 1;
        }
        written += 2;
    } while (written < count);
    return next + count;
}

/* Index the next window, with these ways to look at a block and to fill what is between quotes. */
#define JSON_INDEX_WINDOW(look, between)                                                                        \
    const uint8_t *end = index->end;                                                                            \
    const uint8_t *at = index->at;                                                                              \
    const uint8_t *stop = end - at > JSON_WINDOW_BYTES ? at + JSON_WINDOW_BYTES : end;                          \
    uint64_t in_string = index->in_string;                                                                      \
    uint64_t escaped = index->escaped;                                                                          \
    uint32_t *next = tape;                                                                                      \
    for (; at < stop; at += JSON_BLOCK_BYTES) {                                                                 \
        uint8_t copied[JSON_BLOCK_BYTES + JSON_AHEAD_BYTES];                                                    \
        const uint8_t *bytes = at;                                                                              \
        JsonBlock block;                                                                                        \
        uint64_t inside;                                                                                        \
        if (end - at < JSON_BLOCK_BYTES + JSON_AHEAD_BYTES) {                                                   \
            memset(copied, ' ', sizeof(copied));                                                                \
            memcpy(copied, at, (size_t)(end - at));                                                             \
            bytes = copied;                                                                                     \
        }                                                                                                       \
        look(&block, bytes, openings);                                                                          \
        if (block.backslashes | escaped) block.quotes &= ~json_escaped(block.backslashes, &escaped);            \
        inside = between(block.quotes) ^ in_string; /* strings, each with its opening quote */                  \
        in_string = 0 - (inside >> 63);                                                                         \
        next = json_write_tokens(                                                                               \
            next, (block.brackets & ~inside) | (block.quotes & inside & block.wanted) | block.backslashes,      \
            (uint32_t)(at - base));                                                                             \
    }                                                                                                           \
    index->at = at < end ? at : end;                                                                            \
    index->in_string = in_string;                                                                               \
    index->escaped = escaped;                                                                                   \
    return (uint32_t)(next - tape);

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define JSON_HAS_WIDE 1
#define JSON_WIDE __attribute__((target("avx2,bmi,bmi2,popcnt,pclmul")))

#define JSON_WIDE_MASK(low, high) \
    ((uint64_t)(uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32)

/* Zero where the bytes behind are what no wanted name begins with. */
JSON_WIDE JSON_INLINE __m256i json_wide_openings(const uint8_t *bytes, const NameOpenings *openings) {
    const __m256i half = _mm256_set1_epi8(0x0F);
    __m256i found = _mm256_set1_epi8((char)0xFF);
    for (int place = 0; place < NAME_OPENING_BYTES; place++) {
        __m256i behind = _mm256_loadu_si256((const __m256i *)(bytes + 1 + place));
        __m256i of_low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)openings->of_low[place]));
        __m256i of_high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)openings->of_high[place]));
        found = _mm256_and_si256(found, _mm256_shuffle_epi8(of_low, _mm256_and_si256(behind, half)));
        found = _mm256_and_si256(found,
                                 _mm256_shuffle_epi8(of_high, _mm256_and_si256(_mm256_srli_epi16(behind, 4), half)));
    }
    return found;
}

/* Brackets and braces differ in three bits only. */
JSON_WIDE JSON_INLINE __m256i json_wide_brackets(__m256i bytes) {
    return _mm256_cmpeq_epi8(_mm256_or_si256(bytes, _mm256_set1_epi8('{' ^ 0x7F | '}' ^ 0x7F | 0x20)),
                             _mm256_set1_epi8(0x7F));
}

JSON_WIDE JSON_INLINE void json_look_wide(JsonBlock *block, const uint8_t *bytes, const NameOpenings *openings) {
    __m256i low = _mm256_loadu_si256((const __m256i *)bytes);
    __m256i high = _mm256_loadu_si256((const __m256i *)(bytes + 32));
    const __m256i zero = _mm256_setzero_si256();
    block->quotes = JSON_WIDE_MASK(_mm256_cmpeq_epi8(low, _mm256_set1_epi8('"')),
                                   _mm256_cmpeq_epi8(high, _mm256_set1_epi8('"')));
    block->backslashes = JSON_WIDE_MASK(_mm256_cmpeq_epi8(low, _mm256_set1_epi8('\\')),
                                        _mm256_cmpeq_epi8(high, _mm256_set1_epi8('\\')));
    block->brackets = JSON_WIDE_MASK(json_wide_brackets(low), json_wide_brackets(high));
    block->wanted = ~JSON_WIDE_MASK(_mm256_cmpeq_epi8(json_wide_openings(bytes, openings), zero),
                                    _mm256_cmpeq_epi8(json_wide_openings(bytes + 32, openings), zero));
}

/* A product without carries by ones everywhere: every bit from a quote to the one before the next quote. */
JSON_WIDE JSON_INLINE uint64_t json_wide_between_quotes(uint64_t quotes) {
    __m128i product = _mm_clmulepi64_si128(_mm_set_epi64x(0, (long long)quotes), _mm_set1_epi8((char)0xFF), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

JSON_WIDE static uint32_t json_index_window_wide(JsonIndex *index, const uint8_t *base, uint32_t *tape,
                                                 const NameOpenings *openings) {
    JSON_INDEX_WINDOW(json_look_wide, json_wide_between_quotes)
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

/* As any processor can do it, byte by byte. */
static inline void json_look_plain(JsonBlock *block, const uint8_t *bytes, const NameOpenings *openings) {
    (void)openings;
    memset(block, 0, sizeof(*block));
    block->wanted = ~(uint64_t)0;
    for (int at = 0; at < JSON_BLOCK_BYTES; at++) {
        uint64_t bit = (uint64_t)1 << at;
        switch (bytes[at]) {
        case '"': block->quotes |= bit; break;
        case '\\': block->backslashes |= bit; break;
        case '{': case '}': case '[': case ']': case 'y': case 'Y': case '_': case 0x7F: block->brackets |= bit; break;
        default: break;
        }
    }
}

static inline uint64_t json_between_quotes(uint64_t quotes) {
    quotes ^= quotes << 1;
    quotes ^= quotes << 2;
    quotes ^= quotes << 4;
    quotes ^= quotes << 8;
    quotes ^= quotes << 16;
    quotes ^= quotes << 32;
    return quotes;
}

static uint32_t json_index_window_plain(JsonIndex *index, const uint8_t *base, uint32_t *tape,
                                        const NameOpenings *openings) {
    JSON_INDEX_WINDOW(json_look_plain, json_between_quotes)
}

/* Index the next window: positions of tokens relative to `base`, in order. Returns how many. */
static inline uint32_t json_index_window(JsonIndex *index, const uint8_t *base, uint32_t *tape,
                                         const NameOpenings *openings) {
#if defined(JSON_HAS_WIDE)
    if (json_can_go_wide()) return json_index_window_wide(index, base, tape, openings);
#endif
    return json_index_window_plain(index, base, tape, openings);
}

#endif
