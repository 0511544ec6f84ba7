# Publisher ids and hashes. See values/identity.pxi.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t


cdef uint64_t hash_bytes(const uint8_t* data, Py_ssize_t length, uint64_t start) noexcept nogil


# One value: of a field, of a constant, or in the middle of an expression. See values/value.pxi.


# The kind of a value. Scanners produce the RAW kinds, which are settled when an expression reads them (`settle`): most
# fields of a message are never read, or only as text.
cdef enum ValueKind:
    VALUE_NULL = 0
    VALUE_BOOLEAN = 1              # number.integer: 0 or 1
    VALUE_INTEGER = 2              # number.integer
    VALUE_UNSIGNED = 3             # number.unsigned_integer: above the largest signed integer, never below
    VALUE_DOUBLE = 4               # number.double_; NaN is one
    VALUE_STRING = 5               # text, at least one byte: the empty string is NULL
    VALUE_CONTAINER = 6            # an object, map or sub-message: it exists, but has no value of its own
    VALUE_RAW_NUMBER = 7           # text of a number, as in JSON
    VALUE_RAW_STRING = 8           # text between the quotes of a JSON string that has escapes
    VALUE_RAW_TEXT = 9             # text of a format without types: number or string, NULL if empty


cdef enum ValueFlag:
    VALUE_HAS_TEXT = 1             # a number with its text as in the message
    VALUE_INFERRED = 2             # from a format without types: compared with a string, its text counts


cdef union Number:
    int64_t integer
    uint64_t unsigned_integer
    double double_


# Text is not owned: it points into the message, a constant or the arena, and is not followed by a NUL.
cdef struct Value:
    uint8_t kind
    uint8_t flags
    uint16_t unused
    uint32_t length                # of text, in bytes
    const uint8_t* text
    Number number


# Three-valued logic.
cdef enum Truth:
    TRUTH_FALSE = 0
    TRUTH_TRUE = 1
    TRUTH_NULL = 2


cdef enum Comparison:
    COMPARE_EQ = 0
    COMPARE_NE = 1
    COMPARE_LT = 2
    COMPARE_LE = 3
    COMPARE_GT = 4
    COMPARE_GE = 5


cdef class Arena:
    """Memory for text that is made for one message. All of it is released at once."""

    cdef list blocks
    cdef uint8_t* next
    cdef uint8_t* end
    cdef uint64_t limit_bytes
    cdef uint64_t used_bytes

    cdef uint8_t* reserve(self, uint64_t length) except NULL
    cdef void clear(self) noexcept


cdef extern from "number_word.h" nogil:
    ctypedef union number_text_value:
        int64_t integer
        uint64_t unsigned_integer
        double double_

    int NUMBER_TEXT_NONE, NUMBER_TEXT_INTEGER, NUMBER_TEXT_UNSIGNED, NUMBER_TEXT_DOUBLE
    int number_word_parse(const uint8_t* at, uint32_t length, number_text_value* number)


# Settle a short number in raw form. Other values are not changed.
cdef inline void settle_short_number(Value* value) noexcept nogil:
    cdef number_text_value parsed
    cdef int found
    if value.kind != VALUE_RAW_NUMBER and value.kind != VALUE_RAW_TEXT:
        return
    found = number_word_parse(value.text, value.length, &parsed)
    if found == NUMBER_TEXT_NONE:
        return
    value.flags |= VALUE_HAS_TEXT if value.kind == VALUE_RAW_NUMBER else VALUE_HAS_TEXT | VALUE_INFERRED
    value.number.integer = parsed.integer  # or the bits of the double
    value.kind = VALUE_INTEGER if found == NUMBER_TEXT_INTEGER else VALUE_DOUBLE


cdef int settle(Value* value, Arena arena) except -1
cdef bint number_from_text(const uint8_t* text, uint32_t length, Value* number) noexcept nogil
cdef int to_number(Value* value, Arena arena) except -1
cdef int to_text(Value* value, Arena arena) except -1
cdef int truth_of(Value* value, Arena arena) except -1
cdef int compare(Value* left, Value* right, int comparison, Arena arena) except -1
cdef object to_python(Value* value, Arena arena)
cdef int from_python(object made, Value* value, Arena arena) except -1


# A set of constants for IN. See values/constant_set.pxi.


cdef struct SetSlot:
    uint64_t hash
    uint32_t member_plus_one       # 0 = free
    uint32_t unused


cdef class ConstantSet:
    """Tests whether a value is equal to one of its members, as `=` does."""

    cdef Arena arena
    cdef Value* members
    cdef uint32_t member_count
    cdef SetSlot* texts            # members that are strings
    cdef SetSlot* numbers          # members that are numbers
    cdef SetSlot* converted        # members that are strings with the form of a number, by the number
    cdef uint32_t capacity         # of each, a power of two

    cdef void enter(self, SetSlot* table, uint64_t hash_, uint32_t member) noexcept
    cdef bint has_text(self, const Value* value) noexcept nogil
    cdef bint has_number(self, SetSlot* table, const Value* number) noexcept nogil
    cdef int holds(self, Value* value, Arena arena) except -1


cdef bint canonical(Value* number) noexcept nogil
cdef uint64_t number_hash(const Value* number) noexcept nogil
