# Sort keys: bytes whose order is the order of messages (sow.md §10, D8).
#
# Each field of the order gives a byte for the kind of its value, then the value: a number in ten bytes, a text with an
# end that no text contains. So no sort key is the beginning of another one. The bytes of a descending field are
# inverted.
#
# A number consists of the nearest double, and of what an integer has more than that: at most 1024. Rounding keeps the
# order, so the pair has the order of the exact numbers. `amps/server/transport/ordering.py` has the same order for the
# rows of queries; a test compares them.

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from amps._core.values.fields cimport ByteBuffer, Extractor, FieldSet, FieldValues, begin_message, end_message
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_NULL,
    VALUE_STRING,
    VALUE_UNSIGNED,
    Value,
    number_from_text,
    settle,
    to_text,
)

cdef enum:
    KIND_NULL = 0
    KIND_NAN = 1
    KIND_NUMBER = 2
    KIND_TEXT = 3
    NUMBER_BYTES = 10
    TEXT_BYTES_MAX = 1024          # only this part of a text is compared

cdef uint64_t SIGN = <uint64_t>1 << 63


@cython.final
cdef class SortKeys:

    def __cinit__(self):
        self.sorted = NULL

    def __init__(self, Extractor extractor not None, fields):
        """fields: [(path, descending, as_text)]. as_text: numbers are compared as the texts that represent them."""
        cdef uint32_t at
        self.extractor = extractor
        self.fields = FieldSet()
        self.values = FieldValues()
        self.made = ByteBuffer()
        self.count = len(fields)
        self.sorted = <SortField*>calloc(max(1, self.count), sizeof(SortField))
        if self.sorted == NULL:
            raise MemoryError()
        for at, (path, descending, as_text) in enumerate(fields):
            self.sorted[at].slot = self.fields.add(path)
            self.sorted[at].descending = descending
            self.sorted[at].as_text = as_text

    def __dealloc__(self):
        free(self.sorted)

    def key(self, bytes payload not None):
        """The sort key of a message, for tests."""
        self.make(payload, len(payload))
        return (<const char*>self.made.data)[: self.made.length]

    cdef int make(self, const uint8_t* payload, uint64_t length) except -1:
        """Set `made` to the sort key of a message. All fields of a message that cannot be read are NULL."""
        cdef Value nothing
        cdef Value* value
        cdef int32_t node
        cdef uint32_t at
        cdef bint readable = False
        self.made.length = 0
        if self.count == 0:
            return 0
        self.values.begin(self.fields)
        begin_message(length)
        try:
            readable = self.extractor.extract(payload, length, self.fields, 0, self.values)
        except MemoryError:
            readable = False
        finally:
            end_message()
        for at in range(self.count):
            nothing.kind = VALUE_NULL
            nothing.flags = 0
            value = &nothing
            node = self.values.slots[self.sorted[at].slot].first
            if readable and node >= 0:
                value = &self.values.nodes[node].value
            self.add(value, &self.sorted[at])
        return 0

    cdef int add(self, Value* value, SortField* field) except -1:
        """Append the bytes of one field."""
        cdef ByteBuffer made = self.made
        cdef uint64_t begin = made.length
        cdef uint32_t length
        cdef uint32_t at
        cdef uint8_t* out
        settle(value, self.values.arena)
        if field.as_text:
            to_text(value, self.values.arena)
        elif value.kind == VALUE_STRING:
            number_from_text(value.text, value.length, value)
        if value.kind == VALUE_STRING:
            length = min(value.length, <uint32_t>TEXT_BYTES_MAX)
            out = made.reserve(2 * length + 3)
            out[0] = KIND_TEXT
            out += 1
            for at in range(length):
                out[0] = value.text[at]
                out += 1
                if value.text[at] == 0:
                    out[0] = 1
                    out += 1
            out[0] = out[1] = 0
            made.length = <uint64_t>(out + 2 - made.data)
        elif value.kind == VALUE_NULL or value.kind > VALUE_STRING:
            made.append_byte(KIND_NULL)
        elif value.kind == VALUE_DOUBLE and value.number.double_ != value.number.double_:
            made.append_byte(KIND_NAN)
        else:
            out = made.reserve(1 + NUMBER_BYTES)
            out[0] = KIND_NUMBER
            put_number(out + 1, value)
            made.length += 1 + NUMBER_BYTES
        if field.descending:
            for at in range(<uint32_t>begin, <uint32_t>made.length):
                made.data[at] ^= 0xFF
        return 0


cdef void put_number(uint8_t* out, const Value* value) noexcept nogil:
    """Write a number so that bytes have its order."""
    cdef double nearest
    cdef int64_t rest = 0
    cdef uint64_t bits
    cdef uint16_t biased
    cdef uint32_t at
    if value.kind == VALUE_DOUBLE:
        nearest = value.number.double_ + 0.0  # no negative zero
    elif value.kind == VALUE_UNSIGNED:
        nearest = <double>value.number.unsigned_integer
        if nearest < 18446744073709551616.0:
            rest = <int64_t>(value.number.unsigned_integer - <uint64_t>nearest)
        else:
            rest = <int64_t>value.number.unsigned_integer  # 2^64 less, as a signed number
    else:  # an integer, or a boolean
        nearest = <double>value.number.integer
        if nearest < 9223372036854775808.0:
            rest = value.number.integer - <int64_t>nearest
        else:
            rest = <int64_t>(<uint64_t>value.number.integer - SIGN)
    memcpy(&bits, &nearest, 8)
    bits = ~bits if bits & SIGN else bits | SIGN
    biased = <uint16_t>(<int16_t>rest + 32768)
    for at in range(8):
        out[at] = <uint8_t>(bits >> (56 - 8 * at))
    out[8] = <uint8_t>(biased >> 8)
    out[9] = <uint8_t>biased
