# Fields of FIX and NVFIX messages (expressions.md §12): `tag=value` pairs with a separator after each.
#
# The whole message is always read in one pass: a tag may be repeated, and all its values are an array. There is only
# one level of fields, so longer paths find nothing. Values have no types. They are not copied, and whether a value is a
# number is determined when an expression reads it.
#
# A field without an equals sign or without a tag makes the message unparsable. The separator after the last field may
# be missing.

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.values.fields cimport Extractor, FieldSet, FieldValues, wanted_child
from amps._core.values.value cimport VALUE_NULL, VALUE_RAW_TEXT, Value


cdef extern from "fix_text.h" nogil:
    ctypedef struct fix_cursor:
        pass

    void fix_begin(fix_cursor* cursor, const uint8_t* data, const uint8_t* end, uint8_t separator)
    const uint8_t* fix_stop(fix_cursor* cursor, const uint8_t* at, bint in_tag)
    bint fix_is_tag_number(const uint8_t* at, const uint8_t* end)


cdef uint64_t MESSAGE_BYTES_MAX = 0xFFFFFFFF


@cython.final
cdef class FixExtractor(Extractor):
    """field_separator: the byte after each value. numeric_tags: FIX, where only numbers are valid tags."""

    cdef uint8_t separator
    cdef bint numeric_tags

    def __init__(self, uint8_t field_separator=1, numeric_tags=True):
        self.separator = field_separator
        self.numeric_tags = numeric_tags

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + length
        cdef const uint8_t* tag
        cdef const uint8_t* text
        cdef fix_cursor cursor
        cdef Value* value
        cdef int32_t node
        cdef int32_t slot
        if fields.nodes[root].wanted_below == 0:
            return True
        if length > MESSAGE_BYTES_MAX:
            return False
        fix_begin(&cursor, data, end, self.separator)
        while at < end:
            tag = at
            at = fix_stop(&cursor, at, True)
            if at == end or at == tag or at[0] != c"=":
                return False
            node = wanted_child(fields, root, tag, <uint32_t>(at - tag))
            text = at + 1
            at = fix_stop(&cursor, text, False)
            if node >= 0:
                slot = fields.nodes[node].slot
                if slot >= 0 and (not self.numeric_tags or fix_is_tag_number(tag, text - 1)):
                    value = values.add(slot)
                    value.text = text
                    value.length = <uint32_t>(at - text)
                    value.kind = VALUE_RAW_TEXT if value.length else VALUE_NULL
            if at < end:
                at += 1
        return True
