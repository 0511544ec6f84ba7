/* What tells names apart at a glance: whose bits are not set in both masks of a node, nobody wants there, which is what
 * happens most of the time. */

#ifndef AMPS_NAME_BITS_H
#define AMPS_NAME_BITS_H

#include <stdint.h>
#include <string.h>

/* A mixture of length, first, middle and last byte. */
static inline uint32_t name_look(const uint8_t *name, uint32_t length) {
    uint32_t looks = length;
    if (length) looks |= (uint32_t)name[0] << 8 | (uint32_t)name[length >> 1] << 16 | (uint32_t)name[length - 1] << 24;
    return looks * 0x9E3779B1u;
}

/* Places of its two bits. */
static inline uint32_t name_bit(uint32_t look) {
    return look >> 26;
}

static inline uint32_t name_other_bit(uint32_t look) {
    return look >> 20 & 63;
}

/* Most names have 4 to 16 bytes: these are compared without a call. */
static inline int names_equal(const uint8_t *left, const uint8_t *right, uint32_t length) {
    if (length >= 8 && length <= 16) {
        uint64_t words[4];
        memcpy(&words[0], left, 8);
        memcpy(&words[1], right, 8);
        memcpy(&words[2], left + length - 8, 8);
        memcpy(&words[3], right + length - 8, 8);
        return ((words[0] ^ words[1]) | (words[2] ^ words[3])) == 0;
    }
    if (length >= 4 && length < 8) {
        uint32_t halves[4];
        memcpy(&halves[0], left, 4);
        memcpy(&halves[1], right, 4);
        memcpy(&halves[2], left + length - 4, 4);
        memcpy(&halves[3], right + length - 4, 4);
        return ((halves[0] ^ halves[1]) | (halves[2] ^ halves[3])) == 0;
    }
    return memcmp(left, right, length) == 0;
}

#define NAME_OPENING_BYTES 3

/* What names begin with, for a look at many places at once. Each name has one of eight bits, and for each of its first
 * bytes sets it in the rows of the byte's lower and upper half: where no bit is left of all six, no name begins. */
typedef struct {
    uint8_t of_low[NAME_OPENING_BYTES][16];
    uint8_t of_high[NAME_OPENING_BYTES][16];
} NameOpenings;

/* One more name, the `number`th. Whatever is behind a short one fits. */
static inline void name_openings_add(NameOpenings *openings, const uint8_t *name, uint32_t length, uint32_t number) {
    uint8_t bit = (uint8_t)(1u << number % 8);
    for (uint32_t place = 0; place < NAME_OPENING_BYTES; place++) {
        for (uint32_t half = 0; half < 16; half++) {
            if (place >= length || half == (name[place] & 15u)) openings->of_low[place][half] |= bit;
            if (place >= length || half == name[place] >> 4) openings->of_high[place][half] |= bit;
        }
    }
}

#endif
