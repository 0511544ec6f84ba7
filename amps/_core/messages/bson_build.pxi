# Writing BSON: new messages, and messages with fields changed (expressions.md §11).
#
# Text that is UTF-8 becomes a string, other bytes binary. An integer is written in 32 bits if it fits, else in 64. An
# integer above the largest signed one, for which BSON has no type, is written as a double. A merge copies the bytes of
# all other elements; only the lengths of the documents around a change are written again.

from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.messages.bson_wire cimport (
    BSON_BINARY,
    BSON_BOOLEAN,
    BSON_DOCUMENT,
    BSON_DOUBLE,
    BSON_INT32,
    BSON_INT64,
    BSON_NULL,
    BSON_STRING,
    bson_document_end,
    bson_name_end,
    bson_value_end,
)
from amps._core.values.fields cimport ByteBuffer, Destination, Destinations, MessageBuilder, destination
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_STRING,
    VALUE_UNSIGNED,
    Arena,
    Value,
)


cdef extern from "utf8_text.h" nogil:
    bint utf8_is_valid(const uint8_t* at, const uint8_t* end)


cdef int put_number(ByteBuffer output, uint64_t number, uint32_t bytes) except -1:
    """Write a number, lowest byte first."""
    cdef uint8_t* at = output.reserve(bytes)
    cdef uint32_t place
    for place in range(bytes):
        at[place] = <uint8_t>(number >> 8 * place)
    output.length += bytes
    return 0


cdef class BsonBuilder(MessageBuilder):

    cdef Destinations destinations
    cdef Destination* nodes
    cdef Value** chosen

    def __init__(self, paths):
        super().__init__(paths)
        for path in self.paths:
            if any(b"\0" in step for step in path if isinstance(step, bytes)):
                raise ValueError(f"a name of BSON cannot contain a zero byte: {path!r}")
        self.destinations = Destinations(self.paths)
        self.nodes = self.destinations.nodes

    cdef int write(self, Value** values, Arena arena) except -1:
        self.destinations.choose(values)
        self.chosen = values
        return self.put_document(0)

    cdef int put_document(self, int32_t node) except -1:
        cdef uint64_t begin = self.output.length
        cdef int32_t child = self.nodes[node].first_child
        put_number(self.output, 0, 4)
        while child >= 0:
            if self.nodes[child].written:
                self.put_element(child)
            child = self.nodes[child].next_sibling
        return self.close(begin)

    cdef int close(self, uint64_t begin) except -1:
        """End the document whose length is at `begin`."""
        cdef uint64_t length
        cdef uint32_t place
        self.output.append_byte(0)
        length = self.output.length - begin
        if length > INT32_MAX:
            raise OverflowError(f"a document of {length} bytes; the maximum of BSON is {INT32_MAX}")
        for place in range(4):
            self.output.data[begin + place] = <uint8_t>(length >> 8 * place)
        return 0

    cdef int put_element(self, int32_t node) except -1:
        cdef Destination* written = &self.nodes[node]
        if written.value >= 0:
            return self.put_value(node, self.chosen[written.value])
        self.put_name(BSON_DOCUMENT, node)
        return self.put_document(node)

    cdef int put_name(self, int tag, int32_t node) except -1:
        self.output.append_byte(<uint8_t>tag)
        self.output.append(self.nodes[node].name, self.nodes[node].name_length)
        return self.output.append_byte(0)

    cdef int put_value(self, int32_t node, Value* value) except -1:
        """Write an element: its type, the name of the node, the value."""
        cdef uint64_t bits
        cdef double number
        if value.kind == VALUE_STRING:
            if utf8_is_valid(value.text, value.text + value.length):
                self.put_name(BSON_STRING, node)
                put_number(self.output, <uint64_t>value.length + 1, 4)
                self.output.append(value.text, value.length)
                return self.output.append_byte(0)
            self.put_name(BSON_BINARY, node)
            put_number(self.output, value.length, 4)
            self.output.append_byte(0)
            return self.output.append(value.text, value.length)
        if value.kind == VALUE_INTEGER:
            if INT32_MIN <= value.number.integer <= INT32_MAX:
                self.put_name(BSON_INT32, node)
                return put_number(self.output, <uint64_t>value.number.integer, 4)
            self.put_name(BSON_INT64, node)
            return put_number(self.output, <uint64_t>value.number.integer, 8)
        if value.kind == VALUE_DOUBLE or value.kind == VALUE_UNSIGNED:
            number = value.number.double_
            if value.kind == VALUE_UNSIGNED:
                number = <double>value.number.unsigned_integer
            memcpy(&bits, &number, 8)
            self.put_name(BSON_DOUBLE, node)
            return put_number(self.output, bits, 8)
        if value.kind == VALUE_BOOLEAN:
            self.put_name(BSON_BOOLEAN, node)
            return self.output.append_byte(<uint8_t>value.number.integer)
        return self.put_name(BSON_NULL, node)

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        if length == 0:
            self.write(values, arena)
            return True
        self.destinations.choose(values)
        self.chosen = values
        return self.merge_document(message, message + length, 0) == message + length

    cdef const uint8_t* merge_document(
        self, const uint8_t* at, const uint8_t* end, int32_t node
    ) except? NULL:
        """Merge the document whose length is at `at`. Return the position behind it, or NULL: malformed."""
        cdef const uint8_t* stop = bson_document_end(at, end)
        cdef const uint8_t* copied = at + 4  # everything before it is written or replaced
        cdef const uint8_t* begin
        cdef const uint8_t* content
        cdef uint64_t written_at = self.output.length
        cdef int32_t child
        cdef uint8_t tag
        if stop == NULL:
            return NULL
        self.destinations.begin(node)
        put_number(self.output, 0, 4)
        at += 4
        end = stop - 1  # the zero byte
        while at < end:
            begin = at
            tag = at[0]
            content = bson_name_end(at + 1, end)
            if content == NULL:
                return NULL
            at = bson_value_end(tag, content, end)
            if at == NULL:
                return NULL
            child = destination(self.destinations, node, begin + 1, <uint32_t>(content - 2 - begin))
            if child < 0:
                continue
            if self.nodes[child].met or (self.nodes[child].value >= 0 and not self.nodes[child].written):
                # Of a repeated name the first element counts: it was changed, and the others are removed.
                self.output.append(copied, <uint64_t>(begin - copied))
                copied = at
                continue
            self.nodes[child].met = True
            if self.nodes[child].value < 0 and tag == BSON_DOCUMENT:
                self.output.append(copied, <uint64_t>(content - copied))
                copied = self.merge_document(content, at, child)
                if copied != at:
                    return NULL
            elif self.nodes[child].written:
                self.output.append(copied, <uint64_t>(begin - copied))
                self.put_element(child)
                copied = at
        self.output.append(copied, <uint64_t>(end - copied))
        child = self.nodes[node].first_child
        while child >= 0:
            if self.nodes[child].written and not self.nodes[child].met:
                self.put_element(child)
            child = self.nodes[child].next_sibling
        self.close(written_at)
        return stop
