# Fast recognition of a header that differs from the previous one in its sequence only, as most publishes have it.
#
# Scanning a header costs more than all other work on a small publish before it is in the ring. A publisher writes the
# same header repeatedly and only raises its sequence. So the last scanned header is stored as a pattern: the bytes in
# front of the sequence, the bytes behind it, and the places of the fields. A header that matches the pattern byte for
# byte needs no scan.
#
# Two comparisons decide. They cover every byte except the digits of the sequence, so the scanner would read a matching
# header in the same way. The caller of `learn_header` must make sure that its other checks of the header hold for all
# matching headers too.
#
# On a connection whose headers never match, storing each one would be wasted work. So while none matches, only 16 of
# 256 headers are stored.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy


cdef enum:
    DIGITS_MAX = 19            # digits of a number that cannot overflow
    TRIES = 16                 # headers of 256 that are stored while none matches


cdef void learn_header(
    HeaderPattern* pattern, const char* data, uint32_t length, const HeaderView* view, uint64_t sequence
) noexcept nogil:
    cdef uint64_t rest
    cdef uint32_t digits_at = length
    cdef uint32_t digits_end = length
    cdef uint32_t at
    cdef int number = 0
    cdef PatternField* field
    pattern.before = 0
    pattern.learned += 1
    if pattern.learned > TRIES:
        return
    if sequence:
        digits_at = <uint32_t>(view.field[<int>FIELD_SEQ].data - data)
        digits_end = digits_at + view.field[<int>FIELD_SEQ].length
    elif view.present & (<uint64_t>1 << <int>FIELD_SEQ):
        return
    if digits_at + length - digits_end > PATTERN_BYTES:
        return
    pattern.field_count = 0
    rest = view.present
    while rest:
        if rest & 1:
            if pattern.field_count == PATTERN_FIELDS:
                return
            field = &pattern.field[pattern.field_count]
            at = <uint32_t>(view.field[number].data - data)
            field.number = <uint8_t>number
            field.behind = at >= digits_end
            field.offset = at - digits_end if field.behind else at
            field.length = view.field[number].length
            pattern.field_count += 1
        rest >>= 1
        number += 1
    pattern.has_sequence = sequence != 0
    pattern.behind = length - digits_end
    pattern.present = view.present
    pattern.quoted = view.quoted
    pattern.escaped = view.escaped
    memcpy(pattern.text, data, digits_at)
    memcpy(pattern.text + digits_at, data + digits_end, length - digits_end)
    pattern.before = digits_at


cdef int32_t follow_header(
    HeaderPattern* pattern, const char* data, uint32_t length, HeaderView* view, uint64_t* sequence
) noexcept nogil:
    cdef uint32_t before = pattern.before
    cdef uint32_t at = before
    cdef uint64_t number = 0
    cdef uint8_t digit
    cdef int index
    cdef const PatternField* field
    if before == 0 or length < before or memcmp(data, pattern.text, before) != 0:
        return -1
    if pattern.has_sequence:
        while at < length and at - before <= DIGITS_MAX:
            digit = <uint8_t>data[at] - <uint8_t>c'0'
            if digit > 9:
                break
            number = number * 10 + digit
            at += 1
        if number == 0 or at - before > DIGITS_MAX:
            return -1
        if length - at < pattern.behind or memcmp(data + at, pattern.text + before, pattern.behind) != 0:
            return -1
    for index in range(pattern.field_count):
        field = &pattern.field[index]
        view.field[field.number].data = data + field.offset + (at if field.behind else 0)
        view.field[field.number].length = field.length
    if pattern.has_sequence:
        view.field[<int>FIELD_SEQ].length = at - before
    view.present = pattern.present
    view.quoted = pattern.quoted
    view.escaped = pattern.escaped
    sequence[0] = number
    pattern.learned = 0
    return <int32_t>(at + pattern.behind)
