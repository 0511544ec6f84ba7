# Plans of protobuf messages: the part of a message type that a FieldSet needs.
#
# Protobuf messages contain no field names, so the paths of a FieldSet are translated to numbers, level by level, before
# messages are read. A level is a message type at one node of the FieldSet. A type that contains itself has as many
# levels as the needed paths are deep. The fields of a level are sorted by number. Fields that are single elements of
# one array follow each other, sorted by subscript, and only the first of them is tested until its occurrence is
# reached. The cost of making a plan is the number of fields of the message types along the needed paths.

from typing import NamedTuple

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.values.fields cimport FieldPlan, FieldSet
from amps._core.messages.protobuf_wire cimport (
    PROTOBUF_BYTES,
    PROTOBUF_FIXED32,
    PROTOBUF_FIXED64,
    PROTOBUF_GROUP,
    PROTOBUF_VARINT,
)
from amps._core.values.value cimport Arena, from_python


cdef enum:
    TABLE_NUMBER_MAX = 1023        # fields with higher numbers are found by binary search


class ProtobufField(NamedTuple):
    """A field of a message type.

    kind: type, as numbered in descriptors. message: index of the type of a sub-message, else -1. oneof: number of the
    oneof that the field is a member of, else -1. has_default: an absent field counts as present with `default`.
    """

    name: bytes
    number: int
    kind: int
    repeated: bool
    message: int
    oneof: int
    has_default: bool
    default: bool | int | float | bytes | None


cdef int wire_type_of(int kind) noexcept:
    if kind == KIND_DOUBLE or kind == KIND_FIXED64 or kind == KIND_SFIXED64:
        return PROTOBUF_FIXED64
    if kind == KIND_FLOAT or kind == KIND_FIXED32 or kind == KIND_SFIXED32:
        return PROTOBUF_FIXED32
    if kind == KIND_STRING or kind == KIND_BYTES or kind == KIND_MESSAGE:
        return PROTOBUF_BYTES
    return PROTOBUF_GROUP if kind == KIND_GROUP else PROTOBUF_VARINT


cdef void* grown(void* memory, size_t size) except NULL:
    cdef void* made = realloc(memory, size + 1)
    if made == NULL:
        raise MemoryError()
    return made


cdef class Plan(FieldPlan):

    def __cinit__(self):
        self.fields = NULL
        self.levels = NULL
        self.table = NULL
        self.kept = NULL

    def __init__(self, schema):
        """schema: message types, each a tuple of ProtobufFields; the first one is the type of the messages."""
        self.schema = schema
        self.texts = Arena()

    def __dealloc__(self):
        free(self.fields)
        free(self.levels)
        free(self.table)
        free(self.kept)

    cdef int make(self, FieldSet fields, int32_t root) except -1:
        cdef uint32_t at
        cdef uint32_t number
        cdef PlanLevel* level
        cdef PlanField* field
        levels = [(0, root, -1)]  # message type, node, field whose sub-message it is
        found = []
        spans = []
        tables = 0
        for message, node, _ in levels:  # the loop appends to `levels`
            first = len(found)
            chosen = self.choose(self.schema[message], fields, node)
            for described, slot, below, element in chosen:
                if below >= 0:
                    levels.append((described.message, below, len(found)))
                found.append((described, slot, len(levels) - 1 if below >= 0 else -1, element))
            highest = max((described.number for described, *_ in chosen), default=0)
            size = min(highest, TABLE_NUMBER_MAX) + 1
            spans.append((first, len(chosen), tables, size, highest))
            tables += size
        self.fields_wanted = None  # until the plan is complete
        self.fields = <PlanField*>grown(self.fields, len(found) * sizeof(PlanField))
        self.levels = <PlanLevel*>grown(self.levels, len(levels) * sizeof(PlanLevel))
        self.table = <int32_t*>grown(self.table, tables * sizeof(int32_t))
        self.field_count = <uint32_t>len(found)
        self.level_count = <uint32_t>len(levels)
        self.texts.clear()
        for at in range(<uint32_t>tables):
            self.table[at] = -1
        for at, (described, slot, below, element) in enumerate(found):
            field = &self.fields[at]
            memset(field, 0, sizeof(PlanField))
            field.number = described.number
            field.kind = described.kind
            field.wire_type = <uint8_t>wire_type_of(described.kind)
            field.repeated = described.repeated
            field.slot = slot
            field.level = below
            field.element = element
            field.elements = 1
            field.oneof = described.oneof
            field.same = -1
            field.has_default = described.has_default
            from_python(described.default, &field.default, self.texts)
        for at, (first, count, table_first, size, highest) in enumerate(spans):
            level = &self.levels[at]
            level.first_field = first
            level.field_count = count
            level.table_first = table_first
            level.table_size = size
            level.highest = highest
            level.step_count = level.field_count
            for number in range(level.first_field + level.field_count, level.first_field, -1):
                field = &self.fields[number - 1]
                if field.number < level.table_size:
                    self.table[level.table_first + field.number] = <int32_t>(number - 1)
                if number == level.first_field + level.field_count or self.fields[number].number != field.number:
                    continue
                if field.element < 0:
                    field.same = <int32_t>number
                else:
                    field.elements += self.fields[number].elements
                    level.step_count -= 1
        return self.note_slots_below_oneofs(levels, spans)

    cdef int note_slots_below_oneofs(self, list levels, list spans) except -1:
        """List, for each sub-message in a oneof, the slots that must be restored when the oneof is set anew."""
        cdef int32_t above
        cdef int32_t entry
        cdef PlanField* field
        level_of = []
        nearest = []  # by level: the next field on the way up that is a member of a oneof
        for level, (first, count, *_) in enumerate(spans):
            above = levels[level][2]
            nearest.append(above if above < 0 or self.fields[above].oneof >= 0 else nearest[level_of[above]])
            level_of += [level] * count
        below = {}
        for entry in range(<int32_t>self.field_count):
            if self.fields[entry].slot < 0:
                continue
            above = nearest[level_of[entry]]
            while above >= 0:
                below.setdefault(above, []).append(self.fields[entry].slot)
                above = nearest[level_of[above]]
        self.kept = <Kept*>grown(self.kept, sum(map(len, below.values())) * sizeof(Kept))
        count = 0
        for member, slots in below.items():
            field = &self.fields[<int32_t>member]
            field.kept_first = count
            field.kept_count = <uint32_t>len(slots)
            for slot in slots:
                self.kept[<uint32_t>count].slot = slot
                count += 1
        return 0

    cdef list choose(self, tuple described, FieldSet fields, int32_t node):
        """The needed fields of a message type at a node: tuples of field, slot, node of its sub-message, element or -1.
        """
        cdef int32_t child
        cdef int32_t element
        chosen = []
        oneofs = set()
        for field in described:
            name = field.name
            child = fields.child(node, <const uint8_t*><const char*>(<bytes>name), <uint32_t>len(name))
            if child < 0:
                continue
            before = len(chosen)
            if fields.nodes[child].slot >= 0 or (field.message >= 0 and fields.nodes[child].children):
                below = child if field.message >= 0 and fields.nodes[child].children else -1
                chosen.append((field, fields.nodes[child].slot, below, -1))
            element = fields.nodes[child].first_element if field.message >= 0 else -1
            while element >= 0:
                # A single value is its own first element (expressions.md §9).
                if field.repeated or fields.nodes[element].index == 0:
                    chosen.append((field, -1, element, <int32_t>fields.nodes[element].index if field.repeated else -1))
                element = fields.nodes[element].next_element
            if len(chosen) > before and field.oneof >= 0:
                oneofs.add(field.oneof)
        if oneofs:
            wanted = {field.number for field, *_ in chosen}
            for field in described:
                if field.oneof in oneofs and field.number not in wanted:
                    chosen.append((field, -1, -1, -1))
        return sorted(chosen, key=_order)


def _order(chosen):
    """Sort key: all occurrences of a field before single elements."""
    return chosen[0].number, chosen[3]
