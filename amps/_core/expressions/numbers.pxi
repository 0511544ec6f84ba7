# Arithmetic and the numeric functions of expressions (expressions.md §§4.1, 10.6, 10.7).
#
# A result that is not a valid number is NaN, and so is an infinite one. Integers beyond 64 bits become doubles.

from libc.math cimport (
    M_PI,
    NAN,
    acos,
    asin,
    atan,
    ceil,
    cos,
    cosh,
    exp,
    fabs,
    floor,
    fmod,
    isfinite,
    isnan,
    log,
    log2,
    log10,
    pow,
    round,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from libc.stdint cimport int64_t, uint32_t, uint64_t

from amps._core.values.fields cimport FieldValues, MessageContext, Operand
from amps._core.values.value cimport (
    COMPARE_GT,
    COMPARE_LT,
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_NULL,
    VALUE_UNSIGNED,
    Arena,
    Value,
    compare,
    settle,
    to_number,
)


cdef extern from "integer_math.h" nogil:
    ctypedef union integer_math_result:
        int64_t integer
        uint64_t unsigned_integer
        double double_

    int INTEGER_MATH_SIGNED, INTEGER_MATH_UNSIGNED
    int integer_math(
        char operator,
        bint left_unsigned,
        uint64_t left,
        bint right_unsigned,
        uint64_t right,
        integer_math_result* result,
    )
    int integer_math_round(
        bint is_unsigned, uint64_t bits, int digits, bint truncate, integer_math_result* result
    )


cdef enum:
    DIGITS_MAX = 330               # no double has a digit further behind the decimal point
    DIGITS_BEFORE_MAX = 308        # nor further before it
    INTEGER_DIGITS_MAX = 20

cdef double EARTH_RADIUS_M = 6371000.0


cdef void set_double(Value* result, double number) noexcept nogil:
    result.kind = VALUE_DOUBLE
    result.flags = 0
    result.number.double_ = number if isfinite(number) else NAN


cdef void set_integer(Value* result, int64_t number) noexcept nogil:
    result.kind = VALUE_INTEGER
    result.flags = 0
    result.number.integer = number


cdef void set_whole(Value* result, double number) noexcept nogil:
    """A double without a fraction, as an integer if it fits."""
    if -9223372036854775808.0 <= number < 9223372036854775808.0:
        set_integer(result, <int64_t>number)
    elif 0 < number < 18446744073709551616.0:
        result.kind = VALUE_UNSIGNED
        result.flags = 0
        result.number.unsigned_integer = <uint64_t>number
    else:
        set_double(result, number)


cdef void set_result(Value* result, int form, const integer_math_result* number) noexcept nogil:
    result.flags = 0
    if form == INTEGER_MATH_SIGNED:
        result.kind = VALUE_INTEGER
        result.number.integer = number.integer
    elif form == INTEGER_MATH_UNSIGNED:
        result.kind = VALUE_UNSIGNED
        result.number.unsigned_integer = number.unsigned_integer
    else:
        result.kind = VALUE_DOUBLE
        result.number.double_ = number.double_


cdef double double_of(const Value* number) noexcept nogil:
    if number.kind == VALUE_DOUBLE:
        return number.number.double_
    if number.kind == VALUE_UNSIGNED:
        return <double>number.number.unsigned_integer
    return <double>number.number.integer


cdef void arithmetic(char operator, const Value* left, const Value* right, Value* result) noexcept nogil:
    """Calculate one of + - * / % on numbers or NULL. NULL takes precedence over NaN; integers stay integers."""
    cdef integer_math_result made
    cdef double first
    cdef double second
    if left.kind == VALUE_NULL or right.kind == VALUE_NULL:
        result.kind = VALUE_NULL
        result.flags = 0
        return
    if left.kind != VALUE_DOUBLE and right.kind != VALUE_DOUBLE:
        if (operator == c"/" or operator == c"%") and right.number.unsigned_integer == 0:
            set_double(result, NAN)
            return
        set_result(
            result,
            integer_math(
                operator,
                left.kind == VALUE_UNSIGNED,
                left.number.unsigned_integer,
                right.kind == VALUE_UNSIGNED,
                right.number.unsigned_integer,
                &made,
            ),
            &made,
        )
        return
    first = double_of(left)
    second = double_of(right)
    if operator == c"+":
        first += second
    elif operator == c"-":
        first -= second
    elif operator == c"*":
        first *= second
    elif second == 0:
        first = NAN
    elif operator == c"/":
        first /= second
    else:
        first = fmod(first, second)
    set_double(result, first)


cdef int keep_extreme(Value* candidate, int comparison, Value* best, Arena arena) except -1:
    """Put the candidate into `best` if it is more extreme. NULL never is, NaN only if `best` has no other number."""
    settle(candidate, arena)
    if candidate.kind != VALUE_NULL and candidate.kind != VALUE_CONTAINER and (
        best.kind == VALUE_NULL
        or (best.kind == VALUE_DOUBLE and isnan(best.number.double_))
        or compare(candidate, best, comparison, arena)
    ):
        best[0] = candidate[0]
    return 0


cdef void round_number(const Value* number, const Value* digits, bint truncate, Value* result) noexcept nogil:
    """Round half away from zero, or truncate. Without digits the result is an integer."""
    cdef integer_math_result made
    cdef double places
    cdef double unit
    cdef double scaled
    cdef double magnitude = double_of(number)
    if digits == NULL:
        if number.kind != VALUE_DOUBLE:
            result[0] = number[0]
        else:
            set_whole(result, trunc(number.number.double_) if truncate else round(number.number.double_))
        return
    places = trunc(double_of(digits))
    if isnan(places):
        set_double(result, NAN)
    elif number.kind != VALUE_DOUBLE:
        if places >= 0:
            result[0] = number[0]
        elif places < -INTEGER_DIGITS_MAX:
            set_integer(result, 0)
        else:
            set_result(
                result,
                integer_math_round(
                    number.kind == VALUE_UNSIGNED, number.number.unsigned_integer, <int>-places, truncate, &made
                ),
                &made,
            )
    elif places > DIGITS_MAX:
        result[0] = number[0]
    elif places < -DIGITS_BEFORE_MAX:
        set_double(result, magnitude * 0)  # NaN stays NaN
    else:
        unit = pow(10, places if places > 0 else -places)
        scaled = magnitude * unit if places >= 0 else magnitude / unit
        if not isfinite(scaled):
            result[0] = number[0]  # the number is so large, or has so many digits, that nothing is rounded
            return
        scaled = trunc(scaled) if truncate else round(scaled)
        set_double(result, scaled / unit if places >= 0 else scaled * unit)


cdef void width_bucket(double number, double low, double high, double count, Value* result) noexcept nogil:
    cdef double bucket
    cdef bint below
    cdef bint above
    if isnan(number) or isnan(low) or isnan(high) or isnan(count) or low == high or not 1 <= count < 9e15:
        set_double(result, NAN)
        return
    count = trunc(count)
    below = number < low if low < high else number > low
    above = number >= high if low < high else number <= high
    if below:
        bucket = 0
    elif above:
        bucket = count + 1
    else:
        bucket = floor((number - low) / (high - low) * count) + 1
        bucket = bucket if bucket <= count else count
    set_whole(result, bucket)


cdef void geo_distance(double lat1, double long1, double lat2, double long2, Value* result) noexcept nogil:
    """Metres between two points given in degrees, by the haversine formula."""
    cdef double to_radians = M_PI / 180
    cdef double half_north
    cdef double half_east
    cdef double chord
    if not (-90 <= lat1 <= 90 and -90 <= lat2 <= 90 and -180 <= long1 <= 180 and -180 <= long2 <= 180):
        set_double(result, NAN)
        return
    half_north = sin((lat2 - lat1) * to_radians / 2)
    half_east = sin((long2 - long1) * to_radians / 2)
    chord = half_north * half_north + cos(lat1 * to_radians) * cos(lat2 * to_radians) * half_east * half_east
    chord = sqrt(chord)
    set_double(result, 2 * EARTH_RADIUS_M * asin(chord if chord < 1 else 1))


cdef double real_function(int which, double number) noexcept nogil:
    if which == NUMBER_EXP:
        return exp(number)
    if which == NUMBER_LN:
        return log(number)
    if which == NUMBER_LOG2:
        return log2(number)
    if which == NUMBER_LOG10:
        return log10(number)
    if which == NUMBER_SQRT:
        return sqrt(number)
    if which == NUMBER_DEGREES:
        return number * (180 / M_PI)
    if which == NUMBER_RADIANS:
        return number * (M_PI / 180)
    if which == NUMBER_ACOS:
        return acos(number)
    if which == NUMBER_ASIN:
        return asin(number)
    if which == NUMBER_ATAN:
        return atan(number)
    if which == NUMBER_COS:
        return cos(number)
    if which == NUMBER_SIN:
        return sin(number)
    if which == NUMBER_TAN:
        return tan(number)
    if which == NUMBER_COT:
        return 1 / tan(number) if number != 0 else NAN
    if which == NUMBER_SINH:
        return sinh(number)
    if which == NUMBER_COSH:
        return cosh(number)
    return tanh(number)


cdef int call_number(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1:
    cdef Arena arena = values.arena
    cdef Value* number = &arguments[0].value
    cdef integer_math_result made
    cdef double real
    cdef uint32_t at
    if which == NUMBER_NAN:
        set_double(result, NAN)
        return 0
    if which == NUMBER_TRUE or which == NUMBER_FALSE:
        set_integer(result, which == NUMBER_TRUE)
        result.kind = VALUE_BOOLEAN
        return 0
    if which == NUMBER_GREATEST or which == NUMBER_LEAST:
        result.kind = VALUE_NULL
        for at in range(count):
            keep_extreme(
                &arguments[at].value, COMPARE_GT if which == NUMBER_GREATEST else COMPARE_LT, result, arena
            )
        return 0
    for at in range(count):
        to_number(&arguments[at].value, arena)
    if which == NUMBER_ROUND or which == NUMBER_TRUNC:
        round_number(number, &arguments[1].value if count > 1 else NULL, which == NUMBER_TRUNC, result)
        return 0
    if which == NUMBER_WIDTH_BUCKET:
        width_bucket(
            double_of(number),
            double_of(&arguments[1].value),
            double_of(&arguments[2].value),
            double_of(&arguments[3].value),
            result,
        )
        return 0
    if which == NUMBER_GEO_DISTANCE:
        geo_distance(
            double_of(number),
            double_of(&arguments[1].value),
            double_of(&arguments[2].value),
            double_of(&arguments[3].value),
            result,
        )
        return 0
    real = double_of(number)
    if which == NUMBER_POWER:
        set_double(result, pow(real, double_of(&arguments[1].value)))
        return 0
    if which == NUMBER_SIGN:
        if isnan(real):
            set_double(result, NAN)
        else:
            set_integer(result, (real > 0) - (real < 0))
        return 0
    if which == NUMBER_ABS or which == NUMBER_CEILING or which == NUMBER_FLOOR:
        result[0] = number[0]
        if number.kind == VALUE_DOUBLE:
            if which == NUMBER_ABS:
                set_double(result, fabs(real))
            else:
                set_whole(result, ceil(real) if which == NUMBER_CEILING else floor(real))
        elif which == NUMBER_ABS and number.kind == VALUE_INTEGER and number.number.integer < 0:
            set_result(result, integer_math(c"-", False, 0, False, number.number.unsigned_integer, &made), &made)
        return 0
    set_double(result, real_function(which, real))
    return 0
