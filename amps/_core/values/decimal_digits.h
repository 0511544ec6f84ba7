/* Decimal digits of unsigned numbers, written two at a time, for frames and bookmarks. */

#ifndef AMPS_DECIMAL_DIGITS_H
#define AMPS_DECIMAL_DIGITS_H

#include <stdint.h>
#include <string.h>

#define DECIMAL_DIGITS_MAX 20 /* of a number of 64 bits */

static const char DECIMAL_PAIRS[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051"
    "525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/* Write the digits of `value` and return their number. There must be room for DECIMAL_DIGITS_MAX bytes at `at`: all of
   them are overwritten. */
static inline uint32_t decimal_digits_write(uint8_t *at, uint64_t value) {
    uint8_t digits[2 * DECIMAL_DIGITS_MAX];
    uint32_t first = DECIMAL_DIGITS_MAX;
    while (value >= 100) {
        first -= 2;
        memcpy(&digits[first], DECIMAL_PAIRS + 2 * (value % 100), 2);
        value /= 100;
    }
    first -= 2;
    memcpy(&digits[first], DECIMAL_PAIRS + 2 * value, 2);
    first += value < 10;
    memcpy(at, &digits[first], DECIMAL_DIGITS_MAX);
    return DECIMAL_DIGITS_MAX - first;
}

#endif
