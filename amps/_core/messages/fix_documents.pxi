# Merging, comparing and reducing FIX and NVFIX messages (sow.md §14, §17, §18).
#
# A field with its tag is one member, and the fields of a repeated tag are an array. A separator behind the last field
# stays if it was there. An empty message gets one behind its new fields.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from amps._core.values.documents cimport MEMBER_NULL, MEMBER_VALUE, Documents, Member, MemberTree, meet, pass_member


@cython.final
cdef class FixDocuments(Documents):
    """Operations on FIX and NVFIX messages. field_separator: the byte after each value."""

    def __init__(self, uint8_t field_separator=1):
        super().__init__()
        self.separator = field_separator
        self.base.repeats = self.other.repeats = True

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* end = data + length
        cdef const uint8_t* tag
        cdef const uint8_t* text
        cdef fix_cursor cursor
        cdef Member* member
        cdef int32_t child
        if length > MESSAGE_BYTES_MAX:
            return False
        tree.begin = data
        tree.end = end
        tree.members[0].content = tree.members[0].last_end = data
        fix_begin(&cursor, data, end, self.separator)
        while at < end:
            tag = at
            at = fix_stop(&cursor, at, True)
            if at == end or at == tag or at[0] != c"=":
                return False
            child = meet(tree, 0, tag, <uint32_t>(at - tag))
            text = at + 1
            at = fix_stop(&cursor, text, False)
            if child >= 0:
                member = &tree.members[child]
                member.begin = member.value = tag
                member.end = at
                member.kind = MEMBER_VALUE if at > text else MEMBER_NULL
            pass_member(tree, 0, at)
            if at < end:
                at += 1
        return True

    cdef int close_object(self, MemberTree tree, int32_t node, int64_t opened) except -1:
        cdef Member* root = &tree.members[node]
        if root.count == root.removed and not root.added:
            self.cursor = tree.end
        elif root.count == 0:
            self.output.append_byte(self.separator)
        return 0

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        self.output.append(tree.members[member].name, tree.members[member].name_length)
        return self.output.append_byte(c"=")
