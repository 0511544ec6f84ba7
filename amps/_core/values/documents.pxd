# Members of messages, and the three operations on whole messages. See values/documents.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from amps._core.values.fields cimport ByteBuffer, FieldSet, name_bit, name_look, name_other_bit
from amps._core.values.value cimport Arena


# The named members of one message, as a tree. See values/member_tree.pxi.


cdef enum:
    MEMBERS_MAX = 1 << 20          # of one message: 120 MiB
    MEMBER_DEPTH_MAX = 1000        # of objects, and of arrays that a Selection goes through


cdef enum MemberKind:
    MEMBER_NULL = 0                # NULL, or the empty string; in a delta also an object without any value
    MEMBER_VALUE = 1
    MEMBER_OBJECT = 2
    MEMBER_ARRAY = 3               # of a format that encloses its arrays


# What an edit does with a member.
cdef enum MemberMark:
    MARK_KEEP = 0
    MARK_REMOVE = 1
    MARK_EDIT = 2                  # members below it change
    MARK_REPLACE = 3               # by the value of its twin
    MARK_NULL = 4                  # it becomes NULL, in its place


cdef enum MemberFlag:
    FLAG_REPEATED = 1              # another member of this name counts or is the head of their array; or it has no name
    FLAG_ADDED = 2                 # it has no twin, and is appended
    FLAG_GROUP_VALUE = 4           # of a head: one of the others is not NULL
    FLAG_HAS_VALUE = 8             # of an object: there is a value below it
    FLAG_FOUND = 16                # for formats: the message that is read along this tree has the member


# Which members get an entry.
cdef enum TreeMode:
    TREE_WHOLE = 0                 # all, in all objects; found by name
    TREE_ALONG = 1                 # those that another tree has, in the objects that both have
    TREE_SELECTED = 2              # all of the objects that a Selection goes into


# A member of an object, or an element of an array. Entry 0 is the message itself.
cdef struct Member:
    const uint8_t* begin           # with its name
    const uint8_t* value           # what is replaced with its value; `begin` if the name is part of it
    const uint8_t* end             # behind the value
    const uint8_t* before          # end of the member before, else start of the object's content
    const uint8_t* content         # of an object: start of its content
    const uint8_t* last_end        # of an object: end of its last member, else start of the content
    const uint8_t* name
    uint32_t name_length
    uint32_t hash
    int32_t parent
    int32_t first_child            # -1 = none
    int32_t last_child
    int32_t next                   # the next entry of the same object; -1 = none
    int32_t guide                  # node of the other tree or the Selection with this path; -1 = none
    int32_t twin                   # entry of the other tree that this one is compared or merged with; -1 = none
    int32_t same                   # the next member of this name, in formats whose arrays are repeated members; -1
    int32_t last_same              # of a head: the last member of this name; -1 = it is the only one
    int32_t head                   # of such a member: the first one; -1
    uint32_t count                 # of an object: all its members, with or without an entry
    uint32_t place                 # number of members of its object before it
    uint32_t removed               # of an object: members with MARK_REMOVE
    uint32_t added                 # of an object: members of its twin with FLAG_ADDED
    uint64_t names                 # of an object: bits by `name_bit` of its members' names
    uint64_t other_names           # the same by `name_other_bit`
    uint8_t kind
    uint8_t mark
    uint8_t flags


cdef class MemberTree:
    """The members of one message. The pointers are valid as long as the message and, if it is another, the guide."""

    cdef Member* members
    cdef uint32_t count
    cdef uint32_t capacity
    cdef int32_t* table            # of TREE_WHOLE: members by parent and name, open addressing; -1 = free
    cdef uint32_t table_capacity
    cdef uint32_t table_mask
    cdef TreeMode mode
    cdef bint last_counts          # of equal names
    cdef bint repeats              # equal names are an array
    cdef bint empty_counts         # an object without any value below it is a value
    cdef MemberTree along
    cdef FieldSet selected
    cdef Arena texts               # names that are not in the message byte by byte
    cdef const uint8_t* begin      # of the message, or of a constant that stands for an empty one
    cdef const uint8_t* end

    cdef int start(self, TreeMode mode, MemberTree along, FieldSet selected, int32_t root) except -1
    cdef int32_t new_member(self, int32_t parent) except -2
    cdef int32_t meet_name(self, int32_t parent, const uint8_t* name, uint32_t length) except -2
    cdef int32_t meet_nameless(self, int32_t parent) except -2
    cdef int32_t meet_element(self, int32_t parent) except -2
    cdef int32_t find(self, int32_t parent, const uint8_t* name, uint32_t length) noexcept nogil
    cdef bint is_null(self, int32_t member) noexcept nogil
    cdef void reduce(self) noexcept nogil
    cdef int enter(self, int32_t member) except -1
    cdef int grow_table(self) except -1


# The entry for a member of an object that was met; -1: it needs none. -2 is an error: there are too many.
cdef inline int32_t meet(MemberTree tree, int32_t parent, const uint8_t* name, uint32_t length) except -2:
    cdef Member* guide
    cdef uint32_t look
    if tree.mode == TREE_ALONG:
        look = name_look(name, length)
        guide = &tree.along.members[tree.members[parent].guide]
        if not guide.names >> name_bit(look) & guide.other_names >> name_other_bit(look) & 1:
            return -1
    return tree.meet_name(parent, name, length)


# Note a member of an object that was read, with or without an entry.
cdef inline void pass_member(MemberTree tree, int32_t parent, const uint8_t* end) noexcept nogil:
    tree.members[parent].last_end = end
    tree.members[parent].count += 1


# Note that a member is left out.
cdef inline void mark_removed(MemberTree tree, int32_t member) noexcept nogil:
    tree.members[member].mark = MARK_REMOVE
    tree.members[tree.members[member].parent].removed += 1


# Whether a member has named members, and is no part of an array of such members.
cdef inline bint is_object(MemberTree tree, int32_t member) noexcept nogil:
    return (
        tree.members[member].kind == MEMBER_OBJECT
        and tree.members[member].last_same < 0
        and tree.members[member].head < 0
    )


# Whether the members of an object, or the elements of an array, get entries.
cdef inline bint expands(MemberTree tree, int32_t member, uint8_t kind) noexcept nogil:
    if tree.mode == TREE_WHOLE:
        return kind == MEMBER_OBJECT
    if tree.mode == TREE_ALONG:
        return kind == MEMBER_OBJECT and is_object(tree.along, tree.members[member].guide)
    return tree.members[member].guide >= 0 and tree.selected.nodes[tree.members[member].guide].children > 0


# Which fields of a message are passed on. See values/selection.pxi.


cdef class Selection:
    """The directives of a select list. It has no state, so many users may share it."""

    cdef FieldSet tree
    cdef uint8_t* included         # by slot of `tree`
    cdef readonly bint rest        # whether fields without a directive are included
    cdef readonly tuple directives

    cdef bint includes(self, int32_t node, bint above) noexcept nogil


# The operations. See values/documents.pxi.


cdef class Documents:
    """Merges, compares and reduces messages of one type. It has state, so each user needs its own."""

    cdef MemberTree base           # of the message that is edited
    cdef MemberTree other          # of the message whose values go into it
    cdef ByteBuffer output
    cdef const uint8_t* cursor     # everything in front of it, in the tree that is edited, is written
    cdef uint8_t separator         # between two members; 0 = none
    cdef bint adds_null            # members that are added are written as NULL
    cdef ByteBuffer result         # of the methods for Python

    cdef ByteBuffer emptied(self)

    # For users.
    cdef bint merge(
        self,
        const uint8_t* stored, uint64_t stored_length,
        const uint8_t* delta, uint64_t delta_length,
        ByteBuffer output,
    ) except -1
    cdef int difference(
        self,
        const uint8_t* old, uint64_t old_length,
        const uint8_t* new, uint64_t new_length,
        FieldSet keys, ByteBuffer output,
    ) except -2
    cdef bint select(
        self, const uint8_t* message, uint64_t length, Selection selection, ByteBuffer output
    ) except -1

    # For composites: the same, with the node of the keys or of the Selection at which the paths of the part begin.
    cdef int difference_at(
        self,
        const uint8_t* old, uint64_t old_length,
        const uint8_t* new, uint64_t new_length,
        FieldSet keys, int32_t root, ByteBuffer output,
    ) except -2
    cdef bint select_at(
        self,
        const uint8_t* message, uint64_t length,
        Selection selection, int32_t root, bint included, ByteBuffer output,
    ) except -1

    # For formats.
    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1
    cdef bint check(self, const uint8_t* data, uint64_t length) except -1
    cdef int64_t open_object(self, MemberTree tree, int32_t node, uint32_t count) except? -1
    cdef int close_object(self, MemberTree tree, int32_t node, int64_t opened) except -1
    cdef int write_null(self, MemberTree tree, int32_t member) except -1

    cdef int copy_to(self, const uint8_t* at) except -1
    cdef int write_base(self) except -1
    cdef int edit(self, MemberTree tree, int32_t node) except -1
    cdef int remove(self, MemberTree tree, const Member* member, bint is_first) except -1
    cdef int add_members(self, int32_t node, bint follows) except -1
    cdef int write_twin(self, int32_t member) except -1
    cdef int write_other(self, int32_t member, const uint8_t* from_) except -1
