# Writing BFlat: new messages, and messages with fields changed (expressions.md §§11, 12.5).
#
# A value is written in its most compact type, so the type of a field may differ between messages. Text that is UTF-8
# becomes a string, other bytes binary. An integer above the largest signed one, for which there is no type, is written
# as a double. In a merge, a destination replaces the first field of its tag and removes the others; all other bytes are
# copied.

from libc.stdint cimport (
    INT8_MAX,
    INT8_MIN,
    INT16_MAX,
    INT16_MIN,
    INT32_MAX,
    INT32_MIN,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
    uint64_t,
)
from libc.string cimport memcpy

from amps._core.messages.bflat_wire cimport (
    BFLAT_BINARY,
    BFLAT_DOUBLE,
    BFLAT_INT16,
    BFLAT_INT32,
    BFLAT_INT64,
    BFLAT_INT8,
    BFLAT_LEB128,
    BFLAT_NULL,
    BFLAT_STRING,
    bflat_field,
    bflat_head,
    bflat_values_end,
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


cdef int put_unsigned(ByteBuffer output, uint64_t number) except -1:
    cdef uint8_t* at = output.reserve(10)
    cdef uint32_t length = 0
    while number > 0x7F:
        at[length] = <uint8_t>(number | 0x80)
        length += 1
        number >>= 7
    at[length] = <uint8_t>number
    output.length += length + 1
    return 0


cdef uint32_t signed_bytes(int64_t number) noexcept nogil:
    """The length of a number as signed LEB128."""
    cdef uint32_t length = 1
    while not -64 <= number <= 63:
        number >>= 7
        length += 1
    return length


cdef int put_signed(ByteBuffer output, int64_t number) except -1:
    cdef uint8_t* at = output.reserve(10)
    cdef uint32_t last = signed_bytes(number) - 1
    cdef uint32_t place
    for place in range(last):
        at[place] = <uint8_t>(number | 0x80)
        number >>= 7
    at[last] = <uint8_t>(number & 0x7F)
    output.length += last + 1
    return 0


cdef int put_number(ByteBuffer output, uint64_t number, uint32_t bytes) except -1:
    """Write a number, lowest byte first."""
    cdef uint8_t* at = output.reserve(bytes)
    cdef uint32_t place
    for place in range(bytes):
        at[place] = <uint8_t>(number >> 8 * place)
    output.length += bytes
    return 0


cdef class BflatBuilder(MessageBuilder):

    cdef Destinations destinations
    cdef Destination* nodes

    def __init__(self, paths):
        super().__init__(paths)
        for path in self.paths:
            if len(path) != 1 or not path[0]:
                raise ValueError(f"a field of BFlat is a tag, without further steps: {path!r}")
        self.destinations = Destinations(self.paths)
        self.nodes = self.destinations.nodes

    cdef int write(self, Value** values, Arena arena) except -1:
        cdef int32_t child = self.nodes[0].first_child
        while child >= 0:
            self.put_field(child, values)
            child = self.nodes[child].next_sibling
        return 0

    cdef int put_field(self, int32_t node, Value** values) except -1:
        """Write a field with its value, unless it is left out."""
        cdef Value* value = values[self.nodes[node].value]
        cdef uint64_t bits
        cdef double number
        cdef uint32_t leb_bytes
        if value == NULL:
            return 0
        if value.kind == VALUE_STRING:
            self.put_head(
                BFLAT_STRING if utf8_is_valid(value.text, value.text + value.length) else BFLAT_BINARY, node
            )
            put_unsigned(self.output, value.length)
            return self.output.append(value.text, value.length)
        if value.kind == VALUE_DOUBLE or value.kind == VALUE_UNSIGNED:
            number = value.number.double_
            if value.kind == VALUE_UNSIGNED:
                number = <double>value.number.unsigned_integer
            memcpy(&bits, &number, 8)
            self.put_head(BFLAT_DOUBLE, node)
            return put_number(self.output, bits, 8)
        if value.kind != VALUE_INTEGER and value.kind != VALUE_BOOLEAN:
            return self.put_head(BFLAT_NULL, node)
        bits = <uint64_t>value.number.integer
        leb_bytes = signed_bytes(value.number.integer)
        if INT8_MIN <= value.number.integer <= INT8_MAX:
            self.put_head(BFLAT_INT8, node)
            return put_number(self.output, bits, 1)
        if INT16_MIN <= value.number.integer <= INT16_MAX:
            self.put_head(BFLAT_INT16, node)
            return put_number(self.output, bits, 2)
        if leb_bytes > 3 and INT32_MIN <= value.number.integer <= INT32_MAX:
            self.put_head(BFLAT_INT32, node)
            return put_number(self.output, bits, 4)
        if leb_bytes < 8:
            self.put_head(BFLAT_LEB128, node)
            return put_signed(self.output, value.number.integer)
        self.put_head(BFLAT_INT64, node)
        return put_number(self.output, bits, 8)

    cdef int put_head(self, int tag, int32_t node) except -1:
        cdef uint32_t length = self.nodes[node].name_length
        self.output.append_byte(<uint8_t>(tag | (length if length < 8 else 0)))
        if length > 7:
            put_unsigned(self.output, length)
        return self.output.append(self.nodes[node].name, length)

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        cdef const uint8_t* at = message
        cdef const uint8_t* end = message + length
        cdef const uint8_t* begin
        cdef const uint8_t* copied = message  # everything before it is written or replaced
        cdef bflat_field field
        cdef int32_t child
        self.destinations.begin(0)
        while at < end:
            begin = at
            at = bflat_head(at, end, &field)
            if at != NULL:
                at = bflat_values_end(&field, at, end)
            if at == NULL:
                return False
            child = destination(self.destinations, 0, field.tag, <uint32_t>field.tag_length)
            if child < 0:
                continue
            self.output.append(copied, <uint64_t>(begin - copied))
            copied = at
            if not self.nodes[child].met:
                self.nodes[child].met = True
                self.put_field(child, values)
        self.output.append(copied, <uint64_t>(end - copied))
        child = self.nodes[0].first_child
        while child >= 0:
            if not self.nodes[child].met:
                self.put_field(child, values)
            child = self.nodes[child].next_sibling
        return True
