# Patterns of LIKE and of the REGEXP functions. See expressions/patterns.pxi.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

from amps._core.values.fields cimport Deadline, FieldNode, FieldValues, MessageContext, Operand
from amps._core.values.value cimport Arena, ConstantSet, Value


cdef class Pattern:
    """A pattern. It may match anywhere in a text unless it is anchored."""

    cdef readonly bytes text
    cdef readonly bint raw
    cdef bytes literal             # text that is searched without the engine; None = the engine is needed
    cdef const uint8_t* literal_text
    cdef uint32_t literal_length
    cdef bint anchored_start
    cdef bint anchored_end
    cdef bint ignores_case
    cdef bytes compiled            # the text passed to the engine
    cdef object engine
    cdef object interpreted        # for texts on which the compiled machine code runs out of stack
    cdef object guarded            # for long texts
    cdef Deadline deadline
    cdef readonly uint64_t given_up

    cdef bint search(self, const uint8_t* text, uint32_t length) except -1
    cdef bint search_literal(self, const uint8_t* text, uint32_t length) noexcept nogil
    cdef object search_engine(self, bytes subject, Py_ssize_t start)
    cdef object first_match(self, bytes subject)
    cdef object replaced(self, bytes subject, bytes replacement, uint64_t bytes_max)


cdef const uint8_t* find_text(
    const uint8_t* text, uint64_t length, const uint8_t* part, uint64_t part_length, bint ignores_case
) noexcept nogil
cdef bint same_text(const uint8_t* left, const uint8_t* right, uint64_t length, bint ignores_case) noexcept nogil


# Arithmetic and the numeric functions of expressions. See expressions/numbers.pxi.


cdef enum NumberFunction:
    NUMBER_ABS = 0
    NUMBER_CEILING
    NUMBER_FLOOR
    NUMBER_ROUND
    NUMBER_TRUNC
    NUMBER_SIGN
    NUMBER_EXP
    NUMBER_LN
    NUMBER_LOG2
    NUMBER_LOG10
    NUMBER_POWER
    NUMBER_SQRT
    NUMBER_GREATEST
    NUMBER_LEAST
    NUMBER_WIDTH_BUCKET
    NUMBER_DEGREES
    NUMBER_RADIANS
    NUMBER_ACOS
    NUMBER_ASIN
    NUMBER_ATAN
    NUMBER_COS
    NUMBER_SIN
    NUMBER_TAN
    NUMBER_COT
    NUMBER_SINH
    NUMBER_COSH
    NUMBER_TANH
    NUMBER_GEO_DISTANCE
    NUMBER_NAN
    NUMBER_TRUE
    NUMBER_FALSE


cdef void set_double(Value* result, double number) noexcept nogil
cdef void set_integer(Value* result, int64_t number) noexcept nogil
cdef double double_of(const Value* number) noexcept nogil
cdef void arithmetic(char operator, const Value* left, const Value* right, Value* result) noexcept nogil
cdef int keep_extreme(Value* candidate, int comparison, Value* best, Arena arena) except -1
cdef int call_number(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1


# Functions of expressions on text and on whole arrays. See expressions/texts.pxi.


cdef enum TextFunction:
    TEXT_INSTR = 0
    TEXT_INSTR_I
    TEXT_STREQUAL
    TEXT_STREQUAL_I
    TEXT_CONCAT
    TEXT_UPPER
    TEXT_LOWER
    TEXT_REPLACE
    TEXT_SUBSTR
    TEXT_REVERSE
    TEXT_LENGTH
    TEXT_LEFT
    TEXT_RIGHT
    TEXT_TRIM
    TEXT_LTRIM
    TEXT_RTRIM
    TEXT_CRC32
    TEXT_CRC64
    TEXT_CHAR_VALUE
    TEXT_COALESCE


cdef enum ArrayFunction:
    ARRAY_COUNT = 0
    ARRAY_MAX
    ARRAY_MIN
    ARRAY_SUM
    ARRAY_TO_STRING


cdef void set_text(Value* result, const uint8_t* text, uint64_t length) noexcept nogil
cdef int call_text(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1
cdef int call_array(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1


# Functions of expressions on times. See expressions/times.pxi.


cdef enum TimeFunction:
    TIME_STRFTIME = 0
    TIME_STRPTIME
    TIME_UNIX_TIMESTAMP


# Functions of the legacy module, which the configuration enables.
cdef enum DateFunction:
    DATE_TIMEZONEOFFSET = 0
    DATE_TODAY
    DATE_TODAY_UTC
    DATE_YEAR
    DATE_MONTH
    DATE_DAY
    DATE_DATE
    DATE_DATE_UTC


cdef double unix_seconds() noexcept nogil
cdef int call_time(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1
cdef int call_date(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1


# Operators of expressions. See expressions/operators.pxi.


cdef bint any_pair(Operand* left, Operand* right, int comparison, FieldNode* nodes, Arena arena) except -1
cdef bint is_field_match(int32_t node, Value* constant, int comparison, FieldNode* nodes, Arena arena) except -1
cdef bint any_like(Operand* operand, Pattern pattern, FieldNode* nodes, Arena arena) except -1
cdef bint any_text(Operand* left, Operand* right, bint ends, FieldNode* nodes, Arena arena) except -1
cdef bint any_member(Operand* operand, ConstantSet members, FieldNode* nodes, Arena arena) except -1
cdef bint is_null(Operand* operand, FieldNode* nodes, Arena arena) except -1
cdef void take_first(Operand* operand, FieldNode* nodes) noexcept nogil
cdef int take_element(Operand* operand, uint32_t index, FieldNode* nodes) except -1
cdef int match_pattern(Pattern pattern, Operand* operand, FieldNode* nodes, Arena arena) except -1
cdef int replace_pattern(Pattern pattern, Operand* operands, FieldNode* nodes, Arena arena) except -1
cdef void negate(Value* number) noexcept nogil


# The functions of expressions. See expressions/catalogue.pxi.


# Each family of functions is one C function, with a number for each function.
ctypedef int (*FunctionFamily)(int, Operand*, uint32_t, FieldValues, MessageContext, Value*) except -1


cdef struct FunctionEntry:
    FunctionFamily family          # NULL: has an instruction of its own, or is an aggregate
    int which
    bint takes_null                # called with NULL arguments; otherwise a NULL argument makes the result NULL
    bint takes_arrays              # receives all values of a field instead of the first
    uint32_t arguments_min
    uint32_t arguments_max


cdef FunctionEntry* function_entry(uint32_t number) noexcept nogil
cdef int call_function(
    FunctionEntry* entry,
    Operand* arguments,
    uint32_t count,
    FieldValues values,
    MessageContext message,
    Value* result,
) except -1
