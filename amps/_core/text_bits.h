/* Short texts as two words, so that one is compared with several others without a branch for each. */
#ifndef AMPS_TEXT_BITS_H
#define AMPS_TEXT_BITS_H

#include <stdint.h>
#include <string.h>

enum { TEXT_BITS_BYTES_MAX = 16 };

/* Together with the length, which is not 0, these are all bytes of the text. */
typedef struct {
    uint64_t first;
    uint64_t last;
    uint32_t length;
} TextBits;

static inline TextBits text_bits(const uint8_t *text, uint32_t length) {
    TextBits bits = {0, 0, length};
    if (length >= 4) {  /* four halves of words, which overlap: nothing is decided by how long it is */
        uint32_t halves[4];
        uint32_t inner = length >> 3 << 2;
        memcpy(&halves[0], text, 4);
        memcpy(&halves[1], text + inner, 4);
        memcpy(&halves[2], text + length - 4 - inner, 4);
        memcpy(&halves[3], text + length - 4, 4);
        bits.first = (uint64_t)halves[0] << 32 | halves[1];
        bits.last = (uint64_t)halves[2] << 32 | halves[3];
    } else {
        bits.first = text[0] | (uint32_t)text[length >> 1] << 8 | (uint32_t)text[length - 1] << 16;
    }
    return bits;
}

static inline int text_bits_equal(TextBits left, TextBits right) {
    return ((left.first ^ right.first) | (left.last ^ right.last) | (left.length ^ right.length)) == 0;
}

#endif
