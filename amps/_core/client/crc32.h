/* CRC-32 as zlib computes it, eight bytes at a time. Files that Python writes with zlib.crc32 are read here, and back. */

#ifndef AMPS_CLIENT_CRC32_H
#define AMPS_CLIENT_CRC32_H

#include <stddef.h>
#include <stdint.h>

static uint32_t amps_crc32_table[8][256];

static void amps_crc32_begin(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
        amps_crc32_table[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = amps_crc32_table[slice - 1][byte];
            amps_crc32_table[slice][byte] = (crc >> 8) ^ amps_crc32_table[0][crc & 0xFF];
        }
}

/* `crc`: that of the bytes before these, or the start value. */
static uint32_t amps_crc32(const char* data, size_t length, uint32_t crc) {
    const unsigned char* at = (const unsigned char*)data;
    crc = ~crc;
    for (; length >= 8; length -= 8, at += 8) {
        uint32_t low = crc ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = amps_crc32_table[7][low & 0xFF] ^ amps_crc32_table[6][low >> 8 & 0xFF]
            ^ amps_crc32_table[5][low >> 16 & 0xFF] ^ amps_crc32_table[4][low >> 24]
            ^ amps_crc32_table[3][at[4]] ^ amps_crc32_table[2][at[5]]
            ^ amps_crc32_table[1][at[6]] ^ amps_crc32_table[0][at[7]];
    }
    for (; length; length--, at++)
        crc = (crc >> 8) ^ amps_crc32_table[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

/* The compiler moves no access to memory over this. A killed process has made all stores before some instruction. */
static inline void amps_in_order(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#endif
