/* A text in two words, for comparison and lookup. Names and most constants have at most 16 bytes. Then the words and
 * the length contain the whole text, so comparing them compares the text without a call or a loop. */

#ifndef AMPS_TEXT_WORDS_H
#define AMPS_TEXT_WORDS_H

#include <stdint.h>
#include <string.h>

#define TEXT_WORDS_BYTES 16

typedef struct {
    uint64_t first;
    uint64_t last;
} TextWords;

static inline int words_equal(TextWords left, TextWords right) {
    return ((left.first ^ right.first) | (left.last ^ right.last)) == 0;
}

/* All bytes of a text of at most 16 bytes. From four bytes on there is no branch on the length: the text is copied as
 * four half words, which may overlap. */
static inline TextWords short_text_words(const uint8_t *text, uint32_t length) {
    TextWords words = {0, 0};
    if (length >= 4) {
        uint32_t halves[4];
        uint32_t inner = length >> 3 << 2;
        memcpy(&halves[0], text, 4);
        memcpy(&halves[1], text + inner, 4);
        memcpy(&halves[2], text + length - 4 - inner, 4);
        memcpy(&halves[3], text + length - 4, 4);
        words.first = (uint64_t)halves[0] << 32 | halves[1];
        words.last = (uint64_t)halves[2] << 32 | halves[3];
    } else if (length) {
        words.first = text[0] | (uint32_t)text[length >> 1] << 8 | (uint32_t)text[length - 1] << 16;
    }
    return words;
}

/* Whether two texts of this length are equal. */
static inline int texts_equal(const uint8_t *left, const uint8_t *right, uint32_t length) {
    if (length <= TEXT_WORDS_BYTES) return words_equal(short_text_words(left, length), short_text_words(right, length));
    return memcmp(left, right, length) == 0;
}

/* Both halves of a product: every bit of the result depends on all bits of both words. Without the seed it cannot be
 * predicted which words have the same result. */
static inline uint64_t words_mixed(uint64_t first, uint64_t last, uint64_t seed) {
    unsigned __int128 product = (unsigned __int128)(first ^ seed) * (last ^ (seed >> 32 | seed << 32));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The words of a text. For a longer text: a mixture of all bytes before its last eight, and those last eight bytes. */
static inline TextWords text_words(const uint8_t *text, uint32_t length, uint64_t seed) {
    TextWords words = {0, 0};
    if (length <= TEXT_WORDS_BYTES) return short_text_words(text, length);
    for (uint32_t at = 0; length - at > 8; at += 8) {
        memcpy(&words.last, text + at, 8);
        words.first = words_mixed(words.first ^ words.last, length, seed);
    }
    memcpy(&words.last, text + length - 8, 8);
    return words;
}

#endif
