# What an operation changes: the marks of the members. The messages are read, and nothing is written yet.

from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memcmp

from amps._core.values.fields cimport FieldSet, texts_equal, wanted_child


cdef enum Found:
    FOUND_CHANGE = 1               # a field differs
    FOUND_FIELD = 2                # there is something to write


cdef int mark_merge(MemberTree base, MemberTree delta, int32_t node, int32_t from_) except -1:
    """Mark what a delta changes in an object of a stored message."""
    cdef int32_t child = base.members[node].first_child
    cdef int32_t added = delta.members[from_].first_child
    cdef int32_t twin
    cdef Member* member
    base.members[node].twin = from_
    while child >= 0:
        member = &base.members[child]
        twin = member.guide
        if twin < 0:
            child = member.next  # the format has marked it
            continue
        if delta.members[twin].twin < 0 or base.last_counts:
            if delta.members[twin].twin >= 0:
                mark_removed(base, delta.members[twin].twin)
            delta.members[twin].twin = child
            member.twin = twin
            member.mark = MARK_REPLACE
        else:
            member.twin = -1
            mark_removed(base, child)
            if base.repeats:
                base.members[delta.members[twin].twin].flags |= FLAG_REPEATED  # an array, which is replaced whole
        child = member.next
    child = base.members[node].first_child
    while child >= 0:
        member = &base.members[child]
        if (
            member.mark == MARK_REPLACE
            and member.kind == MEMBER_OBJECT
            and not member.flags & FLAG_REPEATED
            and is_object(delta, member.twin)
        ):
            member.mark = MARK_EDIT
            mark_merge(base, delta, child, member.twin)
        child = member.next
    while added >= 0:
        member = &delta.members[added]
        twin = added if member.head < 0 else member.head
        if member.mark != MARK_REMOVE and delta.members[twin].twin < 0:
            member.flags |= FLAG_ADDED
            base.members[node].added += 1
        added = member.next
    return 0


cdef int mark_difference(
    MemberTree base, MemberTree old, int32_t node, int32_t from_, FieldSet keys, int32_t key
) except -1:
    """Mark what is left out of an object of the new message, and what the old one has in addition.

    key: the object's node in `keys`; -1: there is no key field below it. Return flags of Found.
    """
    cdef int32_t child = base.members[node].first_child
    cdef int32_t expected = old.members[from_].first_child
    cdef int32_t twin
    cdef int found = 0
    cdef Member* member
    base.members[node].twin = from_
    while child >= 0:
        member = &base.members[child]
        if member.flags & FLAG_REPEATED:
            if member.head < 0 or base.members[member.head].mark == MARK_REMOVE:
                mark_removed(base, child)
            child = member.next
            continue
        twin = expected_member(old, expected, from_, member)
        if twin >= 0:
            expected = old.members[twin].next
            old.members[twin].twin = child
        found |= mark_compared(
            base, old, child, twin, keys,
            -1 if key < 0 else wanted_child(keys, key, member.name, member.name_length),
        )
        child = member.next
    child = old.members[from_].first_child
    while child >= 0:
        member = &old.members[child]
        if member.twin < 0 and not member.flags & FLAG_REPEATED and has_value(old, child):
            member.flags |= FLAG_ADDED
            base.members[node].added += 1
            found |= FOUND_CHANGE | FOUND_FIELD
        child = member.next
    return found


cdef int32_t expected_member(MemberTree old, int32_t expected, int32_t from_, const Member* member) noexcept nogil:
    """The member of an object of the old message with the same name. Most messages keep the order of their members."""
    cdef const Member* next_
    if expected >= 0:
        next_ = &old.members[expected]
        if (
            next_.name_length == member.name_length
            and not next_.flags & FLAG_REPEATED
            and texts_equal(next_.name, member.name, member.name_length)
        ):
            return expected
    return old.find(from_, member.name, member.name_length)


cdef bint has_value(MemberTree tree, int32_t member) noexcept nogil:
    """Whether a member, or one of the array that it is the head of, is not NULL."""
    while member >= 0:
        if tree.members[member].kind != MEMBER_NULL:
            return True
        member = tree.members[member].same
    return False


cdef int mark_compared(
    MemberTree base, MemberTree old, int32_t child, int32_t twin, FieldSet keys, int32_t key
) except -1:
    """Mark a member of the new message. twin: the one of the old message; -1: it has none. key: its node in `keys`."""
    cdef Member* member = &base.members[child]
    cdef bint is_key = key >= 0 and keys.nodes[key].slot >= 0
    cdef int below
    if key >= 0 and keys.nodes[key].wanted_below == (1 if is_key else 0):
        key = -1
    if twin >= 0 and is_object(base, child) and is_object(old, twin):
        below = mark_difference(base, old, child, twin, keys, key)
        if is_key:
            return below | FOUND_FIELD  # the whole object stays
        if below & FOUND_FIELD:
            member.mark = MARK_EDIT
        else:
            mark_removed(base, child)
        return below
    if same_values(base, old, child, twin):
        if is_key or (key >= 0 and member.kind == MEMBER_ARRAY) or (key >= 0 and member.last_same >= 0):
            return FOUND_FIELD
        mark_removed(base, child)
        return 0
    return FOUND_CHANGE | FOUND_FIELD


cdef bint same_values(MemberTree base, MemberTree old, int32_t member, int32_t twin) noexcept nogil:
    """Whether a member is equal in both messages; it may be an array of members."""
    cdef const Member* new_
    cdef const Member* old_
    if not has_value(base, member) and (twin < 0 or not has_value(old, twin)):
        return True
    while member >= 0 and twin >= 0:
        new_ = &base.members[member]
        old_ = &old.members[twin]
        if new_.end - new_.value != old_.end - old_.value or memcmp(
            new_.value, old_.value, <uint64_t>(new_.end - new_.value)
        ):
            return False
        member = new_.same
        twin = old_.same
    return member == twin


cdef bint mark_select(MemberTree tree, int32_t node, Selection selection, bint included) except -1:
    """Mark what a select list excludes from an object or array.

    included: what it says about fields in it that have no directive. Return whether a field is left.
    """
    cdef int32_t child = tree.members[node].first_child
    cdef bint in_array = tree.members[node].kind == MEMBER_ARRAY
    cdef bint left = False
    cdef bint below
    cdef bint includes
    cdef Member* member
    while child >= 0:
        member = &tree.members[child]
        includes = included if in_array else selection.includes(member.guide, included)
        if member.first_child >= 0:
            below = mark_select(tree, child, selection, includes) or includes
            member.mark = MARK_EDIT
            if not below and not in_array:
                mark_removed(tree, child)
            left = left or below
        elif not includes and not in_array:
            mark_removed(tree, child)
        elif not includes:
            if member.kind != MEMBER_OBJECT and member.kind != MEMBER_NULL:
                member.mark = MARK_NULL
        else:
            left = True
        child = member.next
    return left
