# Functions of expressions on times (expressions.md §10.4), and the legacy ones on dates (§10.11).
#
# All times are UTC, except in TIMEZONEOFFSET, DATE and TODAY, which use the time zone of the process.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from amps._core.shm.platform cimport load_relaxed
from amps._core.values.fields cimport FieldValues, MessageContext, Operand
from amps._core.values.value cimport VALUE_NULL, Arena, Value, to_number, to_text


cdef extern from "time_text.h" nogil:
    int TIME_TEXT_BYTES_MAX
    int time_text_write(const uint8_t* format, const uint8_t* end, double seconds, char* out)
    bint time_text_read(
        const uint8_t* text, const uint8_t* end, const uint8_t* format, const uint8_t* format_end, double* seconds
    )


cdef extern from "calendar_dates.h" nogil:
    ctypedef struct calendar_tm "struct tm":
        int tm_year
        int tm_mon
        int tm_mday

    bint calendar_knows(double seconds)
    bint calendar_parts(double seconds, bint local, calendar_tm* parts)
    int64_t calendar_midnight(double seconds, bint local)
    int64_t calendar_offset(double seconds)


cdef uint64_t no_offset_ns = 0
cdef const uint64_t* clock_offset_ns = &no_offset_ns
cdef object clock_page = None


def follow_clock(page, uint32_t word):
    """Add a word of shared memory to the time of this process and those forked later: the offset of an instance's clock
    in nanoseconds (amps/server/clock.py).
    """
    global clock_offset_ns, clock_page
    cdef const uint64_t[::1] words = memoryview(page).cast("B").cast("Q")
    clock_offset_ns = &words[word]
    clock_page = page, words


cdef double unix_seconds() noexcept nogil:
    """The current time of the instance in seconds, with a resolution of microseconds."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <double>(
        <int64_t>now.tv_sec * 1000000 + (now.tv_nsec + <int64_t>load_relaxed(clock_offset_ns)) // 1000
    ) / 1e6


cdef int call_time(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1:
    cdef Arena arena = values.arena
    cdef Value* first = &arguments[0].value
    cdef Value* second = &arguments[1].value
    cdef uint8_t* made
    cdef double seconds
    cdef int length
    if which == TIME_UNIX_TIMESTAMP:
        set_double(result, unix_seconds())
        return 0
    to_text(first, arena)
    if which == TIME_STRFTIME:
        to_number(second, arena)
        made = arena.reserve(TIME_TEXT_BYTES_MAX)
        length = time_text_write(first.text, first.text + first.length, double_of(second), <char*>made)
        set_text(result, made, length if length > 0 else 0)
        return 0
    to_text(second, arena)
    result.kind = VALUE_NULL
    if time_text_read(
        first.text, first.text + first.length, second.text, second.text + second.length, &seconds
    ):
        set_double(result, seconds)
    return 0


cdef int call_date(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1:
    """Call a legacy function on dates. A time that has no date makes NULL, as in STRFTIME."""
    cdef double seconds
    cdef calendar_tm parts
    result.kind = VALUE_NULL
    if which == DATE_TIMEZONEOFFSET or which == DATE_TODAY or which == DATE_TODAY_UTC:
        seconds = unix_seconds()
    else:
        to_number(&arguments[0].value, values.arena)
        seconds = double_of(&arguments[0].value)
    if not calendar_knows(seconds) or not calendar_parts(seconds, False, &parts):
        return 0
    if which == DATE_TIMEZONEOFFSET:
        set_integer(result, calendar_offset(seconds))
    elif which == DATE_YEAR:
        set_integer(result, parts.tm_year + 1900)
    elif which == DATE_MONTH:
        set_integer(result, parts.tm_mon + 1)
    elif which == DATE_DAY:
        set_integer(result, parts.tm_mday)
    else:
        set_integer(result, calendar_midnight(seconds, which == DATE_DATE or which == DATE_TODAY))
    return 0
