# Sums of numbers without rounding, for SUM, AVG and STDDEV of a group (expressions.md §10.12).
#
# Numbers are added and removed, and the result must depend only on the numbers present, not on earlier ones. Nothing is
# therefore rounded before a result is read. Every double is an integer times a power of two, so a sum of doubles is an
# integer of at most some 2200 bits, of which only the used part is stored. Adding a number takes a handful of machine
# additions. Only the results use Python objects, whose division of integers rounds correctly.
#
# Invariants: the last limb of a sum holds only its sign, 0 or all ones, and there is memory for one more limb. So an
# addition that `tally_reserve` has prepared cannot fail and cannot overflow.

from libc.math cimport isfinite
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove, memset

from amps._core.expressions.functions cimport set_double
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_STRING,
    VALUE_UNSIGNED,
    Value,
    number_from_text,
)

from math import isqrt


cdef extern from *:
    """
    typedef unsigned __int128 exact_wide;
    """
    ctypedef unsigned long long exact_wide


cdef enum:
    LIMB_BITS = 64
    UNIT_LIMB = 18                 # position of 1 in a total; below it is room for 2 ** -1074, the smallest double
    DOUBLE_BIAS = 1075             # bias of a double's exponent, for the lowest bit of its mantissa
    MANTISSA_BITS = 52
    ROOT_BITS = 132                # bits of the radicand of a root: more than twice the bits of a double

cdef uint64_t ALL_ONES = <uint64_t>0xFFFFFFFFFFFFFFFF


cdef int make_room(ExactSum* kept, uint32_t bit, uint32_t bits) except -1:
    """Make room for adding a number of `bits` bits whose lowest is `bit`."""
    cdef uint32_t low = bit // LIMB_BITS
    cdef uint32_t end = (bit + bits - 1) // LIMB_BITS + 2  # behind the limb of the sign
    cdef uint32_t first = low
    cdef uint32_t capacity
    cdef uint64_t sign = 0
    cdef uint64_t* grown
    if kept.count:
        first = min(first, kept.first)
        end = max(end, kept.first + kept.count)
        sign = kept.limbs[kept.count - 1]
    if end - first + 1 > kept.capacity:
        capacity = end - first + 1
        grown = <uint64_t*>realloc(kept.limbs, capacity * sizeof(uint64_t))
        if grown == NULL:
            raise MemoryError()
        kept.limbs = grown
        kept.capacity = capacity
    if kept.count == 0:
        kept.first = first
    elif first < kept.first:
        memmove(kept.limbs + (kept.first - first), kept.limbs, kept.count * sizeof(uint64_t))
        memset(kept.limbs, 0, (kept.first - first) * sizeof(uint64_t))
        kept.count += kept.first - first
        kept.first = first
    while kept.count < end - first:
        kept.limbs[kept.count] = sign
        kept.count += 1
    return 0


cdef void add_exactly(ExactSum* kept, exact_wide magnitude, uint32_t bit, bint negative) noexcept nogil:
    """Add or subtract a number for which `make_room` was called."""
    cdef uint64_t parts[3]
    cdef uint32_t shift = bit % LIMB_BITS
    cdef uint32_t at = bit // LIMB_BITS - kept.first
    cdef uint32_t done = 0
    cdef uint64_t part
    cdef exact_wide made
    cdef uint64_t carry = 0
    parts[0] = <uint64_t>(magnitude << shift)
    parts[1] = <uint64_t>(magnitude >> (LIMB_BITS - shift))
    parts[2] = <uint64_t>(magnitude >> LIMB_BITS) >> (LIMB_BITS - shift) if shift else 0
    while at < kept.count:
        if done < 3:
            part = parts[done]
        elif carry == 0:
            break
        else:
            part = 0
        if negative:
            made = <exact_wide>kept.limbs[at] - part - carry
            carry = <uint64_t>(made >> LIMB_BITS) & 1
        else:
            made = <exact_wide>kept.limbs[at] + part + carry
            carry = <uint64_t>(made >> LIMB_BITS)
        kept.limbs[at] = <uint64_t>made
        at += 1
        done += 1
    part = kept.limbs[kept.count - 1]
    if part != 0 and part != ALL_ONES:
        kept.limbs[kept.count] = ALL_ONES if <int64_t>part < 0 else 0
        kept.count += 1


cdef void forget_sum(ExactSum* kept) noexcept nogil:
    free(kept.limbs)
    memset(kept, 0, sizeof(ExactSum))


cdef object integer_of(const ExactSum* kept):
    """The sum in units of its lowest limb."""
    if kept.count == 0:
        return 0
    return int.from_bytes((<const char*>kept.limbs)[:kept.count * sizeof(uint64_t)], "little", signed=True)


cdef bint term_of(const Value* value, Term* term) noexcept nogil:
    """Convert a settled value to a term. False: it is neither a finite number nor text with the form of one."""
    cdef Value number = value[0]
    cdef uint64_t bits
    cdef uint32_t exponent
    term.real = value.kind == VALUE_DOUBLE or value.kind == VALUE_STRING
    if number.kind == VALUE_STRING and not number_from_text(value.text, value.length, &number):
        return False
    if number.kind == VALUE_DOUBLE:
        if not isfinite(number.number.double_):
            return False
        memcpy(&bits, &number.number.double_, 8)
        exponent = <uint32_t>(bits >> MANTISSA_BITS) & 0x7FF
        term.negative = bits >> 63 != 0
        term.magnitude = bits & ((<uint64_t>1 << MANTISSA_BITS) - 1)
        if exponent:
            term.magnitude |= <uint64_t>1 << MANTISSA_BITS
        else:
            exponent = 1
        term.bit = <uint32_t>UNIT_LIMB * LIMB_BITS + exponent - DOUBLE_BIAS
        return True
    if number.kind != VALUE_INTEGER and number.kind != VALUE_UNSIGNED and number.kind != VALUE_BOOLEAN:
        return False
    term.negative = number.kind == VALUE_INTEGER and number.number.integer < 0
    term.magnitude = number.number.unsigned_integer
    if term.negative:
        term.magnitude = 0 - term.magnitude
    term.bit = <uint32_t>UNIT_LIMB * LIMB_BITS
    return True


cdef int tally_reserve(Tally* tally, const Term* term, bint squares) except -1:
    """Make room for a term, so that adding or removing it cannot fail. No result changes."""
    make_room(&tally.total, term.bit, LIMB_BITS)
    if squares:
        make_room(&tally.squares, 2 * term.bit, 2 * LIMB_BITS)
    return 0


cdef void tally_change(Tally* tally, const Term* term, bint removed, bint squares) noexcept nogil:
    """Add a term, or remove one that was added before. `tally_reserve` must be called first."""
    add_exactly(&tally.total, term.magnitude, term.bit, term.negative != removed)
    if squares:
        add_exactly(&tally.squares, <exact_wide>term.magnitude * term.magnitude, 2 * term.bit, removed)
    if not removed:
        tally.numbers += 1
        tally.reals += term.real
        return
    tally.numbers -= 1
    tally.reals -= term.real
    if tally.numbers == 0:
        tally_free(tally)


cdef void tally_free(Tally* tally) noexcept nogil:
    forget_sum(&tally.total)
    forget_sum(&tally.squares)


cdef int set_quotient(Value* result, numerator, denominator) except -1:
    """Set the double nearest to a quotient of integers. Beyond the largest double it is NaN, as in arithmetic."""
    try:
        set_double(result, numerator / denominator)
    except OverflowError:
        set_double(result, float("nan"))
    return 0


cdef bint small_sum(const ExactSum* total, Value* result) noexcept nogil:
    """Set the result to the sum if it is an integer of 64 bits. False: it is not."""
    cdef uint32_t at = UNIT_LIMB - total.first
    cdef uint64_t sign = total.limbs[total.count - 1]
    cdef uint64_t unit
    cdef uint32_t above
    if at >= total.count:
        return False
    unit = total.limbs[at]
    for above in range(at + 1, total.count):
        if total.limbs[above] != sign:
            return False
    if sign and <int64_t>unit >= 0:
        return False
    result.flags = 0
    result.kind = VALUE_UNSIGNED if not sign and unit > <uint64_t>INT64_MAX else VALUE_INTEGER
    result.number.unsigned_integer = unit
    return True


cdef int tally_sum(Tally* tally, Value* result) except -1:
    """The sum of at least one number: an integer if all numbers are integers and it fits, otherwise a double."""
    if tally.reals == 0 and small_sum(&tally.total, result):
        return 0
    return quotient_of_total(tally, 1, result)


cdef int tally_mean(Tally* tally, Value* result) except -1:
    return quotient_of_total(tally, tally.numbers, result)


cdef int quotient_of_total(Tally* tally, divisor, Value* result) except -1:
    cdef uint32_t first = tally.total.first
    total = integer_of(&tally.total)
    if first <= UNIT_LIMB:
        return set_quotient(result, total, divisor << LIMB_BITS * (UNIT_LIMB - first))
    return set_quotient(result, total << LIMB_BITS * (first - UNIT_LIMB), divisor)


cdef int tally_deviation(Tally* tally, uint64_t fewer, Value* result) except -1:
    """The deviation of a population (fewer: 0) or a sample (fewer: 1). There must be more than `fewer` numbers.

    It is the root of (n * sum of squares - square of the sum) / (n * (n - fewer)), rounded once.
    """
    cdef int total_place = <int>tally.total.first - UNIT_LIMB
    cdef int squares_place = <int>tally.squares.first - 2 * UNIT_LIMB
    cdef int below = max(0, -total_place, (1 - squares_place) // 2 if squares_place < 0 else 0)
    total = integer_of(&tally.total) << LIMB_BITS * (total_place + below)
    squares = integer_of(&tally.squares) << LIMB_BITS * (squares_place + 2 * below)
    numbers = tally.numbers
    numerator = numbers * squares - total * total
    denominator = numbers * (numbers - fewer)
    scale = max(0, (ROOT_BITS - numerator.bit_length() + denominator.bit_length() + 1) // 2)
    quotient, remainder = divmod(numerator << 2 * scale, denominator)
    root = isqrt(quotient)
    inexact = remainder != 0 or root * root != quotient
    return set_quotient(result, root << 1 | inexact, 1 << scale + LIMB_BITS * below + 1)
