/* What tells names apart at a glance: whose bits are not set in both masks of a node, nobody wants there, which is what
 * happens most of the time. */

#ifndef AMPS_NAME_BITS_H
#define AMPS_NAME_BITS_H

#include <stdint.h>

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

#endif
