/* One bit out of 64 for a name: whose bit is not set nobody wants, which is what happens most of the time. */

#ifndef AMPS_NAME_BITS_H
#define AMPS_NAME_BITS_H

#include <stdint.h>

static inline uint32_t name_bit(const uint8_t *name, uint32_t length) {
    uint32_t looks = length;
    if (length) looks |= (uint32_t)name[0] << 8 | (uint32_t)name[length >> 1] << 16 | (uint32_t)name[length - 1] << 24;
    return looks * 0x9E3779B1u >> 26;
}

#endif
