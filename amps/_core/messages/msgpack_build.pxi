# Writing MessagePack: new messages, and messages with fields changed (expressions.md §11).
#
# Every item is written in its shortest form. Text that is UTF-8 becomes str, other bytes bin; NaN stays NaN. A merge
# copies the bytes of all other items; the head of a map is written again only if the number of its pairs changes.

from libc.stdint cimport INT8_MIN, INT16_MIN, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from amps._core.values.fields cimport ByteBuffer, Destination, Destinations, MessageBuilder, destination
from amps._core.messages.msgpack_wire cimport (
    MSGPACK_MAP,
    msgpack_item,
    msgpack_name,
    msgpack_read,
    msgpack_skip,
)
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


cdef int put_head(ByteBuffer output, uint8_t head, uint64_t number, uint32_t bytes) except -1:
    """Write a first byte and a number of `bytes` bytes, highest byte first."""
    cdef uint8_t* at = output.reserve(9)
    cdef uint32_t place
    at[0] = head
    for place in range(bytes):
        at[1 + place] = <uint8_t>(number >> 8 * (bytes - 1 - place))
    output.length += 1 + bytes
    return 0


cdef int put_integer(ByteBuffer output, int64_t integer) except -1:
    if integer >= 0:
        return put_unsigned(output, <uint64_t>integer)
    if integer >= -32:
        return output.append_byte(<uint8_t>integer)
    if integer >= INT8_MIN:
        return put_head(output, 0xD0, <uint64_t>integer, 1)
    if integer >= INT16_MIN:
        return put_head(output, 0xD1, <uint64_t>integer, 2)
    if integer >= INT32_MIN:
        return put_head(output, 0xD2, <uint64_t>integer, 4)
    return put_head(output, 0xD3, <uint64_t>integer, 8)


cdef int put_unsigned(ByteBuffer output, uint64_t integer) except -1:
    if integer < 0x80:
        return output.append_byte(<uint8_t>integer)
    if integer < 0x100:
        return put_head(output, 0xCC, integer, 1)
    if integer < 0x10000:
        return put_head(output, 0xCD, integer, 2)
    if integer < 0x100000000:
        return put_head(output, 0xCE, integer, 4)
    return put_head(output, 0xCF, integer, 8)


cdef int put_text(ByteBuffer output, const uint8_t* text, uint32_t length) except -1:
    if utf8_is_valid(text, text + length):
        if length < 32:
            output.append_byte(<uint8_t>(0xA0 | length))
        elif length < 0x100:
            put_head(output, 0xD9, length, 1)
        elif length < 0x10000:
            put_head(output, 0xDA, length, 2)
        else:
            put_head(output, 0xDB, length, 4)
    elif length < 0x100:
        put_head(output, 0xC4, length, 1)
    elif length < 0x10000:
        put_head(output, 0xC5, length, 2)
    else:
        put_head(output, 0xC6, length, 4)
    return output.append(text, length)


cdef int put_map_head(ByteBuffer output, uint32_t pairs) except -1:
    if pairs < 16:
        return output.append_byte(<uint8_t>(0x80 | pairs))
    if pairs < 0x10000:
        return put_head(output, 0xDE, pairs, 2)
    return put_head(output, 0xDF, pairs, 4)


cdef int put_value(ByteBuffer output, Value* value) except -1:
    cdef uint64_t bits
    if value.kind == VALUE_STRING:
        return put_text(output, value.text, value.length)
    if value.kind == VALUE_BOOLEAN:
        return output.append_byte(0xC3 if value.number.integer else 0xC2)
    if value.kind == VALUE_INTEGER:
        return put_integer(output, value.number.integer)
    if value.kind == VALUE_UNSIGNED:
        return put_unsigned(output, value.number.unsigned_integer)
    if value.kind == VALUE_DOUBLE:
        memcpy(&bits, &value.number.double_, 8)
        return put_head(output, 0xCB, bits, 8)
    return output.append_byte(0xC0)


cdef class MsgpackBuilder(MessageBuilder):

    cdef Destinations destinations
    cdef Destination* nodes
    cdef Value** chosen
    cdef const uint8_t* end        # of the message that is merged into

    def __init__(self, paths):
        super().__init__(paths)
        self.destinations = Destinations(self.paths)
        self.nodes = self.destinations.nodes

    cdef int write(self, Value** values, Arena arena) except -1:
        self.destinations.choose(values)
        self.chosen = values
        return self.put_map(0)

    cdef int put_map(self, int32_t node) except -1:
        cdef int32_t child = self.nodes[node].first_child
        put_map_head(self.output, self.nodes[node].written)
        while child >= 0:
            if self.nodes[child].written:
                self.put_pair(child)
            child = self.nodes[child].next_sibling
        return 0

    cdef int put_pair(self, int32_t node) except -1:
        put_text(self.output, self.nodes[node].name, self.nodes[node].name_length)
        return self.put_node(node)

    cdef int put_node(self, int32_t node) except -1:
        if self.nodes[node].value < 0:
            return self.put_map(node)
        return put_value(self.output, self.chosen[self.nodes[node].value])

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        cdef const uint8_t* at
        cdef msgpack_item item
        if length == 0:
            self.write(values, arena)
            return True
        self.destinations.choose(values)
        self.chosen = values
        self.end = message + length
        at = msgpack_read(message, self.end, &item)
        if at == NULL or item.kind != MSGPACK_MAP:
            return False
        return self.merge_map(message, at, item.length, 0) == self.end

    cdef const uint8_t* merge_map(
        self, const uint8_t* head, const uint8_t* at, uint32_t pairs, int32_t node
    ) except? NULL:
        """Merge the map with its head at `head` and its pairs from `at` on.

        Return the position behind it, or NULL: malformed.
        """
        cdef uint64_t head_at = self.output.length
        cdef uint32_t head_length = <uint32_t>(at - head)
        cdef const uint8_t* copied = head  # everything before it is written or replaced
        cdef const uint8_t* begin
        cdef msgpack_item key
        cdef msgpack_item item
        cdef uint8_t digits[24]
        cdef uint32_t kept = pairs
        cdef uint32_t left = pairs
        cdef int32_t child
        self.destinations.begin(node)
        while left:
            left -= 1
            begin = at
            at = msgpack_name(at, self.end, &key, digits)
            if at == NULL:
                return NULL
            child = destination(self.destinations, node, key.text, key.length) if key.text != NULL else -1
            if child < 0:
                at = msgpack_skip(at, self.end, 1)
                if at == NULL:
                    return NULL
                continue
            if self.nodes[child].met or (self.nodes[child].value >= 0 and not self.nodes[child].written):
                # Of a repeated key the first pair counts: it was changed, and the others are removed.
                self.output.append(copied, <uint64_t>(begin - copied))
                at = copied = msgpack_skip(at, self.end, 1)
                kept -= 1
            else:
                self.nodes[child].met = True
                self.output.append(copied, <uint64_t>(at - copied))
                begin = at
                at = msgpack_read(at, self.end, &item)
                if at == NULL:
                    return NULL
                if self.nodes[child].value < 0 and item.kind == MSGPACK_MAP:
                    at = copied = self.merge_map(begin, at, item.length, child)
                else:
                    at = msgpack_skip(begin, self.end, 1)
                    copied = begin
                    if self.nodes[child].written:
                        self.put_node(child)
                        copied = at
            if at == NULL:
                return NULL
        self.output.append(copied, <uint64_t>(at - copied))
        child = self.nodes[node].first_child
        while child >= 0:
            if self.nodes[child].written and not self.nodes[child].met:
                self.put_pair(child)
                kept += 1
            child = self.nodes[child].next_sibling
        if kept != pairs:
            self.change_head(head_at, head_length, kept)
        return at

    cdef int change_head(self, uint64_t head_at, uint32_t length, uint32_t pairs) except -1:
        """Write the head of a map again, and move the content if the length of the head differs."""
        cdef ByteBuffer output = self.output
        cdef uint64_t end = output.length
        cdef uint64_t needed
        put_map_head(output, pairs)
        needed = output.length - end
        output.reserve(needed)
        # The new head was written at the end. It is moved in front of the content, after the content has been moved.
        cdef uint8_t made[8]
        memcpy(made, output.data + end, needed)
        memmove(output.data + head_at + needed, output.data + head_at + length, end - head_at - length)
        memcpy(output.data + head_at, made, needed)
        output.length = end - length + needed
        return 0
