# Functions of expressions on times. See expression_times.pyx.

from libc.stdint cimport uint32_t

from amps._core.fields cimport FieldValues
from amps._core.message_context cimport MessageContext
from amps._core.operand cimport Operand
from amps._core.value cimport Value


cdef enum TimeFunction:
    TIME_STRFTIME = 0
    TIME_STRPTIME
    TIME_UNIX_TIMESTAMP


# Functions of the legacy module, which a configuration switches on.
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
