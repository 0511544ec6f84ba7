/* Bit masks that exclude names quickly. If the bits of a name are not set in both masks of a node, no path names it
 * below that node, which is the most frequent case. */

#ifndef AMPS_NAME_BITS_H
#define AMPS_NAME_BITS_H

#include <stdint.h>
#include <string.h>

/* A mixture of length, first, middle and last byte of a name. */
static inline uint32_t name_look(const uint8_t *name, uint32_t length) {
    uint32_t looks = length;
    if (length) looks |= (uint32_t)name[0] << 8 | (uint32_t)name[length >> 1] << 16 | (uint32_t)name[length - 1] << 24;
    return looks * 0x9E3779B1u;
}

/* Positions of the two bits of a mixture. */
static inline uint32_t name_bit(uint32_t look) {
    return look >> 26;
}

static inline uint32_t name_other_bit(uint32_t look) {
    return look >> 20 & 63;
}

/* Positions in a table, by the first two bytes of a name, or its only byte and a quote. */
#define NAME_PLACES 128

static inline uint32_t name_place(const uint8_t *name) {
    return ((uint32_t)name[0] * 5u + (uint32_t)name[1] * 29u) & (NAME_PLACES - 1);
}

/* The first bytes of names, for comparing many positions at once. The first bytes behind the opening quote are mixed to
 * one byte. Each name has one of eight bits, which is set in two rows: those of the lower and the upper half of that
 * byte. Where no bit is set in both rows, no name begins. */
#define NAME_OPENING_BYTES 3

typedef struct {
    uint8_t of_low[16];
    uint8_t of_high[16];
} NameOpenings;

static inline uint8_t name_mixture(uint8_t first, uint8_t second, uint8_t third) {
    return (uint8_t)(first * 2u + second * 8u + third);
}

static inline void name_openings_set(NameOpenings *openings, uint8_t mixture, uint8_t bit) {
    openings->of_low[mixture & 15u] |= bit;
    openings->of_high[mixture >> 4] |= bit;
}

/* Add a name, the `number`th. It is followed by a quote and then by any byte that may follow a string. */
static inline void name_openings_add(NameOpenings *openings, const uint8_t *name, uint32_t length, uint32_t number) {
    static const uint8_t BEHIND[] = {':', ',', '}', ']', ' ', '\t', '\n', '\r'};
    uint8_t bit = (uint8_t)(1u << number % 8);
    if (length > 1) {
        name_openings_set(openings, name_mixture(name[0], name[1], length > 2 ? name[2] : '"'), bit);
    } else if (length) {
        for (uint32_t at = 0; at < sizeof(BEHIND); at++)
            name_openings_set(openings, name_mixture(name[0], '"', BEHIND[at]), bit);
    } else {
        memset(openings, 0xFF, sizeof(*openings));
    }
}

#endif
