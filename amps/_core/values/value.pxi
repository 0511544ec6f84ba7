# Values of expressions: their kinds, conversion and comparison (expressions.md §§4 to 6).
#
# Scanners keep text as it is in the message; `settle` converts it to a value, once, when an expression reads it. Text
# that must be made (escapes resolved, numbers written) is allocated in an Arena and valid until that is cleared. Only
# `to_python` creates Python objects, and none is kept.
#
# Invariants: a settled value has one of the kinds up to VALUE_CONTAINER. VALUE_STRING is never empty, because the empty
# string is NULL. VALUE_UNSIGNED is above the largest signed integer, so that a number has only one integer form.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free
from libc.math cimport NAN, isnan
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen


cdef extern from "number_text.h" nogil:
    int number_text_parse(const uint8_t* at, const uint8_t* end, number_text_value* number)


cdef extern from "Python.h":
    int Py_DTSF_ADD_DOT_0
    char* PyOS_double_to_string(double val, char format_code, int precision, int flags, int* type) except NULL


cdef enum:
    ARENA_BLOCK_BYTES = 65536
    LESS = -1
    SAME = 0
    GREATER = 1
    UNORDERED = 2                  # one of them is NULL or not a number, so every comparison is false

cdef Py_ssize_t TEXT_BYTES_MAX = 0xFFFFFFFF


cdef class Arena:

    def __init__(self, limit_bytes=1 << 28):
        """limit_bytes: limit of the text that may be made between two calls of `clear`."""
        self.blocks = []
        self.next = NULL
        self.end = NULL
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    cdef uint8_t* reserve(self, uint64_t length) except NULL:
        """Allocate `length` bytes, which are valid until `clear`."""
        cdef uint8_t* reserved
        cdef uint64_t size
        if length > self.limit_bytes - self.used_bytes:
            raise MemoryError(f"more than {self.limit_bytes} bytes of text made while one message is worked on")
        if self.next == NULL or length > <uint64_t>(self.end - self.next):
            size = length if length > ARENA_BLOCK_BYTES else ARENA_BLOCK_BYTES
            block = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
            self.blocks.append(block)
            self.next = <uint8_t*>PyBytes_AS_STRING(block)
            self.end = self.next + size
        reserved = self.next
        self.next += length
        self.used_bytes += length
        return reserved

    cdef void clear(self) noexcept:
        """Release all memory. The first block is kept for the next message if it has the usual size."""
        if self.used_bytes == 0:
            return
        self.used_bytes = 0
        if len(self.blocks) > 1:
            del self.blocks[1:]
        self.next = <uint8_t*>PyBytes_AS_STRING(self.blocks[0])
        self.end = self.next + PyBytes_GET_SIZE(self.blocks[0])
        if self.end - self.next > ARENA_BLOCK_BYTES:
            self.blocks.clear()
            self.next = NULL
            self.end = NULL

    @property
    def used(self):
        """Bytes of text made since the last `clear`."""
        return self.used_bytes

    def take(self, uint64_t length):
        """Reserve `length` bytes, for tests of the limit."""
        self.reserve(length)

    def reset(self):
        """Release all memory, from Python."""
        self.clear()


cdef bint number_from_text(const uint8_t* text, uint32_t length, Value* number) noexcept nogil:
    """Set kind and number from a text with the form of a number. False: it has another form, and nothing is changed."""
    cdef number_text_value parsed
    cdef int found
    if length == 0 or text[0] > c"9":  # true for most texts: digits, signs and the point are not above "9"
        return False
    found = number_word_parse(text, length, &parsed)
    if found == NUMBER_TEXT_NONE:
        found = number_text_parse(text, text + length, &parsed)
        if found == NUMBER_TEXT_NONE:
            return False
    if found == NUMBER_TEXT_INTEGER:
        number.kind = VALUE_INTEGER
        number.number.integer = parsed.integer
    elif found == NUMBER_TEXT_UNSIGNED:
        number.kind = VALUE_UNSIGNED
        number.number.unsigned_integer = parsed.unsigned_integer
    else:
        number.kind = VALUE_DOUBLE
        number.number.double_ = parsed.double_
    return True


cdef inline uint32_t hex_digit(uint8_t byte) noexcept nogil:
    return byte - 48 if byte < 58 else (byte | 0x20) - 87


cdef inline uint32_t hex_quad(const uint8_t* at) noexcept nogil:
    return hex_digit(at[0]) << 12 | hex_digit(at[1]) << 8 | hex_digit(at[2]) << 4 | hex_digit(at[3])


cdef uint8_t* put_utf8(uint8_t* out, uint32_t character) noexcept nogil:
    if character < 0x80:
        out[0] = <uint8_t>character
        return out + 1
    if character < 0x800:
        out[0] = <uint8_t>(0xC0 | character >> 6)
        out[1] = <uint8_t>(0x80 | character & 0x3F)
        return out + 2
    if character < 0x10000:
        out[0] = <uint8_t>(0xE0 | character >> 12)
        out[1] = <uint8_t>(0x80 | character >> 6 & 0x3F)
        out[2] = <uint8_t>(0x80 | character & 0x3F)
        return out + 3
    out[0] = <uint8_t>(0xF0 | character >> 18)
    out[1] = <uint8_t>(0x80 | character >> 12 & 0x3F)
    out[2] = <uint8_t>(0x80 | character >> 6 & 0x3F)
    out[3] = <uint8_t>(0x80 | character & 0x3F)
    return out + 4


cdef uint8_t* unescape(const uint8_t* at, const uint8_t* end, uint8_t* out) noexcept nogil:
    """Resolve the escapes of a JSON string, which the scanner has validated. The result is never longer."""
    cdef uint32_t character
    cdef uint32_t low
    while at < end:
        if at[0] != c"\\":
            out[0] = at[0]
            out += 1
            at += 1
        elif at[1] != c"u":
            if at[1] == c"n":
                out[0] = 10
            elif at[1] == c"t":
                out[0] = 9
            elif at[1] == c"r":
                out[0] = 13
            elif at[1] == c"b":
                out[0] = 8
            elif at[1] == c"f":
                out[0] = 12
            else:
                out[0] = at[1]
            out += 1
            at += 2
        else:
            character = hex_quad(at + 2)
            at += 6
            if 0xD800 <= character < 0xDC00 and end - at >= 6 and at[0] == c"\\" and at[1] == c"u":
                low = hex_quad(at + 2)
                if 0xDC00 <= low < 0xE000:
                    character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00)
                    at += 6
            out = put_utf8(out, character)
    return out


cdef int settle(Value* value, Arena arena) except -1:
    """Convert a value from the raw form of a scanner."""
    cdef uint8_t* made
    if value.kind <= VALUE_CONTAINER:
        return 0
    if value.kind == VALUE_RAW_NUMBER:
        if number_from_text(value.text, value.length, value):
            value.flags |= VALUE_HAS_TEXT
        else:
            value.kind = VALUE_STRING if value.length else VALUE_NULL
    elif value.kind == VALUE_RAW_STRING:
        made = arena.reserve(value.length)
        value.length = <uint32_t>(unescape(value.text, value.text + value.length, made) - made)
        value.text = made
        value.kind = VALUE_STRING if value.length else VALUE_NULL
    elif value.length == 0:
        value.kind = VALUE_NULL
    elif number_from_text(value.text, value.length, value):
        value.flags |= VALUE_HAS_TEXT | VALUE_INFERRED
    else:
        value.kind = VALUE_STRING
        value.flags |= VALUE_INFERRED
    return 0


cdef int to_number(Value* value, Arena arena) except -1:
    """Convert to a number or NULL. Text without the form of a number is NaN."""
    if value.kind > VALUE_CONTAINER:
        settle(value, arena)
    if value.kind == VALUE_BOOLEAN:
        value.kind = VALUE_INTEGER
    elif value.kind == VALUE_CONTAINER:
        value.kind = VALUE_NULL
    elif value.kind == VALUE_STRING and not number_from_text(value.text, value.length, value):
        value.kind = VALUE_DOUBLE
        value.number.double_ = NAN
    value.flags = 0
    return 0


cdef int to_text(Value* value, Arena arena) except -1:
    """Convert to a string or NULL."""
    cdef char* written
    cdef uint8_t digits[24]
    cdef uint32_t at = 24
    cdef uint64_t magnitude
    if value.kind > VALUE_CONTAINER:
        settle(value, arena)
    if value.kind == VALUE_STRING or value.kind == VALUE_NULL:
        value.flags = 0
        return 0
    if value.kind == VALUE_CONTAINER:
        value.kind = VALUE_NULL
        return 0
    if not value.flags & VALUE_HAS_TEXT:
        if value.kind == VALUE_DOUBLE:
            written = PyOS_double_to_string(value.number.double_, c"r", 0, Py_DTSF_ADD_DOT_0, NULL)
            try:
                put_text(value, <const uint8_t*>written, <uint32_t>strlen(written), arena)
            finally:
                PyMem_Free(written)
        else:
            magnitude = value.number.unsigned_integer
            if value.kind == VALUE_INTEGER and value.number.integer < 0:
                magnitude = 0 - magnitude
            while True:
                at -= 1
                digits[at] = <uint8_t>(48 + magnitude % 10)
                magnitude //= 10
                if magnitude == 0:
                    break
            if value.kind == VALUE_INTEGER and value.number.integer < 0:
                at -= 1
                digits[at] = c"-"
            put_text(value, &digits[at], 24 - at, arena)
    value.kind = VALUE_STRING
    value.flags = 0
    return 0


cdef int put_text(Value* value, const uint8_t* text, uint32_t length, Arena arena) except -1:
    cdef uint8_t* made = arena.reserve(length)
    memcpy(made, text, length)
    value.text = made
    value.length = length
    return 0


cdef int truth_of(Value* value, Arena arena) except -1:
    """The truth of a value as a condition: NULL and NaN are neither true nor false; text counts as its number."""
    cdef Value number
    if value.kind > VALUE_CONTAINER:
        settle(value, arena)
    if value.kind == VALUE_BOOLEAN or value.kind == VALUE_INTEGER:
        return TRUTH_TRUE if value.number.integer else TRUTH_FALSE
    if value.kind == VALUE_UNSIGNED:
        return TRUTH_TRUE
    if value.kind == VALUE_NULL or value.kind == VALUE_CONTAINER:
        return TRUTH_NULL
    number = value[0]
    if value.kind == VALUE_STRING and not number_from_text(value.text, value.length, &number):
        return TRUTH_FALSE
    if number.kind != VALUE_DOUBLE:
        return TRUTH_TRUE if number.number.unsigned_integer else TRUTH_FALSE
    if isnan(number.number.double_):
        return TRUTH_NULL
    return TRUTH_TRUE if number.number.double_ != 0 else TRUTH_FALSE


cdef inline int ordered(bint less, bint greater) noexcept nogil:
    return LESS if less else GREATER if greater else SAME


cdef int integer_to_double(const Value* left, double right) noexcept nogil:
    """Compare an integer with a double, without rounding either."""
    cdef int64_t integer
    cdef uint64_t unsigned_integer
    cdef double whole
    if isnan(right):
        return UNORDERED
    if left.kind == VALUE_UNSIGNED:
        if right >= 18446744073709551616.0:
            return LESS
        if right < 9223372036854775808.0:
            return GREATER
        unsigned_integer = <uint64_t>right
        return ordered(
            left.number.unsigned_integer < unsigned_integer, left.number.unsigned_integer > unsigned_integer
        )
    if right >= 9223372036854775808.0:
        return LESS
    if right < -9223372036854775808.0:
        return GREATER
    integer = <int64_t>right
    if left.number.integer != integer:
        return LESS if left.number.integer < integer else GREATER
    whole = <double>integer
    return ordered(whole < right, whole > right)


cdef int compare_numbers(const Value* left, const Value* right) noexcept nogil:
    cdef int found
    if left.kind == VALUE_DOUBLE:
        if right.kind == VALUE_DOUBLE:
            if isnan(left.number.double_) or isnan(right.number.double_):
                return UNORDERED
            return ordered(
                left.number.double_ < right.number.double_, left.number.double_ > right.number.double_
            )
        found = integer_to_double(right, left.number.double_)
        return found if found == UNORDERED else -found
    if right.kind == VALUE_DOUBLE:
        return integer_to_double(left, right.number.double_)
    if left.kind == VALUE_UNSIGNED or right.kind == VALUE_UNSIGNED:
        if left.kind != right.kind:
            return GREATER if left.kind == VALUE_UNSIGNED else LESS
        return ordered(
            left.number.unsigned_integer < right.number.unsigned_integer,
            left.number.unsigned_integer > right.number.unsigned_integer,
        )
    return ordered(left.number.integer < right.number.integer, left.number.integer > right.number.integer)


cdef int compare_texts(const Value* left, const Value* right) noexcept nogil:
    cdef uint32_t length = left.length if left.length < right.length else right.length
    cdef int found = memcmp(left.text, right.text, length)
    if found:
        return LESS if found < 0 else GREATER
    return ordered(left.length < right.length, left.length > right.length)


cdef int compare_text_to_number(const Value* text, const Value* number, bint equality) noexcept nogil:
    """Text without the form of a number is above every number. If a field comes from a format without types, its text
    is compared for equality with a string, but not with another such field (§14.3)."""
    cdef Value converted
    if equality and number.flags & VALUE_INFERRED and not text.flags & VALUE_INFERRED:
        return compare_texts(text, number)
    if number.kind == VALUE_DOUBLE and isnan(number.number.double_):
        return UNORDERED
    if not number_from_text(text.text, text.length, &converted):
        return GREATER
    return compare_numbers(&converted, number)


cdef int relation(Value* left, Value* right, bint equality, Arena arena) except -2:
    cdef int found
    if left.kind > VALUE_CONTAINER:
        settle(left, arena)
    if right.kind > VALUE_CONTAINER:
        settle(right, arena)
    if left.kind == VALUE_NULL or left.kind == VALUE_CONTAINER:
        return UNORDERED
    if right.kind == VALUE_NULL or right.kind == VALUE_CONTAINER:
        return UNORDERED
    if left.kind == VALUE_STRING:
        if right.kind == VALUE_STRING:
            return compare_texts(left, right)
        return compare_text_to_number(left, right, equality)
    if right.kind == VALUE_STRING:
        found = compare_text_to_number(right, left, equality)
        return found if found == UNORDERED else -found
    return compare_numbers(left, right)


cdef int compare(Value* left, Value* right, int comparison, Arena arena) except -1:
    """Whether the comparison is true. No comparison with NULL or NaN is."""
    cdef int found = relation(left, right, comparison <= COMPARE_NE, arena)
    if found == UNORDERED:
        return False
    if comparison == COMPARE_EQ:
        return found == SAME
    if comparison == COMPARE_NE:
        return found != SAME
    if comparison == COMPARE_LT:
        return found == LESS
    if comparison == COMPARE_LE:
        return found != GREATER
    if comparison == COMPARE_GT:
        return found == GREATER
    return found != LESS


cdef object to_python(Value* value, Arena arena):
    """None, bool, int, float, bytes; Ellipsis for a container."""
    settle(value, arena)
    if value.kind == VALUE_NULL:
        return None
    if value.kind == VALUE_BOOLEAN:
        return value.number.integer != 0
    if value.kind == VALUE_INTEGER:
        return value.number.integer
    if value.kind == VALUE_UNSIGNED:
        return value.number.unsigned_integer
    if value.kind == VALUE_DOUBLE:
        return value.number.double_
    if value.kind == VALUE_STRING:
        return PyBytes_FromStringAndSize(<const char*>value.text, value.length)
    return ...


cdef int from_python(object made, Value* value, Arena arena) except -1:
    """Convert None, a bool, int, float or bytes to a value. Text is copied to the arena."""
    value.kind = VALUE_NULL
    value.flags = 0
    value.length = 0
    value.text = NULL
    value.number.unsigned_integer = 0
    if made is None:
        return 0
    if isinstance(made, bool):
        value.kind = VALUE_BOOLEAN
        value.number.integer = 1 if made else 0
    elif isinstance(made, int):
        if INT64_MIN <= made <= INT64_MAX:
            value.kind = VALUE_INTEGER
            value.number.integer = made
        elif INT64_MAX < made <= UINT64_MAX:
            value.kind = VALUE_UNSIGNED
            value.number.unsigned_integer = made
        else:
            value.kind = VALUE_DOUBLE
            value.number.double_ = made
    elif isinstance(made, float):
        value.kind = VALUE_DOUBLE
        value.number.double_ = made
    elif isinstance(made, bytes):
        if len(made) > TEXT_BYTES_MAX:
            raise ValueError(f"a text of {len(made)} bytes; the maximum is {TEXT_BYTES_MAX}")
        if made:
            put_text(value, <const uint8_t*>PyBytes_AS_STRING(made), <uint32_t>len(made), arena)
            value.kind = VALUE_STRING
    else:
        raise TypeError(f"no value of an expression: {type(made).__name__}")
    return 0


cdef int from_specimen(object made, Value* value, Arena arena) except -1:
    """As from_python; a pair of the name of a kind and bytes is the raw form of a scanner."""
    if isinstance(made, tuple):
        name, text = made
        from_python(text, value, arena)
        value.kind = {
            "container": VALUE_CONTAINER,
            "number": VALUE_RAW_NUMBER,
            "string": VALUE_RAW_STRING,
            "text": VALUE_RAW_TEXT,
        }[name]
        return 0
    return from_python(made, value, arena)


def convert(made, str how):
    """Settle a value ("value") or convert it ("number", "text", "truth"), for tests and tools.

    made: None, bool, int, float, bytes, or the raw form of a scanner: a pair of "number", "string" (JSON, with
    escapes), "text" (of a format without types) or "container", and bytes.
    """
    cdef Arena arena = Arena()
    cdef Value value
    cdef int truth
    from_specimen(made, &value, arena)
    if how == "number":
        to_number(&value, arena)
    elif how == "text":
        to_text(&value, arena)
    elif how == "truth":
        truth = truth_of(&value, arena)
        return None if truth == TRUTH_NULL else truth == TRUTH_TRUE
    elif how != "value":
        raise ValueError(f"no conversion: {how!r}; there are value, number, text and truth")
    return to_python(&value, arena)


def compares(left, str operator, right):
    """Whether a comparison is true, for tests and tools; operands as for `convert`."""
    cdef Arena arena = Arena()
    cdef Value values[2]
    from_specimen(left, &values[0], arena)
    from_specimen(right, &values[1], arena)
    return compare(&values[0], &values[1], ["=", "!=", "<", "<=", ">", ">="].index(operator), arena) == 1
