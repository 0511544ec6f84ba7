# Fields of BFlat messages (expressions.md §12.5).
#
# A message is a flat sequence of fields and is read to its end. Several fields with one tag are one array: this is how
# arrays of mixed types are written. Strings are not copied.

from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.messages.bflat_wire cimport (
    BFLAT_BINARY,
    BFLAT_DOUBLE,
    BFLAT_INT16,
    BFLAT_INT32,
    BFLAT_INT8,
    BFLAT_LEB128,
    BFLAT_NULL,
    BFLAT_STRING,
    bflat_field,
    bflat_head,
    bflat_signed,
    bflat_unsigned,
    bflat_value_end,
    bflat_values_end,
)
from amps._core.values.fields cimport Extractor, FieldSet, FieldValues, wanted_child
from amps._core.values.value cimport VALUE_DOUBLE, VALUE_INTEGER, VALUE_STRING, Value


cdef enum:
    NULLS_MAX = 65536              # nulls in needed arrays of a message, in addition to its length: they take no bytes


cdef class BflatExtractor(Extractor):

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + length
        cdef const uint8_t* stop
        cdef bflat_field field
        cdef uint64_t nulls_left = length + NULLS_MAX
        cdef int32_t node
        if fields.nodes[root].wanted_below == 0:
            return True
        while at < end:
            at = bflat_head(at, end, &field)
            if at == NULL:
                return False
            node = wanted_child(fields, root, field.tag, <uint32_t>field.tag_length)
            if node < 0 or fields.nodes[node].slot < 0:
                at = bflat_values_end(&field, at, end)
                if at == NULL:
                    return False
                continue
            if field.type == BFLAT_NULL:
                if field.count > nulls_left:
                    return False
                nulls_left -= field.count
            while field.count:
                field.count -= 1
                stop = bflat_value_end(field.type, at, end)
                if stop == NULL:
                    return False
                put(values.add(fields.nodes[node].slot), field.type, at, stop)
                at = stop
        return True


cdef void put(Value* value, uint8_t tag, const uint8_t* at, const uint8_t* stop) noexcept:
    """Store a value that is completely in the message."""
    cdef uint64_t length = 0
    cdef int16_t short_integer
    cdef int32_t integer
    if tag == BFLAT_NULL:
        return
    if tag == BFLAT_STRING or tag == BFLAT_BINARY:
        at = bflat_unsigned(at, stop, &length)
        value.text = at
        value.length = <uint32_t>length
        if length:
            value.kind = VALUE_STRING
        return
    if tag == BFLAT_DOUBLE:
        value.kind = VALUE_DOUBLE
        memcpy(&value.number.double_, at, 8)
        return
    value.kind = VALUE_INTEGER
    if tag == BFLAT_INT8:
        value.number.integer = <int8_t>at[0]
    elif tag == BFLAT_INT16:
        memcpy(&short_integer, at, 2)
        value.number.integer = short_integer
    elif tag == BFLAT_INT32:
        memcpy(&integer, at, 4)
        value.number.integer = integer
    elif tag == BFLAT_LEB128:
        bflat_signed(at, stop, &value.number.integer)
    else:
        memcpy(&value.number.integer, at, 8)
