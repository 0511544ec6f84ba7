# The common part of the extractors of nested binary formats (MessagePack, BSON): when to stop reading a message.
#
# Of a repeated key the first value counts, as in JSON. So a needed key outside of all arrays is resolved with its first
# value, together with all needed fields below it. A message is read until everything is resolved or it ends. Errors
# behind that position are not detected (expressions.md §12.3).
#
# A container is a value if there is a scalar in it. The result of a search for a scalar is kept, so that needed
# containers inside a searched one are not searched again. But a value that is needed both as itself and as the first
# element of an array is read twice, with its contents, at each such step of a path. The bound of
# values/evaluation_budget.pxi ends that.
#
# A format implements `scan_value`: it reads the value at a position, for the node of the FieldSet that it belongs to.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef enum:
    SERIAL_LAST = 0xF0000000       # the numbers above this are enough for the maps of one message


cdef class NestedExtractor(Extractor):

    def __cinit__(self):
        self.met = NULL
        self.met_capacity = 0
        self.map_serial = 0

    def __dealloc__(self):
        free(self.met)

    cdef int start(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef uint32_t* grown
        self.fields = fields
        self.values = values
        self.end = data + length
        self.done = False
        self.wanted = fields.nodes[root].wanted_below
        self.resolved = 0
        self.arrays = 0
        self.leaf_from = self.leaf_to = data
        if fields.node_count > self.met_capacity or self.map_serial > SERIAL_LAST:
            grown = <uint32_t*>realloc(self.met, fields.node_count * 2 * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError()
            self.met = grown
            self.met_capacity = fields.node_count * 2
            memset(self.met, 0, self.met_capacity * sizeof(uint32_t))
            self.map_serial = 0
        return 0

    cdef uint32_t new_map(self) noexcept:
        """Return a number for a map, by which its keys are distinguished from those of other maps."""
        self.map_serial += 1
        return self.map_serial

    cdef const uint8_t* scan_member(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL:
        """Read the value of a needed member, and set `done` if it was the last one. tag: the type in the format's code.
        """
        cdef int32_t first
        cdef const uint8_t* behind
        cdef uint32_t before = self.resolved
        if self.fields.nodes[node].first_element >= 0 and not self.is_array(tag):
            first = self.fields.element(node, 0)  # a single value is also its own first element
            if first >= 0:
                behind = self.scan_value(at, tag, first, depth)
                if behind == NULL or is_overworked(<uint64_t>(behind - at)):
                    return NULL
        at = self.scan_value(at, tag, node, depth)
        if at != NULL and self.arrays == 0 and not self.done:
            self.resolved = before + self.fields.nodes[node].wanted_below
            self.done = self.resolved == self.wanted
        return at

    cdef const uint8_t* scan_value(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL:
        """Read a needed value, or one that contains needed values.

        Return the position behind it, or NULL: malformed.
        """
        raise NotImplementedError

    cdef bint is_array(self, uint8_t tag) noexcept:
        raise NotImplementedError
