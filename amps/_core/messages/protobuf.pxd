# The plan of an extractor of protobuf messages. See messages/protobuf_plan.pxi.

from libc.stdint cimport int32_t, uint32_t, uint8_t

from amps._core.values.fields cimport FieldPlan, FieldSet, FieldSlot
from amps._core.values.value cimport Arena, Value


# Types of fields, with the numbers of descriptors.
cdef enum FieldKind:
    KIND_DOUBLE = 1
    KIND_FLOAT = 2
    KIND_INT64 = 3
    KIND_UINT64 = 4
    KIND_INT32 = 5
    KIND_FIXED64 = 6
    KIND_FIXED32 = 7
    KIND_BOOL = 8
    KIND_STRING = 9
    KIND_GROUP = 10
    KIND_MESSAGE = 11
    KIND_BYTES = 12
    KIND_UINT32 = 13
    KIND_ENUM = 14
    KIND_SFIXED32 = 15
    KIND_SFIXED64 = 16
    KIND_SINT32 = 17
    KIND_SINT64 = 18


# A field of a message type that leads to a needed field, or that shares a oneof with such a field.
cdef struct PlanField:
    uint32_t number
    uint8_t kind
    uint8_t wire_type
    bint repeated
    int32_t slot                   # slot of its values; -1 = they are not needed
    int32_t level                  # level of its sub-message; -1 = no field in it is needed
    int32_t element                # index of the only needed occurrence of a repeated field; -1 = all
    uint32_t elements              # number of fields from this one on that are elements of one array, in order; else 1
    int32_t oneof                  # within its message type; -1 = none
    int32_t same                   # another field of the same number; -1 = none
    uint32_t kept_first            # of a sub-message in a oneof: index in `kept` of the slots below it
    uint32_t kept_count
    bint has_default
    Value default
    # For the current message:
    bint seen
    uint32_t count                 # occurrences of an array, at the first of its elements
    uint32_t met                   # number of those occurrences that were needed elements
    Value value                    # last value of a single scalar


# The needed fields of a message or sub-message that belongs to one node of the FieldSet.
cdef struct PlanLevel:
    uint32_t first_field
    uint32_t field_count
    uint32_t step_count            # number of fields that are visited where a message begins or ends
    uint32_t table_first           # in `table`: first field by number, for low numbers; -1 = not needed
    uint32_t table_size
    uint32_t highest               # highest number of a field


# The previous content of a slot.
cdef struct Kept:
    int32_t slot
    FieldSlot held


cdef class Plan(FieldPlan):
    """The needed fields of a message type, by level. Level 0 is the message itself."""

    cdef tuple schema              # message types, each a tuple of ProtobufFields; the first is that of messages
    cdef PlanField* fields
    cdef uint32_t field_count
    cdef PlanLevel* levels
    cdef uint32_t level_count
    cdef int32_t* table
    cdef Kept* kept
    cdef Arena texts               # of defaults

    cdef list choose(self, tuple described, FieldSet fields, int32_t node)
    cdef int note_slots_below_oneofs(self, list levels, list spans) except -1


# The first field of a number beyond the end of `table`; -1: it is not needed.
cdef inline int32_t searched(Plan self, const PlanLevel* level, uint32_t number) noexcept nogil:
    cdef uint32_t low = level.first_field
    cdef uint32_t end = low + level.field_count
    cdef uint32_t high = end
    cdef uint32_t middle
    if number > level.highest:
        return -1
    while low < high:
        middle = (low + high) >> 1
        if self.fields[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return <int32_t>low if low < end and self.fields[low].number == number else -1
