# The operations on whole messages: merging a delta (sow.md §14), the difference of two states (§17), and applying a
# select list (§18).
#
# Each operation reads messages to trees of members, marks the members of one of them (documents_marks.pxi), and then
# writes that message with the marked changes. All text that need not change is copied as it is, in long runs. A format
# implements `parse`, and what its syntax needs besides: lengths and numbers of members at objects, NULL.
#
# Two values are equal if their bytes are. So 1 and 1.0 differ, and so do two spellings of one text: a difference may
# contain a field whose value is the same, but it never lacks one that changed. NULL, the empty string and a missing
# field are the same.
#
# Nothing is kept of a message behind the end of an operation, except memory. If an operation returns False (or -1),
# what it has written to the output is no message.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from amps._core.values.fields cimport ByteBuffer, FieldSet

include "documents_marks.pxi"


cdef class Documents:

    def __init__(self):
        self.base = MemberTree()
        self.other = MemberTree()
        self.result = ByteBuffer()
        self.separator = 0
        self.adds_null = False

    def merged(self, stored, delta):
        """The stored message after a delta. ValueError: one of them cannot be parsed."""
        cdef ByteBuffer made = self.emptied()
        cdef const uint8_t[::1] old = stored
        cdef const uint8_t[::1] new = delta
        if not self.merge(start_of(old), <uint64_t>old.shape[0], start_of(new), <uint64_t>new.shape[0], made):
            raise ValueError("the stored message or the delta cannot be parsed")
        return as_bytes(made)

    def compared(self, old, new, FieldSet keys not None):
        """The key fields and what changed, and whether anything did. ValueError: a message cannot be parsed."""
        cdef ByteBuffer made = self.emptied()
        cdef const uint8_t[::1] before = old
        cdef const uint8_t[::1] after = new
        cdef int found = self.difference(
            start_of(before), <uint64_t>before.shape[0], start_of(after), <uint64_t>after.shape[0], keys, made
        )
        if found < 0:
            raise ValueError("one of the messages cannot be parsed")
        return as_bytes(made), found == 1

    def selected(self, message, Selection selection not None):
        """What a select list leaves of a message. ValueError: it cannot be parsed."""
        cdef ByteBuffer made = self.emptied()
        cdef const uint8_t[::1] view = message
        if not self.select(start_of(view), <uint64_t>view.shape[0], selection, made):
            raise ValueError("the message cannot be parsed")
        return as_bytes(made)

    cdef ByteBuffer emptied(self):
        """The output of the methods for Python."""
        self.result.length = 0
        return self.result

    cdef bint merge(
        self,
        const uint8_t* stored, uint64_t stored_length,
        const uint8_t* delta, uint64_t delta_length,
        ByteBuffer output,
    ) except -1:
        """Append the stored message with the values of a delta. False: one of them cannot be parsed."""
        try:
            self.output = output
            self.adds_null = False
            self.other.start(TREE_WHOLE, None, None, 0)
            if not self.check(delta, delta_length) or not self.parse(self.other, delta, delta_length):
                return False
            self.other.reduce()
            self.base.start(TREE_ALONG, self.other, None, 0)
            if not self.parse(self.base, stored, stored_length):
                return False
            mark_merge(self.base, self.other, 0, 0)
            self.write_base()
        except TooManyMembers:
            return False
        return True

    cdef int difference(
        self,
        const uint8_t* old, uint64_t old_length,
        const uint8_t* new, uint64_t new_length,
        FieldSet keys, ByteBuffer output,
    ) except -2:
        """Append the key fields of the new message and all fields that changed.

        Return 1: a field changed; 0: none did; -1: a message cannot be parsed. A field that the new message lacks is
        NULL (D10). An array that changed is appended whole.
        """
        return self.difference_at(old, old_length, new, new_length, keys, 0, output)

    cdef int difference_at(
        self,
        const uint8_t* old, uint64_t old_length,
        const uint8_t* new, uint64_t new_length,
        FieldSet keys, int32_t root, ByteBuffer output,
    ) except -2:
        cdef int found
        try:
            self.output = output
            self.adds_null = True
            self.other.start(TREE_WHOLE, None, None, 0)
            self.base.start(TREE_WHOLE, None, None, 0)
            if not self.parse(self.other, old, old_length) or not self.parse(self.base, new, new_length):
                return -1
            found = mark_difference(self.base, self.other, 0, 0, keys, root)
            self.write_base()
        except TooManyMembers:
            return -1
        return 1 if found & FOUND_CHANGE else 0

    cdef bint select(
        self, const uint8_t* message, uint64_t length, Selection selection, ByteBuffer output
    ) except -1:
        """Append the fields of a message that a select list includes. False: it cannot be parsed."""
        return self.select_at(message, length, selection, 0, selection.rest, output)

    cdef bint select_at(
        self,
        const uint8_t* message, uint64_t length,
        Selection selection, int32_t root, bint included, ByteBuffer output,
    ) except -1:
        if length == 0:
            return True
        try:
            self.output = output
            self.adds_null = False
            self.base.start(TREE_SELECTED, None, selection.tree, root)
            if not self.parse(self.base, message, length):
                return False
            mark_select(self.base, 0, selection, included)
            self.write_base()
        except TooManyMembers:
            return False
        return True

    cdef bint parse(self, MemberTree tree, const uint8_t* data, uint64_t length) except -1:
        """Read a message: set `begin` and `end` of the tree, and enter members. False: malformed."""
        raise NotImplementedError

    cdef bint check(self, const uint8_t* data, uint64_t length) except -1:
        """Whether all of a delta is well-formed, as far as `parse` leaves that open."""
        return True

    cdef int64_t open_object(self, MemberTree tree, int32_t node, uint32_t count) except? -1:
        """Begin an object whose number of members becomes `count`. The result is passed to `close_object`."""
        return 0

    cdef int close_object(self, MemberTree tree, int32_t node, int64_t opened) except -1:
        """End an object after its last member."""
        return 0

    cdef int write_null(self, MemberTree tree, int32_t member) except -1:
        """Write a member with the name of this one, or an element of an array, that is NULL."""
        raise NotImplementedError

    cdef int copy_to(self, const uint8_t* at) except -1:
        """Write everything from the cursor to a position, unless the cursor is there already."""
        if at > self.cursor:
            self.output.append(self.cursor, <uint64_t>(at - self.cursor))
            self.cursor = at
        return 0

    cdef int write_base(self) except -1:
        """Write the base with its marked changes."""
        self.cursor = self.base.begin
        self.edit(self.base, 0)
        return self.copy_to(self.base.end)

    cdef int edit(self, MemberTree tree, int32_t node) except -1:
        """Write an object, or an array that a Selection goes through, up to its last member, with its changes."""
        cdef Member* object_ = &tree.members[node]
        cdef int64_t opened = self.open_object(tree, node, object_.count - object_.removed + object_.added)
        cdef uint32_t removed = 0
        cdef int32_t child = object_.first_child
        cdef Member* member
        while child >= 0:
            member = &tree.members[child]
            if member.mark == MARK_REMOVE:
                self.remove(tree, member, member.place == removed)
                removed += 1
            elif member.mark == MARK_EDIT:
                self.edit(tree, child)
            elif member.mark == MARK_REPLACE:
                self.copy_to(member.value)
                self.write_twin(member.twin)
                self.cursor = member.end
            elif member.mark == MARK_NULL:
                self.copy_to(member.begin)
                self.write_null(tree, child)
                self.cursor = member.end
            child = member.next
        if object_.added:
            self.copy_to(object_.last_end)
            self.add_members(object_.twin, object_.count > object_.removed)
        return self.close_object(tree, node, opened)

    cdef int remove(self, MemberTree tree, const Member* member, bint is_first) except -1:
        """Leave a member out, with the separator before it, or behind it if all before it are left out, too."""
        self.copy_to(member.before)
        if member.end > self.cursor:
            self.cursor = member.end
        if self.separator and is_first and member.end != tree.members[member.parent].last_end:
            while self.cursor[0] != self.separator:
                self.cursor += 1
            self.cursor += 1
        return 0

    cdef int add_members(self, int32_t node, bint follows) except -1:
        """Append the added members of an object of the other tree. follows: there are members before them."""
        cdef int32_t child = self.other.members[node].first_child
        while child >= 0:
            if self.other.members[child].flags & FLAG_ADDED:
                if follows and self.separator:
                    self.output.append_byte(self.separator)
                follows = True
                if self.adds_null:
                    self.write_null(self.other, child)
                else:
                    self.write_other(child, self.other.members[child].begin)
            child = self.other.members[child].next
        return 0

    cdef int write_twin(self, int32_t member) except -1:
        """Write the value of a member of the other tree, with all members of its array."""
        self.write_other(member, self.other.members[member].value)
        while self.other.members[member].same >= 0:
            member = self.other.members[member].same
            if self.separator:
                self.output.append_byte(self.separator)
            self.write_other(member, self.other.members[member].value)
        return 0

    cdef int write_other(self, int32_t member, const uint8_t* from_) except -1:
        """Write a member of the other tree from a position on, without what is marked as removed in it."""
        cdef const uint8_t* cursor = self.cursor
        self.cursor = from_
        if self.other.members[member].mark == MARK_EDIT:
            self.edit(self.other, member)
        self.copy_to(self.other.members[member].end)
        self.cursor = cursor
        return 0


cdef const uint8_t* start_of(const uint8_t[::1] view) noexcept:
    return &view[0] if view.shape[0] else NULL


cdef object as_bytes(ByteBuffer made):
    return (<const char*>made.data)[:made.length] if made.length else b""
