# Functions of expressions on text and on whole arrays. See expression_texts.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.fields cimport FieldValues
from amps._core.message_context cimport MessageContext
from amps._core.operand cimport Operand
from amps._core.value cimport Value


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
