# Merging, comparing and reducing protobuf messages (sow.md §14, §17, §18).
#
# Members are named by the schema. A field that is not in it, or has another wire type, has no path: it stays in stored
# messages and is ignored in deltas. A repeated field is an array, packed or not. A single field that is written several
# times is treated like one: all of its occurrences are replaced or copied, and the last one counts for readers. A
# sub-message is a value even if it is empty. A member of a oneof replaces the others.
#
# Programs write a sub-message in one piece, and one member of a oneof. A message that does not is refused: its pieces
# would have to be merged before they could be compared.
#
# NULL cannot be written, so a difference lacks fields that were removed.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove

from amps._core.messages.protobuf_wire cimport (
    PROTOBUF_BYTES,
    PROTOBUF_GROUP,
    PROTOBUF_GROUP_END,
    protobuf_key,
    protobuf_value_end,
)
from amps._core.values.documents cimport (
    FLAG_FOUND,
    MEMBER_NULL,
    MEMBER_OBJECT,
    MEMBER_VALUE,
    TREE_ALONG,
    TREE_SELECTED,
    TREE_WHOLE,
    Documents,
    Member,
    MemberTree,
    expands,
    mark_removed,
    meet,
    pass_member,
)


cdef enum:
    MESSAGE_DEPTH_MAX = 100        # of sub-messages, as in the implementations of protobuf
    LENGTH_BYTES_MAX = 10


cdef struct TypeField:
    uint32_t number
    uint32_t name_length
    const uint8_t* name
    uint8_t kind
    uint8_t wire_type
    bint repeated
    int32_t message                # type of a sub-message; -1 = none
    int32_t next_in_oneof          # the next member of its oneof, in a circle; -1 = it is in none, or alone


cdef struct TypeSpan:
    uint32_t first                 # its fields, by number
    uint32_t count


cdef class ProtobufDocuments(Documents):

    cdef tuple schema              # owns the names
    cdef TypeField* fields
    cdef TypeSpan* types

    def __cinit__(self):
        self.fields = NULL
        self.types = NULL

    def __init__(self, schema):
        """schema: message types, each a tuple of ProtobufFields; the first one is the type of the messages."""
        super().__init__()
        self.base.repeats = self.other.repeats = True
        self.base.empty_counts = self.other.empty_counts = True
        self.schema = tuple(tuple(sorted(fields, key=_number)) for fields in schema)
        self.fields = <TypeField*>calloc(sum(map(len, self.schema)) + 1, sizeof(TypeField))
        self.types = <TypeSpan*>calloc(len(self.schema) + 1, sizeof(TypeSpan))
        if self.fields == NULL or self.types == NULL:
            raise MemoryError()
        first = 0
        for number, fields in enumerate(self.schema):
            self.types[<uint32_t>number].first = first
            self.types[<uint32_t>number].count = len(fields)
            self._enter(fields, first)
            first += len(fields)

    def __dealloc__(self):
        free(self.fields)
        free(self.types)

    def _enter(self, fields, uint32_t first):
        cdef TypeField* entered
        cdef uint32_t place
        oneofs = {}
        for place, described in enumerate(fields, first):
            entered = &self.fields[place]
            entered.number = described.number
            entered.name = <const uint8_t*><const char*>(<bytes>described.name)
            entered.name_length = <uint32_t>len(described.name)
            entered.kind = described.kind
            entered.wire_type = <uint8_t>wire_type_of(described.kind)
            entered.repeated = described.repeated
            entered.message = described.message
            entered.next_in_oneof = -1
            if described.oneof >= 0:
                oneofs.setdefault(described.oneof, []).append(place)
        for places in oneofs.values():
            if len(places) > 1:
                for one, following in zip(places, places[1:] + places[:1]):
                    self.fields[<uint32_t>one].next_in_oneof = following

    cdef TypeField* field(self, int32_t type_, uint32_t number, uint8_t wire_type) noexcept nogil:
        """The field of a message type by its number; NULL: it has none, or one of another wire type."""
        cdef uint32_t low = self.types[type_].first
        cdef uint32_t end = low + self.types[type_].count
        cdef uint32_t high = end
        cdef uint32_t middle
        cdef TypeField* found
        while low < high:
            middle = (low + high) >> 1
            if self.fields[middle].number < number:
                low = middle + 1
            else:
                high = middle
        found = &self.fields[low]
        if low == end or found.number != number:
            return NULL
        if found.wire_type == wire_type:
            return found
        if found.repeated and wire_type == PROTOBUF_BYTES and found.wire_type != PROTOBUF_GROUP:
            return found  # packed
        return NULL

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        tree.begin = data
        tree.end = data + length
        tree.members[0].begin = data
        return self.read_message(tree, data, tree.end, 0, 0, 0)

    cdef bint read_message(
        self, MemberTree tree, const uint8_t* at, const uint8_t* end, int32_t node, int32_t type_, uint32_t depth
    ) except -1:
        """Read the fields of a message or sub-message. False: malformed, too deep, or in pieces."""
        cdef const uint8_t* begin
        cdef const uint8_t* content
        cdef const uint8_t* content_end
        cdef TypeField* field
        cdef uint32_t number
        cdef uint8_t wire_type
        cdef int32_t child
        if depth == MESSAGE_DEPTH_MAX:
            return False
        tree.members[node].content = tree.members[node].last_end = at
        while at < end:
            begin = at
            at = protobuf_key(at, end, &number, &wire_type)
            if at == NULL or wire_type == PROTOBUF_GROUP_END:
                return False
            at = protobuf_value_end(number, wire_type, at, end, &content, &content_end)
            if at == NULL:
                return False
            field = self.field(type_, number, wire_type)
            child = tree.meet_nameless(node) if field == NULL else meet(
                tree, node, field.name, field.name_length
            )
            if child >= 0:
                tree.members[child].begin = tree.members[child].value = begin
                tree.members[child].end = at
                tree.members[child].kind = MEMBER_VALUE
                if field != NULL and not self.read_field(tree, child, field, content, content_end, depth):
                    return False
            elif field != NULL and tree.mode == TREE_ALONG and self.is_put_out(tree, node, field):
                child = tree.new_member(node)
                tree.members[child].begin = tree.members[child].value = begin
                tree.members[child].end = at
                mark_removed(tree, child)
            pass_member(tree, node, at)
        return True

    cdef bint read_field(
        self, MemberTree tree, int32_t child, const TypeField* field, const uint8_t* at, const uint8_t* end,
        uint32_t depth,
    ) except -1:
        """Read the value of a member with an entry. False: malformed, too deep, or in pieces."""
        cdef bint is_message = field.message >= 0
        if is_message and (not field.repeated or tree.mode == TREE_SELECTED):
            if not field.repeated and self.is_second_piece(tree, child):
                return False
            tree.members[child].kind = MEMBER_OBJECT
            if field.next_in_oneof >= 0 and self.is_second_of_oneof(tree, child, field):
                return False
            return not expands(tree, child, MEMBER_OBJECT) or self.read_message(
                tree, at, end, child, field.message, depth + 1
            )
        if (field.kind == KIND_STRING or field.kind == KIND_BYTES) and at == end and not field.repeated:
            tree.members[child].kind = MEMBER_NULL
        return field.next_in_oneof < 0 or not self.is_second_of_oneof(tree, child, field)

    cdef bint is_second_piece(self, MemberTree tree, int32_t child) noexcept:
        """Whether a sub-message that is not repeated was met before."""
        cdef Member* guide
        if tree.mode == TREE_WHOLE:
            return tree.members[child].head >= 0
        if tree.mode == TREE_ALONG:
            guide = &tree.along.members[tree.members[child].guide]
            if guide.flags & FLAG_FOUND:
                return True
            guide.flags |= FLAG_FOUND
        return False

    cdef bint is_second_of_oneof(self, MemberTree tree, int32_t child, const TypeField* field) noexcept:
        """Whether another member of a oneof was met before, in a whole tree."""
        cdef const TypeField* other = &self.fields[field.next_in_oneof]
        if tree.mode != TREE_WHOLE or tree.members[child].head >= 0:
            return False
        while other != field:
            if tree.find(tree.members[child].parent, other.name, other.name_length) >= 0:
                return True
            other = &self.fields[other.next_in_oneof]
        return False

    cdef bint is_put_out(self, MemberTree tree, int32_t node, const TypeField* field) noexcept:
        """Whether a delta sets another member of the oneof."""
        cdef const TypeField* other = field
        cdef int32_t found
        if field.next_in_oneof < 0:
            return False
        while True:
            other = &self.fields[other.next_in_oneof]
            if other == field:
                return False
            found = tree.along.find(tree.members[node].guide, other.name, other.name_length)
            if found >= 0 and not tree.along.is_null(found):
                return True

    cdef int64_t open_object(self, MemberTree tree, int32_t node, uint32_t count) except? -1:
        """Return the position in the output where the length of a sub-message belongs; -2: it has none."""
        cdef Member* member = &tree.members[node]
        cdef const uint8_t* at
        cdef uint32_t number = 0
        cdef uint8_t wire_type = 0
        if node == 0:
            return -2
        at = protobuf_key(member.begin, member.end, &number, &wire_type)
        if wire_type == PROTOBUF_GROUP:
            return -2
        self.copy_to(at)
        self.cursor = member.content
        return <int64_t>self.output.length

    cdef int close_object(self, MemberTree tree, int32_t node, int64_t opened) except -1:
        cdef uint8_t written[LENGTH_BYTES_MAX]
        cdef uint32_t bytes_ = 0
        cdef uint32_t place
        cdef uint64_t length
        cdef uint8_t* begin
        if opened == -2:
            return 0
        self.copy_to(tree.members[node].end)
        length = self.output.length - <uint64_t>opened
        while True:
            written[bytes_] = <uint8_t>(length & 0x7F | (0x80 if length > 0x7F else 0))
            bytes_ += 1
            length >>= 7
            if length == 0:
                break
        self.output.reserve(bytes_)
        begin = self.output.data + opened
        memmove(begin + bytes_, begin, self.output.length - <uint64_t>opened)
        for place in range(bytes_):
            begin[place] = written[place]
        self.output.length += bytes_
        return 0

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        return 0


def _number(field):
    return field.number
