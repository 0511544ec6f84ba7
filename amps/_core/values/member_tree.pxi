# The named members of one message, as a tree.
#
# A format reads a message and asks for each member whether it needs an entry (`meet`). So members that no operation
# touches cost only the search for their end. An array of a format that encloses its arrays is one member. In formats
# whose arrays are repeated members, the members of one name are linked to the first one, the head.
#
# Invariants: an entry has a higher number than its object. Pointers lead into the message, or into `texts`. Members of
# one name are found in constant time with a hash that no client can predict, so a message is read in linear time.

from os import urandom

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.values.fields cimport FieldSet, name_bit, name_look, name_other_bit, texts_equal, wanted_child
from amps._core.values.value cimport Arena


cdef extern from "text_words.h" nogil:
    ctypedef struct TextWords:
        uint64_t first
        uint64_t last
    TextWords text_words(const uint8_t* text, uint32_t length, uint64_t seed)
    uint64_t words_mixed(uint64_t first, uint64_t last, uint64_t seed)


cdef enum:
    MEMBERS_MIN = 64
    MEMBERS_KEPT = 1 << 14         # the memory for more is released before the next message
    ENTRIES_MIN = 128


cdef uint64_t SEED = int.from_bytes(urandom(8), "little")


class TooManyMembers(Exception):
    """A message has more members than an operation takes."""


cdef inline uint32_t member_hash(int32_t parent, const uint8_t* name, uint32_t length) noexcept nogil:
    cdef TextWords words = text_words(name, length, SEED)
    cdef uint64_t place = (<uint64_t>length << 32 | <uint32_t>parent) * 0x9E3779B97F4A7C15ULL
    return <uint32_t>words_mixed(words.first ^ place, words.last, SEED)


@cython.final
cdef class MemberTree:

    def __cinit__(self):
        self.members = NULL
        self.table = NULL
        self.count = 0
        self.capacity = 0
        self.table_capacity = 0
        self.table_mask = 0
        self.texts = Arena()

    def __dealloc__(self):
        free(self.members)
        free(self.table)

    cdef int start(self, TreeMode mode, MemberTree along, FieldSet selected, int32_t root) except -1:
        """Forget the last message, and make the entry of the next one. root: its node in the guide."""
        if self.capacity > MEMBERS_KEPT:
            free(self.members)
            self.members = NULL
            self.capacity = 0
        if self.table_capacity > 4 * MEMBERS_KEPT:
            free(self.table)
            self.table = NULL
            self.table_capacity = 0
        self.mode = mode
        self.along = along
        self.selected = selected
        self.count = 0
        self.table_mask = 0
        self.texts.clear()
        self.new_member(-1)
        self.members[0].kind = MEMBER_OBJECT
        self.members[0].guide = root
        return 0

    cdef int32_t new_member(self, int32_t parent) except -2:
        """A new entry, the last one of its object. The format fills in its positions and its kind."""
        cdef Member* grown
        cdef Member* member
        cdef Member* above
        cdef int32_t added = <int32_t>self.count
        cdef uint32_t capacity
        if self.count == self.capacity:
            if self.count == MEMBERS_MAX:
                raise TooManyMembers()
            capacity = min(self.capacity * 2 + MEMBERS_MIN, <uint32_t>MEMBERS_MAX)
            grown = <Member*>realloc(self.members, capacity * sizeof(Member))
            if grown == NULL:
                raise MemoryError()
            self.members = grown
            self.capacity = capacity
        member = &self.members[added]
        # Field by field, which is faster than any function that fills memory.
        member.begin = member.value = member.end = member.before = NULL
        member.content = member.last_end = member.name = NULL
        member.name_length = member.hash = 0
        member.parent = parent
        member.first_child = member.last_child = member.next = -1
        member.guide = member.twin = member.same = member.last_same = member.head = -1
        member.count = member.place = member.removed = member.added = 0
        member.names = member.other_names = 0
        member.kind = member.mark = member.flags = 0
        if parent >= 0:
            above = &self.members[parent]
            member.before = above.last_end
            member.place = above.count
            if above.last_child < 0:
                above.first_child = added
            else:
                self.members[above.last_child].next = added
            above.last_child = added
        self.count += 1
        return added

    cdef int32_t meet_name(self, int32_t parent, const uint8_t* name, uint32_t length) except -2:
        """The entry for a member of an object; -1: it needs none. `meet` is faster."""
        cdef int32_t guide = -1
        cdef int32_t made
        cdef uint32_t look
        cdef Member* member
        if self.mode == TREE_ALONG:
            guide = self.along.find(self.members[parent].guide, name, length)
            if guide < 0 or self.along.is_null(guide):
                return -1
        elif self.mode == TREE_SELECTED and self.members[parent].guide >= 0:
            guide = wanted_child(self.selected, self.members[parent].guide, name, length)
        made = self.new_member(parent)
        member = &self.members[made]
        member.name = name
        member.name_length = length
        member.guide = guide
        if self.mode == TREE_WHOLE:
            look = name_look(name, length)
            self.members[parent].names |= <uint64_t>1 << name_bit(look)
            self.members[parent].other_names |= <uint64_t>1 << name_other_bit(look)
            self.enter(made)
        return made

    cdef int32_t meet_nameless(self, int32_t parent) except -2:
        """The entry for a member that no path names, which takes no part in deltas; -1: it needs none."""
        cdef int32_t made
        if self.mode == TREE_ALONG:
            return -1
        made = self.new_member(parent)
        self.members[made].flags = FLAG_REPEATED
        return made

    cdef int32_t meet_element(self, int32_t parent) except -2:
        """The entry for an element of an array, which has the directives of the array."""
        cdef int32_t made = self.new_member(parent)
        self.members[made].guide = self.members[parent].guide
        return made

    cdef bint is_null(self, int32_t member) noexcept nogil:
        """Whether a member, or each element of an array of members, is NULL."""
        return self.members[member].kind == MEMBER_NULL and not self.members[member].flags & FLAG_GROUP_VALUE

    cdef void reduce(self) noexcept nogil:
        """Mark what a delta does not say: NULLs, objects without a value below them, and members that do not count."""
        cdef int32_t each
        cdef Member* member
        cdef Member* above
        for each in range(<int32_t>self.count - 1, 0, -1):
            member = &self.members[each]
            if member.kind == MEMBER_OBJECT and not member.flags & FLAG_HAS_VALUE and not self.empty_counts:
                member.kind = MEMBER_NULL
            if member.kind != MEMBER_NULL and (member.head >= 0 or not member.flags & FLAG_REPEATED):
                self.members[member.parent].flags |= FLAG_HAS_VALUE
                if member.head >= 0:
                    self.members[member.head].flags |= FLAG_GROUP_VALUE
        for each in range(<int32_t>self.count - 1, 0, -1):
            member = &self.members[each]
            above = &self.members[member.parent]
            if self.is_null(each if member.head < 0 else member.head) or (
                member.flags & FLAG_REPEATED and member.head < 0
            ):
                mark_removed(self, each)
                above.mark = MARK_EDIT
            elif member.mark == MARK_EDIT:
                if is_object(self, each):
                    above.mark = MARK_EDIT
                else:
                    member.mark = MARK_KEEP  # an element of an array, which is taken whole

    cdef int32_t find(self, int32_t parent, const uint8_t* name, uint32_t length) noexcept nogil:
        """The member of an object by its name, in a whole tree; -1 if there is none."""
        cdef uint32_t hash_ = member_hash(parent, name, length)
        cdef uint32_t at = hash_
        cdef int32_t found
        cdef Member* member
        if self.table_mask == 0:
            return -1
        while True:
            found = self.table[at & self.table_mask]
            if found < 0:
                return -1
            member = &self.members[found]
            if (
                member.hash == hash_
                and member.parent == parent
                and member.name_length == length
                and texts_equal(member.name, name, length)
            ):
                return found
            at += 1

    cdef int enter(self, int32_t member) except -1:
        """Make a member findable, or mark it or the earlier one of its name as repeated."""
        cdef Member* entered = &self.members[member]
        cdef Member* head
        cdef int32_t found
        cdef uint32_t at
        if self.count * 2 > self.table_mask:
            self.grow_table()
        entered.hash = at = member_hash(entered.parent, entered.name, entered.name_length)
        while True:
            found = self.table[at & self.table_mask]
            if found < 0:
                break
            head = &self.members[found]
            if (
                head.hash == entered.hash
                and head.parent == entered.parent
                and head.name_length == entered.name_length
                and texts_equal(head.name, entered.name, entered.name_length)
            ):
                if self.last_counts:
                    head.flags |= FLAG_REPEATED
                    break
                entered.flags |= FLAG_REPEATED
                if self.repeats:
                    entered.head = found
                    self.members[found if head.last_same < 0 else head.last_same].same = member
                    head.last_same = member
                return 0
            at += 1
        self.table[at & self.table_mask] = member
        return 0

    cdef int grow_table(self) except -1:
        """Double the table. A member whose name is repeated is not in it."""
        cdef uint32_t mask = max(<uint32_t>ENTRIES_MIN, self.table_mask + 1) * 2 - 1
        cdef int32_t* grown
        cdef int32_t each
        cdef uint32_t at
        if self.table_capacity <= mask:
            grown = <int32_t*>realloc(self.table, (<uint64_t>mask + 1) * sizeof(int32_t))
            if grown == NULL:
                raise MemoryError()
            self.table = grown
            self.table_capacity = mask + 1
        self.table_mask = mask
        memset(self.table, 0xFF, (<uint64_t>mask + 1) * sizeof(int32_t))
        for each in range(1, <int32_t>self.count - 1):
            if self.members[each].flags & FLAG_REPEATED:
                continue
            at = self.members[each].hash
            while self.table[at & mask] >= 0:
                at += 1
            self.table[at & mask] = each
        return 0
