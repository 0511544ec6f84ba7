# The functions of expressions: one table of names, numbers of arguments and properties (expressions.md §10).
#
# Compilers look up functions in FUNCTIONS; the machine calls them by number. Each family implements its functions in
# numbers.pxi, texts.pxi or times.pxi; the functions on the message are here. Rules for all functions without a flag: an
# argument that is an array counts as its first element, and an argument that is NULL makes the result NULL.

from libc.stdint cimport uint32_t

from typing import NamedTuple

from amps._core.values.fields cimport (
    ITSELF,
    MESSAGE_BOOKMARK,
    MESSAGE_CLIENT_NAME,
    MESSAGE_CLIENT_VERSION,
    MESSAGE_CONNECTION_NAME,
    MESSAGE_CORRELATION_ID,
    MESSAGE_INSTANCE_GROUP,
    MESSAGE_INSTANCE_NAME,
    MESSAGE_LAST_LEASED,
    MESSAGE_LAST_READ,
    MESSAGE_LAST_UPDATED,
    MESSAGE_LEASE_COUNT,
    MESSAGE_REMOTE_ADDRESS,
    MESSAGE_SIZE,
    MESSAGE_SOW_KEY,
    MESSAGE_SOW_KEY_HASH,
    MESSAGE_TOPIC_NAME,
    MESSAGE_USER,
    FieldValues,
    MessageContext,
    Operand,
    first_of,
)
from amps._core.values.value cimport VALUE_CONTAINER, VALUE_NULL, Value, settle

cdef enum:
    ENTRIES_MAX = 128
    MANY = 4095
    TAKES_NULL = 1
    TAKES_ARRAYS = 2
    NOT_DETERMINISTIC = 4
    AGGREGATE = 8
    LEGACY = 16

cdef FunctionEntry[ENTRIES_MAX] entries


class FunctionInfo(NamedTuple):
    """The properties of a function that a compiler needs."""

    number: int
    minimum: int
    maximum: int | None
    deterministic: bool
    aggregate: bool
    legacy: bool


FUNCTIONS = {}
"""Functions by name, in upper case. Only instances that enable the legacy functions use those."""

# These have their own instructions, because their pattern is compiled in advance.
PATTERN_FUNCTIONS = ("REGEXP_MATCH", "REGEXP_REPLACE")


cdef int call_message(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1:
    result.kind = VALUE_NULL
    if message is None:
        return 0
    if which == MESSAGE_LAST_UPDATED and message.live and message.facts[which].kind == VALUE_NULL:
        set_double(result, unix_seconds())
    else:
        result[0] = message.facts[which]
    return 0


cdef FunctionEntry* function_entry(uint32_t number) noexcept nogil:
    """The entry of a function; NULL if there is no function that can be called."""
    if number >= ENTRIES_MAX or entries[number].family == NULL:
        return NULL
    return &entries[number]


cdef int call_function(
    FunctionEntry* entry,
    Operand* arguments,
    uint32_t count,
    FieldValues values,
    MessageContext message,
    Value* result,
) except -1:
    """Call a function. The arguments are overwritten; `result` may be the value of the first one."""
    cdef Value made
    cdef Value* value
    cdef uint32_t at
    if not entry.takes_arrays:
        for at in range(count):
            value = first_of(&arguments[at], values.nodes)
            settle(value, values.arena)
            if value != &arguments[at].value:
                arguments[at].value = value[0]
                arguments[at].node = ITSELF
            if value.kind == VALUE_CONTAINER:
                arguments[at].value.kind = VALUE_NULL
            if arguments[at].value.kind == VALUE_NULL and not entry.takes_null:
                result.kind = VALUE_NULL
                result.flags = 0
                return 0
    made.kind = VALUE_NULL
    made.flags = 0
    made.length = 0
    made.text = NULL
    made.number.unsigned_integer = 0
    entry.family(entry.which, arguments, count, values, message, &made)
    result[0] = made
    return 0


cdef int enter(
    str name, uint32_t minimum, uint32_t maximum, FunctionFamily family, int which, int properties=0
) except -1:
    cdef uint32_t number = <uint32_t>len(FUNCTIONS)
    if number >= ENTRIES_MAX:
        raise ValueError("too many functions: raise ENTRIES_MAX")
    entries[number].family = family
    entries[number].which = which
    entries[number].takes_null = properties & TAKES_NULL != 0
    entries[number].takes_arrays = properties & TAKES_ARRAYS != 0
    entries[number].arguments_min = minimum
    entries[number].arguments_max = maximum
    FUNCTIONS[name] = FunctionInfo(
        number,
        minimum,
        None if maximum == MANY else maximum,
        properties & NOT_DETERMINISTIC == 0,
        properties & AGGREGATE != 0,
        properties & LEGACY != 0,
    )
    return 0


cdef int enter_all() except -1:
    enter("INSTR", 2, 2, call_text, TEXT_INSTR, TAKES_NULL)
    enter("INSTR_I", 2, 2, call_text, TEXT_INSTR_I, TAKES_NULL)
    enter("STREQUAL", 2, 2, call_text, TEXT_STREQUAL, TAKES_NULL)
    enter("STREQUAL_I", 2, 2, call_text, TEXT_STREQUAL_I, TAKES_NULL)
    enter("CONCAT", 1, MANY, call_text, TEXT_CONCAT, TAKES_NULL)
    enter("UPPER", 1, 1, call_text, TEXT_UPPER)
    enter("LOWER", 1, 1, call_text, TEXT_LOWER)
    enter("REPLACE", 3, 3, call_text, TEXT_REPLACE, TAKES_NULL)
    enter("REGEXP_REPLACE", 3, 3, NULL, 0)
    enter("REGEXP_MATCH", 2, 2, NULL, 0)
    enter("SUBSTR", 2, 3, call_text, TEXT_SUBSTR)
    enter("REVERSE", 1, 1, call_text, TEXT_REVERSE)
    enter("LENGTH", 1, 1, call_text, TEXT_LENGTH)
    enter("LEFT", 2, 2, call_text, TEXT_LEFT)
    enter("RIGHT", 2, 2, call_text, TEXT_RIGHT)
    enter("TRIM", 1, 1, call_text, TEXT_TRIM)
    enter("LTRIM", 1, 1, call_text, TEXT_LTRIM)
    enter("RTRIM", 1, 1, call_text, TEXT_RTRIM)
    enter("CRC32", 1, 1, call_text, TEXT_CRC32)
    enter("CRC64", 1, 1, call_text, TEXT_CRC64)
    enter("CHAR_VALUE", 1, 1, call_text, TEXT_CHAR_VALUE)
    enter("COALESCE", 1, MANY, call_text, TEXT_COALESCE, TAKES_NULL)

    enter("STRFTIME", 2, 2, call_time, TIME_STRFTIME)
    enter("STRPTIME", 2, 2, call_time, TIME_STRPTIME)
    enter("UNIX_TIMESTAMP", 0, 0, call_time, TIME_UNIX_TIMESTAMP, NOT_DETERMINISTIC)

    enter("ARRAY_COUNT", 1, 1, call_array, ARRAY_COUNT, TAKES_ARRAYS)
    enter("ARRAY_MAX", 1, 1, call_array, ARRAY_MAX, TAKES_ARRAYS)
    enter("ARRAY_MIN", 1, 1, call_array, ARRAY_MIN, TAKES_ARRAYS)
    enter("ARRAY_SUM", 1, 1, call_array, ARRAY_SUM, TAKES_ARRAYS)
    enter("ARRAY_TO_STRING", 3, 3, call_array, ARRAY_TO_STRING, TAKES_ARRAYS)

    enter("ABS", 1, 1, call_number, NUMBER_ABS)
    enter("CEILING", 1, 1, call_number, NUMBER_CEILING)
    enter("FLOOR", 1, 1, call_number, NUMBER_FLOOR)
    enter("ROUND", 1, 2, call_number, NUMBER_ROUND)
    enter("TRUNC", 1, 2, call_number, NUMBER_TRUNC)
    enter("SIGN", 1, 1, call_number, NUMBER_SIGN)
    enter("EXP", 1, 1, call_number, NUMBER_EXP)
    enter("LN", 1, 1, call_number, NUMBER_LN)
    enter("LOG2", 1, 1, call_number, NUMBER_LOG2)
    enter("LOG10", 1, 1, call_number, NUMBER_LOG10)
    enter("POWER", 2, 2, call_number, NUMBER_POWER)
    enter("SQRT", 1, 1, call_number, NUMBER_SQRT)
    enter("GREATEST", 1, MANY, call_number, NUMBER_GREATEST, TAKES_NULL)
    enter("LEAST", 1, MANY, call_number, NUMBER_LEAST, TAKES_NULL)
    enter("WIDTH_BUCKET", 4, 4, call_number, NUMBER_WIDTH_BUCKET)
    enter("DEGREES", 1, 1, call_number, NUMBER_DEGREES)
    enter("RADIANS", 1, 1, call_number, NUMBER_RADIANS)
    enter("ACOS", 1, 1, call_number, NUMBER_ACOS)
    enter("ASIN", 1, 1, call_number, NUMBER_ASIN)
    enter("ATAN", 1, 1, call_number, NUMBER_ATAN)
    enter("COS", 1, 1, call_number, NUMBER_COS)
    enter("SIN", 1, 1, call_number, NUMBER_SIN)
    enter("TAN", 1, 1, call_number, NUMBER_TAN)
    enter("COT", 1, 1, call_number, NUMBER_COT)
    enter("SINH", 1, 1, call_number, NUMBER_SINH)
    enter("COSH", 1, 1, call_number, NUMBER_COSH)
    enter("TANH", 1, 1, call_number, NUMBER_TANH)
    enter("GEO_DISTANCE", 4, 4, call_number, NUMBER_GEO_DISTANCE)
    enter("NAN_VALUE", 0, 0, call_number, NUMBER_NAN)
    enter("TRUE_VALUE", 0, 0, call_number, NUMBER_TRUE)
    enter("FALSE_VALUE", 0, 0, call_number, NUMBER_FALSE)

    enter("MESSAGE_SIZE", 0, 0, call_message, MESSAGE_SIZE)
    enter("CORRELATION_ID", 0, 0, call_message, MESSAGE_CORRELATION_ID)
    enter("LAST_UPDATED", 0, 0, call_message, MESSAGE_LAST_UPDATED)
    enter("BOOKMARK", 0, 0, call_message, MESSAGE_BOOKMARK)
    enter("TOPIC_NAME", 0, 0, call_message, MESSAGE_TOPIC_NAME)
    enter("SOW_KEY", 0, 0, call_message, MESSAGE_SOW_KEY)
    enter("LAST_READ", 0, 0, call_message, MESSAGE_LAST_READ, NOT_DETERMINISTIC)
    enter("SOW_KEY_HASH", 0, 0, call_message, MESSAGE_SOW_KEY_HASH)
    enter("LEASE_COUNT", 0, 0, call_message, MESSAGE_LEASE_COUNT)
    enter("LAST_LEASED", 0, 0, call_message, MESSAGE_LAST_LEASED)
    enter("CLIENT_NAME", 0, 0, call_message, MESSAGE_CLIENT_NAME)
    enter("CONNECTION_NAME", 0, 0, call_message, MESSAGE_CONNECTION_NAME)
    enter("USER", 0, 0, call_message, MESSAGE_USER)
    enter("CLIENT_VERSION", 0, 0, call_message, MESSAGE_CLIENT_VERSION)
    enter("REMOTE_ADDRESS", 0, 0, call_message, MESSAGE_REMOTE_ADDRESS)
    enter("AMPS_INSTANCE_NAME", 0, 0, call_message, MESSAGE_INSTANCE_NAME)
    enter("AMPS_INSTANCE_GROUP", 0, 0, call_message, MESSAGE_INSTANCE_GROUP)
    enter("AMPS_GROUP_NAME", 0, 0, call_message, MESSAGE_INSTANCE_GROUP)

    enter("TIMEZONEOFFSET", 0, 0, call_date, DATE_TIMEZONEOFFSET, LEGACY)
    enter("TODAY", 0, 0, call_date, DATE_TODAY, LEGACY)
    enter("TODAY_UTC", 0, 0, call_date, DATE_TODAY_UTC, LEGACY)
    enter("YEAR", 1, 1, call_date, DATE_YEAR, LEGACY)
    enter("MONTH", 1, 1, call_date, DATE_MONTH, LEGACY)
    enter("DAY", 1, 1, call_date, DATE_DAY, LEGACY)
    enter("DATE", 1, 1, call_date, DATE_DATE, LEGACY)
    enter("DATE_UTC", 1, 1, call_date, DATE_DATE_UTC, LEGACY)

    # The owner of the group evaluates aggregates. Only their names are registered here.
    for name in ("SUM", "AVG", "ANY", "COUNT", "COUNT_DISTINCT", "MIN", "MAX", "STDDEV_POP", "STDDEV_SAMP", "UNIQUE"):
        enter(name, 1, 1, NULL, 0, AGGREGATE)
    enter("GROUP_CONCAT", 1, 2, NULL, 0, AGGREGATE)
    return 0


enter_all()
