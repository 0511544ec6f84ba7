# Merging, comparing and reducing BSON messages (sow.md §14, §17, §18).
#
# An element with its type and name is one member. The lengths of the documents around a change are written again.
# Elements of an array are never removed, so their names, which are their numbers, stay right.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from amps._core.messages.bson_wire cimport (
    BSON_ARRAY,
    BSON_BINARY,
    BSON_CODE,
    BSON_DOCUMENT,
    BSON_MAX_KEY,
    BSON_MIN_KEY,
    BSON_NULL,
    BSON_STRING,
    BSON_SYMBOL,
    BSON_UNDEFINED,
    bson_document_end,
    bson_name_end,
    bson_u32,
    bson_value_end,
)
from amps._core.values.documents cimport (
    MEMBER_ARRAY,
    MEMBER_DEPTH_MAX,
    MEMBER_NULL,
    MEMBER_OBJECT,
    MEMBER_VALUE,
    Documents,
    Member,
    MemberTree,
    expands,
    meet,
    pass_member,
)


cdef const uint8_t* EMPTY_DOCUMENT = b"\x05\x00\x00\x00\x00"


cdef class BsonDocuments(Documents):

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        tree.begin = data if length else EMPTY_DOCUMENT
        tree.end = tree.begin + (length if length else 5)
        tree.members[0].begin = tree.begin
        tree.members[0].end = tree.end
        return self.read_document(tree, tree.begin, tree.end, 0, 0) == tree.end

    cdef const uint8_t* read_document(
        self, MemberTree tree, const uint8_t* at, const uint8_t* limit, int32_t node, uint32_t depth
    ) except? NULL:
        """Read a document, or an array, whose length is at `at`. Return the position behind it; NULL: malformed."""
        cdef const uint8_t* behind = bson_document_end(at, limit)
        cdef const uint8_t* end
        cdef const uint8_t* begin
        cdef const uint8_t* value
        cdef int32_t child
        cdef bint in_array = tree.members[node].kind == MEMBER_ARRAY
        if behind == NULL or depth == MEMBER_DEPTH_MAX:
            return NULL
        end = behind - 1  # the zero byte
        at += 4
        tree.members[node].content = tree.members[node].last_end = at
        while at < end:
            begin = at
            value = bson_name_end(begin + 1, end)
            if value == NULL:
                return NULL
            at = bson_value_end(begin[0], value, end)
            if at == NULL:
                return NULL
            if in_array:
                child = tree.meet_element(node)
                tree.members[child].name = begin + 1
                tree.members[child].name_length = <uint32_t>(value - 2 - begin)
            else:
                child = meet(tree, node, begin + 1, <uint32_t>(value - 2 - begin))
            if child >= 0 and not self.read_element(tree, begin, value, at, child, depth):
                return NULL
            pass_member(tree, node, at)
        return behind

    cdef bint read_element(
        self, MemberTree tree, const uint8_t* begin, const uint8_t* value, const uint8_t* end, int32_t child,
        uint32_t depth,
    ) except -1:
        """Read an element with an entry. False: malformed."""
        cdef Member* member = &tree.members[child]
        cdef uint8_t tag = begin[0]
        member.begin = member.value = begin
        member.end = end
        member.kind = MEMBER_VALUE
        if tag == BSON_DOCUMENT or tag == BSON_ARRAY:
            member.kind = MEMBER_OBJECT if tag == BSON_DOCUMENT else MEMBER_ARRAY
            if expands(tree, child, member.kind):
                return self.read_document(tree, value, end, child, depth + 1) != NULL
            return True
        if tag == BSON_NULL or tag == BSON_UNDEFINED or tag == BSON_MIN_KEY or tag == BSON_MAX_KEY:
            member.kind = MEMBER_NULL
        elif tag == BSON_STRING or tag == BSON_CODE or tag == BSON_SYMBOL:
            if bson_u32(value) == 1:
                member.kind = MEMBER_NULL
        elif tag == BSON_BINARY and bson_u32(value) == 0:
            member.kind = MEMBER_NULL
        return True

    cdef int64_t open_object(self, MemberTree tree, int32_t node, uint32_t count) except? -1:
        """Return the position of the document's length in the output."""
        self.copy_to(tree.members[node].content)
        return <int64_t>self.output.length - 4

    cdef int close_object(self, MemberTree tree, int32_t node, int64_t opened) except -1:
        cdef uint64_t length
        cdef uint32_t place
        self.copy_to(tree.members[node].end)
        length = self.output.length - <uint64_t>opened
        if length > INT32_MAX:
            raise OverflowError(f"a document of {length} bytes; the maximum of BSON is {INT32_MAX}")
        for place in range(4):
            self.output.data[<uint64_t>opened + place] = <uint8_t>(length >> 8 * place)
        return 0

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        self.output.append_byte(<uint8_t>BSON_NULL)
        self.output.append(tree.members[member].name, tree.members[member].name_length)
        return self.output.append_byte(0)
