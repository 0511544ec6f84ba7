# Fields of protobuf messages (expressions.md §12.5).
#
# A message is read along a Plan, always to its end, because every field may be repeated on the wire. Of a single scalar
# the last value counts, sub-messages are merged, repeated fields are concatenated, and a member of a oneof removes the
# other members. A field that the message lacks counts as present with its default if the type defines one. Strings are
# not copied.
#
# Repeated fields are stored when they are read, single ones when their message ends. When a member of a oneof is
# removed, the slots of the repeated fields below it are therefore restored (`keep`, `take_back`).
#
# Work beyond the bytes of a message counts for the bound of values/evaluation_budget.pxi: contents that are read again
# (those of groups, and of fields that are needed both as themselves and as an element), and long lists of fields or
# slots, which are visited for messages of a few bytes.

from functools import partial

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.values.fields cimport Extractor, FieldPlans, FieldSet, FieldValues, is_made_for, is_overworked
from amps._core.messages.protobuf_wire cimport (
    PROTOBUF_BYTES,
    PROTOBUF_GROUP_END,
    protobuf_fixed32,
    protobuf_fixed64,
    protobuf_key,
    protobuf_value_end,
    protobuf_varint,
)
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_NULL,
    VALUE_STRING,
    VALUE_UNSIGNED,
    Value,
)


cdef enum:
    STEPS_MAX = 64                 # over fields or slots; fewer steps take no longer than the other work for a value
    STEP_BYTES = 4                 # bytes of a message that are read in the time of a step
    DEFAULTS_MAX = 1 << 20         # of defaults per message, plus its length: an empty sub-message has two bytes


cdef class ProtobufExtractor(Extractor):

    cdef readonly FieldPlans plans
    cdef Plan plan                 # of the last message
    cdef FieldValues values
    cdef uint64_t defaults_left

    def __init__(self, schema):
        """schema: message types, each a tuple of ProtobufFields; the first one is the type of the messages."""
        self.plans = FieldPlans(partial(Plan, tuple(schema)))
        self.plan = Plan(())

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        if fields.nodes[root].wanted_below == 0:
            return True
        if not is_made_for(self.plan, fields, root):
            self.plan = <Plan>self.plans.find(fields, root)
        self.values = values
        self.defaults_left = length + DEFAULTS_MAX
        self.reset(0)
        return self.scan(0, data, data + length) and self.finish(0)

    cdef void reset(self, int32_t level) noexcept:
        """Begin a message of this level."""
        cdef PlanField* field = &self.plan.fields[self.plan.levels[level].first_field]
        cdef PlanField* end = field + self.plan.levels[level].field_count
        while field < end:
            field.seen = False
            field.count = 0
            field.met = 0
            field += field.elements

    cdef bint scan(self, int32_t number_of_level, const uint8_t* at, const uint8_t* end) except -1:
        """Read the fields of a message, or a part of them. False: malformed."""
        cdef PlanLevel* level = &self.plan.levels[number_of_level]
        cdef const int32_t* table = &self.plan.table[level.table_first]
        cdef uint32_t table_size = level.table_size
        cdef const uint8_t* content
        cdef const uint8_t* content_end
        cdef uint32_t number
        cdef uint8_t wire_type
        cdef int32_t field
        if level.step_count > STEPS_MAX and is_overworked(level.step_count * STEP_BYTES):
            return False
        while at < end:
            at = protobuf_key(at, end, &number, &wire_type)
            if at == NULL or wire_type == PROTOBUF_GROUP_END:
                return False
            at = protobuf_value_end(number, wire_type, at, end, &content, &content_end)
            if at == NULL:
                return False
            field = table[number] if number < table_size else searched(self.plan, level, number)
            while field >= 0:
                if not self.take(level, &self.plan.fields[field], wire_type, content, content_end):
                    return False
                field = self.plan.fields[field].same
                if field >= 0 and is_overworked(<uint64_t>(content_end - content)):
                    return False
        return True

    cdef bint take(
        self, PlanLevel* level, PlanField* field, uint8_t wire_type, const uint8_t* at, const uint8_t* end
    ) except -1:
        """Read a value of a field. A value with another wire type than the field's is skipped."""
        if wire_type != field.wire_type:
            if wire_type != PROTOBUF_BYTES or not field.repeated:
                return True
            return field.kind == KIND_GROUP or self.take_packed(field, at, end)
        if field.kind == KIND_MESSAGE or field.kind == KIND_GROUP:
            if field.kind == KIND_GROUP and is_overworked(<uint64_t>(end - at)):
                return False
            if not field.repeated:
                return self.take_single(level, field, at, end)
            if field.element >= 0:
                field = next_element(field)
                if field == NULL:
                    return True
            if field.slot >= 0:
                self.values.add(field.slot).kind = VALUE_CONTAINER
            if field.level < 0:
                return True
            self.reset(field.level)
            return self.scan(field.level, at, end) and self.finish(field.level)
        if field.repeated:
            if field.slot >= 0:
                put(self.values.add(field.slot), field.kind, at, end)
            return True
        if field.oneof >= 0 and not field.seen and not self.put_others_out(level, field):
            return False
        field.seen = True
        put(&field.value, field.kind, at, end)
        return True

    cdef bint take_packed(self, PlanField* field, const uint8_t* at, const uint8_t* end) except -1:
        """Read a packed sequence of numbers. False: the last number is incomplete."""
        cdef const uint8_t* content
        cdef const uint8_t* content_end
        while at < end:
            at = protobuf_value_end(1, field.wire_type, at, end, &content, &content_end)
            if at == NULL:
                return False
            if field.slot >= 0:
                put(self.values.add(field.slot), field.kind, content, content_end)
        return True

    cdef bint take_single(
        self, PlanLevel* level, PlanField* field, const uint8_t* at, const uint8_t* end
    ) except -1:
        """Read a sub-message that is not repeated. It may be split into several parts."""
        if not field.seen:
            if field.oneof >= 0 and not self.put_others_out(level, field):
                return False
            field.seen = True
            if field.level >= 0:
                self.reset(field.level)
            if field.kept_count > STEPS_MAX and is_overworked(field.kept_count * STEP_BYTES):
                return False
            self.keep(field)
        return field.level < 0 or self.scan(field.level, at, end)

    cdef bint put_others_out(self, PlanLevel* level, const PlanField* member) noexcept:
        """Remove the other members of a oneof when one gets a value. False: it took too long."""
        cdef PlanField* field
        cdef PlanField* end
        if level.step_count > STEPS_MAX and is_overworked(level.step_count * STEP_BYTES):
            return False
        field = &self.plan.fields[level.first_field]
        end = field + level.field_count
        while field < end:
            if field.seen and field.oneof == member.oneof and field.number != member.number:
                field.seen = False
                self.take_back(field)
            field += field.elements
        return True

    cdef void keep(self, PlanField* member) noexcept:
        """Save the content of the slots below a member."""
        cdef Kept* kept = &self.plan.kept[member.kept_first]
        cdef Kept* end = kept + member.kept_count
        while kept < end:
            kept.held = self.values.slots[kept.slot]
            kept += 1

    cdef void take_back(self, PlanField* member) noexcept:
        """Restore the content of the slots below a member."""
        cdef Kept* kept = &self.plan.kept[member.kept_first]
        cdef Kept* end = kept + member.kept_count
        while kept < end:
            self.values.slots[kept.slot] = kept.held
            if kept.held.first >= 0:
                self.values.nodes[kept.held.last].next = -1
            kept += 1

    cdef bint finish(self, int32_t level) except -1:
        """End a message of this level: store the values of single fields. False: too many defaults."""
        cdef PlanField* field = &self.plan.fields[self.plan.levels[level].first_field]
        cdef PlanField* end = field + self.plan.levels[level].field_count
        while field < end:
            if field.repeated or not (field.seen or field.has_default):
                pass
            elif field.kind == KIND_MESSAGE or field.kind == KIND_GROUP:
                if field.slot >= 0:
                    self.values.add(field.slot).kind = VALUE_CONTAINER
                if field.level >= 0 and not self.finish(field.level):
                    return False
            elif field.slot < 0:
                pass
            elif field.seen:
                self.values.add(field.slot)[0] = field.value
            else:
                if self.defaults_left == 0:
                    return False
                self.defaults_left -= 1
                self.values.add(field.slot)[0] = field.default
            field += field.elements
        return True


cdef inline PlanField* next_element(PlanField* array) noexcept nogil:
    """Count one more occurrence of an array of sub-messages. Return its element, or NULL if it is not needed."""
    cdef PlanField* element = array + array.met
    array.count += 1
    if array.met == array.elements or array.count - 1 != <uint32_t>element.element:
        return NULL
    array.met += 1
    return element


cdef void put(Value* value, uint8_t kind, const uint8_t* at, const uint8_t* end) noexcept:
    """Store the scalar from `at` to `end`."""
    cdef uint64_t number = 0
    cdef uint32_t single_bits
    cdef float single
    value.flags = 0
    if kind == KIND_STRING or kind == KIND_BYTES:
        value.text = at
        value.length = <uint32_t>(end - at)
        value.kind = VALUE_STRING if value.length else VALUE_NULL
        return
    if kind == KIND_DOUBLE:
        number = protobuf_fixed64(at)
        value.kind = VALUE_DOUBLE
        memcpy(&value.number.double_, &number, 8)
        return
    if kind == KIND_FLOAT:
        single_bits = protobuf_fixed32(at)
        memcpy(&single, &single_bits, 4)
        value.kind = VALUE_DOUBLE
        value.number.double_ = single
        return
    if kind == KIND_FIXED64 or kind == KIND_SFIXED64:
        number = protobuf_fixed64(at)
    elif kind == KIND_FIXED32 or kind == KIND_SFIXED32:
        number = protobuf_fixed32(at)
    else:
        protobuf_varint(at, end, &number)
    value.kind = VALUE_INTEGER
    if kind == KIND_BOOL:
        value.kind = VALUE_BOOLEAN
        value.number.integer = number != 0
    elif kind == KIND_INT32 or kind == KIND_ENUM or kind == KIND_SFIXED32:
        value.number.integer = <int32_t>number
    elif kind == KIND_UINT32:
        value.number.integer = <uint32_t>number
    elif kind == KIND_SINT32:
        number = <uint32_t>number
        value.number.integer = <int32_t>(number >> 1 ^ (0 - (number & 1)))
    elif kind == KIND_SINT64:
        value.number.integer = <int64_t>(number >> 1 ^ (0 - (number & 1)))
    else:
        value.number.unsigned_integer = number
        if number > INT64_MAX and (kind == KIND_UINT64 or kind == KIND_FIXED64):
            value.kind = VALUE_UNSIGNED
