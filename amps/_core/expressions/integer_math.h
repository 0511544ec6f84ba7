/* Arithmetic on integers of 64 bits, signed or unsigned. If the result is neither, the operands are converted to
 * doubles. */
#ifndef AMPS_INTEGER_MATH_H
#define AMPS_INTEGER_MATH_H

#include <stdint.h>

enum { INTEGER_MATH_SIGNED = 0, INTEGER_MATH_UNSIGNED, INTEGER_MATH_DOUBLE };

typedef union {
    int64_t integer;
    uint64_t unsigned_integer;
    double double_;
} integer_math_result;

/* Store sign and magnitude: the product of two magnitudes fits where a signed product might not. */
static inline int integer_math_keep(int negative, unsigned __int128 magnitude, integer_math_result *result) {
    if (!negative && magnitude <= UINT64_MAX) {
        result->unsigned_integer = (uint64_t)magnitude;
        return magnitude <= INT64_MAX ? INTEGER_MATH_SIGNED : INTEGER_MATH_UNSIGNED;
    }
    if (negative && magnitude <= (unsigned __int128)INT64_MAX + 1) {
        result->integer = (int64_t)(0 - (uint64_t)magnitude);
        return INTEGER_MATH_SIGNED;
    }
    result->double_ = negative ? -(double)magnitude : (double)magnitude;
    return INTEGER_MATH_DOUBLE;
}

static inline __int128 integer_math_wide(int is_unsigned, uint64_t bits) {
    return is_unsigned ? (__int128)bits : (__int128)(int64_t)bits;
}

static inline unsigned __int128 integer_math_magnitude(__int128 wide) {
    return wide < 0 ? 0 - (unsigned __int128)wide : (unsigned __int128)wide;
}

/* The operator is one of + - * / %; the right operand of the last two is not zero. */
static int integer_math(char operator_, int left_unsigned, uint64_t left_bits, int right_unsigned, uint64_t right_bits,
                        integer_math_result *result) {
    __int128 left = integer_math_wide(left_unsigned, left_bits);
    __int128 right = integer_math_wide(right_unsigned, right_bits);
    __int128 wide = 0;
    double real;
    int form;
    switch (operator_) {
    case '*': real = (double)left * (double)right; break;
    case '+': wide = left + right; real = (double)left + (double)right; break;
    case '-': wide = left - right; real = (double)left - (double)right; break;
    case '/': wide = left / right; real = (double)left / (double)right; break;
    default: wide = left % right; real = 0; break;
    }
    form = operator_ == '*'
               ? integer_math_keep((left < 0) != (right < 0) && left != 0 && right != 0,
                                   integer_math_magnitude(left) * integer_math_magnitude(right), result)
               : integer_math_keep(wide < 0, integer_math_magnitude(wide), result);
    if (form == INTEGER_MATH_DOUBLE) result->double_ = real;
    return form;
}

/* Round to a multiple of 10^digits (1 to 20): half away from zero, or toward zero. */
static int integer_math_round(int is_unsigned, uint64_t bits, int digits, int truncate, integer_math_result *result) {
    __int128 wide = integer_math_wide(is_unsigned, bits);
    unsigned __int128 magnitude = integer_math_magnitude(wide);
    unsigned __int128 unit = 1, rest;
    while (digits-- > 0) unit *= 10;
    rest = magnitude % unit;
    magnitude -= rest;
    if (!truncate && rest * 2 >= unit) magnitude += unit;
    return integer_math_keep(wide < 0 && magnitude != 0, magnitude, result);
}

#endif
