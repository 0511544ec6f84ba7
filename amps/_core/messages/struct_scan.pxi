# Fields of struct messages: each is at an offset that the configuration defines (expressions.md §12.5).
#
# Messages are not scanned. The needed fields are determined in advance (field_plans.pxi), and reading a message is then
# a list of reads. If a message ends before the end of a field, the field is missing and so NULL. Bytes behind the last
# field are ignored.

from functools import partial
from typing import NamedTuple

from libc.stdint cimport UINT64_MAX, int8_t, int16_t, int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from amps._core.values.fields cimport (
    Extractor,
    FieldPlan,
    FieldPlans,
    FieldSet,
    FieldValues,
    is_made_for,
    is_overworked,
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


cdef enum:
    KIND_CONTAINER = 0             # in place of a type: an inner step of a path


class StructField(NamedTuple):
    """One declared field. kind: the letter of its type. size: in bytes."""

    path: tuple[bytes, ...]
    kind: str
    big_endian: bool
    offset: int
    size: int


cdef struct Read:
    uint64_t offset
    uint32_t size
    int32_t slot
    uint8_t kind
    bint big_endian
    bint again                     # the same field as in the previous read


cdef class StructPlan(FieldPlan):

    cdef tuple layout
    cdef Read* reads               # in the order of their offsets
    cdef uint32_t read_count

    def __cinit__(self):
        self.reads = NULL
        self.read_count = 0

    def __init__(self, layout):
        """layout: StructFields in the order of their offsets."""
        self.layout = layout

    def __dealloc__(self):
        free(self.reads)

    cdef int make(self, FieldSet fields, int32_t root) except -1:
        """Find the needed declared fields, and the containers that lead to them."""
        cdef int32_t node
        cdef int32_t child
        cdef Read* grown
        found = []
        contained = set()
        for field in self.layout:
            # There may be several nodes: a single value is its own first element (§9).
            nodes = [root]
            for depth, step in enumerate(field.path):
                below = []
                for node in nodes:
                    child = fields.child(node, <const uint8_t*><const char*>(<bytes>step), <uint32_t>len(step))
                    if child < 0:
                        continue
                    below.append(child)
                    if fields.element(child, 0) >= 0:
                        below.append(fields.element(child, 0))
                    if fields.nodes[child].slot >= 0:
                        if depth == len(field.path) - 1:
                            found.append((field, ord(field.kind), fields.nodes[child].slot))
                        elif child not in contained:
                            contained.add(child)
                            found.append((field, KIND_CONTAINER, fields.nodes[child].slot))
                nodes = below
        grown = <Read*>realloc(self.reads, (len(found) + 1) * sizeof(Read))
        if grown == NULL:
            raise MemoryError()
        self.reads = grown
        self.read_count = 0
        for field, kind, slot in found:
            grown[self.read_count].offset = field.offset
            grown[self.read_count].size = field.size
            grown[self.read_count].slot = slot
            grown[self.read_count].kind = kind
            grown[self.read_count].big_endian = field.big_endian
            grown[self.read_count].again = self.read_count > 0 and field is found[self.read_count - 1][0]
            self.read_count += 1
        return 0


cdef class StructExtractor(Extractor):

    cdef readonly uint64_t first_field_end  # in bytes: a shorter message has no fields
    cdef readonly FieldPlans plans
    cdef StructPlan plan           # of the last message

    def __init__(self, layout):
        """layout: StructFields in the order of their offsets."""
        layout = tuple(layout)
        self.first_field_end = layout[0].offset + layout[0].size if layout else UINT64_MAX
        self.plans = FieldPlans(partial(StructPlan, layout))
        self.plan = StructPlan(())

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef Read* read
        cdef uint32_t at
        if not is_made_for(self.plan, fields, root):
            self.plan = <StructPlan>self.plans.find(fields, root)
        for at in range(self.plan.read_count):
            read = &self.plan.reads[at]
            if read.offset + read.size > length:
                self.cut_short += 1  # missing fields are NULL; the count makes this visible (§12.5)
                break
            if read.again and is_overworked(read.size):
                return False
            put(values.add(read.slot), read, data + read.offset)
        return True


cdef uint64_t number_at(const uint8_t* at, const Read* read) noexcept nogil:
    """A number of up to 8 bytes, without its sign."""
    cdef uint64_t number = 0
    cdef uint32_t place
    for place in range(read.size):
        number = number << 8 | at[place if read.big_endian else read.size - 1 - place]
    return number


cdef int put(Value* value, const Read* read, const uint8_t* at) noexcept:
    """Store a field that is completely in the message."""
    cdef uint8_t kind = read.kind
    cdef uint64_t number
    cdef uint32_t single_bits
    cdef float single
    cdef const uint8_t* zero
    if kind == KIND_CONTAINER:
        value.kind = VALUE_CONTAINER
        return 0
    if kind == c"s" or kind == c"c" or kind == c"S" or kind == c"p":
        value.text = at
        value.length = read.size
        if kind == c"S":
            zero = <const uint8_t*>memchr(at, 0, read.size)
            if zero != NULL:
                value.length = <uint32_t>(zero - at)
        elif kind == c"p":
            value.text = at + 1
            value.length = at[0] if at[0] < read.size else read.size - 1
        if value.length:
            value.kind = VALUE_STRING
        return 0
    number = number_at(at, read)
    if kind == c"d":
        value.kind = VALUE_DOUBLE
        memcpy(&value.number.double_, &number, 8)
        return 0
    if kind == c"f":
        single_bits = <uint32_t>number
        memcpy(&single, &single_bits, 4)
        value.kind = VALUE_DOUBLE
        value.number.double_ = single
        return 0
    value.kind = VALUE_INTEGER
    value.number.unsigned_integer = number
    if kind == c"?":
        value.kind = VALUE_BOOLEAN
        value.number.integer = number != 0
    elif kind == c"b":
        value.number.integer = <int8_t>number
    elif kind == c"h":
        value.number.integer = <int16_t>number
    elif kind == c"i" or kind == c"l":
        value.number.integer = <int32_t>number
    elif (kind == c"Q" or kind == c"N") and number >> 63:
        value.kind = VALUE_UNSIGNED
    return 0
