# Messages without fields: every path is NULL, and no message is malformed (expressions.md §12.1).

from libc.stdint cimport int32_t, uint8_t, uint64_t

from amps._core.values.fields cimport Extractor, FieldSet, FieldValues


cdef class BinaryExtractor(Extractor):

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        return True
