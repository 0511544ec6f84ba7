# Predicates: a field with one value against constants. See predicates.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from amps._core.expression_code cimport OP_NUMBER_IS, OP_TEXT_IN, OP_TEXT_IS
from amps._core.value cimport (
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_RAW_TEXT,
    VALUE_STRING,
    Arena,
    Value,
    settle,
    settle_short_number,
)


cdef extern from "text_words.h" nogil:
    const int TEXT_WORDS_BYTES
    ctypedef struct TextWords:
        pass
    TextWords short_text_words(const uint8_t* text, uint32_t length)
    bint words_equal(TextWords left, TextWords right)


cdef struct ShortText:
    TextWords words
    uint32_t length


cdef struct NumberRange:           # both ends belong to it
    double low
    double high


# What a predicate compares with, by its kind.
cdef union Expected:
    ShortText* texts
    NumberRange* ranges


# Where there is room for what predicates compare with.
cdef struct ExpectedRoom:
    ShortText* texts
    NumberRange* ranges


cdef extern from *:
    """
    /* As far as this, every integer is a double. */
    static const int64_t EXACT_MAX = (int64_t)1 << 53;
    """
    const int64_t EXACT_MAX


cdef enum:
    EXPECTED_MAX = 7               # of IN: more are a set
    UNDECIDED = 2
    GOES_ON = 2                    # in place of a truth on the stack


cdef struct Predicate:
    uint8_t negated                # `!=`
    uint8_t outcomes[2]            # if it is false, true: the truth it leaves on the stack; GOES_ON = none
    uint32_t places[2]             # ... and where the machine goes on
    uint32_t count                 # of texts or ranges
    Expected expected


cdef int find_predicate(
    list source, uint32_t at, const Value* constants, ExpectedRoom* room, Predicate* predicate
) except -1


cdef inline bint holds_for_text(
    int op, const Predicate* predicate, const uint8_t* text, uint32_t length
) noexcept nogil:
    cdef TextWords words
    cdef const ShortText* texts = predicate.expected.texts
    cdef bint found = False
    cdef uint32_t at
    if length > <uint32_t>TEXT_WORDS_BYTES:
        return predicate.negated
    words = short_text_words(text, length)
    if op == OP_TEXT_IS:
        return (words_equal(words, texts.words) & (length == texts.length)) ^ predicate.negated
    for at in range(predicate.count):
        found |= words_equal(words, texts[at].words) & (length == texts[at].length)
    return found


# NaN is not even different from something.
cdef inline bint holds_for_number(int op, const Predicate* predicate, double number) noexcept nogil:
    cdef NumberRange* ranges = predicate.expected.ranges
    cdef bint found = False
    cdef uint32_t at
    if op == OP_NUMBER_IS:
        return ((number >= ranges.low) & (number <= ranges.high) ^ predicate.negated) & (number == number)
    for at in range(predicate.count):
        found |= (number >= ranges[at].low) & (number <= ranges[at].high)
    return found


# Whether a field's one value is what is expected. UNDECIDED: that must be worked out in full.
cdef inline int decide(int op, const Predicate* predicate, Value* value, Arena arena) except -1:
    if op <= OP_TEXT_IN:
        # Of a format without types it is the text that equals a string, whatever it looks like.
        if value.kind != VALUE_STRING and (value.kind != VALUE_RAW_TEXT or value.length == 0):
            return UNDECIDED
        return holds_for_text(op, predicate, value.text, value.length)
    if value.kind > VALUE_CONTAINER:
        settle_short_number(value)
        if value.kind > VALUE_CONTAINER:
            settle(value, arena)
    if value.kind == VALUE_DOUBLE:
        return holds_for_number(op, predicate, value.number.double_)
    if (value.kind == VALUE_INTEGER or value.kind == VALUE_BOOLEAN) and (
        -EXACT_MAX <= value.number.integer <= EXACT_MAX
    ):
        return holds_for_number(op, predicate, <double>value.number.integer)
    return UNDECIDED
