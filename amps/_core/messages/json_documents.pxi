# Merging, comparing and reducing JSON messages (sow.md §14, §17, §18).
#
# Members are found as by the builder: names are compared without their escapes, and skipped text is checked loosely. A
# delta is checked completely, because its values become part of a stored message. An object that loses members loses
# the blanks before them; all other text stays.

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.values.documents cimport (
    MEMBER_ARRAY,
    MEMBER_DEPTH_MAX,
    MEMBER_NULL,
    MEMBER_OBJECT,
    MEMBER_VALUE,
    Documents,
    MemberTree,
    expands,
    meet,
    pass_member,
)
from amps._core.values.value cimport VALUE_RAW_STRING, Value, settle


cdef const uint8_t* EMPTY_OBJECT = b"{}"


@cython.final
cdef class JsonDocuments(Documents):
    """Operations on JSON messages. early_termination: the element EarlyTerminationOptimization."""

    def __init__(self, early_termination=True):
        super().__init__()
        self.separator = c","
        self.base.last_counts = self.other.last_counts = not early_termination

    cdef bint check(self, const uint8_t* data, uint64_t length) except -1:
        cdef const uint8_t* end = data + length
        if json_skip_space(data, end) == end:
            return True
        data = json_valid_value(data, end)
        return data != NULL and json_skip_space(data, end) == end

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        cdef const uint8_t* end = data + length
        cdef const uint8_t* at = json_skip_space(data, end)
        if at == end:
            at = data = EMPTY_OBJECT
            end = data + 2
        tree.begin = data
        tree.end = end
        if at[0] != c"{":
            return False
        at = self.read_object(tree, at + 1, 0, 0)
        return at != NULL and json_skip_space(at, end) == end

    cdef const uint8_t* read_object(
        self, MemberTree tree, const uint8_t* at, int32_t node, uint32_t depth
    ) except? NULL:
        """Read an object whose content begins at `at`. Return the position behind it; NULL: malformed, or too deep."""
        cdef const uint8_t* end = tree.end
        cdef const uint8_t* begin
        cdef int32_t child = -1
        if depth == MEMBER_DEPTH_MAX:
            return NULL
        tree.members[node].content = tree.members[node].last_end = at
        at = json_skip_space(at, end)
        if at < end and at[0] == c"}":
            return at + 1
        while True:
            begin = at
            at = self.read_name(tree, at, node, &child)
            if at == NULL:
                return NULL
            if child < 0:
                at = json_skip_value(at, end)
            else:
                tree.members[child].begin = begin
                at = self.read_value(tree, at, child, depth)
            if at == NULL:
                return NULL
            pass_member(tree, node, at)
            if at < end and at[0] != c",":
                at = json_skip_space(at, end)
            if at == end:
                return NULL
            if at[0] == c"}":
                return at + 1
            if at[0] != c",":
                return NULL
            at = json_skip_space(at + 1, end)

    cdef inline const uint8_t* read_name(
        self, MemberTree tree, const uint8_t* at, int32_t node, int32_t* child
    ) except? NULL:
        """Read the name of a member at `at`.

        Return the position of its value, and its entry in `child`; NULL: malformed.
        """
        cdef const uint8_t* end = tree.end
        cdef const uint8_t* name
        cdef Value text
        if at >= end or at[0] != c'"':
            return NULL
        name = at + 1
        at = json_string_stop(name, end)
        if at == end:
            return NULL
        if at[0] == c'"':
            child[0] = meet(tree, node, name, <uint32_t>(at - name))
            at += 1
        else:
            at = json_skip_string(at, end)
            if at == NULL or not json_escapes_are_valid(name, at - 1):
                return NULL
            text.kind = VALUE_RAW_STRING
            text.flags = 0
            text.text = name
            text.length = <uint32_t>(at - 1 - name)
            settle(&text, tree.texts)
            child[0] = meet(tree, node, text.text, text.length)
        at = json_skip_space(at, end)
        if at == end or at[0] != c":":
            return NULL
        at = json_skip_space(at + 1, end)
        return at if at < end else NULL

    cdef const uint8_t* read_value(
        self, MemberTree tree, const uint8_t* at, int32_t member, uint32_t depth
    ) except? NULL:
        """Read the value of a member with an entry. Return the position behind it; NULL: malformed."""
        cdef const uint8_t* behind
        cdef uint8_t kind = MEMBER_VALUE
        tree.members[member].value = at
        if at[0] == c"{" or at[0] == c"[":
            kind = MEMBER_OBJECT if at[0] == c"{" else MEMBER_ARRAY
            if not expands(tree, member, kind):
                behind = json_skip_value(at, tree.end)
            elif kind == MEMBER_OBJECT:
                behind = self.read_object(tree, at + 1, member, depth + 1)
            else:
                behind = self.read_array(tree, at + 1, member, depth + 1)
        else:
            behind = json_skip_value(at, tree.end)
            if at[0] == c"n" or (at[0] == c'"' and behind == at + 2):
                kind = MEMBER_NULL
        tree.members[member].kind = kind
        tree.members[member].end = behind
        return behind

    cdef const uint8_t* read_array(
        self, MemberTree tree, const uint8_t* at, int32_t node, uint32_t depth
    ) except? NULL:
        """Read an array whose content begins at `at`, for a Selection. Return the position behind it."""
        cdef const uint8_t* end = tree.end
        cdef int32_t element
        if depth == MEMBER_DEPTH_MAX:
            return NULL
        tree.members[node].content = tree.members[node].last_end = at
        at = json_skip_space(at, end)
        if at < end and at[0] == c"]":
            return at + 1
        while at < end:
            element = tree.meet_element(node)
            tree.members[element].begin = at
            at = self.read_value(tree, at, element, depth)
            if at == NULL:
                return NULL
            pass_member(tree, node, at)
            at = json_skip_space(at, end)
            if at == end:
                return NULL
            if at[0] == c"]":
                return at + 1
            if at[0] != c",":
                return NULL
            at = json_skip_space(at + 1, end)
        return NULL

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        cdef const uint8_t* begin = tree.members[member].begin
        self.output.append(begin, <uint64_t>(tree.members[member].value - begin))
        return self.output.append(b"null", 4)
