# Functions that somebody else wrote. See user_function.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.fields cimport FieldValues
from amps._core.operand cimport Operand
from amps._core.value cimport Value


cdef class UserFunction:
    cdef readonly str name
    cdef readonly object implementation
    cdef readonly uint32_t minimum
    cdef readonly object maximum   # None: any number of arguments
    cdef readonly bint deterministic
    cdef readonly bint aggregate
    cdef readonly uint64_t failures
    cdef readonly str last_failure

    cdef int call(self, Operand* arguments, uint32_t count, FieldValues values, Value* result) except -1
