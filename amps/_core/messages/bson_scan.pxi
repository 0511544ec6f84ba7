# Fields of BSON messages (expressions.md §12.4).
#
# A message is read in one pass along the tree of needed fields. Strings are not copied, and containers that are not
# needed are skipped by their length. Types without a counterpart become strings: an ObjectId its 24 hex digits, a
# regular expression its pattern, a decimal number its decimal text (which converts to a number where one is needed),
# code its text without the scope. Dates are milliseconds, timestamps their 64 bits. MinKey, MaxKey and undefined are
# NULL.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.messages.bson_wire cimport (
    BSON_ARRAY,
    BSON_BINARY,
    BSON_BINARY_OLD,
    BSON_BOOLEAN,
    BSON_CODE,
    BSON_CODE_WITH_SCOPE,
    BSON_DATETIME,
    BSON_DB_POINTER,
    BSON_DECIMAL128,
    BSON_DECIMAL_TEXT_MAX,
    BSON_DOCUMENT,
    BSON_DOUBLE,
    BSON_INT32,
    BSON_INT64,
    BSON_OBJECT_ID,
    BSON_REGEX,
    BSON_STRING,
    BSON_SYMBOL,
    BSON_TIMESTAMP,
    bson_decimal_text,
    bson_document_end,
    bson_hex,
    bson_leaf,
    bson_name_end,
    bson_u32,
    bson_u64,
    bson_value_end,
)
from amps._core.values.fields cimport (
    NESTED_DEPTH_MAX,
    FieldSet,
    FieldValues,
    NestedExtractor,
    first_time,
    is_overworked,
    wanted_child,
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


cdef class BsonExtractor(NestedExtractor):

    cdef const uint8_t* limit      # end of the surrounding document

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef const uint8_t* at
        if fields.nodes[root].wanted_below == 0 or length == 0:
            return True
        self.start(data, length, fields, root, values)
        at = self.scan_document(data, self.end, root, 0)
        return at != NULL and (self.done or at == self.end)

    cdef const uint8_t* scan_document(
        self, const uint8_t* at, const uint8_t* end, int32_t node, uint32_t depth
    ) except? NULL:
        """Read a document whose length is at `at`. Return the position behind it, or NULL: malformed."""
        cdef const uint8_t* document_end = bson_document_end(at, end)
        cdef const uint8_t* name
        cdef int32_t child
        cdef uint8_t tag
        cdef uint32_t serial = self.new_map()
        if document_end == NULL or depth > NESTED_DEPTH_MAX:
            return NULL
        end = document_end - 1  # the zero byte
        at += 4
        while at < end:
            tag = at[0]
            name = at + 1
            at = bson_name_end(name, end)
            if at == NULL:
                return NULL
            child = wanted_child(self.fields, node, name, <uint32_t>(at - 1 - name))
            if child >= 0 and first_time(self, child, serial):
                self.limit = end
                at = self.scan_member(at, tag, child, depth)
                if self.done:
                    return at
            else:
                at = bson_value_end(tag, at, end)
            if at == NULL:
                return NULL
        return document_end

    cdef bint is_array(self, uint8_t tag) noexcept:
        return tag == BSON_ARRAY

    cdef const uint8_t* scan_value(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL:
        cdef const uint8_t* stop = bson_value_end(tag, at, self.limit)
        cdef const uint8_t* limit = self.limit
        cdef int32_t slot = self.fields.nodes[node].slot
        cdef uint32_t index = 0
        cdef int found
        if stop == NULL:
            return NULL
        if tag == BSON_ARRAY:
            stop = self.scan_array(at, stop, node, depth + 1, &index)
            self.limit = limit
        elif tag == BSON_DOCUMENT:
            if slot >= 0:
                found = self.has_leaf(at + 4, stop)
                if found < 0:
                    return NULL
                if found:
                    self.values.add(slot).kind = VALUE_CONTAINER
            if self.fields.nodes[node].children:
                stop = self.scan_document(at, stop, node, depth + 1)
                self.limit = limit
        elif slot >= 0:
            self.put(self.values.add(slot), tag, at, stop)
        return stop

    cdef int has_leaf(self, const uint8_t* at, const uint8_t* stop) noexcept nogil:
        """Whether a document whose elements begin at `at` contains a scalar: 1 or 0; -1: malformed."""
        cdef const uint8_t* leaf
        if not self.leaf_from <= at < self.leaf_to:
            leaf = bson_leaf(at, stop)
            if leaf == NULL:
                return -1
            self.leaf_from = at
            self.leaf_to = leaf
        return self.leaf_to < stop

    cdef const uint8_t* scan_array(
        self, const uint8_t* at, const uint8_t* stop, int32_t node, uint32_t depth, uint32_t* index
    ) except? NULL:
        """Read the elements of an array, numbered from `index` on. Their names are ignored.

        Arrays in arrays count as flat, so their elements continue the numbering (§9).
        """
        cdef const uint8_t* end = stop - 1  # the zero byte
        cdef const uint8_t* after
        cdef int32_t element
        cdef uint8_t tag
        if depth > NESTED_DEPTH_MAX:
            return NULL
        self.arrays += 1
        at += 4
        while at < end:
            tag = at[0]
            at = bson_name_end(at + 1, end)
            if at == NULL:
                return NULL
            if tag == BSON_ARRAY:
                after = bson_document_end(at, end)
                if after == NULL:
                    return NULL
                at = self.scan_array(at, after, node, depth + 1, index)
            else:
                self.limit = end
                if self.fields.nodes[node].first_element >= 0:
                    element = self.fields.element(node, index[0])
                    if element >= 0:
                        after = self.scan_value(at, tag, element, depth)
                        if after == NULL or is_overworked(<uint64_t>(after - at)):
                            return NULL
                index[0] += 1
                at = self.scan_value(at, tag, node, depth)
            if at == NULL:
                return NULL
        self.arrays -= 1
        return stop

    cdef int put(self, Value* value, uint8_t tag, const uint8_t* at, const uint8_t* stop) except -1:
        """Store a scalar that is completely in the message."""
        cdef uint8_t* made
        value.text = at
        value.length = 0
        if tag == BSON_STRING or tag == BSON_CODE or tag == BSON_SYMBOL:
            value.text = at + 4
            value.length = bson_u32(at) - 1
        elif tag == BSON_INT32:
            value.kind = VALUE_INTEGER
            value.number.integer = <int32_t>bson_u32(at)
        elif tag == BSON_INT64 or tag == BSON_DATETIME:
            value.kind = VALUE_INTEGER
            value.number.integer = <int64_t>bson_u64(at)
        elif tag == BSON_TIMESTAMP:
            value.number.unsigned_integer = bson_u64(at)
            value.kind = VALUE_UNSIGNED if value.number.unsigned_integer > INT64_MAX else VALUE_INTEGER
        elif tag == BSON_DOUBLE:
            value.kind = VALUE_DOUBLE
            memcpy(&value.number.double_, at, 8)
        elif tag == BSON_BOOLEAN:
            value.kind = VALUE_BOOLEAN
            value.number.integer = at[0]
        elif tag == BSON_BINARY:
            value.text = at + 5
            value.length = bson_u32(at)
            if at[4] == BSON_BINARY_OLD and value.length >= 4 and bson_u32(at + 5) == value.length - 4:
                value.text += 4
                value.length -= 4
        elif tag == BSON_OBJECT_ID or tag == BSON_DB_POINTER:
            made = self.values.arena.reserve(24)
            bson_hex(stop - 12, 12, made)
            value.text = made
            value.length = 24
        elif tag == BSON_REGEX:
            value.length = <uint32_t>(bson_name_end(at, stop) - 1 - at)
        elif tag == BSON_CODE_WITH_SCOPE:
            value.text = at + 8
            value.length = bson_u32(at + 4) - 1
        elif tag == BSON_DECIMAL128:
            made = self.values.arena.reserve(BSON_DECIMAL_TEXT_MAX)
            value.text = made
            value.length = bson_decimal_text(at, made)
        if value.length:
            value.kind = VALUE_STRING
        return 0
