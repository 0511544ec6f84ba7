# Merging, comparing and reducing MessagePack messages (sow.md §14, §17, §18).
#
# Names are those of the extractor: an integer key has its digits. A pair with another key has no path. So it stays in
# stored messages, is ignored in deltas, and a select list treats it as the rest of its map. The head of a map is
# written again if the number of its pairs changes.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.messages.msgpack_wire cimport (
    MSGPACK_ARRAY,
    MSGPACK_EXTENSION,
    MSGPACK_MAP,
    MSGPACK_NIL,
    MSGPACK_TEXT,
    msgpack_item,
    msgpack_name,
    msgpack_read,
    msgpack_skip,
)
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


cdef const uint8_t* EMPTY_MAP = b"\x80"


cdef class MsgpackDocuments(Documents):

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        cdef msgpack_item item
        cdef const uint8_t* at
        tree.begin = data if length else EMPTY_MAP
        tree.end = tree.begin + (length if length else 1)
        tree.members[0].value = tree.begin
        at = msgpack_read(tree.begin, tree.end, &item)
        if at == NULL or item.kind != MSGPACK_MAP:
            return False
        return self.read_map(tree, at, item.length, 0, 0) == tree.end

    cdef const uint8_t* read_map(
        self, MemberTree tree, const uint8_t* at, uint32_t pairs, int32_t node, uint32_t depth
    ) except? NULL:
        """Read the pairs of a map, beginning at `at`. Return the position behind them; NULL: malformed, or too deep."""
        cdef const uint8_t* begin
        cdef const uint8_t* value
        cdef msgpack_item key
        cdef uint8_t digits[24]
        cdef int32_t child
        if depth == MEMBER_DEPTH_MAX:
            return NULL
        tree.members[node].content = tree.members[node].last_end = at
        while pairs:
            pairs -= 1
            begin = at
            value = msgpack_name(begin, tree.end, &key, digits)
            if value == NULL:
                return NULL
            if key.text == NULL:
                child = tree.meet_nameless(node)
            else:
                child = meet(tree, node, key.text, key.length)
                if child >= 0 and digits <= key.text < digits + sizeof(digits):
                    tree.members[child].name = self.kept_name(tree, key.text, key.length)
            if child < 0:
                at = msgpack_skip(value, tree.end, 1)
            else:
                tree.members[child].begin = begin
                at = self.read_value(tree, value, child, depth)
            if at == NULL:
                return NULL
            pass_member(tree, node, at)
        return at

    cdef const uint8_t* kept_name(self, MemberTree tree, const uint8_t* digits, uint32_t length) except NULL:
        cdef uint8_t* made = tree.texts.reserve(length)
        memcpy(made, digits, length)
        return made

    cdef const uint8_t* read_value(
        self, MemberTree tree, const uint8_t* at, int32_t member, uint32_t depth
    ) except? NULL:
        """Read the value of a member with an entry. Return the position behind it; NULL: malformed."""
        cdef msgpack_item item
        cdef const uint8_t* content = msgpack_read(at, tree.end, &item)
        cdef const uint8_t* behind = content
        cdef uint8_t kind = MEMBER_VALUE
        if content == NULL:
            return NULL
        tree.members[member].value = at
        if item.kind == MSGPACK_NIL:
            kind = MEMBER_NULL
        elif item.kind == MSGPACK_TEXT or item.kind == MSGPACK_EXTENSION:
            if item.length == 0:
                kind = MEMBER_NULL
        elif item.kind == MSGPACK_MAP or item.kind == MSGPACK_ARRAY:
            kind = MEMBER_OBJECT if item.kind == MSGPACK_MAP else MEMBER_ARRAY
            if not expands(tree, member, kind):
                behind = msgpack_skip(at, tree.end, 1)
            elif kind == MEMBER_OBJECT:
                behind = self.read_map(tree, content, item.length, member, depth + 1)
            else:
                behind = self.read_array(tree, content, item.length, member, depth + 1)
        tree.members[member].kind = kind
        tree.members[member].end = behind
        return behind

    cdef const uint8_t* read_array(
        self, MemberTree tree, const uint8_t* at, uint32_t count, int32_t node, uint32_t depth
    ) except? NULL:
        """Read the items of an array, for a Selection. Return the position behind them; NULL: malformed, or too deep.
        """
        cdef int32_t element
        if depth == MEMBER_DEPTH_MAX:
            return NULL
        tree.members[node].content = tree.members[node].last_end = at
        while count:
            count -= 1
            element = tree.meet_element(node)
            tree.members[element].begin = at
            at = self.read_value(tree, at, element, depth)
            if at == NULL:
                return NULL
            pass_member(tree, node, at)
        return at

    cdef int64_t open_object(self, MemberTree tree, int32_t node, uint32_t count) except? -1:
        if count != tree.members[node].count:
            self.copy_to(tree.members[node].value)
            put_map_head(self.output, count)
            self.cursor = tree.members[node].content
        return 0

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        cdef const uint8_t* begin = tree.members[member].begin
        self.output.append(begin, <uint64_t>(tree.members[member].value - begin))
        return self.output.append_byte(0xC0)
