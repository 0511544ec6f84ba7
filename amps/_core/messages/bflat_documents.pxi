# Merging, comparing and reducing BFlat messages (sow.md §14, §17, §18).
#
# A field with its tag is one member. Several fields of one tag are one array.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.messages.bflat_wire cimport (
    BFLAT_ARRAY,
    BFLAT_BINARY,
    BFLAT_NULL,
    BFLAT_STRING,
    bflat_field,
    bflat_head,
    bflat_values_end,
)
from amps._core.values.documents cimport MEMBER_NULL, MEMBER_VALUE, Documents, Member, MemberTree, meet, pass_member


cdef class BflatDocuments(Documents):

    def __init__(self):
        super().__init__()
        self.base.repeats = self.other.repeats = True

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + length
        cdef const uint8_t* begin
        cdef const uint8_t* values
        cdef bflat_field field
        cdef Member* member
        cdef int32_t child
        tree.begin = data
        tree.end = end
        tree.members[0].content = tree.members[0].last_end = data
        while at < end:
            begin = at
            values = bflat_head(at, end, &field)
            at = bflat_values_end(&field, values, end) if values != NULL else NULL
            if at == NULL:
                return False
            child = meet(tree, 0, field.tag, <uint32_t>field.tag_length)
            if child >= 0:
                member = &tree.members[child]
                member.begin = member.value = begin
                member.end = at
                member.kind = MEMBER_VALUE
                if not begin[0] & BFLAT_ARRAY and (
                    field.type == BFLAT_NULL
                    or ((field.type == BFLAT_STRING or field.type == BFLAT_BINARY) and at == values + 1)
                ):
                    member.kind = MEMBER_NULL
            pass_member(tree, 0, at)
        return True

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        cdef uint32_t length = tree.members[member].name_length
        self.output.append_byte(<uint8_t>(BFLAT_NULL | (length if length < 8 else 0)))
        if length > 7:
            put_unsigned(self.output, length)
        return self.output.append(tree.members[member].name, length)
