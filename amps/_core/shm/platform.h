/* Primitives that Cython lacks: ordered loads and stores on shared memory, clocks, CRC32C, and assertions that exist in
 * debug builds only. This file knows no layouts of memory.
 */
#ifndef AMPS_PLATFORM_H
#define AMPS_PLATFORM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

static inline uint64_t load_acquire(const uint64_t *address) { return __atomic_load_n(address, __ATOMIC_ACQUIRE); }
static inline void store_release(uint64_t *address, uint64_t value) { __atomic_store_n(address, value, __ATOMIC_RELEASE); }
static inline uint64_t load_relaxed(const uint64_t *address) { return __atomic_load_n(address, __ATOMIC_RELAXED); }
static inline void store_relaxed(uint64_t *address, uint64_t value) { __atomic_store_n(address, value, __ATOMIC_RELAXED); }
static inline void full_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void acquire_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void release_fence(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
#if defined(__x86_64__)
static inline void spin_pause(void) { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
static inline void spin_pause(void) { __asm__ __volatile__("yield"); }
#else
static inline void spin_pause(void) { }
#endif

static inline uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CPU time of the calling thread. The call takes ten times as long as monotonic_ns, because it enters the kernel. */
static inline uint64_t thread_time_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Hint that memory will be read soon. The address may be invalid. */
enum { CACHE_LINE_BYTES = 64 };
static inline void prefetch(const void *address) { __builtin_prefetch(address); }

static inline void debug_assert(int condition) { assert(condition); (void)condition; }

/* CRC32C (Castagnoli, reflected polynomial 0x82F63B78). Uses the processor's instruction if it has one. */
static uint32_t crc32c_table[8][256];

static void crc32c_fill_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
        crc32c_table[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t byte = 0; byte < 256; byte++)
            crc32c_table[slice][byte] =
                (crc32c_table[slice - 1][byte] >> 8) ^ crc32c_table[0][crc32c_table[slice - 1][byte] & 0xFF];
}

static uint32_t crc32c_software(uint32_t crc, const uint8_t *data, size_t length) {
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = crc32c_table[7][word & 0xFF] ^ crc32c_table[6][(word >> 8) & 0xFF] ^
              crc32c_table[5][(word >> 16) & 0xFF] ^ crc32c_table[4][(word >> 24) & 0xFF] ^
              crc32c_table[3][(word >> 32) & 0xFF] ^ crc32c_table[2][(word >> 40) & 0xFF] ^
              crc32c_table[1][(word >> 48) & 0xFF] ^ crc32c_table[0][(word >> 56) & 0xFF];
        data += 8;
        length -= 8;
    }
    while (length--) crc = (crc >> 8) ^ crc32c_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>

/* The CRC instruction has a latency of three cycles, but one can start in each cycle. So longer data is split into
 * three equal parts, whose sums are computed in parallel and combined. A sum is moved over n following bytes by
 * multiplying it with x^(8n) modulo the polynomial. The carry-less product of two reflected 32-bit values is shifted by
 * one bit, and the CRC instruction multiplies by x^32, so the stored factor for n bytes is x^(8n-33).
 *
 * The hardware prefetcher does not keep up with three parallel streams, so for long data the code prefetches the bytes
 * of two rounds later. Addresses beyond the data are only prefetched, never read. */
enum { CRC32C_LANE_WORDS_MIN = 4, CRC32C_LANE_WORDS_MAX = 128 };
enum { CRC32C_AHEAD_BYTES = 2 * 3 * 8 * CRC32C_LANE_WORDS_MAX };
static uint32_t crc32c_factors[2 * CRC32C_LANE_WORDS_MAX + 1]; /* by number of 8-byte words; [0] is unused */

static void crc32c_fill_factors(void) {
    uint32_t power = 0x80000000u; /* x^0 */
    int exponent = 0;
    for (int words = 1; words <= 2 * CRC32C_LANE_WORDS_MAX; words++) {
        for (; exponent < 64 * words - 33; exponent++) power = (power >> 1) ^ (0x82F63B78u & (0u - (power & 1u)));
        crc32c_factors[words] = power;
    }
}

static inline uint64_t load_word(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t crc32c_multiply(uint64_t crc, uint32_t factor) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi32_si128((int)factor), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_hardware(uint32_t crc, const uint8_t *data, size_t length) {
    uint64_t first = crc;
    while (length >= 3 * 8 * CRC32C_LANE_WORDS_MIN) {
        size_t words = length / 24 < CRC32C_LANE_WORDS_MAX ? length / 24 : CRC32C_LANE_WORDS_MAX;
        const uint8_t *second_data = data + 8 * words;
        const uint8_t *third_data = data + 16 * words;
        uint64_t second = 0;
        uint64_t third = 0;
        for (size_t at = 0; at < 8 * words; at += 8) {
            if (words == CRC32C_LANE_WORDS_MAX && at % CACHE_LINE_BYTES == 0) {
                prefetch(data + at + CRC32C_AHEAD_BYTES);
                prefetch(second_data + at + CRC32C_AHEAD_BYTES);
                prefetch(third_data + at + CRC32C_AHEAD_BYTES);
            }
            first = _mm_crc32_u64(first, load_word(data + at));
            second = _mm_crc32_u64(second, load_word(second_data + at));
            third = _mm_crc32_u64(third, load_word(third_data + at));
        }
        first = third ^ _mm_crc32_u64(0, crc32c_multiply(first, crc32c_factors[2 * words]) ^
                                             crc32c_multiply(second, crc32c_factors[words]));
        data += 24 * words;
        length -= 24 * words;
    }
    for (; length >= 8; data += 8, length -= 8) first = _mm_crc32_u64(first, load_word(data));
    crc = (uint32_t)first;
    while (length--) crc = _mm_crc32_u8(crc, *data++);
    return crc;
}
static int crc32c_has_hardware(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
#else
static void crc32c_fill_factors(void) { }
static uint32_t crc32c_hardware(uint32_t crc, const uint8_t *data, size_t length) { return crc32c_software(crc, data, length); }
static int crc32c_has_hardware(void) { return 0; }
#endif

/* Each extension module has its own copy of these variables; the constructor runs when the module is loaded. */
static int crc32c_use_hardware = 0;

__attribute__((constructor)) static void crc32c_prepare(void) {
    crc32c_fill_table();
    crc32c_fill_factors();
    crc32c_use_hardware = crc32c_has_hardware();
}

/* Continue a checksum with more data; `sum` is the checksum of the preceding data (0 without any). */
static inline uint32_t crc32c_more(uint32_t sum, const void *data, size_t length) {
    const uint8_t *bytes = (const uint8_t *)data;
    return ~(crc32c_use_hardware ? crc32c_hardware(~sum, bytes, length) : crc32c_software(~sum, bytes, length));
}

static inline uint32_t crc32c(const void *data, size_t length) { return crc32c_more(0, data, length); }

#endif
