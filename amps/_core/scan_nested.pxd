# What the extractors of nested binary formats share. See scan_nested.pyx.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.fields cimport Extractor, FieldSet, FieldValues


cdef enum:
    NESTED_DEPTH_MAX = 1000        # of what is wanted; what is stepped over may be deeper


cdef class NestedExtractor(Extractor):
    """Fields of messages that are maps of values, maps and arrays, where the first value of a repeated key counts."""

    cdef FieldSet fields
    cdef FieldValues values
    cdef const uint8_t* end        # of the message
    cdef bint done                 # everything wanted is found
    cdef uint32_t wanted           # how many fields
    cdef uint32_t resolved         # wanted fields that later bytes cannot change any more
    cdef uint32_t arrays           # how many arrays surround the current place
    cdef uint32_t map_serial
    cdef uint32_t* met             # by node of the FieldSet: the map in which its key was met last
    cdef uint32_t met_capacity
    cdef const uint8_t* leaf_from  # where the last search for a scalar began
    cdef const uint8_t* leaf_to    # and where it found one; without one, the end of what was searched

    cdef int start(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1
    cdef uint32_t new_map(self) noexcept
    cdef const uint8_t* scan_member(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL
    cdef bint is_array(self, uint8_t tag) noexcept
    cdef const uint8_t* scan_value(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL


# Whether this is the first time that a wanted key is met in a map.
cdef inline bint first_time(NestedExtractor self, int32_t node, uint32_t map_serial) noexcept:
    if self.met[node] == map_serial:
        return False
    self.met[node] = map_serial
    return True
