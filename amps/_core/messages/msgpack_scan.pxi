# Fields of MessagePack messages (expressions.md §12.4).
#
# A message is read in one pass along the tree of needed fields. Text is not copied. str, bin and ext are strings (ext
# without its type). Integer keys have their decimal digits as names. Other keys have no name in paths and are skipped.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.values.fields cimport (
    NESTED_DEPTH_MAX,
    FieldSet,
    FieldValues,
    NestedExtractor,
    first_time,
    is_overworked,
    wanted_child,
)
from amps._core.messages.msgpack_wire cimport (
    MSGPACK_ARRAY,
    MSGPACK_BOOLEAN,
    MSGPACK_DOUBLE,
    MSGPACK_INTEGER,
    MSGPACK_LEAF_DEPTH_MAX,
    MSGPACK_MAP,
    MSGPACK_NIL,
    MSGPACK_UNSIGNED,
    msgpack_find_leaf,
    msgpack_is_around,
    msgpack_item,
    msgpack_leaf,
    msgpack_name,
    msgpack_read,
    msgpack_skip,
)
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_STRING,
    VALUE_UNSIGNED,
    Value,
)


cdef class MsgpackExtractor(NestedExtractor):

    cdef msgpack_leaf leaf         # result of the last search for a leaf

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef const uint8_t* at
        cdef msgpack_item item
        if fields.nodes[root].wanted_below == 0 or length == 0:
            return True
        self.start(data, length, fields, root, values)
        at = msgpack_read(data, self.end, &item)
        if at == NULL:
            return False
        if item.kind == MSGPACK_MAP:
            at = self.scan_map(at, item.length, root, 0)
        else:
            at = msgpack_skip(data, self.end, 1)
        return at != NULL and (self.done or at == self.end)

    cdef const uint8_t* scan_map(
        self, const uint8_t* at, uint32_t pairs, int32_t node, uint32_t depth
    ) except? NULL:
        """Read the pairs of a map, beginning at `at`. Return the position behind them, or NULL: malformed."""
        cdef msgpack_item key
        cdef uint8_t digits[24]
        cdef int32_t child
        cdef uint32_t serial = self.new_map()
        if depth > NESTED_DEPTH_MAX:
            return NULL
        while pairs:
            pairs -= 1
            at = msgpack_name(at, self.end, &key, digits)
            if at == NULL or at == self.end:
                return NULL
            child = wanted_child(self.fields, node, key.text, key.length) if key.text != NULL else -1
            if child >= 0 and first_time(self, child, serial):
                at = self.scan_member(at, at[0], child, depth)
                if self.done:
                    return at
            else:
                at = msgpack_skip(at, self.end, 1)
            if at == NULL:
                return NULL
        return at

    cdef bint is_array(self, uint8_t tag) noexcept:
        return tag & 0xF0 == 0x90 or tag == 0xDC or tag == 0xDD

    cdef const uint8_t* scan_value(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL:
        cdef int32_t slot = self.fields.nodes[node].slot
        cdef msgpack_item item
        cdef Value* value
        cdef uint32_t index = 0
        cdef int found
        at = msgpack_read(at, self.end, &item)
        if at == NULL:
            return NULL
        if item.kind == MSGPACK_MAP:
            if slot >= 0:
                found = self.has_leaf(at, item.length)
                if found < 0:
                    return NULL
                if found:
                    self.values.add(slot).kind = VALUE_CONTAINER
            if self.fields.nodes[node].children == 0:
                return msgpack_skip(at, self.end, 2 * <uint64_t>item.length)
            return self.scan_map(at, item.length, node, depth + 1)
        if item.kind == MSGPACK_ARRAY:
            return self.scan_array(at, item.length, node, depth + 1, &index)
        if slot < 0:
            return at
        value = self.values.add(slot)
        if item.kind == MSGPACK_BOOLEAN:
            value.kind = VALUE_BOOLEAN
            value.number.integer = item.integer
        elif item.kind == MSGPACK_INTEGER:
            value.kind = VALUE_INTEGER
            value.number.integer = item.integer
        elif item.kind == MSGPACK_UNSIGNED:
            value.kind = VALUE_UNSIGNED
            value.number.unsigned_integer = <uint64_t>item.integer
        elif item.kind == MSGPACK_DOUBLE:
            value.kind = VALUE_DOUBLE
            value.number.double_ = item.number
        elif item.kind != MSGPACK_NIL and item.length:
            value.kind = VALUE_STRING
            value.text = item.text
            value.length = item.length
        return at

    cdef int has_leaf(self, const uint8_t* at, uint32_t pairs) noexcept nogil:
        """Whether a map whose pairs begin at `at` contains a scalar: 1 or 0; -1: malformed."""
        cdef const uint8_t* behind
        if self.leaf_from <= at < self.leaf_to:
            return pairs > 0 and self.leaf.place != NULL and msgpack_is_around(&self.leaf, at)
        behind = msgpack_find_leaf(at, self.end, pairs, True, MSGPACK_LEAF_DEPTH_MAX, &self.leaf)
        if behind == NULL and self.leaf.place == NULL:
            return -1
        self.leaf_from = at
        self.leaf_to = behind if self.leaf.place == NULL else self.leaf.place
        return self.leaf.place != NULL

    cdef const uint8_t* scan_array(
        self, const uint8_t* at, uint32_t count, int32_t node, uint32_t depth, uint32_t* index
    ) except? NULL:
        """Read the items of an array, beginning at `at`, numbered from `index` on.

        Arrays in arrays count as flat, so their items continue the numbering (§9).
        """
        cdef const uint8_t* begin
        cdef msgpack_item item
        cdef int32_t element
        if depth > NESTED_DEPTH_MAX:
            return NULL
        self.arrays += 1
        while count:
            count -= 1
            begin = at
            if begin == self.end:
                return NULL
            if self.is_array(begin[0]):
                at = msgpack_read(begin, self.end, &item)
                if at != NULL:
                    at = self.scan_array(at, item.length, node, depth + 1, index)
            else:
                if self.fields.nodes[node].first_element >= 0:
                    element = self.fields.element(node, index[0])
                    if element >= 0:
                        at = self.scan_value(begin, begin[0], element, depth)
                        if at == NULL or is_overworked(<uint64_t>(at - begin)):
                            return NULL
                index[0] += 1
                at = self.scan_value(begin, begin[0], node, depth)
            if at == NULL:
                return NULL
        self.arrays -= 1
        return at
