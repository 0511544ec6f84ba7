# Merging, comparing and reducing composite-local messages (sow.md §14, §17, §18; expressions.md §12.6).
#
# Each part is handled by the operations of its type. An empty part of a delta or a difference says that the part is
# unchanged. A part of a type without deltas is replaced and compared as a whole. If a select list has directives for
# fields of a part that cannot be reduced, the part is left out, because it could contain what the list excludes. The
# unparsed payload takes no part in deltas: a merge keeps the stored one, and a difference has none. A select list
# passes it on if it includes the rest of the message.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from amps._core.values.documents cimport Documents, Selection
from amps._core.values.fields cimport ByteBuffer, FieldSet, wanted_child


cdef class CompositeDocuments(Documents):

    cdef tuple parts               # Documents by part; None: its type has none
    cdef tuple names               # steps to the parts
    cdef tuple have_deltas
    cdef tuple have_select_lists
    cdef ByteBuffer made           # of a part

    def __init__(self, parts, have_deltas, have_select_lists):
        """parts: the operations of each part, without other users; None where have_deltas and have_select_lists are
        False.
        """
        super().__init__()
        self.parts = tuple([<Documents?>part if part is not None else None for part in parts])
        self.names = tuple([b"%d" % number for number in range(len(self.parts))])
        self.have_deltas = tuple(have_deltas)
        self.have_select_lists = tuple(have_select_lists)
        self.made = ByteBuffer()

    cdef bint next_or_empty(self, const uint8_t** at, const uint8_t* end, Part* part) noexcept:
        """Read the next part of a message. A message without a byte has only empty parts. False: truncated."""
        if at[0] == NULL:
            part.data = NULL
            part.length = 0
            return True
        return next_part(at, end, part)

    cdef int32_t node_of(self, FieldSet fields, int32_t root, uint32_t number) noexcept:
        cdef bytes name = <bytes>self.names[number]
        return wanted_child(fields, root, <const uint8_t*><const char*>name, <uint32_t>len(name))

    cdef bint merge(
        self,
        const uint8_t* stored, uint64_t stored_length,
        const uint8_t* delta, uint64_t delta_length,
        ByteBuffer output,
    ) except -1:
        cdef const uint8_t* old_at = stored if stored_length else NULL
        cdef const uint8_t* new_at = delta if delta_length else NULL
        cdef Part old
        cdef Part new
        cdef uint32_t number
        for number in range(<uint32_t>len(self.parts)):
            if not self.next_or_empty(&old_at, stored + stored_length, &old):
                return False
            if not self.next_or_empty(&new_at, delta + delta_length, &new):
                return False
            if new.length == 0:
                append_part(output, old.data, old.length)
            elif not self.have_deltas[number]:
                append_part(output, new.data, new.length)
            else:
                self.made.length = 0
                if not (<Documents>self.parts[number]).merge(old.data, old.length, new.data, new.length, self.made):
                    return False
                append_part(output, self.made.data, self.made.length)
        if old_at != NULL:
            output.append(old_at, <uint64_t>(stored + stored_length - old_at))
        return True

    cdef int difference_at(
        self,
        const uint8_t* old, uint64_t old_length,
        const uint8_t* new, uint64_t new_length,
        FieldSet keys, int32_t root, ByteBuffer output,
    ) except -2:
        cdef const uint8_t* old_at = old if old_length else NULL
        cdef const uint8_t* new_at = new if new_length else NULL
        cdef Part old_part
        cdef Part new_part
        cdef uint32_t number
        cdef int found = 0
        cdef int of_part
        for number in range(<uint32_t>len(self.parts)):
            if not self.next_or_empty(&old_at, old + old_length, &old_part):
                return -1
            if not self.next_or_empty(&new_at, new + new_length, &new_part):
                return -1
            of_part = self.part_difference(number, &old_part, &new_part, keys, self.node_of(keys, root, number))
            if of_part < 0:
                return -1
            found |= of_part
            append_part(output, self.made.data, self.made.length)
        return found

    cdef int part_difference(
        self, uint32_t number, const Part* old, const Part* new, FieldSet keys, int32_t node
    ) except -2:
        """Write the difference of a part to `made`; nothing if there is none and no key field. -1: malformed."""
        cdef bint changed = old.length != new.length or memcmp(old.data, new.data, new.length) != 0
        cdef int found = changed
        cdef FieldSet wanted = keys
        self.made.length = 0
        if node >= 0 and keys.nodes[node].slot >= 0:
            self.made.append(new.data, new.length)
        elif not self.have_deltas[number]:
            if changed:
                self.made.append(new.data, new.length)
        elif changed or node >= 0:
            if node < 0:
                wanted = NO_KEYS
                node = 0
            found = (<Documents>self.parts[number]).difference_at(
                old.data, old.length, new.data, new.length, wanted, node, self.made
            )
            if found == 0 and wanted is NO_KEYS:
                self.made.length = 0
        return found

    cdef bint select_at(
        self,
        const uint8_t* message, uint64_t length,
        Selection selection, int32_t root, bint included, ByteBuffer output,
    ) except -1:
        cdef const uint8_t* at = message
        cdef const uint8_t* end = message + length
        cdef Part part
        cdef uint32_t number
        cdef int32_t node
        cdef bint includes
        if length == 0:
            return True
        for number in range(<uint32_t>len(self.parts)):
            if not next_part(&at, end, &part):
                return False
            node = self.node_of(selection.tree, root, number)
            includes = selection.includes(node, included)
            if node >= 0 and selection.tree.nodes[node].children:
                self.made.length = 0
                if not self.have_select_lists[number]:
                    append_part(output, NULL, 0)
                    continue
                if not (<Documents>self.parts[number]).select_at(
                    part.data, part.length, selection, node, includes, self.made
                ):
                    return False
                append_part(output, self.made.data, self.made.length)
            else:
                append_part(output, part.data, part.length if includes else 0)
        if included:
            output.append(at, <uint64_t>(end - at))
        return True


cdef FieldSet NO_KEYS = FieldSet()
