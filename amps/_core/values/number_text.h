/* Conversion of text to numbers, exactly: an integer if it fits 64 bits, otherwise the nearest double.
 *
 * A short decimal takes one multiplication or division of two doubles that are exact. It rounds once, so the result is
 * the nearest double. All others use the C library, with as many digits as can make a difference. */
#ifndef AMPS_NUMBER_TEXT_H
#define AMPS_NUMBER_TEXT_H

#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include "number_word.h"

/* No double needs more than 767 significant digits to be distinguished from its neighbours. One more digit stands for
 * all further ones. */
enum { NUMBER_TEXT_DIGITS_MAX = 770 };
enum { NUMBER_TEXT_EXPONENT_MAX = 100000 };

static locale_t number_text_locale = (locale_t)0;

__attribute__((constructor)) static void number_text_prepare(void) {
    number_text_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}
/* The digits begin with the first one that is not zero. A decimal point among them is skipped. */
/* digits: from the first that is not zero; the decimal point among them is passed over. */
static double number_text_slow(const uint8_t *at, const uint8_t *end, int64_t exponent) {
    char copy[NUMBER_TEXT_DIGITS_MAX + 40];
    size_t length = 0;
    int more = 0;
    for (; at < end; at++) {
        if (*at == '.') continue;
        if (length < NUMBER_TEXT_DIGITS_MAX) copy[length++] = (char)*at;
        else {
            exponent++;
            more |= *at != '0';
        }
    }
    if (more) {
        copy[length++] = '1';
        exponent--;
    }
    if (exponent > NUMBER_TEXT_EXPONENT_MAX) exponent = NUMBER_TEXT_EXPONENT_MAX;
    if (exponent < -NUMBER_TEXT_EXPONENT_MAX) exponent = -NUMBER_TEXT_EXPONENT_MAX;
    snprintf(copy + length, 40, "e%lld", (long long)exponent);
    return strtod_l(copy, NULL, number_text_locale);
}

/* Read all following digits. On overflow, further digits are skipped. */
static inline const uint8_t *number_text_digits(
    const uint8_t *at, const uint8_t *end, uint64_t *mantissa, int *overflow
) {
    while (end - at >= 8 && *mantissa <= (UINT64_MAX - 99999999) / 100000000) {
        uint64_t word = number_word(at) ^ NUMBER_ZEROS;
        if (number_others(word)) break;
        *mantissa = *mantissa * 100000000 + number_of_eight(word);
        at += 8;
    }
    for (; at < end && number_text_is_digit(*at); at++) {
        uint64_t digit = *at - '0';
        if (*mantissa > (UINT64_MAX - digit) / 10) *overflow = 1;
        if (!*overflow) *mantissa = *mantissa * 10 + digit;
    }
    return at;
}

/* The form is [+-] digits [. digits] [e [+-] digits]. Digits may be missing on one side of the point, and no other
 * bytes may surround it. */
static int number_text_parse(const uint8_t *at, const uint8_t *end, number_text_value *number) {
    const uint8_t *digits, *digits_end, *point;
    uint64_t mantissa = 0;
    int64_t count;  /* of the digits read, including leading zeros */
    int64_t exponent = 0;
    int negative = 0, overflow = 0, is_double = 0;
    double result;
    if (at < end && (*at == '-' || *at == '+')) negative = *at++ == '-';
    digits = at;
    at = number_text_digits(at, end, &mantissa, &overflow);
    count = at - digits;
    if (at < end && *at == '.') {
        is_double = 1;
        point = at++;
        at = number_text_digits(at, end, &mantissa, &overflow);
        exponent = point + 1 - at;
        count -= exponent;
    }
    if (count == 0) return NUMBER_TEXT_NONE;
    digits_end = at;
    if (at < end && (*at | 0x20) == 'e') {
        int64_t written = 0;
        int exponent_negative = 0;
        is_double = 1;
        if (++at < end && (*at == '-' || *at == '+')) exponent_negative = *at++ == '-';
        if (at == end) return NUMBER_TEXT_NONE;
        for (; at < end && number_text_is_digit(*at); at++)
            if (written < (int64_t)1 << 40) written = written * 10 + (*at - '0');
        exponent += exponent_negative ? -written : written;
    }
    if (at != end) return NUMBER_TEXT_NONE;
    if (!is_double && !overflow) {
        if (!negative) {
            number->unsigned_integer = mantissa;
            return mantissa <= INT64_MAX ? NUMBER_TEXT_INTEGER : NUMBER_TEXT_UNSIGNED;
        }
        if (mantissa <= (uint64_t)INT64_MAX + 1) {
            number->integer = (int64_t)(0 - mantissa);
            return NUMBER_TEXT_INTEGER;
        }
    }
    if (!overflow && mantissa <= (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22)
        result = exponent < 0 ? (double)mantissa / number_powers[-exponent]
                              : (double)mantissa * number_powers[exponent];
    else if (!overflow && mantissa == 0) result = 0.0;
    else {
        while (digits < digits_end && (*digits == '0' || *digits == '.')) digits++;
        result = number_text_slow(digits, digits_end, exponent);
    }
    number->double_ = negative ? -result : result;
    return NUMBER_TEXT_DOUBLE;
}

#endif
