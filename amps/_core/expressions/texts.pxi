# Functions of expressions on text and on whole arrays (expressions.md §§10.2, 10.3, 10.5, 10.8).
#
# Text is bytes: no function handles characters beyond ASCII. A result that is part of a text points into it; a new text
# is allocated in the arena of the message.

from libc.math cimport isnan, trunc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.values.fields cimport (
    ITSELF,
    FieldNode,
    FieldValues,
    MessageContext,
    Operand,
    first_of,
    next_of,
)
from amps._core.shm.platform cimport crc32c
from amps._core.values.value cimport (
    COMPARE_GT,
    COMPARE_LT,
    VALUE_NULL,
    VALUE_STRING,
    VALUE_UNSIGNED,
    Arena,
    Value,
    settle,
    to_number,
    to_text,
)

cdef enum:
    TEXT_BYTES_MAX = 0xFFFFFFF0

cdef uint64_t[256] crc64_table


cdef void fill_crc64_table() noexcept nogil:
    cdef int byte
    cdef int _bit
    cdef uint64_t crc
    for byte in range(256):
        crc = <uint64_t>byte
        for _bit in range(8):
            crc = (crc >> 1) ^ (0xC96C5795D7870F42ULL if crc & 1 else 0)
        crc64_table[byte] = crc


fill_crc64_table()


cdef uint64_t crc64(const uint8_t* text, uint32_t length) noexcept nogil:
    """CRC-64/XZ."""
    cdef uint64_t crc = ~<uint64_t>0
    cdef uint32_t at
    for at in range(length):
        crc = (crc >> 8) ^ crc64_table[<uint8_t>(crc ^ text[at])]
    return ~crc


cdef void set_unsigned(Value* result, uint64_t number) noexcept nogil:
    set_integer(result, <int64_t>number)
    if number > 0x7FFFFFFFFFFFFFFFULL:
        result.kind = VALUE_UNSIGNED


cdef void set_text(Value* result, const uint8_t* text, uint64_t length) noexcept nogil:
    """Set the result to a text, or to NULL if the text is empty."""
    result.kind = VALUE_STRING if length else VALUE_NULL
    result.flags = 0
    result.text = text
    result.length = <uint32_t>length


cdef bint is_blank(uint8_t byte) noexcept nogil:
    return byte == c" " or 9 <= byte <= 13


cdef int64_t whole_of(Value* value, Arena arena, bint* known) except? -1:
    """A number without its fraction, within bounds, for a count or position. known: False for NULL and NaN."""
    cdef double number
    to_number(value, arena)
    number = double_of(value)
    known[0] = not isnan(number)
    if not known[0]:
        return 0
    number = trunc(number)
    return <int64_t>(-9e15 if number < -9e15 else 9e15 if number > 9e15 else number)


cdef int set_slice(Value* text, int64_t position, int64_t length, Value* result) except -1:
    """Set part of a text. Positions count from 1, negative ones from the end; 0 means 1."""
    cdef int64_t start = position - 1 if position > 0 else position + text.length if position < 0 else 0
    if start < 0:
        start = 0
    if start >= text.length or length <= 0:
        set_text(result, NULL, 0)
    else:
        set_text(result, text.text + start, min(<uint64_t>length, <uint64_t>(text.length - start)))
    return 0


cdef int change_case(Value* text, bint upper, Value* result, Arena arena) except -1:
    cdef uint8_t* made = arena.reserve(text.length)
    cdef uint8_t first = c"a" if upper else c"A"
    cdef uint32_t at
    for at in range(text.length):
        made[at] = text.text[at] ^ 0x20 if first <= text.text[at] < first + 26 else text.text[at]
    set_text(result, made, text.length)
    return 0


cdef int concatenate(Operand* arguments, uint32_t count, Value* result, Arena arena) except -1:
    cdef uint64_t length = 0
    cdef uint8_t* made
    cdef uint32_t at
    for at in range(count):
        to_text(&arguments[at].value, arena)
        if arguments[at].value.kind == VALUE_STRING:
            length += arguments[at].value.length
    if length > TEXT_BYTES_MAX:
        raise MemoryError(f"CONCAT would make a text of {length} bytes")
    made = arena.reserve(length)
    set_text(result, made, length)
    for at in range(count):
        if arguments[at].value.kind == VALUE_STRING:
            memcpy(made, arguments[at].value.text, arguments[at].value.length)
            made += arguments[at].value.length
    return 0


cdef int replace_text(Value* text, Value* part, Value* replacement, Value* result, Arena arena) except -1:
    cdef const uint8_t* at = text.text
    cdef const uint8_t* end = text.text + text.length
    cdef const uint8_t* found
    cdef uint8_t* made
    cdef uint64_t occurrences = 0
    cdef uint64_t length
    cdef uint32_t replacement_length = replacement.length if replacement.kind == VALUE_STRING else 0
    while True:
        found = find_text(at, <uint64_t>(end - at), part.text, part.length, False)
        if found == NULL:
            break
        occurrences += 1
        at = found + part.length
    if occurrences == 0:
        set_text(result, text.text, text.length)
        return 0
    length = text.length - occurrences * part.length + occurrences * replacement_length
    if length > TEXT_BYTES_MAX:
        raise MemoryError(f"REPLACE would make a text of {length} bytes")
    made = arena.reserve(length)
    set_text(result, made, length)
    at = text.text
    while True:
        found = find_text(at, <uint64_t>(end - at), part.text, part.length, False)
        if found == NULL:
            break
        memcpy(made, at, found - at)
        made += found - at
        if replacement_length:
            memcpy(made, replacement.text, replacement_length)
            made += replacement_length
        at = found + part.length
    memcpy(made, at, end - at)
    return 0


cdef int trim(Value* text, bint left, bint right, Value* result) except -1:
    cdef const uint8_t* first = text.text
    cdef const uint8_t* end = text.text + text.length
    while left and first < end and is_blank(first[0]):
        first += 1
    while right and first < end and is_blank((end - 1)[0]):
        end -= 1
    set_text(result, first, <uint64_t>(end - first))
    return 0


cdef int compare_texts(int which, Operand* arguments, Value* result, Arena arena) except -1:
    """INSTR and STREQUAL, which return 0 where other functions return NULL."""
    cdef Value* text = &arguments[0].value
    cdef Value* part = &arguments[1].value
    cdef bint ignores_case = which == TEXT_INSTR_I or which == TEXT_STREQUAL_I
    cdef const uint8_t* found
    to_text(text, arena)
    to_text(part, arena)
    set_integer(result, 0)
    if text.kind == VALUE_NULL or part.kind == VALUE_NULL:
        return 0
    if which == TEXT_STREQUAL or which == TEXT_STREQUAL_I:
        if text.length == part.length and same_text(text.text, part.text, text.length, ignores_case):
            result.number.integer = 1
        return 0
    found = find_text(text.text, text.length, part.text, part.length, ignores_case)
    if found != NULL:
        result.number.integer = found - text.text + 1
    return 0


cdef int call_text(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1:
    cdef Arena arena = values.arena
    cdef Value* text = &arguments[0].value
    cdef uint8_t* made
    cdef int64_t position
    cdef int64_t length = 1 << 40
    cdef bint known = True
    cdef bint length_known = True
    cdef uint32_t at
    if which <= TEXT_STREQUAL_I:
        return compare_texts(which, arguments, result, arena)
    if which == TEXT_CONCAT:
        return concatenate(arguments, count, result, arena)
    if which == TEXT_COALESCE:
        result.kind = VALUE_NULL
        for at in range(count):
            if arguments[at].value.kind != VALUE_NULL:
                result[0] = arguments[at].value
                break
        return 0
    if which == TEXT_CHAR_VALUE:
        position = whole_of(text, arena, &known)
        if not known or not 0 <= position <= 255:
            set_text(result, NULL, 0)
            return 0
        made = arena.reserve(1)
        made[0] = <uint8_t>position
        set_text(result, made, 1)
        return 0
    to_text(text, arena)
    if which == TEXT_REPLACE:
        to_text(&arguments[1].value, arena)
        to_text(&arguments[2].value, arena)
        if text.kind == VALUE_NULL or arguments[1].value.kind == VALUE_NULL:
            set_text(result, NULL, 0)
            return 0
        return replace_text(text, &arguments[1].value, &arguments[2].value, result, arena)
    if which == TEXT_UPPER or which == TEXT_LOWER:
        return change_case(text, which == TEXT_UPPER, result, arena)
    if which == TEXT_LENGTH:
        set_integer(result, text.length)
        return 0
    if which == TEXT_REVERSE:
        made = arena.reserve(text.length)
        for at in range(text.length):
            made[at] = text.text[text.length - 1 - at]
        set_text(result, made, text.length)
        return 0
    if which == TEXT_TRIM or which == TEXT_LTRIM or which == TEXT_RTRIM:
        return trim(text, which != TEXT_RTRIM, which != TEXT_LTRIM, result)
    if which == TEXT_CRC32:
        # The documented checksum omits the last step of CRC-32C, which inverts all bits.
        set_integer(result, <int64_t>(crc32c(text.text, text.length) ^ 0xFFFFFFFFU))
        return 0
    if which == TEXT_CRC64:
        set_unsigned(result, crc64(text.text, text.length))
        return 0
    position = whole_of(&arguments[1].value, arena, &known)
    if which == TEXT_SUBSTR and count > 2:
        length = whole_of(&arguments[2].value, arena, &length_known)
    if not known or not length_known:
        set_text(result, NULL, 0)
        return 0
    if which == TEXT_LEFT:
        return set_slice(text, 1, position, result)
    if which == TEXT_RIGHT:
        return set_slice(text, -position if position > 0 else 1, position, result)
    return set_slice(text, position, length, result)


cdef int join_array(Operand* arguments, FieldNode* nodes, Value* result, Arena arena) except -1:
    cdef Value* delimiter = &arguments[1].value
    cdef Value* replacement = &arguments[2].value
    cdef Value element
    cdef uint64_t length = 0
    cdef uint64_t elements = 0
    cdef uint8_t* made
    cdef int32_t node
    to_text(delimiter, arena)
    to_text(replacement, arena)
    node = arguments[0].node
    while node >= 0:
        element = nodes[node].value
        to_text(&element, arena)
        length += text_length(&element if element.kind == VALUE_STRING else replacement)
        elements += 1
        node = next_of(node, nodes)
    length += (elements - 1) * text_length(delimiter)
    if length > TEXT_BYTES_MAX:
        raise MemoryError(f"ARRAY_TO_STRING would make a text of {length} bytes")
    made = arena.reserve(length)
    set_text(result, made, length)
    node = arguments[0].node
    while node >= 0:
        element = nodes[node].value
        to_text(&element, arena)
        made = put(made, &element if element.kind == VALUE_STRING else replacement)
        node = next_of(node, nodes)
        if node >= 0:
            made = put(made, delimiter)
    return 0


cdef uint64_t text_length(const Value* text) noexcept nogil:
    return text.length if text.kind == VALUE_STRING else 0


cdef uint8_t* put(uint8_t* made, const Value* text) noexcept nogil:
    cdef uint64_t length = text_length(text)
    if length:
        memcpy(made, text.text, length)
    return made + length


cdef int add_up(Operand* arguments, FieldNode* nodes, Value* result, Arena arena) except -1:
    cdef Value number
    cdef int32_t node = arguments[0].node
    result.kind = VALUE_NULL
    while node >= 0:
        number = nodes[node].value
        to_number(&number, arena)
        if number.kind != VALUE_NULL:
            if result.kind == VALUE_NULL:
                result[0] = number
            else:
                arithmetic(c"+", result, &number, result)
        node = next_of(node, nodes)
    return 0


cdef int call_array(
    int which, Operand* arguments, uint32_t count, FieldValues values, MessageContext message, Value* result
) except -1:
    """Call a function on an array. A single value is an array of one element; no value and NULL are no array."""
    cdef FieldNode single
    cdef FieldNode* nodes = values.nodes
    cdef uint32_t at
    cdef int32_t node
    for at in range(1, count):
        arguments[at].value = first_of(&arguments[at], nodes)[0]
        arguments[at].node = ITSELF
    node = arguments[0].node
    if node == ITSELF:
        single.value = arguments[0].value
        single.next = -1
        nodes = &single
        node = 0
    if node >= 0 and nodes[node].next < 0:
        settle(&nodes[node].value, values.arena)
        if nodes[node].value.kind == VALUE_NULL:
            node = -1  # the only value is NULL
    arguments[0].node = node
    if which == ARRAY_COUNT:
        set_integer(result, 0)
        while node >= 0:
            result.number.integer += 1
            node = next_of(node, nodes)
        return 0
    result.kind = VALUE_NULL
    if node < 0:
        return 0
    if which == ARRAY_TO_STRING:
        return join_array(arguments, nodes, result, values.arena)
    if which == ARRAY_SUM:
        return add_up(arguments, nodes, result, values.arena)
    while node >= 0:
        keep_extreme(
            &nodes[node].value, COMPARE_GT if which == ARRAY_MAX else COMPARE_LT, result, values.arena
        )
        node = next_of(node, nodes)
    return 0
