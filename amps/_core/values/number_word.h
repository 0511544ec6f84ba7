/* Numbers of at most eight characters and a minus. Most numbers have this form.
 *
 * All characters are loaded into one word, whose digits are recognised and combined at once. The numbers of messages
 * differ in their count of digits, so the end of a loop over them would be mispredicted.
 * Longer numbers, and those with an exponent or a plus, are handled by number_text.h. */
#ifndef AMPS_NUMBER_WORD_H
#define AMPS_NUMBER_WORD_H

#include <stdint.h>

enum { NUMBER_TEXT_NONE = 0, NUMBER_TEXT_INTEGER, NUMBER_TEXT_UNSIGNED, NUMBER_TEXT_DOUBLE };

typedef union {
    int64_t integer;
    uint64_t unsigned_integer;
    double double_;
} number_text_value;

static const double number_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static inline int number_text_is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

/* Four or eight characters as a word, with the first one in the lowest byte. */
static inline uint64_t number_four(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t number_word(const uint8_t *at) {
    return number_four(at) | number_four(at + 4) << 32;
}

/* XOR with this converts digits to their values. Then number_others sets the top bit of each byte that is not a digit,
 * and possibly of some bytes above it. */
static const uint64_t NUMBER_ZEROS = 0x3030303030303030u;

static inline uint64_t number_others(uint64_t word) {
    return (word | (word + 0x7676767676767676u)) & 0x8080808080808080u;
}

/* The number of eight digits: neighbours are combined first, then pairs, then groups of four. */
static inline uint64_t number_of_eight(uint64_t word) {
    word = word * 10 + (word >> 8);
    return ((word & 0x000000FF000000FFu) * 0x000F424000000064u +
            ((word >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u) >> 32;
}

/* Parse digits with at most one point among them, and an optional minus in front. NONE: it has another form, or is not
 * a number. A double is the nearest one, because it is the quotient of two exact doubles. */
static inline int number_word_parse(const uint8_t *at, uint32_t length, number_text_value *number) {
    uint64_t word, others, before;
    uint32_t place;
    uint32_t negative = length > 1 && *at == '-';
    double result;
    at += negative;
    length -= negative;
    if (length - 1 >= 8) return NUMBER_TEXT_NONE;
    if (length >= 4) {
        word = number_four(at) | number_four(at + length - 4) << 8 * (length - 4);
    } else {
        word = at[0] | (uint32_t)at[length >> 1] << 8 * (length >> 1) | (uint32_t)at[length - 1] << 8 * (length - 1);
    }
    word = (word ^ NUMBER_ZEROS) << (64 - 8 * length);  /* with leading zeros */
    others = number_others(word);
    if (others == 0) {
        number->integer = (int64_t)number_of_eight(word);
        if (negative) number->integer = -number->integer;
        return NUMBER_TEXT_INTEGER;
    }
    place = (uint32_t)__builtin_ctzll(others) & 56;
    if ((word >> place & 0xFF) != ('.' ^ '0') || length == 1) return NUMBER_TEXT_NONE;
    before = word & (((uint64_t)1 << place) - 1);
    word = (word ^ before ^ (uint64_t)('.' ^ '0') << place) | before << 8;  /* shift these digits over the point */
    if (number_others(word)) return NUMBER_TEXT_NONE;
    result = (double)number_of_eight(word) / number_powers[7 - place / 8];
    number->double_ = negative ? -result : result;
    return NUMBER_TEXT_DOUBLE;
}

#endif
