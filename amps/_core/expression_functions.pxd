# The functions of expressions. See expression_functions.pyx.

from libc.stdint cimport uint32_t

from amps._core.fields cimport FieldValues
from amps._core.message_context cimport MessageContext
from amps._core.operand cimport Operand
from amps._core.value cimport Value


# Each family of functions is one C function with a number for each of them.
ctypedef int (*FunctionFamily)(int, Operand*, uint32_t, FieldValues, MessageContext, Value*) except -1


cdef struct FunctionEntry:
    FunctionFamily family          # NULL: has an instruction of its own, or is an aggregate
    int which
    bint takes_null                # is called with NULL arguments; the others are NULL then
    bint takes_arrays              # sees all values of a field instead of the first
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
