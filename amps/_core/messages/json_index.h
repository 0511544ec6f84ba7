/* An index of a JSON text: the positions of its tokens, which are the only ones that a reader of certain members needs.
 *
 * A processor that reads a text from quote to quote must finish each step before it can begin the next one. The index
 * reads 64 bytes at a time, whatever they contain. Each kind of byte becomes a word with a bit for each position, and
 * arithmetic on such words finds the bytes inside strings and the order of tokens. Tokens are
 *
 * - every brace and bracket outside strings;
 * - the opening quote of every string that may be a needed name (in the plain code, of every string);
 * - every backslash in a string: it may be a name with escapes.
 *
 * A member that is not needed leaves no token, unless its value is a container. But behind each opening brace or
 * bracket, each comma and each colon (after blanks) a value must begin, and nowhere else; only an opening bracket may
 * be closed directly. So a value can be followed by commas, colons and closing brackets only. Any other text is an
 * error, which ends the index like the end of the text. The index does not check the order of commas and colons, which
 * bracket closes which, and the rest of numbers and literals (except that it contains no backslash). The reader of a
 * value there checks these.
 *
 * A text is indexed in windows, so that a reader that ends early has not indexed the whole text. The first window is
 * small: the key of a record is often one of the first members, and nothing else is read for it. */

#ifndef AMPS_JSON_INDEX_H
#define AMPS_JSON_INDEX_H

#include <stdint.h>
#include <string.h>

#include "json_text.h"
#include "name_bits.h"

#define JSON_FIRST_WINDOW_BYTES 128
#define JSON_WINDOW_GROWTH 4
#define JSON_WINDOW_BYTES 1024
#define JSON_BLOCK_BYTES 64
/* Number of bytes read behind a block to recognise the beginnings of names. */
#define JSON_AHEAD_BYTES NAME_OPENING_BYTES
/* Positions of a window, and entries that are written in advance. */
#define JSON_TAPE_ENTRIES (JSON_WINDOW_BYTES + 8)

#define JSON_INLINE static inline __attribute__((always_inline))

/* How far the text is indexed, and the state for the rest of it. */
typedef struct {
    const uint8_t *at;    /* the next byte to index */
    const uint8_t *end;
    uint64_t in_string;   /* all ones: `at` is inside a string */
    /* One bit each: */
    uint64_t escaped;     /* the first byte is escaped */
    uint64_t no_scalar;   /* no number or literal that could continue ends in front of it */
    uint64_t value_next;  /* a value must follow */
    uint64_t window_bytes; /* of the next window */
} JsonIndex;

/* The kinds of bytes of a block, with a bit for each byte. */
typedef struct {
    uint64_t quotes, backslashes, blanks;
    uint64_t brackets;      /* and braces */
    uint64_t before_values; /* opening brackets and braces, commas, colons */
    uint64_t strange;       /* in neither of these two, and not the first byte of a number or literal */
    uint64_t unwanted;      /* no needed name begins with the bytes that follow */
} JsonBlock;

/* Begin an index behind the opening brace of the outermost object. */
JSON_INLINE void json_begin_index(JsonIndex *index, const uint8_t *at, const uint8_t *end) {
    memset(index, 0, sizeof(*index));
    index->at = at;
    index->end = end;
    index->no_scalar = 1;
    index->value_next = 1;
    index->window_bytes = JSON_FIRST_WINDOW_BYTES;
}

/* The escaped bytes: those with an odd number of backslashes in front of them. */
JSON_INLINE uint64_t json_escaped(uint64_t backslashes, uint64_t *carry) {
    const uint64_t even = 0x5555555555555555;
    uint64_t starts, behind_even, behind_odd, escaped = *carry;
    backslashes &= ~escaped;
    starts = backslashes & ~(backslashes << 1);
    /* A carry runs through each series of backslashes. */
    behind_even = backslashes + (starts & even);
    *carry = (uint64_t)__builtin_add_overflow(backslashes, starts & ~even, &behind_odd);
    return escaped | (((behind_even & ~even) | (behind_odd & even)) & ~backslashes);
}

/* The positions of errors in a block that contains blanks, empty containers or errors. `values` are the positions at
 * which values must begin (their last bit is carried in `index`), `values_there` those at which values do begin. The
 * block begins at `at`. */
static uint64_t json_errors(JsonIndex *index, uint64_t values, uint64_t values_there, uint64_t closes, uint64_t blanks,
                            const uint8_t *at) {
    uint64_t behind_blanks, closed;
    /* A carry runs through the blanks that follow each of them. */
    index->value_next |= (uint64_t)__builtin_add_overflow(blanks, values & blanks, &behind_blanks);
    values = (values | behind_blanks) & ~blanks;
    for (closed = values & closes; closed; closed &= closed - 1) {
        const uint8_t *close = at + __builtin_ctzll(closed);
        const uint8_t *open = close - 1; /* there is a bracket: only brackets, commas and colons require a value */
        while (json_is_space(*open)) open--;
        if (*open + 2 == *close) values &= ~(closed & -closed); /* it closes an empty container of its own kind */
    }
    return values ^ values_there;
}

/* The tokens of the block at `at`, and its errors. `inside`: bytes of strings, including the opening quotes. */
JSON_INLINE uint64_t json_tokens(JsonIndex *index, const JsonBlock *block, uint64_t inside, const uint8_t *at,
                                 uint64_t *errors) {
    uint64_t opening = block->quotes & inside;
    uint64_t blanks = block->blanks & ~inside;
    uint64_t brackets = block->brackets & ~inside;
    uint64_t before_values = block->before_values & ~inside;
    uint64_t no_scalars = inside | block->quotes | block->blanks | block->brackets | block->before_values;
    uint64_t starts = ~no_scalars & (no_scalars << 1 | index->no_scalar);
    uint64_t values = before_values << 1 | index->value_next;
    uint64_t values_there = opening | starts | (brackets & before_values);
    uint64_t strange = (starts & block->strange) | (block->backslashes & ~inside);
    index->no_scalar = no_scalars >> 63;
    index->value_next = before_values >> 63;
    *errors = (values ^ values_there) | blanks | strange;
    if (*errors) *errors = json_errors(index, values, values_there, brackets & ~before_values, blanks, at) | strange;
    return brackets | (opening & ~block->unwanted) | (block->backslashes & inside);
}

/* Write the positions of tokens. At least two are written, even if there are fewer, because their number cannot be
 * predicted. */
#define JSON_WRITE_TOKENS(next, tokens, offset, lowest)                    \
    {                                                                      \
        uint32_t count = (uint32_t)__builtin_popcountll(tokens);           \
        uint32_t written = 0;                                              \
        do {                                                               \
            next[written] = (offset) + (uint32_t)lowest(tokens);           \
            tokens &= tokens - 1;                                          \
            next[written + 1] = (offset) + (uint32_t)lowest(tokens);       \
            tokens &= tokens - 1;                                          \
            written += 2;                                                  \
        } while (written < count);                                         \
        next += count;                                                     \
    }

/* Index the next window. The parameters are the functions that classify a block, fill the bits between quotes, and find
 * the lowest bit (any result if there is none). */
#define JSON_INDEX_WINDOW(look, between, lowest)                                                                \
    const uint8_t *end = index->end;                                                                            \
    const uint8_t *at = index->at;                                                                              \
    const uint8_t *stop = (uint64_t)(end - at) > index->window_bytes ? at + index->window_bytes : end;          \
    JsonIndex now = *index;                                                                                     \
    uint32_t *next = tape;                                                                                      \
    for (; at < stop; at += JSON_BLOCK_BYTES) {                                                                 \
        uint8_t copied[JSON_BLOCK_BYTES + JSON_AHEAD_BYTES];                                                    \
        const uint8_t *bytes = at;                                                                              \
        JsonBlock block;                                                                                        \
        uint64_t inside, tokens, errors;                                                                        \
        if (end - at < JSON_BLOCK_BYTES + JSON_AHEAD_BYTES) {                                                   \
            memset(copied, ' ', sizeof(copied));                                                                \
            memcpy(copied, at, (size_t)(end - at));                                                             \
            bytes = copied;                                                                                     \
        }                                                                                                       \
        look(&block, bytes, openings);                                                                          \
        if (block.backslashes | now.escaped) block.quotes &= ~json_escaped(block.backslashes, &now.escaped);    \
        inside = between(block.quotes) ^ now.in_string; /* strings, each with its opening quote */              \
        tokens = json_tokens(&now, &block, inside, at, &errors);                                                \
        now.in_string = 0 - (inside >> 63);                                                                     \
        if (__builtin_expect(errors != 0, 0)) {                                                                 \
            tokens &= (errors & -errors) - 1;                                                                   \
            now.end = stop = at; /* nothing is found behind it */                                               \
        }                                                                                                       \
        JSON_WRITE_TOKENS(next, tokens, (uint32_t)(at - base), lowest)                                          \
    }                                                                                                           \
    now.at = at < now.end ? at : now.end;                                                                       \
    now.window_bytes *= JSON_WINDOW_GROWTH;                                                                     \
    if (now.window_bytes > JSON_WINDOW_BYTES) now.window_bytes = JSON_WINDOW_BYTES;                             \
    *index = now;                                                                                               \
    return (uint32_t)(next - tape);

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define JSON_HAS_WIDE 1
#define JSON_WIDE __attribute__((target("avx2,bmi,bmi2,popcnt,pclmul")))

#define JSON_WIDE_MASK(low, high) \
    ((uint64_t)(uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32)

/* Zero where no needed name begins with the bytes that follow. */
JSON_WIDE JSON_INLINE __m256i json_wide_openings(const uint8_t *bytes, const NameOpenings *openings) {
    const __m256i half = _mm256_set1_epi8(0x0F);
    const __m256i of_low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)openings->of_low));
    const __m256i of_high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)openings->of_high));
    __m256i first = _mm256_loadu_si256((const __m256i *)(bytes + 1));
    __m256i second = _mm256_loadu_si256((const __m256i *)(bytes + 2));
    __m256i third = _mm256_loadu_si256((const __m256i *)(bytes + 3));
    __m256i mixed = _mm256_add_epi8(second, second); /* as in name_mixture */
    mixed = _mm256_add_epi8(_mm256_add_epi8(mixed, mixed), first);
    mixed = _mm256_add_epi8(_mm256_add_epi8(mixed, mixed), third);
    return _mm256_and_si256(_mm256_shuffle_epi8(of_low, _mm256_and_si256(mixed, half)),
                            _mm256_shuffle_epi8(of_high, _mm256_and_si256(_mm256_srli_epi16(mixed, 4), half)));
}

/* The kind of a byte, by its two halves: the bit of the kind is set in both rows. The order of bits matters below. */
enum { JSON_DIGIT = 1, JSON_MINUS = 2, JSON_T = 4, JSON_F_N = 8, JSON_CLOSE = 16, JSON_OPEN = 32, JSON_COMMA = 64,
       JSON_COLON = 128 };

JSON_WIDE JSON_INLINE __m256i json_wide_kinds(__m256i bytes) {
    const __m256i of_low = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        JSON_DIGIT, JSON_DIGIT, JSON_DIGIT, JSON_DIGIT, JSON_DIGIT | JSON_T, JSON_DIGIT, JSON_DIGIT | JSON_F_N,
        JSON_DIGIT, JSON_DIGIT, JSON_DIGIT, (char)JSON_COLON, JSON_OPEN, JSON_COMMA, JSON_CLOSE | JSON_MINUS,
        JSON_F_N, 0));
    const __m256i of_high = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 0, JSON_COMMA | JSON_MINUS, (char)(JSON_COLON | JSON_DIGIT), 0, JSON_OPEN | JSON_CLOSE, JSON_F_N,
        JSON_OPEN | JSON_CLOSE | JSON_T, 0, 0, 0, 0, 0, 0, 0, 0));
    __m256i high_halves = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(0x0F));
    /* Bytes above 0x7F are of no kind. */
    return _mm256_and_si256(_mm256_shuffle_epi8(of_low, bytes), _mm256_shuffle_epi8(of_high, high_halves));
}

/* The top bit of each byte is set if its kind is `lowest` or a later one, apart from kinds that were shifted out. */
#define JSON_WIDE_FROM(lowest, kinds) _mm256_adds_epu8(kinds, _mm256_set1_epi8((char)(0x80 - (lowest))))

JSON_WIDE JSON_INLINE __m256i json_wide_blanks(__m256i bytes) {
    const __m256i blanks = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t', '\n', 0, 0, '\r', 0, 0));
    return _mm256_cmpeq_epi8(_mm256_shuffle_epi8(blanks, bytes), bytes);
}

JSON_WIDE JSON_INLINE void json_look_wide(JsonBlock *block, const uint8_t *bytes, const NameOpenings *openings) {
    __m256i low = _mm256_loadu_si256((const __m256i *)bytes);
    __m256i high = _mm256_loadu_si256((const __m256i *)(bytes + 32));
    __m256i low_kinds = json_wide_kinds(low);
    __m256i high_kinds = json_wide_kinds(high);
    const __m256i zero = _mm256_setzero_si256();
    block->quotes = JSON_WIDE_MASK(_mm256_cmpeq_epi8(low, _mm256_set1_epi8('"')),
                                   _mm256_cmpeq_epi8(high, _mm256_set1_epi8('"')));
    block->backslashes = JSON_WIDE_MASK(_mm256_cmpeq_epi8(low, _mm256_set1_epi8('\\')),
                                        _mm256_cmpeq_epi8(high, _mm256_set1_epi8('\\')));
    block->blanks = JSON_WIDE_MASK(json_wide_blanks(low), json_wide_blanks(high));
    block->brackets = JSON_WIDE_MASK(JSON_WIDE_FROM(JSON_CLOSE << 2, _mm256_slli_epi16(low_kinds, 2)),
                                     JSON_WIDE_FROM(JSON_CLOSE << 2, _mm256_slli_epi16(high_kinds, 2)));
    block->before_values = JSON_WIDE_MASK(JSON_WIDE_FROM(JSON_OPEN, low_kinds), JSON_WIDE_FROM(JSON_OPEN, high_kinds));
    block->strange = JSON_WIDE_MASK(_mm256_cmpeq_epi8(low_kinds, zero), _mm256_cmpeq_epi8(high_kinds, zero));
    block->unwanted = JSON_WIDE_MASK(_mm256_cmpeq_epi8(json_wide_openings(bytes, openings), zero),
                                     _mm256_cmpeq_epi8(json_wide_openings(bytes + 32, openings), zero));
}

/* The carry-less product with all ones sets every bit from a quote to the one before the next quote. */
JSON_WIDE JSON_INLINE uint64_t json_wide_between_quotes(uint64_t quotes) {
    __m128i product = _mm_clmulepi64_si128(_mm_set_epi64x(0, (long long)quotes), _mm_set1_epi8((char)0xFF), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

JSON_WIDE static uint32_t json_index_window_wide(JsonIndex *index, const uint8_t *base, uint32_t *tape,
                                                 const NameOpenings *openings) {
    JSON_INDEX_WINDOW(json_look_wide, json_wide_between_quotes, _tzcnt_u64)
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

/* The same for any processor, byte by byte. */
static inline void json_look_plain(JsonBlock *block, const uint8_t *bytes, const NameOpenings *openings) {
    (void)openings;
    memset(block, 0, sizeof(*block));
    block->strange = ~(uint64_t)0;
    for (int at = 0; at < JSON_BLOCK_BYTES; at++) {
        uint64_t bit = (uint64_t)1 << at;
        switch (bytes[at]) {
        case '"': block->quotes |= bit; break;
        case '\\': block->backslashes |= bit; break;
        case '{': case '[': block->brackets |= bit; block->before_values |= bit; break;
        case '}': case ']': block->brackets |= bit; break;
        case ',': case ':': block->before_values |= bit; break;
        case ' ': case '\t': case '\n': case '\r': block->blanks |= bit; break;
        case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        case '-': case 't': case 'f': case 'n': block->strange &= ~bit; break;
        default: break;
        }
    }
}

static inline int json_lowest(uint64_t bits) {
    return __builtin_ctzll(bits | (uint64_t)1 << 63);
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
    JSON_INDEX_WINDOW(json_look_plain, json_between_quotes, json_lowest)
}

/* Index the next window. Write the positions of tokens relative to `base`, in order, and return their number. */
static inline uint32_t json_index_window(JsonIndex *index, const uint8_t *base, uint32_t *tape,
                                         const NameOpenings *openings) {
#if defined(JSON_HAS_WIDE)
    if (json_can_go_wide()) return json_index_window_wide(index, base, tape, openings);
#endif
    return json_index_window_plain(index, base, tape, openings);
}

#endif
