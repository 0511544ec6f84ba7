/* A text in two words, to look it up by. Most of what is looked up has at most 16 bytes: then the words and the length
 * are all of the text, and whoever compares these has compared the text. */

#ifndef AMPS_TEXT_WORDS_H
#define AMPS_TEXT_WORDS_H

#include <stdint.h>
#include <string.h>

#define TEXT_WORDS_BYTES 16

typedef struct {
    uint64_t first;
    uint64_t last;
} TextWords;

/* Both halves of a product: every bit of it depends on all bits of both words. Who does not know the seed cannot tell
 * which words come out alike. */
static inline uint64_t words_mixed(uint64_t first, uint64_t last, uint64_t seed) {
    unsigned __int128 product = (unsigned __int128)(first ^ seed) * (last ^ (seed >> 32 | seed << 32));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Of a longer text: a mixture of what stands before its last eight bytes, and these. */
static inline TextWords text_words(const uint8_t *text, uint32_t length, uint64_t seed) {
    TextWords words = {0, 0};
    if (length > TEXT_WORDS_BYTES) {
        for (uint32_t at = 0; length - at > 8; at += 8) {
            memcpy(&words.last, text + at, 8);
            words.first = words_mixed(words.first ^ words.last, length, seed);
        }
        memcpy(&words.last, text + length - 8, 8);
    } else if (length >= 8) {
        memcpy(&words.first, text, 8);
        memcpy(&words.last, text + length - 8, 8);
    } else if (length >= 4) {
        uint32_t halves[2];
        memcpy(&halves[0], text, 4);
        memcpy(&halves[1], text + length - 4, 4);
        words.first = halves[0];
        words.last = halves[1];
    } else if (length) {
        words.first = (uint64_t)text[0] | (uint64_t)text[length >> 1] << 8 | (uint64_t)text[length - 1] << 16;
    }
    return words;
}

#endif
