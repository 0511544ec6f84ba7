# Arithmetic and the numeric functions of expressions. See expression_numbers.pyx.

from libc.stdint cimport int64_t, uint32_t

from amps._core.fields cimport FieldValues
from amps._core.message_context cimport MessageContext
from amps._core.operand cimport Operand
from amps._core.value cimport Arena, Value


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
